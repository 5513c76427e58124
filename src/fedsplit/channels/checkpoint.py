"""Checkpoints: the clients' answers on disk, so that an interrupted run can go on.

Methods draw on nothing but the clients' answers: from the same answers they come to the same state
and ask the same questions. So a resumed run starts from its beginning, takes the old answers from
the folder without asking anybody, and goes on from there. That holds for every method, in the
handshake, in the rounds and in a proof, and on every engine.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsplit import files
from fedsplit.channels import codec
from fedsplit.channels.channel import SILENT, Channel, PostingChannel, Reply, Request
from fedsplit.channels.clients import RemoteClients, in_process
from fedsplit.channels.cohort import other_data, same_data
from fedsplit.channels.log import RecordedQuestion, RecordedReply, Records
from fedsplit.checks import count
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError, TooFewClients
from fedsplit.version import __version__

FORMAT = 8
"""The format of the files. Those of another format are refused, untouched."""

HEADER = "checkpoint.json"

ANSWERS = "answers"


class Checkpoint:
    """A folder in which a run is recorded.

    Pass it to ``solve`` as one of its callbacks, or to ``fit`` as ``checkpoint``. Records are
    appended, each with a checksum; an incomplete last one is left out. The folder then holds what
    the server has seen: protect it accordingly.

    Parameters
    ----------
    folder : path
        Where to write; created if needed.
    every : int
        Questions between two writes; fewer than that are lost with the process.
    resume : bool
        Go on with the run in the folder. Without it, a folder that holds a run is refused.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, every: int = 1, resume: bool = False
    ) -> None:
        self.folder = Path(folder)
        self.every = count("every", every)
        self.resume = bool(resume)
        # Whether the run in the folder is the one of this object: only that may be deleted.
        self._own = False
        if resume and not self.begun:
            raise InputError(
                f"{self.folder}: there is no checkpoint to resume: start without --resume"
            )
        if not resume and (self.folder / HEADER).exists():
            raise self._taken

    @contextmanager
    def keeping(self, clients: Clients, about: Mapping[str, object]) -> Iterator[Clients]:
        """The clients, with their answers recorded here; ``about`` identifies the run."""
        remote = clients if isinstance(clients, RemoteClients) else in_process(clients)
        with self.over(remote.members.channel, about) as journal:
            yield remote.over(journal)

    def over(self, channel: Channel, about: Mapping[str, Any]) -> JournalledChannel:
        """The channel with this folder in front of it.

        Parameters
        ----------
        channel : Channel
        about : mapping
            Identifies the run, in values that JSON can hold.
        """
        plain = json.loads(json.dumps(about, default=lambda value: value.tolist()))  # NumPy's
        header = {"format": FORMAT, "version": __version__, "run": plain}
        if not self.resume:
            files.check_writable(self.folder)
        elif not (self.folder / ANSWERS).is_file():
            raise InputError(f"{self.folder / ANSWERS} is missing: start again in another folder")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return JournalledChannel(channel, self._open(header), self.every)
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be used ({error.strerror}): make it writable, "
                "or choose another folder; nothing was kept there"
            ) from None

    def _open(self, header: Mapping[str, Any]) -> Records:
        """The records of this run, locked against other processes."""
        records = Records(self.folder / ANSWERS)
        try:
            if self.resume:
                self._check(header)
                records.load()
            elif (self.folder / HEADER).exists():  # a run that began since this object was made
                raise self._taken
            else:
                self._own = True
                records.clear()
                files.write(self.folder / HEADER, json.dumps(header, indent=2))
        except BaseException:
            records.close()
            raise
        self._own = True
        return records

    @property
    def _taken(self) -> InputError:
        return InputError(
            f"{self.folder} already holds a checkpoint: continue that run with --resume "
            f"{self.folder}, or choose another folder"
        )

    @property
    def begun(self) -> bool:
        """Whether there is something to resume."""
        return (self.folder / HEADER).is_file()

    def discard(self) -> None:
        """Delete the run: it is done, or there is nothing to go on from.

        A run that this object was refused, since it is another one, or another process holds it,
        is left as it is.
        """
        if not self._own:
            return
        for name in (HEADER, ANSWERS):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder holds something else
            self.folder.rmdir()

    def about(self) -> dict[str, Any]:
        """What identifies the run in the folder."""
        about: dict[str, Any] = self._header()["run"]
        return about

    def _header(self) -> dict[str, Any]:
        """Format, version and run."""
        path = self.folder / HEADER
        try:
            header = json.loads(path.read_text(encoding="utf-8"))
            return {
                "format": header["format"],
                "version": header["version"],
                "run": dict(header["run"]),
            }
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"{path} is not a checkpoint, or is damaged: start again in another folder"
            ) from None

    def _check(self, expected: Mapping[str, Any]) -> None:
        """Refuse the checkpoint of another run, format or version."""
        path = self.folder / HEADER
        found = self._header()
        if found["format"] != FORMAT:
            raise InputError(
                f"{path} has format {found['format']}, this version reads format {FORMAT}: "
                f"resume it with fedsplit {found['version']}, or start again in another folder"
            )
        if found["version"] != __version__:
            raise InputError(
                f"{path} was written by fedsplit {found['version']}, this is {__version__}: "
                "resume it with that version, or start again in another folder"
            )
        for name, value in expected["run"].items():
            if name not in found["run"] or found["run"][name] != value:
                before = json.dumps(found["run"].get(name))
                raise InputError(
                    f"{path} belongs to another run: its {name} is {before}, "
                    f"not {json.dumps(value)}: start again in another folder"
                )


