"""The coordinator's side of a study by files: answers come in, the next question goes out."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from fedsplit import files
from fedsplit.channels.channel import Channel, Reply
from fedsplit.channels.members import Patience
from fedsplit.clients.question import Question
from fedsplit.errors import InputError, listed
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.table import pooled_summary
from fedsplit.remote.messages import Signature, read_reply, write_reply
from fedsplit.sites.letters.arrivals import check_readable, read_answer
from fedsplit.sites.letters.letter import AnswerLetter, QuestionLetter, read_letter
from fedsplit.sites.letters.post import CoordinatorPost
from fedsplit.sites.letters.study_folder import Run, StudyFolder
from fedsplit.sites.letters.transport import LetterChannel, LetterTransport, Round, Waiting
from fedsplit.sites.secure.protocol import Standing
from fedsplit.sites.service import ALLOWED
from fedsplit.sites.studies.key_exchange import KeyExchange
from fedsplit.sites.studies.proposal import Decision, Finish, Propose, ShareKeys
from fedsplit.sites.studies.proposing import Proposal
from fedsplit.sites.studies.study import Study, read_study
from fedsplit.version import __version__


def new_run(
    clients: Sequence[str], model: Mapping[str, Any], least: int | None, keys: Path | None
) -> Run:
    """A run of a study that has not begun; the parameters are the attributes of ``Run``."""
    where = None
    if keys is not None:
        where = str(keys.absolute())
    return Run(__version__, secrets.token_hex(16), list(clients), model, least, where)


class Coordinator:
    """A study by files, as its coordinator runs it.

    Parameters
    ----------
    folder : StudyFolder
        With a study in it.

    Attributes
    ----------
    run : Run
    study : Study
    """

    def __init__(self, folder: StudyFolder) -> None:
        self.folder = folder
        self.run = folder.run()
        if self.run.version != __version__:
            raise InputError(
                f"{folder.path}: the study was begun with fedsplit {self.run.version}, this is "
                f"{__version__}: continue it with that version"
            )
        folder.check()
        self.study = read_study(folder.study.read_bytes(), ALLOWED)
        self._signature = folder.signature()
        keys = None
        if self.run.keys is not None:
            keys = Path(self.run.keys)
        self._post = CoordinatorPost(folder.box, keys)
        # The messages with the result, by client.
        self._result: Mapping[str, list[bytes]] = {}

    @classmethod
    def begin(
        cls, folder: StudyFolder, run: Run, study: Study, signature: Signature
    ) -> Coordinator:
        """Begin a study in a folder."""
        folder.begin(run, study.canonical, signature)
        return cls(folder)

    def accept(self, paths: Sequence[Path]) -> list[str]:
        """Take answers to the last question; all of them, or none if one cannot be used.

        Returns
        -------
        list of str
            The clients whose earlier answer was replaced.
        """
        number = self.folder.number
        arrived: dict[str, Path] = {}
        contents: dict[str, bytes] = {}
        for path in paths:
            letter, received = read_answer(path, self.folder, self.study)
            name = letter.name
            if name in arrived:
                raise InputError(
                    f"{path}: is a second answer of {name}, beside {arrived[name]}: leave one of "
                    "them out"
                )
            check_readable(
                path, letter, self.folder.asked(number)[name], self._replies(path, letter)
            )
            arrived[name] = path
            contents[name] = received.file
        replaced = []
        for name, content in contents.items():
            kept = self.folder.answer(number, name)
            if kept.exists() and kept.read_bytes() != content:
                replaced.append(name)
            files.write_private(kept, content)
        return replaced

    @contextmanager
    def leaving_out(self, names: Collection[str]) -> Iterator[None]:
        """Go on without clients that have not answered the last question.

        If the run cannot, they are waited for as before.
        """
        number = self.folder.number
        before = self.folder.left_out(number)
        for name in names:
            if name not in self.folder.missing(number):
                raise InputError(f"--without {name}: no answer of a client {name} is waited for")
        left = len(self.folder.asked(number)) - len({*names, *before})
        if names and (number == 1 or left < self.study.least):
            raise InputError(
                f"--without {listed(names)}: the study goes on with {self.study.least} of its "
                "clients at least (--min-clients), once all of them have answered question 1"
            )
        for name in names:
            if self.study.secure and not self._may_be_removed(name):
                raise InputError(
                    f"--without {name}: its owner has not allowed that secure sums go on without it"
                )
        self.folder.leave_out(number, before | set(names))
        try:
            yield
        except BaseException:
            self.folder.leave_out(number, before)
            raise

    def _may_be_removed(self, name: str) -> bool:
        """Whether the owner of a client allows that secure sums go on without it."""
        replies = self._replies(self.folder.answer(1, name), self.folder.answers(1)[name])
        decision: Decision = read_reply(replies[0], Decision, 0.0).value
        return decision.letter is not None and decision.letter.removal

    def advance(self) -> Model | None:
        """Run the fit from all answers: write the next question, or return the model.

        Raises
        ------
        InputError, TooFewClients
            If a client refuses to answer, or has declined the study: its answer can be replaced.
        """
        number = self.folder.number
        transport = LetterTransport(self._rounds(number), _assumed(self.study))
        proposal = Proposal(transport, self.study, self._signature)
        patience = Patience(min_clients=self.run.least)
        options = FitOptions(None, **self.run.model, patience=patience)
        try:
            proposal.wait(self.run.clients, lambda known, unanswered: None, _undecided)
            channel: Channel = LetterChannel(transport, self.run.clients, self.study.hash)
            if self.study.secure:
                keys = KeyExchange(None, self.study)
                keys.take(proposal.decisions)
                keys.share(transport, self.run.clients)
                channel = keys.channel(channel, patience)
            model = fit_over(channel, options)
        except Waiting:
            self._write(self.folder.question(number + 1), number + 1, transport.asked)
            return None
        members = [name for name in self.run.clients if name not in model.removed]
        complete = model.settings.dp is not None or model.converged
        proposal.finish(members, complete, pooled_summary(model))
        self._result = transport.asked
        return model

    def finish(self) -> None:
        """Write the result for the clients, once the model is written."""
        self._write(self.folder.result, self.folder.number + 1, self._result, last=True)

    def _rounds(self, number: int) -> list[Round]:
        """The questions up to a number, and their answers."""
        rounds = []
        for each in range(1, number + 1):
            replies = {
                name: self._replies(self.folder.answer(each, name), letter)
                for name, letter in self.folder.answers(each).items()
            }
            rounds.append(Round(self.folder.asked(each), replies, self.folder.left_out(each)))
        return rounds

    def _replies(self, path: Path, letter: AnswerLetter) -> list[bytes]:
        """The replies in an answer."""
        try:
            replies = self._post.replies(letter)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if not 1 <= len(replies) <= len(self.folder.asked(letter.number)[letter.name]):
            raise InputError(f"{path}: has more replies than there were questions, or none")
        return replies

    def _write(
        self, path: Path, number: int, asked: Mapping[str, list[bytes]], last: bool = False
    ) -> None:
        """Write a question."""
        previous = ""
        boxes: dict[str, str] = {}
        if number > 1:
            previous = read_letter(self.folder.question(number - 1), QuestionLetter)[1].digest
        for each in range(1, number):
            boxes |= {name: letter.box for name, letter in self.folder.answers(each).items()}
        letter = QuestionLetter(
            study=self.study.canonical,
            run=self.run.run,
            number=number,
            previous=previous,
            taken=self.folder.taken(number - 1),
            box=self._post.public,
            parts={},
            last=last,
        )
        content = self._post.question(letter, asked, boxes)
        self.folder.keep_question(path, number, msgspec.msgpack.encode(asked), content)


def _assumed(study: Study) -> dict[str, bytes]:
    """Replies that are known in advance, by kind of message."""
    known: dict[type[Question], Any] = {Finish: True}
    if study.secure:  # an approval brings a key
        known[ShareKeys] = Standing(0, tuple(sorted(study.members)))
    else:
        known[Propose] = Decision(study.hash, "approved")
    return {
        question.name(): write_reply(Reply("answer", value)) for question, value in known.items()
    }


def _undecided() -> None:
    raise InputError("an answer does not say whether its owner has approved the study")
