"""What a site has answered in a study with noise: on disk before it is sent.

Noise that is drawn anew whenever a question is repeated averages out. So a site answers each
question of the study once: asked again it sends the same numbers, and another point in the place of
one that was answered is refused. That is the budget of the study, and it outlives the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fedsplit import files
from fedsplit.channels import codec
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.questions import NoisySums
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study

LOST = (
    "the record of what it has answered with noise is lost or damaged, so that the study ends "
    "here: propose another one"
)


class Kept(NamedTuple):
    """An answer.

    Attributes
    ----------
    digest : str
        The SHA-256 of the question.
    answer : str
        In hexadecimal digits, as it is encoded.
    """

    digest: str
    answer: str


class NoiseLedger:
    """The answers of one study, a file each.

    Parameters
    ----------
    folder : Path
        Of the study.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "noise"
        self._begun = folder / "begun"
        # the numbers of all answers, in another place than these
        self._drawn = folder / "drawn"

    def answer(self, question: NoisySums, kind: Any, compute: Callable[[], Any]) -> Any:
        """What is sent: what was sent before, or something new.

        Parameters
        ----------
        question : NoisySums
        kind : type
            Of the answer.
        compute : callable
            Called only if the question was not answered before.

        Raises
        ------
        RequestError
            For a question before its turn, or another one than was answered.
        """
        number = question.number
        digest = hashlib.sha256(codec.encode(question)).hexdigest()
        if self._path(number).exists():
            if self._kept(number).digest != digest:
                raise RequestError(
                    f"question {number} of the study was answered before, about another point"
                )
            return self.kept(number, kind)
        if str(number) in files.recover_lines(self._drawn):
            raise RequestError(LOST)
        if number == 1 and self._begun.exists():
            raise RequestError(LOST)
        if number > 1 and not self._path(number - 1).exists():
            raise RequestError(f"question {number} of the study is not the next one")
        value = compute()
        kept = Kept(digest, codec.encode(value).hex())
        self._folder.mkdir(mode=0o700, exist_ok=True)
        files.write_private(self._path(number), codec.encode(kept))
        files.append_line(self._drawn, str(number))
        return value

    def kept(self, number: int, kind: Any) -> Any:
        """The answer to a question, by its number."""
        return codec.decode(kind, bytes.fromhex(self._kept(number).answer))

    def _kept(self, number: int) -> Kept:
        try:
            kept: Kept = codec.decode(Kept, self._path(number).read_bytes())
        except (FileNotFoundError, InputError):
            raise RequestError(LOST) from None
        return kept

    def _path(self, number: int) -> Path:
        return self._folder / str(number)


def ledger_of(studies: Path, name: str) -> NoiseLedger:
    """The answers of a study, by its hash, in the folder of all studies."""
    return NoiseLedger(studies / name)


class Spent(NamedTuple):
    """What several studies with noise promise together.

    Attributes
    ----------
    epsilon, delta : float
    """

    epsilon: float = 0.0
    delta: float = 0.0

    def __str__(self) -> str:
        return f"ε {self.epsilon:g} and δ {self.delta:g}"


NOTHING = Spent()


def overspent(studies: Studies, study: Study, rules: Rules) -> str:
    """The rule that a study with noise would break together with all others; empty if none."""
    if study.privacy is None or not rules.limits_noise:
        return ""
    before = spent(studies, study)
    epsilon, delta = before.epsilon + study.privacy.epsilon, before.delta + study.privacy.delta
    if rules.epsilon is not None and epsilon > rules.epsilon:
        return f"privacy_epsilon: {before.epsilon:g} of {rules.epsilon:g} is spent"
    if delta > rules.delta:
        return f"privacy_delta: {before.delta:g} of {rules.delta:g} is spent"
    return ""


def spent(studies: Studies, study: Study) -> Spent:
    """ε and δ of all other studies with noise that have begun."""
    total = NOTHING
    for name in studies.hashes():
        folder = studies.path(name)
        if name == study.hash or not (folder / "begun").exists():
            continue
        earlier = msgspec.json.decode((folder / "study.json").read_bytes(), type=Study)
        if earlier.privacy is not None:
            privacy = earlier.privacy
            total = Spent(total.epsilon + privacy.epsilon, total.delta + privacy.delta)
    return total