class JournalledChannel:
    """A channel that replays old answers from a file first, and records the new ones there.

    Time advances only during questions and waits, and is recorded, so that timeouts replay
    identically. Answers pass on as they will be replayed; those that cannot be recorded are
    failures. Once closed, the journal only passes questions on.

    Parameters
    ----------
    channel : Channel
        Where new questions go.
    records : Records
        The file.
    every : int
        Questions between two writes.
    """

    recorded = True

    def __init__(self, channel: Channel, records: Records, every: int) -> None:
        self.names = channel.names
        self.free = channel.free
        self._channel = channel
        self._records = records
        self._every = every
        self._replayed = 0
        self._time = 0.0
        # The channel's clock less this one's; None until the first new question.
        self._offset: float | None = None
        # Whether the last question was answered and recorded.
        self._recorded = False
        # Cohorts that were prepared in the old records.
        self._prepared: set[int] = set()
        # By cohort, the request and answer that identify its data, to be asked again.
        self._unconfirmed: dict[int, tuple[Request, Any]] = {}
        # By cohort, the request that was posted to it, and those that are still to be sent.
        self._posted: dict[int, Request] = {}
        self._unsent: set[int] = set()

    @property
    def replaying(self) -> bool:
        """Whether there are old answers to come."""
        return self._replayed < len(self._records)

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        if self._records.closed:
            return self._channel.ask(requests, timeout)
        self._recorded = False
        digest = _digest(requests)
        if self.replaying:
            return self._replay(digest, requests)
        return self._ask(digest, requests, timeout)

    def post(self, requests: Mapping[int, Request]) -> None:
        """Post questions; while old answers are replayed they wait, and most have one there."""
        self._posted |= requests
        self._unsent |= requests.keys()

    def collect(self, timeout: float) -> dict[int, Reply]:
        """The next arrivals, in the order in which they came the first time."""
        self._recorded = False
        if self.replaying:
            return self._replay_arrival()
        posted = {at: self._posted[at] for at in self._unsent}
        replies = self._send(posted, timeout) or self._posting.collect(timeout)
        answered = {at: self._posted.pop(at) for at in replies if at in self._posted}
        self._note_time()
        return self._keep(_digest(answered), answered, replies)

    def now(self) -> float:
        return self._time

    def wait(self, seconds: float) -> None:
        self._time += seconds
        if not self.replaying:
            self._channel.wait(seconds)

    def __enter__(self) -> JournalledChannel:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        mendable = isinstance(error, InputError | TooFewClients)
        if mendable and self._recorded and not self.replaying:
            self._records.drop()  # the answer that ended the run is asked for again
        self._records.close()

    @property
    def _posting(self) -> PostingChannel:
        assert isinstance(self._channel, PostingChannel)  # as the clients made sure
        return self._channel

    def _replay_arrival(self) -> dict[int, Reply]:
        """The arrivals that come next in the old records."""
        record = self._records.read(self._replayed)
        answered = {}
        for recorded in record.replies:
            if recorded.cohort in self._posted:
                answered[recorded.cohort] = self._posted.pop(recorded.cohort)
        self._unsent -= answered.keys()
        return self._replay(_digest(answered), answered)

    def _send(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        """Send what was posted; the replies of cohorts whose data could not be confirmed."""
        unanswered: dict[int, Reply] = {}
        if requests:
            self._note_time()
            unanswered = self._confirm(requests, timeout)
            sure = {at: each for at, each in requests.items() if at not in unanswered}
            self._posting.post(sure)
            self._unsent.clear()
        return unanswered

    def _replay(self, digest: str, requests: Mapping[int, Request]) -> dict[int, Reply]:
        record = self._records.read(self._replayed)
        if record.digest != digest:
            raise InputError(
                f"{self._records.path}: question {self._replayed + 1} of this run differs from "
                "the checkpoint's: the data, the settings or the machine's arithmetic changed; "
                "start again in another folder"
            )
        replies = {}
        for recorded in record.replies:
            at = recorded.cohort
            question = requests[at].question
            value = None
            if recorded.outcome == "answer":
                value = codec.decode(question.answer_type, recorded.answer)
                prepares = any(each.prepares for each in requests[at].parts)
                if question.repeatable and (prepares or at not in self._prepared):
                    self._unconfirmed[at] = requests[at], value
                elif question.repeatable and at in self._unconfirmed:
                    first = self._unconfirmed[at][0].preparation
                    if first is not None:
                        # what a preparation travelled with, such as bounds on the curvature, may
                        # be the same for any rows: the last answer says more
                        self._unconfirmed[at] = requests[at]._replace(preparation=first), value
                if prepares:
                    self._prepared.add(at)
            replies[at] = Reply(recorded.outcome, value, recorded.text, recorded.seconds)
        if self.free:
            self._confirm(requests, math.inf)
        self._replayed += 1
        self._time = record.time
        self._recorded = True
        return replies

    def _ask(
        self, digest: str, requests: Mapping[int, Request], timeout: float
    ) -> dict[int, Reply]:
        self._note_time()
        replies = self._confirm(requests, timeout)
        ready = {at: request for at, request in requests.items() if at not in replies}
        if ready:
            replies |= self._channel.ask(ready, timeout)
        self._note_time()
        return self._keep(digest, requests, replies)

    def _note_time(self) -> None:
        """Let the journal's clock go on with the channel's."""
        if self._offset is None:
            self._offset = self._channel.now() - self._time
        self._time = self._channel.now() - self._offset

    def _keep(
        self, digest: str, requests: Mapping[int, Request], replies: Mapping[int, Reply]
    ) -> dict[int, Reply]:
        """The replies, once they are in the records."""
        passed, recorded = {}, []
        for at, request in requests.items():
            reply, answer = _as_recorded(request, replies.get(at, SILENT))
            passed[at] = reply
            recorded.append(RecordedReply(at, reply.outcome, answer, reply.text, reply.seconds))
        self._records.append(RecordedQuestion(digest, self._time, recorded), self._every)
        self._replayed += 1
        self._recorded = True
        return passed

    def _confirm(self, cohorts: Iterable[int], timeout: float) -> dict[int, Reply]:
        """After a resumption, check that cohorts still have the data that the run began with.

        The question that identified their data is asked again, which prepares them too.

        Returns
        -------
        dict of Reply
            The replies of cohorts that did not answer it.
        """
        again = {at: self._unconfirmed[at][0] for at in cohorts if at in self._unconfirmed}
        if not again:
            return {}
        found = self._channel.ask(again, timeout)
        unanswered = {}
        for at, request in again.items():
            reply, _ = _as_recorded(request, found.get(at, SILENT))
            if reply.outcome != "answer":
                unanswered[at] = reply
                continue
            if not same_data(self._unconfirmed[at][1], reply.value):
                raise other_data(self.names[at])
            del self._unconfirmed[at]
        return unanswered


def _as_recorded(request: Request, reply: Reply) -> tuple[Reply, bytes]:
    """A reply as it will be replayed, and the bytes of its answer."""
    if reply.outcome != "answer":
        return reply, b""
    try:
        blob = codec.encode(reply.value)
        value = codec.decode(request.question.answer_type, blob)
        return reply._replace(value=value), blob
    except (InputError, TypeError) as error:
        text = f"an answer that cannot be read ({error})"
        return Reply("failed", text=text, seconds=reply.seconds), b""


def _digest(requests: Mapping[int, Request]) -> str:
    """Identifies the questions of one round."""
    asked = [(at, request.question.name(), *request) for at, request in sorted(requests.items())]
    try:
        return hashlib.sha256(codec.encode(asked)).hexdigest()
    except TypeError as error:
        raise InputError(
            f"a checkpoint keeps plain values, and {error}: make it a dataclass of them"
        ) from None
