"""Checkpoints: what the clients answered, kept on disk, so that an interrupted run goes on with the same bits.

Methods draw on nothing but the clients' answers: from the same answers they come to the same state and ask the same
questions. So a resumed run starts from its beginning, hears the old answers from the folder without asking anybody, and
goes on from there. That holds for every method, in the handshake, in the rounds and in a proof, and on every engine.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsplit import files
from fedsplit.checks import count
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError, TooFewClients
from fedsplit.remote import codec
from fedsplit.remote.channel import SILENT, Channel, Question, Reply, other_data, same_data
from fedsplit.remote.clients import RemoteClients, in_process
from fedsplit.remote.log import Heard, Record, Records, sha256
from fedsplit.version import __version__

FORMAT = 1
"""Of the files: a reader of another one refuses them."""

HEADER, ANSWERS = "checkpoint.json", "answers"

LARGEST = 2**36
"""The most bytes of one record."""


class Checkpoint:
    """A folder that keeps a run.

    Pass it to ``solve`` as one of its callbacks, or to ``fit`` as ``checkpoint``. Records are appended, each with a
    checksum; the last one is left out if it is not whole. The folder then holds what the server has seen: treat it as
    such.

    Parameters
    ----------
    folder : path
        Where to write. It is made where it does not exist.
    every : int
        Write after so many rounds; what is lost with the process is less than that.
    resume : bool
        Go on with the run that is in the folder. Without it, a folder that holds one is refused.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, every: int = 1, resume: bool = False
    ) -> None:
        self.folder, self.every, self.resume = Path(folder), count("every", every), bool(resume)
        if resume and not (self.folder / HEADER).is_file():
            raise InputError(
                f"{self.folder}: there is no checkpoint here to resume, start without it"
            )
        if not resume and (self.folder / HEADER).exists():
            raise self._taken

    def over(self, channel: Channel, about: Mapping[str, Any]) -> Journal:
        """The channel with this folder in front of it; ``about`` says which run this is, as JSON can hold it."""
        plain = json.loads(json.dumps(about, default=lambda value: value.tolist()))  # numpy's
        header = {"format": FORMAT, "version": __version__, "run": plain}
        if not self.resume:
            files.check_writable(self.folder)
        elif not (self.folder / ANSWERS).is_file():
            raise InputError(f"{self.folder / ANSWERS}: is missing: start anew in another folder")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Journal(channel, self._opened(header), self.every)
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be used ({error.strerror}): make it writable, or choose another folder"
            ) from None

    def _opened(self, header: Mapping[str, Any]) -> Records:
        """The records of this run, those of before where it is resumed; nobody else has them while they are open."""
        records = Records(self.folder / ANSWERS)
        try:
            if self.resume:
                self._check(header)
                records.load()
            elif (self.folder / HEADER).exists():  # of a run that began since this object was made
                raise self._taken
            else:
                records.clear()
                files.write(self.folder / HEADER, json.dumps(header, indent=2))
        except BaseException:
            records.close()
            raise
        return records

    @property
    def _taken(self) -> InputError:
        return InputError(
            f"{self.folder}: there is a checkpoint here: resume it, or name another folder"
        )

    @property
    def begun(self) -> bool:
        """Whether there is something to resume."""
        return (self.folder / HEADER).is_file()

    def discard(self) -> None:
        """Remove what is in the folder, where the run is done, or there is nothing to go on from."""
        for name in (HEADER, ANSWERS):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # it holds something else
            self.folder.rmdir()

    def about(self) -> dict[str, Any]:
        """What was said of the run that is in the folder."""
        return self._header()[2]

    def _header(self) -> tuple[Any, Any, dict[str, Any]]:
        """Format, version and run."""
        path = self.folder / HEADER
        try:
            header = json.loads(path.read_text(encoding="utf-8"))
            return header["format"], header["version"], dict(header["run"])
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"{path}: this is no checkpoint, or a damaged one: start anew in another folder"
            ) from None

    def _check(self, expected: Mapping[str, Any]) -> None:
        """Refuse the checkpoint of another run, format or version."""
        path, found = self.folder / HEADER, self._header()
        if found[0] != FORMAT:
            raise InputError(
                f"{path}: its format is {found[0]}, this version reads {FORMAT}: start anew"
            )
        if found[1] != __version__:
            raise InputError(
                f"{path}: written by fedsplit {found[1]}, this is {__version__}: resume it with that one, or start anew"
            )
        for name, value in expected["run"].items():
            if name not in found[2] or found[2][name] != value:
                before = json.dumps(found[2].get(name))
                raise InputError(
                    f"{path}: of another run, its {name} is {before}, not {json.dumps(value)}: start anew"
                )


@contextmanager
def journalled(
    clients: Clients, checkpoint: Checkpoint, about: Mapping[str, Any]
) -> Iterator[RemoteClients]:
    """The clients, with what they answer kept in the checkpoint."""
    remote = clients if isinstance(clients, RemoteClients) else in_process(clients)
    with checkpoint.over(remote.roll.channel, about) as journal:
        yield remote.over(journal)


