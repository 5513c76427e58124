"""The studies that were proposed to a client, and what its owner decided, kept in its folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from fedsplit import files
from fedsplit.errors import InputError, RequestError
from fedsplit.remote.messages import Signature
from fedsplit.sites.studies.hashes import short

MOST_PENDING = 20
"""So many studies wait for the owner; more are refused."""

MOST_DECLINED = 100
"""So many that were declined by a rule are kept, the latest."""

RULE = "rule"
"""Who declined a study that the rules do not allow."""

Verdict = Literal["approved", "declined"]
State = Literal["approved", "pending", "declined"]


class Decided(NamedTuple):
    """What an owner decided about a study.

    Attributes
    ----------
    verdict : Verdict
    by : str
        How: at the terminal, by a command, by an option or by a rule.
    time : str
        When, in UTC.
    reason : str
    """

    verdict: Verdict
    by: str
    time: str
    reason: str = ""


class Studies:
    """A folder with one folder per study, readable for the owner alone.

    Each holds the study (``study.json``), who signed it (``signature.json``), what it means here in
    words (``words.txt``), the decision
    (``decision.json``), when it began (``begun``), and which questions of it were asked
    (``asked``). The client's process writes all but the decision, which anybody may make who may
    write to the folder.

    Parameters
    ----------
    folder : Path
        Of the client.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "studies"

    def path(self, name: str) -> Path:
        """The folder of the study with this hash."""
        return self.folder / name

    def hashes(self) -> list[str]:
        """Of all studies, the latest first."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if (path / "study.json").is_file()]
        found.sort(key=lambda path: (path / "study.json").stat().st_mtime, reverse=True)
        return [path.name for path in found]

    def pending(self) -> list[str]:
        """The hashes of the studies that wait for a decision, and can be read."""
        waiting = [name for name in self.hashes() if self.decided(name) is None]
        return [name for name in waiting if (self.path(name) / "words.txt").is_file()]

    def find(self, beginning: str) -> str:
        """The whole hash of a study, from its beginning."""
        found = [name for name in self.hashes() if name.startswith(beginning)]
        if len(found) != 1:
            what = f"{len(found)} studies have" if found else "no study has"
            raise InputError(
                f"{self.folder}: {what} a hash that begins with {short(beginning)}: "
                "fedsplit approve lists them"
            )
        return found[0]

    def keep(self, name: str, study: bytes, signature: Signature) -> None:
        """Keep a study, in its canonical form, that is proposed for the first time."""
        decisions = {each: self.decided(each) for each in self.hashes()}
        if list(decisions.values()).count(None) >= MOST_PENDING:
            raise RequestError(f"{MOST_PENDING} studies wait for its owner to decide")
        # What a person decided is never forgotten: a rule decides the same again.
        declined = [each for each, decided in decisions.items() if decided and decided.by == RULE]
        for each in declined[MOST_DECLINED:]:
            shutil.rmtree(self.path(each), ignore_errors=True)
        folder = self.path(name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_private(folder / "signature.json", json.dumps(signature._asdict()))
        files.write_private(folder / "study.json", study)

    def signature(self, name: str) -> Signature:
        """Who signed a study."""
        path = self.path(name) / "signature.json"
        return Signature(**json.loads(path.read_text(encoding="utf-8")))

    def describe(self, name: str, words: str) -> None:
        """Keep what a study means here."""
        files.write_private(self.path(name) / "words.txt", words)

    def words(self, name: str) -> str:
        """A study in words."""
        return (self.path(name) / "words.txt").read_text(encoding="utf-8")

    def state(self, name: str) -> State:
        """Whether a study is approved, declined or pending."""
        decided = self.decided(name)
        if decided is None:
            return "pending"
        return decided.verdict

    def decided(self, name: str) -> Decided | None:
        """The decision about a study, if there is one."""
        path = self.path(name) / "decision.json"
        try:
            found = Decided(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise InputError(f"{path}: cannot be read; delete it, and decide again") from None
        if found.verdict not in get_args(Verdict):
            raise InputError(f"{path}: cannot be read; delete it, and decide again")
        return found

    def decide(self, name: str, verdict: str, by: str, reason: str = "") -> None:
        """Approve or decline a study, or take back what was decided before."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        decided = Decided(cast(Verdict, verdict), by, now, reason)
        with _as_owner(self.path(name)):
            files.write_private(self.path(name) / "decision.json", json.dumps(decided._asdict()))

    def begin(self, name: str, day: str, most: int | None) -> bool:
        """Note on which day a study was first asked about, unless others were on that day.

        Parameters
        ----------
        name : str
            The hash of the study.
        day : str
        most : int or None
            How many studies may begin on one day.

        Returns
        -------
        bool
            Whether it has begun.
        """
        path = self.path(name) / "begun"
        if path.exists():
            return True
        days = [self.path(each) / "begun" for each in self.hashes()]
        begun = sum(each.exists() and each.read_text(encoding="ascii") == day for each in days)
        if most is not None and begun >= most:
            return False
        files.write_private(path, day)
        return True


@contextmanager
def _as_owner(folder: Path) -> Iterator[None]:
    """Act as the owner of a folder, where root decides for a client's user.

    Root's own rights would let whoever has the folder lead a write elsewhere by a link.
    """
    owner = folder.stat()
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group = os.getegid()
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
