"""The folder of a study by files at its coordinator: options, questions, and a journal of answers.

==========================  =======================================================================
``run.json``                options, clients and keys
``box.key``                 the private key to which answers are sealed; none without keys
``study.json``              the study
``signature.json``          of the study, by the coordinator
``question-N.fedsplit``     the questions
``journal/N/asked``         the messages in question N, which is sealed
``journal/N/NAME.fedsplit`` the answer of a client to question N
``journal/N/left_out``      clients that were not waited for
``result.fedsplit``         the result, for the clients
==========================  =======================================================================

Every question has the hashes of the question before and of the answers to it, so that a changed
file is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.remote.messages import Signature
from fedsplit.sites.letters.letter import (
    SUFFIX,
    AnswerLetter,
    QuestionLetter,
    Taken,
    read_letter,
)

RUN = "run.json"

SIGNATURE = "signature.json"

LOCK = "lock"


@dataclass(frozen=True)
class Run:
    """What a run of a study is made of.

    Attributes
    ----------
    version : str
        Of the fedsplit that began it; no other continues it.
    run : str
        Identifies it.
    clients : sequence of str
    model : mapping
        The options of the model, as the command takes them.
    least : int or None
        The fewest clients with which it continues; None is all of them.
    keys : str or None
        The folder of the federation's keys.
    """

    version: str
    run: str
    clients: Sequence[str]
    model: Mapping[str, Any]
    least: int | None
    keys: str | None


class StudyFolder:
    """Where a study by files is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def begun(self) -> bool:
        """Whether there is a study in it."""
        return (self.path / RUN).exists()

    def check_free(self) -> None:
        """Raise InputError if the folder holds something else."""
        files.check_writable(self.path)
        own = (LOCK, self.study.name, SIGNATURE)
        if self.path.exists() and any(each.name not in own for each in self.path.iterdir()):
            raise InputError(f"{self.path}: is not empty: name another folder for a new study")

    def begin(self, run: Run, study: bytes, signature: Signature) -> None:
        """Keep a new study, in its canonical form, and its options."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(self.study, study)
        files.write(self.path / SIGNATURE, msgspec.json.encode(signature))
        files.write_private(self.path / RUN, msgspec.json.format(msgspec.json.encode(run)))

    def run(self) -> Run:
        """The options of the study."""
        path = self.path / RUN
        try:
            return msgspec.json.decode(path.read_bytes(), type=Run)
        except FileNotFoundError:
            raise InputError(f"{self.path}: holds no study; fedsplit ask makes one") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(f"{path}: is damaged: restore it from a copy") from None

    @property
    def study(self) -> Path:
        """The study."""
        return self.path / "study.json"

    def signature(self) -> Signature:
        """Of the study, by the coordinator."""
        path = self.path / SIGNATURE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Signature)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(f"{path}: is damaged: restore it from a copy") from None

    @property
    def box(self) -> Path:
        """The private key to which answers are sealed."""
        return self.path / "box.key"

    @property
    def result(self) -> Path:
        """The result, for the clients; there once the study is done."""
        return self.path / f"result{SUFFIX}"

    @property
    def number(self) -> int:
        """Of the last question; 0 before the first."""
        number = 0
        while self.question(number + 1).exists():
            number += 1
        return number

    def question(self, number: int) -> Path:
        """The file of a question."""
        return self.path / f"question-{number}{SUFFIX}"

    def keep_question(self, path: Path, number: int, asked: bytes, content: bytes) -> None:
        """Write a question, beside the messages in it.

        Parameters
        ----------
        path : Path
            Of the file.
        number : int
        asked : bytes
            The messages.
        content : bytes
            Of the file.
        """
        within = self.path / "journal" / str(number)
        within.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_private(within / "asked", asked)
        # It may be on its way to the clients after this, and would be another one if written again.
        files.write_durably(path, content)

    def asked(self, number: int) -> dict[str, list[bytes]]:
        """By client, the messages in a question."""
        path = self.path / "journal" / str(number) / "asked"
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, list[bytes]])
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(f"{path}: is missing or damaged: restore it from a copy") from None

    def answer(self, number: int, name: str) -> Path:
        """The file of a client's answer."""
        return self.path / "journal" / str(number) / f"{name}{SUFFIX}"

    def left_out(self, number: int) -> frozenset[str]:
        """The clients whose answers were not waited for."""
        path = self.path / "journal" / str(number) / "left_out"
        if not path.exists():
            return frozenset()
        return frozenset(path.read_text(encoding="utf-8").split())

    def leave_out(self, number: int, names: Collection[str]) -> None:
        """Do not wait for the answers of these clients, and no others."""
        path = self.path / "journal" / str(number) / "left_out"
        path.unlink(missing_ok=True)
        if names:
            files.write_private(path, "\n".join(sorted(names)))

    def missing(self, number: int) -> list[str]:
        """The clients whose answer to a question is waited for."""
        waited_for = set(self.asked(number)) - self.left_out(number)
        return sorted(name for name in waited_for if not self.answer(number, name).exists())

    def taken(self, number: int) -> dict[str, Taken]:
        """By client, its answer that came last, up to a question."""
        found: dict[str, Taken] = {}
        for each in range(1, number + 1):
            for name in self.asked(each):
                path = self.answer(each, name)
                if path.exists() and name not in self.left_out(each):
                    _, received = read_letter(path, AnswerLetter)
                    found[name] = Taken(each, received.digest)
        return found

    def answers(self, number: int) -> dict[str, AnswerLetter]:
        """By client, its answer to a question."""
        names = sorted(set(self.asked(number)) - self.left_out(number))
        return {name: read_letter(self.answer(number, name), AnswerLetter)[0] for name in names}

    def check(self) -> None:
        """Raise InputError if a question or answer has changed since it was used."""
        previous = ""
        for number in range(1, self.number + 1):
            path = self.question(number)
            question, received = read_letter(path, QuestionLetter)
            if question.number != number:
                raise InputError(f"{path}: is not question {number}: restore it")
            if question.previous != previous:
                raise InputError(
                    f"{self.question(number - 1)}: was changed since question {number} was "
                    "written: restore it"
                )
            for name, taken in self.taken(number - 1).items():
                if question.taken.get(name) != taken:
                    raise InputError(
                        f"{self.answer(taken.number, name)}: was changed since it was combined: "
                        "restore it"
                    )
            previous = received.digest
