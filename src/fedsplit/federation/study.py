"""A study: one analysis, the sites that take part in it, and the terms that their owners approve.

A study is a value with one encoding, and the hash of that names it everywhere: an owner approves a
hash, masks are derived from it, and a study with any other setting is another study. It travels as
JSON, which people can read.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from fedsplit.channels.channel import Channel, Request
from fedsplit.channels.patience import Patience
from fedsplit.channels.summed import FEWEST, MOST
from fedsplit.errors import InputError
from fedsplit.version import __version__

DIALOGUE = 2
"""The version of what coordinators and sites say to each other, and of all analyses: it changes
when a question, an answer, or the order of questions does."""

LARGEST = 2**16
"""The most bytes of a study, which people read."""


class Analysis(ABC):
    """What a study computes: a frozen dataclass of plain values.

    Attributes
    ----------
    name : str
        By which a study names it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """The columns that it uses, each with its type or how else it is read."""

    @abstractmethod
    def run(
        self,
        channel: Channel,
        secure: bool,
        patience: Patience | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Any:
        """Run it over the clients that a channel reaches, and return its result.

        With secure sums what it asks must be a function of the answers alone: every site runs it
        too, on the sums so far, and answers only what it asks next.
        """

    @abstractmethod
    def check(self, study: Study) -> None:
        """Raise InputError for parameters that contradict themselves or the study."""

    @abstractmethod
    def check_request(self, study: Study, request: Request, answered: int) -> None:
        """Raise RequestError for a question that is no part of it, the first or a later one."""

    @property
    def usual(self) -> int:
        """How many questions it usually asks at most."""
        return 40

    def with_heads(self, result: Any, heads: Mapping[str, str]) -> Any:
        """A result with the last entry of each site's log, by which its owner can verify it."""
        return result

    def summary(self, result: Any) -> str:
        """A result in words, for the owners of the sites."""
        return str(result)


@dataclass(frozen=True)
class Study:
    """What owners approve or decline.

    Attributes
    ----------
    title : str
        A line for the owners.
    analysis : Analysis
    members : mapping of str to str
        The sites by name, each with its public Ed25519 key in hexadecimal digits.
    coordinator : str
        The coordinator's public key.
    secure : bool
        Whether only sums over all members are revealed, and nobody chooses the questions.
    questions : int
        The most questions that are answered. A fit by Newton's method asks about 8.
    least : int
        The fewest members with which an open study goes on; a secure one needs all.
    purpose, contact, until : str
        For the owners: why it is done, whom to ask, and the last day (YYYY-MM-DD) on which
        questions are answered; empty if it is not said.
    dialogue : int
        The version of what is asked; see ``DIALOGUE``.
    """

    title: str
    analysis: Analysis
    members: Mapping[str, str]
    coordinator: str
    secure: bool = True
    questions: int = 40
    least: int = 0
    purpose: str = ""
    contact: str = ""
    until: str = ""
    dialogue: int = DIALOGUE

    def __post_init__(self) -> None:
        for name, key in self.members.items():
            # names of sites are parts of paths: no dots, no slashes
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
                raise InputError(f"members: {name!r} is no name: use letters, digits, - and _")
            if not re.fullmatch("[0-9a-f]{64}", key):
                raise InputError(f"members: the key of {name} must be 64 hexadecimal digits")
        if not re.fullmatch("[0-9a-f]{64}", self.coordinator):
            raise InputError("coordinator: its key must be 64 hexadecimal digits")
        if len({self.coordinator, *self.members.values()}) <= len(self.members):
            raise InputError("members: two of them, or one and the coordinator, have the same key")
        if list(self.members) != sorted(self.members):
            object.__setattr__(self, "members", dict(sorted(self.members.items())))
        if not self.least:
            object.__setattr__(self, "least", len(self.members))
        if not 1 <= self.least <= len(self.members):
            raise InputError(
                f"least: {self.least} of {len(self.members)} members cannot be the fewest"
            )
        if self.questions < 1:
            raise InputError(f"questions: must be at least 1, got {self.questions}")
        if self.until and not re.fullmatch(r"\d{4}-[01]\d-[0-3]\d", self.until):
            raise InputError(f"until: must be a day as in 2027-01-31, not {self.until!r}")
        if self.secure and not FEWEST <= len(self.members) <= MOST:
            raise InputError(
                f"secure sums are for {FEWEST} to {MOST} members, not {len(self.members)}: of two "
                "each would see the other's numbers"
            )
        if self.secure and self.least < len(self.members):
            raise InputError(
                "least: secure sums are of all members; propose the study anew without one that "
                "is away"
            )
        self.analysis.check(self)
        if len(self.content) > LARGEST:
            raise InputError(
                f"it has {len(self.content)} bytes, and sites read at most {LARGEST}: shorten its "
                "texts, or merge levels"
            )

    @cached_property
    def content(self) -> bytes:
        """The one form that has a hash: JSON, sorted, without spaces, in UTF-8."""
        plain = asdict(self)
        plain["analysis"] = {"name": self.analysis.name, **plain["analysis"]}
        try:
            return json.dumps(
                plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
            ).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"a study holds plain values: {error}") from None

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of the content."""
        return sha256(self.content).digest()

    @property
    def hash(self) -> str:
        """The digest in hexadecimal digits."""
        return self.digest.hex()

    @property
    def other_dialogue(self) -> str:
        """Why this fedsplit cannot speak of it, although it can be read; empty if it can."""
        if self.dialogue == DIALOGUE:
            return ""
        return (
            f"the study speaks version {self.dialogue} of the dialogue, fedsplit {__version__} "
            f"here version {DIALOGUE}: use the fedsplit that it was proposed with"
        )


def read_study(content: bytes, known: Mapping[str, type[Analysis]]) -> Study:
    """The study in a message of any source: whatever is not a study raises InputError.

    Parameters
    ----------
    content : bytes
        In its one form.
    known : mapping of str to type
        The analyses that can be run here, by name.
    """
    if len(content) > LARGEST:
        raise InputError(f"a study of {len(content)} bytes is larger than {LARGEST}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError("a study that is not JSON") from None
    if not isinstance(found, dict) or set(found) != {each.name for each in fields(Study)}:
        raise InputError(
            f"a study with other fields than fedsplit {__version__} knows: use the version that it "
            "was proposed with"
        )

    def read_analysis(_: type, given: Any) -> Analysis:
        name = given.get("name") if isinstance(given, dict) else None
        if name not in known:
            raise ValueError(f"the analysis {str(name)[:40]!r} is not known here")
        return msgspec.convert({k: v for k, v in given.items() if k != "name"}, known[str(name)])

    try:
        study = msgspec.convert(found, Study, dec_hook=read_analysis)
    except msgspec.ValidationError as error:
        raise InputError(f"a study with a field that cannot be used ({str(error)[:200]})") from None
    except UnicodeEncodeError:
        raise InputError("a study with text that is not Unicode") from None
    if study.content != content:
        raise InputError("a study that is not in its one form")
    return study
