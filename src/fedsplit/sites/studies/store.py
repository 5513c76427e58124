"""The studies that were proposed to a client, and what its owner decided, kept in its folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec

from fedsplit import files
from fedsplit.errors import InputError, RequestError, StateError
from fedsplit.remote.messages import Signature
from fedsplit.sites.studies.hashes import short

MOST_PENDING = 20
"""So many studies wait for the owner; more are refused."""

MOST_DECLINED = 100
"""So many that were declined by a rule are kept, the latest."""

RULE = "rule"
"""Who declined a study that the rules do not allow."""

APPROVED_DAYS = 30
"""An approval ends with the study's result, and after so many days at the latest."""

Verdict = Literal["approved", "declined", "ended", "unreadable"]
State = Literal["approved", "pending", "declined"]


@dataclass(frozen=True)
class Decided:
    """What an owner decided about a study.

    Attributes
    ----------
    verdict : Verdict
        ``"ended"`` once the study has a result, and ``"unreadable"`` if the file of the decision is
        damaged.
    by : str
        How: at the terminal, by a command, by an option or by a rule.
    time : datetime
        When, in UTC.
    reason : str
        Why, as the server is told.
    details : str
        Why, for the owner alone.
    removal : bool
        Whether a study with secure sums may go on without this client.
    """

    verdict: Verdict
    by: str
    time: Annotated[datetime, msgspec.Meta(tz=True)]
    reason: str = ""
    details: str = ""
    removal: bool = False

    @property
    def over(self) -> bool:
        """Whether it was an approval that holds no longer."""
        if self.verdict != "approved":
            return self.verdict == "ended"
        return datetime.now(UTC) - self.time > timedelta(days=APPROVED_DAYS)


class Studies:
    """A folder with one folder per study, readable for the owner alone.

    Each holds the study (``study.json``), who signed it (``signature.json``), what it means here in
    words (``words.txt``) and whom it exposes (``exposed.json``), the decision (``decision.json``),
    when it began (``begun``), and which questions of it were asked (``asked``). The client's
    process writes all but the decision, which anybody may make who may write to the folder.

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
        waiting = [name for name in self.hashes() if self.undecided(name)]
        return [name for name in waiting if (self.path(name) / "words.txt").is_file()]

    def undecided(self, name: str) -> bool:
        """Whether the owner has to decide about a study, or to decide again."""
        decided = self.decided(name)
        return decided is None or decided.verdict == "unreadable"

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
        if sum(map(self.undecided, decisions)) >= MOST_PENDING:
            raise RequestError(f"{MOST_PENDING} studies wait for its owner to decide")
        # What a person decided is never forgotten, nor what was answered: a rule decides the same
        # again.
        declined = [
            each
            for each, decided in decisions.items()
            if decided and decided.by == RULE and not (self.path(each) / "begun").exists()
        ]
        for each in declined[MOST_DECLINED:]:
            shutil.rmtree(self.path(each), ignore_errors=True)
        folder = self.path(name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_private(folder / "signature.json", json.dumps(signature._asdict()))
        files.write_private(folder / "study.json", study)

    def signature(self, name: str) -> Signature:
        """Who signed a study."""
        path = self.path(name) / "signature.json"
        try:
            return Signature(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise StateError(f"{path}: cannot be read; delete the folder of the study") from None

    def describe(self, name: str, words: str) -> None:
        """Keep what a study means here."""
        files.write_private(self.path(name) / "words.txt", words)

    def accept(self, name: str, groups: Sequence[tuple[str, ...]]) -> None:
        """Keep which clients a study exposes, as its words say."""
        files.write_private(self.path(name) / "exposed.json", msgspec.json.encode(groups))

    def accepted(self, name: str) -> list[tuple[str, ...]]:
        """The clients that a study exposes, as its owner could read."""
        path = self.path(name) / "exposed.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=list[tuple[str, ...]])
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return []

    def words(self, name: str) -> str:
        """A study in words."""
        return (self.path(name) / "words.txt").read_text(encoding="utf-8")

    def described(self, name: str) -> int:
        """When the words were written, in nanoseconds: each process that is asked does so once."""
        return (self.path(name) / "words.txt").stat().st_mtime_ns

    def state(self, name: str) -> State:
        """Whether a study is approved, declined or pending."""
        decided = self.decided(name)
        if decided is None or decided.over or decided.verdict == "unreadable":
            return "pending"
        return cast(State, decided.verdict)

    def decided(self, name: str) -> Decided | None:
        """The decision about a study, if there is one."""
        path = self.path(name) / "decision.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Decided)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            # It may have been a no: only its owner can make a yes of it.
            return Decided("unreadable", "", datetime.now(UTC))

    def decide(
        self,
        name: str,
        verdict: Verdict,
        by: str,
        reason: str = "",
        details: str = "",
        removal: bool = False,
    ) -> None:
        """Approve or decline a study, or take back what was decided before.

        Parameters
        ----------
        name : str
            The hash of the study.
        verdict : Verdict
        by, reason, details, removal
            As in ``Decided``.
        """
        now = datetime.now(UTC).replace(microsecond=0)
        decided = Decided(verdict, by, now, reason, details, removal)
        with files.as_owner_of(self.folder.parent):
            files.write_private(self.path(name) / "decision.json", msgspec.json.encode(decided))

    def end(self, name: str) -> None:
        """End an approval, since the study has its result."""
        if self.state(name) == "approved":
            self.decide(name, "ended", "result")

    def reopen(self, name: str) -> None:
        """Let a study that has ended wait for another decision."""
        (self.path(name) / "decision.json").unlink(missing_ok=True)

    def may_begin(self, name: str, day: str, most: int | None) -> bool:
        """Whether a study has begun, or may on this day: on one day at most ``most`` studies do."""
        if most is None or (self.path(name) / "begun").exists():
            return True
        days = [self.path(each) / "begun" for each in self.hashes()]
        begun = sum(each.exists() and each.read_text(encoding="utf-8") >= day for each in days)
        return begun < most

    def begin(self, name: str, day: str) -> None:
        """Note on which day the first question of a study was answered."""
        path = self.path(name) / "begun"
        if not path.exists():
            files.write_private(path, day)
