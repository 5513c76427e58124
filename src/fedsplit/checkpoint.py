"""Checkpoints: what the clients answered, kept on disk, so that an interrupted run goes on with the same bits.

Methods draw on nothing but the clients' answers: from the same answers they come to the same state and ask the same
questions. So a resumed run starts from its beginning, hears the old answers from the folder without asking anybody, and
goes on from there. That holds for every method, in the handshake, in the rounds and in a proof, and on every engine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedsplit import __version__, files, wire
from fedsplit.checks import count
from fedsplit.clients.channel import SILENT, Channel, Outcome, Question, Reply, other_data, same_data
from fedsplit.clients.protocol import Clients
from fedsplit.clients.remote import RemoteClients, in_process
from fedsplit.errors import InputError

FORMAT = 1
"""Of the files: a reader of another one refuses them."""

HEADER, ANSWERS = "checkpoint.json", "answers"

MARK, HEAD = b"fsr1", 44
"""How a record begins, and how long its beginning is: the mark, its length in 8 bytes, its SHA-256."""

LARGEST = 2**36
"""The most bytes of one record."""


class Heard(NamedTuple):
    """One cohort's reply; an answer's bytes, so many of them, stand behind the record."""

    cohort: int
    question: str
    outcome: Outcome
    size: int
    text: str
    seconds: float


class Record(NamedTuple):
    """One question to all: its digest, when the last reply was in, and the replies."""

    digest: str
    time: float
    heard: Sequence[Heard]


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

    def __init__(self, folder: str | os.PathLike[str], *, every: int = 1, resume: bool = False) -> None:
        self.folder, self.every, self.resume = Path(folder), count("every", every), bool(resume)
        if resume and not (self.folder / HEADER).is_file():
            raise InputError(f"{self.folder}: there is no checkpoint here to resume, start without it")
        if not resume and (self.folder / HEADER).exists():
            raise InputError(f"{self.folder}: there is a checkpoint here: resume it, or name another folder")

    def over(self, channel: Channel, about: Mapping[str, Any]) -> Journal:
        """The channel with this folder in front of it; ``about`` says which run this is, as JSON can hold it."""
        header = {"format": FORMAT, "version": __version__, "run": json.loads(json.dumps(about))}
        if self.resume:
            self._check(header)
        else:
            files.check_writable(self.folder)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / ANSWERS).unlink(missing_ok=True)
            files.write(self.folder / HEADER, json.dumps(header, indent=2))
        return Journal(channel, self.folder / ANSWERS, self.every)

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
            raise InputError(f"{path}: this is no checkpoint, or a damaged one: start anew in another folder") from None

    def _check(self, expected: Mapping[str, Any]) -> None:
        """Refuse the checkpoint of another run, format or version."""
        path, found = self.folder / HEADER, self._header()
        if found[0] != FORMAT:
            raise InputError(f"{path}: its format is {found[0]}, this version reads {FORMAT}: start anew")
        if found[1] != __version__:
            raise InputError(
                f"{path}: written by fedsplit {found[1]}, this is {__version__}: resume it with that one, or start anew"
            )
        for name, value in expected["run"].items():
            if name not in found[2] or found[2][name] != value:
                before = json.dumps(found[2].get(name))
                raise InputError(f"{path}: of another run, its {name} is {before}, not {json.dumps(value)}: start anew")


@contextmanager
def journalled(clients: Clients, checkpoint: Checkpoint, about: Mapping[str, Any]) -> Iterator[RemoteClients]:
    """The clients, with what they answer kept in the checkpoint."""
    remote = clients if isinstance(clients, RemoteClients) else in_process(clients)
    with checkpoint.over(remote.roll.channel, about) as journal:
        yield remote.over(journal)


class Journal:
    """A channel that hears old answers from a file first, and keeps the new ones there.

    Its clock stands still but for questions, and goes on where it stopped: what was decided by it is decided again.
    """

    def __init__(self, channel: Channel, path: Path, every: int) -> None:
        self.names, self.kinds, self.free = channel.names, channel.kinds, channel.free
        self._channel, self._path, self._every = channel, path, every
        self._file = _Records(path)
        self._heard, self._time = 0, 0.0
        self._offset: float | None = None
        self._unsure: dict[int, tuple[Question, Any]] = {}

    @property
    def replaying(self) -> bool:
        """Whether there are old answers to come."""
        return self._heard < len(self._file.places)

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        digest = _digest(questions)
        return self._recall(digest, questions) if self.replaying else self._ask(digest, questions, timeout)

    def now(self) -> float:
        return self._time

    def wait(self, seconds: float) -> None:
        if not self.replaying:
            self._channel.wait(seconds)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _recall(self, digest: str, questions: Mapping[int, Question]) -> dict[int, Reply]:
        record, blobs = self._file.read(self._heard)
        self._heard += 1
        if record.digest != digest:
            raise InputError(
                f"{self._path}: question {self._heard} of this run is another one than the checkpoint's: "
                "the data, the settings or the machine's arithmetic differ; start anew"
            )
        self._time = record.time
        replies = {}
        for each, blob in zip(record.heard, blobs, strict=True):
            value = wire.decode(self.kinds[each.question], blob, LARGEST) if each.outcome == "answer" else None
            replies[each.cohort] = Reply(each.outcome, value, each.text, each.seconds)
            if each.question == "settle" and each.outcome == "answer":
                self._unsure[each.cohort] = questions[each.cohort], value
        if self.free:
            self._make_sure(questions, math.inf)
        return replies

    def _ask(self, digest: str, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        if self._offset is None:
            self._offset = self._channel.now() - self._time
        self._make_sure(questions, timeout)
        ready = {at: question for at, question in questions.items() if at not in self._unsure}
        replies = dict.fromkeys(questions, SILENT) | (self._channel.ask(ready, timeout) if ready else {})
        self._time = self._channel.now() - self._offset
        if all(reply.outcome != "refused" for reply in replies.values()):
            values = {at: wire.encode(r.value) if r.outcome == "answer" else b"" for at, r in replies.items()}
            heard = [
                Heard(at, questions[at].name, reply.outcome, len(values[at]), reply.text, reply.seconds)
                for at, reply in replies.items()
            ]
            self._file.append(Record(digest, self._time, heard), list(values.values()), self._every)
            self._heard += 1
        return replies

    def _make_sure(self, cohorts: Iterable[int], timeout: float) -> None:
        """After a resumption, that cohorts stand on the data that the run began with; this settles them too."""
        again = {at: self._unsure[at][0] for at in cohorts if at in self._unsure}
        for at, reply in (self._channel.ask(again, timeout) if again else {}).items():
            if reply.outcome == "refused":
                raise InputError(reply.text)
            if reply.outcome == "answer":
                if not same_data(self._unsure[at][1], reply.value):
                    raise other_data(self.names[at])
                del self._unsure[at]


class _Records:
    """A file of records: mark, length, checksum, and the record with its answers.

    A last record that is not whole is what a crash leaves behind, and is cut off; any other damage is refused. So is
    a last one in which a cohort was silent: it may have stopped the run, and is asked again.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        path.chmod(0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"{path}: another process is running from this checkpoint: wait for it, or stop it"
            ) from None
        self._fresh: list[bytes] = []
        self.places: list[tuple[int, int]] = []
        size, end = path.stat().st_size, 0
        while end < size:
            length = self._whole(path, end, size)
            if length is None:
                break
            self.places.append((end + HEAD, length))
            end += HEAD + length
        if self.places and any(each.outcome == "silent" for each in self.read(-1)[0].heard):
            end = self.places.pop()[0] - HEAD
        self._file.truncate(end)

    def _whole(self, path: Path, at: int, size: int) -> int | None:
        """The length of the record here; None where a crash cut it off."""
        self._file.seek(at)
        head = self._file.read(HEAD)
        length = int.from_bytes(head[4:12], "little")
        if len(head) < HEAD or at + HEAD + length > size:
            return None
        sound = head[:4] == MARK and hashlib.sha256(self._file.read(length)).digest() == head[12:]
        if not sound:
            if at + HEAD + length == size:
                return None
            raise InputError(f"{path}: record {len(self.places) + 1} is damaged: start anew in another folder")
        return length

    def read(self, number: int) -> tuple[Record, list[bytes]]:
        """A record, and the answers behind it."""
        at, length = self.places[number]
        self._file.seek(at)
        payload = self._file.read(length)
        end = 8 + int.from_bytes(payload[:8], "little")
        record: Record = wire.decode(Record, payload[8:end])
        blobs = []
        for each in record.heard:
            blobs.append(payload[end : end + each.size])
            end += each.size
        return record, blobs

    def append(self, record: Record, blobs: Sequence[bytes], every: int) -> None:
        """Keep a record; write when there are ``every`` of them."""
        meta = wire.encode(record)
        payload = b"".join([len(meta).to_bytes(8, "little"), meta, *blobs])
        self._fresh.append(MARK + len(payload).to_bytes(8, "little") + hashlib.sha256(payload).digest() + payload)
        self.places.append((0, 0))
        if len(self._fresh) >= every:
            self.flush()

    def flush(self) -> None:
        """Write, and wait until it is on the disk."""
        if self._fresh:
            self._file.write(b"".join(self._fresh))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._fresh = []

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        self._file.close()


def _digest(questions: Mapping[int, Question]) -> str:
    asked = [(at, question.name, question.args) for at, question in sorted(questions.items())]
    return hashlib.sha256(wire.encode(asked)).hexdigest()
