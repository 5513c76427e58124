"""A client's side of a study by files: questions come in, answers go out, each in its order.

The client's folder has one folder per run of a study, ``letters/RUN``: where the run is
(``state.json``), the key to which questions are sealed (``box.key``), and a readable copy of every
answer (``answer-N.txt``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fedsplit import files
from fedsplit.channels.channel import Request
from fedsplit.errors import InputError, listed
from fedsplit.fixed_point import Limbs
from fedsplit.remote.messages import Signature, content_digest, read_request, write_request
from fedsplit.sites.letters.copies import readable
from fedsplit.sites.letters.letter import (
    AnswerLetter,
    QuestionLetter,
    Received,
)
from fedsplit.sites.letters.order import State, check_order, check_rows
from fedsplit.sites.letters.post import SitePost
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.proposal import Finish, Propose
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study, read_study

if TYPE_CHECKING:
    from fedsplit.remote.keys import PrivateKey


class Correspondence:
    """The questions and answers of one run of a study at a client.

    Parameters
    ----------
    folder : Path
        Of the client's state.
    name : str
        Of the client.
    letter : QuestionLetter
        The question that has come.
    received : Received
        Its file.
    key : PrivateKey or None
        The client's own key; None without keys.

    Attributes
    ----------
    messages : list of bytes
        What is asked.
    again : bool
        Whether the same question was answered before.

    Raises
    ------
    InputError
        If the question is not for this client, or not the next one.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        letter: QuestionLetter,
        received: Received,
        key: PrivateKey | None,
    ) -> None:
        self.folder = folder / "letters" / letter.run
        self._studies = Studies(folder)
        self._name = name
        self._letter = letter
        self._digest = received.digest
        self._state = self._read_state()
        self.again = letter.number == self._state.number
        check_order(letter, received.digest, name, self._state)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._post = SitePost(self.folder / "box.key", key)
        self.messages = self._post.messages(letter, name)
        self._rows = ""
        _check_messages(letter, self.messages)

    @property
    def number(self) -> int:
        """Of the question."""
        return self._letter.number

    @property
    def study(self) -> str:
        """The hash of the study."""
        return self._letter.hash

    @property
    def proposes(self) -> bool:
        """Whether the first message proposes the study."""
        return self.messages[0].startswith(Propose.name().encode() + b"\n")

    def proposal(self, signature: Signature) -> bytes:
        """A message that proposes the study, as the coordinator has signed it."""
        return write_request(Request(Propose(self._letter.study.decode(), signature)))

    def result(self) -> str:
        """The result that the last question brings."""
        question = read_request(self.messages[0], ALLOWED).question
        assert isinstance(question, Finish)  # as the coordinator writes the last question
        return question.summary

    @cached_property
    def _about(self) -> Study:
        """The study itself."""
        return read_study(self._letter.study, ALLOWED)

    def check_columns(self, columns: Collection[str]) -> None:
        """Raise InputError if a client lacks columns of the study: it would cost a round of files.

        Parameters
        ----------
        columns : collection of str
            Those that it has; none if its file is empty, which a study may allow.
        """
        absent = [column for column in self._about.columns if column not in columns]
        allowed = not columns and self._about.options["empty_site"] != "refuse"
        if absent and not allowed and not self._letter.last:
            raise InputError(
                f"the rows of {self._name} have no column {listed(absent)}, which the study uses"
            )

    def use_rows(self, rows: str) -> None:
        """Take note of the file that answers; raises InputError if answers came from another one.

        Parameters
        ----------
        rows : str
            The SHA-256 of the file; empty if it may change.
        """
        check_rows(rows, self.again, self._state)
        if not (self.proposes and len(self.messages) == 1):
            self._rows = rows

    @property
    def copy(self) -> Path:
        """Where the readable copy of the answer is."""
        return self.folder / f"answer-{self._letter.number}.txt"

    def answer(self, replies: list[bytes]) -> bytes:
        """The file with the answer; a copy is kept, and the question counts as answered."""
        letter = AnswerLetter(
            hash=self._letter.hash,
            run=self._letter.run,
            number=self._letter.number,
            question=self._digest,
            name=self._name,
            box=self._post.public,
            content=b"",
        )
        content, digest = self._post.answer(letter, replies, self._letter.box)
        copy = readable(letter, self.messages, replies, self._unmasked)
        files.write_private(self.copy, copy)
        self._keep([digest])
        return content

    def _unmasked(self, request: Request, masked: Limbs) -> Limbs:
        """What this client adds to a secure sum, before it is masked."""
        from fedsplit.sites.secure.participation import SecureStudy  # needs cryptography

        step = request.step
        assert step is not None  # it is masked
        folder = self._studies.path(self.study)
        site = SecureStudy(folder, self.study, self._about.members, self._name)
        return site.unmasked(step.number, step.members, content_digest(request), masked)

    def close(self) -> None:
        """Take note of a question that needs no answer."""
        self._keep([])

    def _keep(self, answers: list[str]) -> None:
        before = self._state.rows
        if self.again:
            answers = [*self._state.answers, *answers]
            before = self._state.before
        rows = self._rows or before
        self._state = State(self._letter.number, self._digest, answers, rows, before)
        files.write_private(self.folder / "state.json", msgspec.json.encode(self._state))

    def _read_state(self) -> State:
        path = self.folder / "state.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=State)
        except FileNotFoundError:
            return State()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(f"{path}: is damaged: restore it from a copy") from None


def _check_messages(letter: QuestionLetter, messages: Sequence[bytes]) -> None:
    """Raise InputError unless the messages in a question are about its study."""
    for message in messages:
        request = read_request(message, ALLOWED)
        about = request.study
        if isinstance(request.question, Propose):
            about = hashlib.sha256(request.question.study.encode()).hexdigest()
        if about != letter.hash:
            raise InputError(f"question {letter.number} asks about another study than its own")
        if isinstance(request.question, Finish) != letter.last:
            raise InputError(f"question {letter.number} is a result and a question at once")
    if not messages:
        raise InputError(f"question {letter.number} asks nothing")