class Journal:
    """A channel that hears old answers from a file first, and keeps the new ones there.

    Its clock stands still but for questions and waits, and goes on where it stopped: what it decided is decided again.
    Answers pass on as they are kept, and those that cannot be are failures. Once closed it only passes questions on.
    """

    def __init__(self, channel: Channel, records: Records, every: int) -> None:
        self.names, self.kinds, self.free = channel.names, channel.kinds, channel.free
        self._channel, self._file, self._every = channel, records, every
        self._heard, self._time, self._answered = 0, 0.0, False
        self._offset: float | None = None
        self._settled: set[int] = set()
        self._unsure: dict[int, tuple[Question, Any]] = {}

    @property
    def replaying(self) -> bool:
        """Whether there are old answers to come."""
        return self._heard < len(self._file.places)

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        if self._file.closed:
            return self._channel.ask(questions, timeout)
        self._answered, digest = False, _digest(questions)
        return (
            self._recall(digest, questions)
            if self.replaying
            else self._ask(digest, questions, timeout)
        )

    def now(self) -> float:
        return self._time

    def wait(self, seconds: float) -> None:
        self._time += seconds
        if not self.replaying:
            self._channel.wait(seconds)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, InputError | TooFewClients) and self._answered and not self.replaying:
            self._file.drop()  # what ended the run, and somebody can mend, is asked again
        self._file.close()

    def _recall(self, digest: str, questions: Mapping[int, Question]) -> dict[int, Reply]:
        record, blobs = self._file.read(self._heard)
        if record.digest != digest:
            raise InputError(
                f"{self._file.path}: question {self._heard + 1} of this run is another one than the checkpoint's: "
                "the data, the settings or the machine's arithmetic differ; start anew"
            )
        replies = {}
        for each, blob in zip(record.heard, blobs, strict=True):
            value = (
                codec.decode(self.kinds[each.question], blob, LARGEST)
                if each.outcome == "answer"
                else None
            )
            replies[each.cohort] = Reply(each.outcome, value, each.text, each.seconds)
            if each.outcome == "answer" and (
                each.question == "settle" or each.cohort not in self._settled
            ):
                self._unsure[each.cohort] = questions[each.cohort], value
                self._settled |= {each.cohort} if each.question == "settle" else set()
        if self.free:
            self._make_sure(questions, math.inf)
        self._heard, self._time, self._answered = self._heard + 1, record.time, True
        return replies

    def _ask(
        self, digest: str, questions: Mapping[int, Question], timeout: float
    ) -> dict[int, Reply]:
        if self._offset is None:
            self._offset = self._channel.now() - self._time
        replies = self._make_sure(questions, timeout)
        ready = {at: question for at, question in questions.items() if at not in replies}
        replies |= self._channel.ask(ready, timeout) if ready else {}
        self._time = self._channel.now() - self._offset
        kept = {
            at: self._kept(question, replies.get(at, SILENT)) for at, question in questions.items()
        }
        if all(reply.outcome != "refused" for reply, _ in kept.values()):
            heard = [
                Heard(at, questions[at].name, reply.outcome, len(blob), reply.text, reply.seconds)
                for at, (reply, blob) in kept.items()
            ]
            self._file.append(
                Record(digest, self._time, heard), [blob for _, blob in kept.values()], self._every
            )
            self._heard, self._answered = self._heard + 1, True
        return {at: reply for at, (reply, _) in kept.items()}

    def _kept(self, question: Question, reply: Reply) -> tuple[Reply, bytes]:
        """A reply as it will be heard again, and the bytes of its answer."""
        if reply.outcome != "answer":
            return reply, b""
        try:
            blob = codec.encode(reply.value)
            return reply._replace(
                value=codec.decode(self.kinds[question.name], blob, LARGEST)
            ), blob
        except (InputError, TypeError) as error:
            return Reply(
                "failed", text=f"an answer that cannot be read ({error})", seconds=reply.seconds
            ), b""

    def _make_sure(self, cohorts: Iterable[int], timeout: float) -> dict[int, Reply]:
        """After a resumption, that cohorts stand on the data that the run began with; this settles them too.

        What they last told of their data is asked again. The replies of those that do not tell.
        """
        again = {at: self._unsure[at][0] for at in cohorts if at in self._unsure}
        heard = self._channel.ask(again, timeout) if again else {}
        replies = {
            at: self._kept(question, heard.get(at, SILENT))[0] for at, question in again.items()
        }
        for at, reply in replies.items():
            if reply.outcome == "refused":
                raise InputError(reply.text)
            if reply.outcome == "answer":
                if not same_data(self._unsure[at][1], reply.value):
                    raise other_data(self.names[at])
                del self._unsure[at]
        return {at: reply for at, reply in replies.items() if reply.outcome != "answer"}


def _digest(questions: Mapping[int, Question]) -> str:
    asked = [(at, question.name, question.args) for at, question in sorted(questions.items())]
    try:
        return sha256(codec.encode(asked)).hex()
    except TypeError as error:
        raise InputError(
            f"a checkpoint keeps plain values, and {error}: make it a dataclass of them"
        ) from None
