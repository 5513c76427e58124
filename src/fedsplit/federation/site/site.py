"""A site: rows that do not leave, a policy, and a record of all that did.

``Site.reply`` is the only way in. One message is one transaction, and ``Site._answer`` reads as the
list of its stages.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedsplit import fixed_point
from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.errors import InputError, RequestError, StateError, listed, nearest
from fedsplit.federation import keys, masks
from fedsplit.federation.keys import digest
from fedsplit.federation.messages import (
    JOINING,
    Ending,
    Inquiry,
    LogHead,
    Proposal,
    Response,
    read_message,
    write_response,
)
from fedsplit.federation.questions import decode_request, encode_request
from fedsplit.federation.regression import ANALYSES
from fedsplit.federation.site.admission import DAY, admit, check_names, check_spent, day, refusals
from fedsplit.federation.site.audit import Audit, audited, recall
from fedsplit.federation.site.copies import Copies
from fedsplit.federation.site.disclosed import DisclosedRows, Known
from fedsplit.federation.site.folder import check_complete, check_format, create, opened
from fedsplit.federation.site.overlaps import exposed
from fedsplit.federation.site.policy import Policy
from fedsplit.federation.site.record import LOG_SHORT, LogEntry, Record, Sent, StudyState
from fedsplit.federation.site.rows import StudyRows
from fedsplit.federation.site.status import Status, status_of
from fedsplit.federation.site.transcript import next_step
from fedsplit.federation.site.trial import Trial, tried
from fedsplit.federation.site.words import ColumnReading, described, readings
from fedsplit.federation.study import Analysis, Study, read_study
from fedsplit.federation.transport.files import answer_files
from fedsplit.files import Stamp
from fedsplit.fixed_point import Limbs
from fedsplit.texts import one_line, printable

logger = logging.getLogger(__name__)


class Site:
    """The rows of one organisation, and what answers questions about them.

    Parameters
    ----------
    folder : Path
        Holds ``site.db`` and the copies of rows; only its owner may read it.
    key : Ed25519 private key
        Made here; its public half is what the other sites and the coordinator know.
    policy : Policy
    disclosed : Path
        The record of what was disclosed of rows: one file per user and machine, whatever folders
        there are.
    analyses : mapping of str to type, optional
        The analyses that can be run here, by name.
    clock : callable, optional
        Seconds since 1970.
    watch : callable, optional
        Called with a line whenever there is something that the owner should see.
    draw : callable, optional
        ``draw(n)`` gives n random bytes, of which the keys for masks are made.

    Examples
    --------
    >>> import fedsplit as fs
    >>> site = fs.Site.open("north", "disclosed.db", watch=print)  # doctest: +SKIP
    >>> for study in site.waiting():  # doctest: +SKIP
    ...     print(site.describe(study.hash))
    >>> site.approve("2f610a3b91c4d7e0")  # doctest: +SKIP
    >>> site.serve()  # doctest: +SKIP
    """

    def __init__(
        self,
        folder: Path,
        key: keys.SigningKey,
        policy: Policy,
        disclosed: Path,
        *,
        analyses: Mapping[str, type[Analysis]] = ANALYSES,
        clock: Callable[[], float] = time.time,
        watch: Callable[[str], object] = lambda line: None,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        check_format(folder)
        check_complete(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            raise InputError(
                f"{folder}: other users of this machine may read it: make it private (chmod 700), "
                "or choose another folder"
            )
        owner = folder.stat().st_uid
        if owner and hasattr(os, "geteuid") and not os.geteuid():
            # the site could not read what root writes there
            raise InputError(f"{folder}: belongs to another user: sudo -u '#{owner}' is its owner")
        self.folder = folder
        self.record = Record(folder / "site.db", analyses, clock)
        self.disclosed = DisclosedRows(disclosed)
        self.watch = watch
        self.key = keys.public_bytes(key)
        self._key = key
        self._analyses = analyses
        self.clock = clock
        self._draw = draw
        self._lock = threading.Lock()  # one message at a time
        self._said = ""  # what is not said again while a coordinator asks and asks
        self._stamp: Stamp | None = None  # of site.toml, where the policy is in one
        self._use(policy)

    def _use(self, policy: Policy) -> None:
        self.policy = policy
        self.copies = Copies(
            self.folder / "copies",
            policy.data,
            policy.reading,
            self.disclosed,
            policy.smallest_group,
        )
        # What answers for the study that was asked about last.
        self._rows: tuple[bytes, StudyRows, Known] | None = None

    @classmethod
    def open(
        cls,
        folder: Path | str,
        disclosed: Path | str,
        *,
        watch: Callable[[str], object] = lambda line: None,
    ) -> Site:
        """The site whose key and ``site.toml`` are in a folder."""
        key, policy = opened(Path(folder))
        site = cls(Path(folder), key, policy, Path(disclosed), watch=watch)
        site._stamp = Stamp.of(site.folder / "site.toml")
        return site

    def _reread(self) -> None:
        """Use a ``site.toml`` that was changed; if it cannot be used, that of before holds on."""
        try:
            if self._stamp and self._stamp != (stamp := Stamp.of(self.folder / "site.toml")):
                self._stamp = stamp
                self._use(opened(self.folder)[1])
        except (InputError, OSError) as error:
            self.watch(f"the policy of before holds on: {error}")

    create = staticmethod(create)

    def serve(
        self, server: str = "", *, proxy: str | None = None, stop: threading.Event | None = None
    ) -> None:
        """Answer the coordinator by HTTPS until ``stop`` is set; see ``transport.https``."""
        # who answers by files needs no aiohttp
        from fedsplit.federation.transport.https.site import serve

        server = server or self.policy.server
        if not server:
            raise InputError(f"{self.folder / 'site.toml'}: server: where is the coordinator?")
        serve(
            self.reply,
            self.folder,
            server,
            proxy=proxy,
            largest=self.policy.message,
            status=self.watch,
            stop=stop,
        )

    def answer_files(self, folder: Path | str) -> list[Path]:
        """Answer the questions in a folder; see ``transport.files.answer_files``."""
        return answer_files(self, self._key, Path(folder))

    # ------------------------------------------------------------------ for the owner

    def studies(self) -> list[StudyState]:
        """All studies that were proposed, in their order."""
        return self.record.studies()

    def waiting(self) -> list[Study]:
        """The studies that wait for the owner's decision."""
        return [each.study for each in self.studies() if each.decision == "undecided"]

    def trouble(self) -> str:
        """Why the rows cannot be read now; empty if they can be."""
        try:
            self.copies.current().names()
        except InputError as error:
            return str(error)
        return ""

    def check(self) -> dict[str, ColumnReading]:
        """How the columns are read, as the rows are now."""
        return readings(self.copies.current())

    def trial(self, study: str | Study) -> Trial:
        """Try a study, or one by its hash, on the own rows: nothing is recorded or sent.

        The rows are frozen, so that it is these that are approved.
        """
        if isinstance(study, str):
            study = self._state(study).study
        state = self.record.study(study.digest)
        note, copy = "", "" if state is None else state.copy
        try:
            self._check(study)
            with self._lock, self._transaction():
                if not copy:
                    copy, note = self._frozen()
            source, known = self.copies.open(copy)
            names = source.names()
            for column in study.analysis.columns:
                if column not in names:
                    raise InputError(f"there is no column {column} here: {nearest(column, names)}")
            check_spent(self.policy, self.disclosed, study, known)
        except StateError:
            raise
        except InputError as error:
            return Trial(refused=str(error))
        ledger = self.disclosed.trial_ledger(known)
        rows = StudyRows(self.policy.name, source, known.ids, ledger, self.policy.about_rows)
        found = tried(study, self.policy.name, rows)
        where = str(source.path), self.policy.data
        return found._replace(
            refused=found.refused.replace(*where),
            ended=found.ended.replace(*where),
            notes=[*filter(None, [note]), *found.notes],
            copy=copy,
        )

    def describe(self, study: str | Study, trial: Trial | None = None) -> str:
        """A study in plain words, with what it means here and its trial: for the owner alone."""
        if isinstance(study, str):
            study = self._state(study).study
        return described(self, study, trial or self.trial(study))

    def approve(self, study: str) -> Trial:
        """Approve a study by its hash, after it was tried on the own rows.

        All its questions are answered from a frozen copy of the rows.

        Raises
        ------
        InputError
            If a question would be refused, by the rows or by the policy.
        """
        trial = self.trial(study)
        state = self._state(study)
        if trial.refused:
            question = f"question {trial.answered + 1}: " if trial.answered else ""
            raise InputError(
                f"study {state.study.hash[:8]} is not approved, it would be refused here: "
                f"{question}{trial.refused}"
            )
        with self._lock, self._transaction():
            self._approve(self._state(study, may_end=False), "by its owner", trial.copy)
        return trial

    def decline(self, study: str, reason: str = "") -> Study:
        """Decline a study: no question of it is answered from now on, and it hears the reason."""
        with self._lock, self._transaction():
            state = self._state(study, may_end=False)
            self.record.decide(state.study.digest, "declined", one_line(reason))
        return state.study

    def resume(self) -> list[LogEntry]:
        """Let studies go on that were halted, and return the refusals since the last review."""
        with self._lock, self._transaction():
            begins = {
                each.study.digest: self.record.reviewed(each)
                for each in self.studies()
                if each.decision == "approved"
            }
            found = [
                entry
                for entry in self.record.log()
                if entry.event == "refused" and entry.number > begins.get(entry.study, entry.number)
            ]
            for study in dict.fromkeys(entry.study for entry in found):
                self.record.append(study, JOINING, "reviewed")
        return found

    def status(self) -> Status:
        """The studies, what waits for whom, budgets, and the ends of certificates."""
        return status_of(self, self.record.now())

    def log(self) -> list[tuple[LogEntry, bytes]]:
        """The record: everything disclosed, refused and decided, with the hash of the chain."""
        return self.record.chained()

    def audit(self, head: tuple[int, bytes] | None = None) -> Audit:
        """Verify the log, and compute every answer again; see ``audited``."""
        return audited(self, None if head is None else LogHead(*head))

    def _state(self, study: str, may_end: bool = True) -> StudyState:
        found = [each for each in self.studies() if each.study.hash.startswith(study)]
        if len(found) != 1 or len(study) < 8:
            raise InputError(
                f"{study!r} is no study of {self.folder}: give 8 digits of its hash at least, as "
                "fedsplit site status shows them"
            )
        if found[0].decision == "ended" and not may_end:
            raise InputError(f"study {found[0].study.hash[:8]} has ended: there is nothing to do")
        return found[0]

    def _check(self, study: Study) -> None:
        """Raise InputError if a study may not be approved, whatever the rows are."""
        if objection := self._objection(study):
            raise InputError(objection)
        if study.until and day(self.record.now()) > study.until:
            raise InputError(f"the study ended on {study.until}")

    def _objection(self, study: Study) -> str:
        own = self.key
        return study.other_dialogue or self.policy.objection(study, own)

    def _approve(self, state: StudyState, detail: str, copy: str = "") -> str:
        self._check(state.study)
        note, copy = "", state.copy or copy
        if not copy:
            # On disk before the transaction that names it ends.
            copy, note = self._frozen()
        self.record.decide(state.study.digest, "approved", detail, copy, self._draw(32))
        return note

    def _frozen(self) -> tuple[str, str]:
        """A copy of the rows for a new study, and what the owner should know of it."""
        return self.copies.take(self.record.copies())

    def known_keys(self) -> dict[str, str]:
        """The keys of other sites that the owner has approved, the latest ones."""
        found: dict[str, str] = {}
        for each in self.studies():
            if each.copy:
                found |= each.study.members
        return found | (self.policy.partners or {})

    def exposed(self, study: Study) -> Mapping[tuple[str, ...], tuple[str, ...]]:
        """The sites that a study exposes together with those that were approved before."""
        return exposed(study, [s.study for s in self.studies() if s.copy and s.study != study])

    def spent(self, but: bytes = b"") -> tuple[float, float]:
        """ε and δ of all studies but one with noise, about the rows that answered last."""
        copies = self.record.copies()
        known = self.disclosed.copy(copies[-1]) if copies else None
        return (0.0, 0.0) if known is None else self.disclosed.spent(known, but)

    # ------------------------------------------------------------------ for the coordinator

    def reply(self, message: bytes) -> bytes:
        """The signed response to a message; any bytes get one."""
        return self.signed(self.response(message))

    def signed(self, response: Response) -> bytes:
        """A response under this site's key."""
        return write_response(self._key, response)

    def response(self, message: bytes) -> Response:
        """What a message is answered with.

        It is sent after everything about it is on disk. If the site is killed before the end of
        the transaction, nothing was recorded and nothing was sent; if after it, the coordinator
        asks again and gets the recorded answer.
        """
        study, number = b"", JOINING
        self._reread()
        try:
            request = read_message(bytes.fromhex(self.policy.coordinator), message)
            if isinstance(request, Proposal):
                study = read_study(request.study, self._analyses).digest
            else:
                study = request.study
                number = request.number if isinstance(request, Inquiry) else JOINING
        except InputError as error:
            # Anybody may have sent these bytes: they leave no trace in the record.
            return self._without_answer(study, number, "failed", str(error))
        try:
            with self._lock, self._transaction():
                try:
                    with self.record.savepoint(), self.disclosed.savepoint():
                        return self._replied(request)
                except StateError:
                    raise
                except InputError as error:
                    self._rows = None  # what it holds in memory is undone as well
                    return self._refused(study, number, error)
        except StateError as error:
            self._rows = None
            self.watch(f"nothing is answered: {error}")
            return self._without_answer(study, number, "failed", "its owner has to look at it")
        except Exception:
            # A full disk, or an error in an analysis. Its text may hold cells of the rows, so that
            # it stays here.
            self._rows = None
            logger.exception("%s: exchange %d could not be answered", self.policy.name, number)
            self.watch(f"exchange {number} could not be answered: see the log of the process")
            reason = "an error, which its owner finds in the log there"
            return self._without_answer(study, number, "failed", reason)

    def _replied(self, request: Proposal | Inquiry | Ending) -> Response:
        match request:
            case Proposal(study=content):
                return self._join(read_study(content, self._analyses))
            case Inquiry():
                return self._answer(request)
        return self._end(request)

    def _join(self, study: Study) -> Response:
        """Answer a proposal once its owner has approved it, with a key for the masks."""
        objection = self._objection(study)
        state = self.record.study(study.digest)
        if state is None:
            most = 100  # a day, which no owner reads: more would fill the disk
            if self.record.proposed(self.record.now() - DAY) >= most:
                raise RequestError(f"{most} studies were proposed here within 24 hours")
            self.record.add_study(study)
            self.watch(f"study {study.hash[:8]} is proposed: {one_line(study.title)}")
            if objection:
                self.record.decide(study.digest, "declined", objection)
                self.watch(f"study {study.hash[:8]} is declined: {objection}")
            state = self._known_state(study)
            if not objection and self.policy.approve == "ask":
                self.watch(f"it waits for your decision: fedsplit site approve {self.folder}")
        if state.decision == "undecided" and self.policy.approve == "always" and not objection:
            self._approve_by_policy(state)
            state = self._known_state(study)
        if state.decision == "undecided":
            return self._without_answer(study.digest, JOINING, "waiting", "for its owner")
        if state.decision != "approved":
            reason = f"its owner has {state.decision} the study"
            if state.decision == "declined":
                reason = f"{reason}: {self.record.reason(state)}".rstrip(": ")
            return self._without_answer(study.digest, JOINING, "refused", reason)
        value = b""
        if study.secure:
            value = keys.public_bytes(X25519PrivateKey.from_private_bytes(state.secret))
        sent = self.record.sent(study.digest, JOINING)
        if sent is None:
            asked = digest(study.content)
            sent = self._record(study, JOINING, asked, b"", value, study.digest)
        return self._response(study.digest, JOINING, sent)

    def _known_state(self, study: Study) -> StudyState:
        state = self.record.study(study.digest)
        assert state is not None  # which has been entered
        return state

    def _approve_by_policy(self, state: StudyState) -> None:
        """Approve a study that the policy approves, unless its owner has to see something."""
        study, known = state.study, self.known_keys()
        others = study.members.items() - {(self.policy.name, study.members[self.policy.name])}
        new = sorted(name for name, key in others if study.secure and known.get(name) != key)
        if new:
            note = f"waits for its owner: the keys of {listed(new)} are not known here"
        elif self.exposed(study):
            note = "waits for its owner: with earlier studies it exposes what a site sent"
        else:
            try:
                with self.record.savepoint(), self.disclosed.savepoint():
                    note = self._approve(state, "approve is always")
            except StateError:
                raise
            except InputError as error:  # a disk that is not mounted yet, say
                note = f"waits, as the rows cannot be read: {error}"
        self.say(f"study {study.hash[:8]}: {note}" if note else "")

    def say(self, line: str) -> None:
        """Say something to the owner, once while a coordinator asks and asks."""
        if line and line != self._said:
            self.watch(line)
        self._said = line

    def _answer(self, inquiry: Inquiry) -> Response:
        """Answer a question: the stages of one transaction, from top to bottom."""
        # Admit. A question that was answered has the same answer again, and counts once.
        state, sent = admit(self, inquiry)
        if sent is not None:
            return self._response(inquiry.study, inquiry.number, sent)
        study = state.study
        if why := study.other_dialogue:  # fedsplit was upgraded in between; the study waits
            self.say(f"study {study.hash[:8]}: {why}")
            return self._without_answer(inquiry.study, inquiry.number, "failed", why)

        # The question: the one that must come next, or one that belongs to the study.
        if study.secure:
            request, transcript = next_step(self.record, study, self.policy.name, inquiry)
        else:
            request, transcript = decode_request(inquiry.question), b""
        answered = self.record.count("answer", study.digest)
        study.analysis.check_request(study, request, answered)
        check_names(self.policy.name, study, request)

        # The rows, as they were frozen when the study was approved, prepared as the key says.
        rows, known = self._rows_of(state)
        if request.preparation is not None:
            own = request._replace(question=request.preparation, preparation=None)
            self.record.keep_preparation(study.digest, request.key, encode_request(own))
        request = self.prepared(study, rows, request)
        check_spent(self.policy, self.disclosed, study, known)
        privacy = getattr(study.analysis, "privacy", None)
        if privacy is not None:
            self.disclosed.spend(known, study.digest, privacy.epsilon, privacy.delta)

        # Compute, under the rules: thresholds, rounding, the ledger, and noise if it is asked for.
        before = self.record.memory(study.digest)
        value, memory = self.computed(state, inquiry.question, request, transcript, rows, before)
        if memory is not None:
            self.record.keep_memory(study.digest, memory)
        for note in rows.notes():
            self.watch(note)

        # Record; the answer leaves when the transaction has ended.
        self.disclosed.note_head(keys.public_bytes(self._key), self.record.head())
        asked = digest(inquiry.question)
        titles = ", ".join(request.question.titles)
        sent = self._record(
            study, inquiry.number, asked, inquiry.question, value, transcript, titles
        )
        self.watch(f"study {study.hash[:8]}: question {inquiry.number} is answered ({titles})")
        return self._response(study.digest, inquiry.number, sent)

    def computed(
        self,
        state: StudyState,
        question: bytes,
        request: Request,
        transcript: bytes,
        rows: StudyRows,
        memory: bytes | None,
    ) -> tuple[bytes, bytes | None]:
        """The answer to a question, and what the next one of a secure study depends on."""
        study = state.study
        if not study.secure:
            value = request.question.narrowed(rows.answer(request), study.analysis.columns)
            return codec.encode(value), None
        stream = masks.last_digits(state.secret, question)
        numbers, after = rows.contribution(request, memory, stream)
        hidden = self._mask(state, transcript, len(numbers))
        return fixed_point.to_bytes(fixed_point.add(numbers, hidden)), after

    def _mask(self, state: StudyState, transcript: bytes, n: int) -> Limbs:
        partners = self.record.partners(state.study.digest)
        others = {name: key for name, key in partners.items() if name != self.policy.name}
        return masks.mask(self.policy.name, state.secret, others, transcript, n)

    def unmasked(self, state: StudyState, sent: Sent) -> Limbs:
        """What this site added to a sum, for its owner, (n, 4)."""
        numbers = fixed_point.from_bytes(sent.value)
        hidden = self._mask(state, sent.transcript, len(numbers))
        return fixed_point.subtract(numbers, hidden)

    def _rows_of(self, state: StudyState) -> tuple[StudyRows, Known]:
        """The rows that a study is answered from."""
        # another process, or another site with the same rows, may have answered meanwhile
        if (
            self._rows is None
            or self._rows[0] != state.study.digest
            or len(self._rows[1].ledger) != self.disclosed.entries(self._rows[2])
        ):
            source, known = self.copies.open(state.copy)
            ledger = self.disclosed.ledger(known)
            rows = StudyRows(self.policy.name, source, known.ids, ledger, self.policy.about_rows)
            self._rows = state.study.digest, rows, known
        return self._rows[1], self._rows[2]

    def prepared(self, study: Study, rows: StudyRows, request: Request) -> Request:
        """A request with the preparation that its key names, where the rows lack it."""
        if request.preparation is None and request.key and not rows.has_prepared(request.key):
            recorded = self.record.preparation(study.digest, request.key)
            if recorded is None:
                raise RequestError("a question about coordinates that were never sent")
            return request._replace(preparation=decode_request(recorded).question)
        return request

    def _end(self, ending: Ending) -> Response:
        """End a study that has its result."""
        state = self.record.study(ending.study)
        if state is not None and state.decision == "approved":
            summary = printable(ending.summary[:100_000])  # of a result, nobody reads more
            self.record.decide(ending.study, "ended", summary)
            # no line of it can be taken for one of this program
            quoted = "".join(f"\n  | {line}" for line in summary.splitlines())
            self.watch(f"study {state.study.hash[:8]} has ended:{quoted}")
        return Response(ending.study, JOINING, "answer", head=self.record.head())

    # ------------------------------------------------------------------ the record

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction of both databases.

        What was disclosed is committed first: after a kill in between, the same answer adds the
        same entries, which then are there.
        """
        with self.record.transaction(), self.disclosed.transaction():
            self._compare()
            yield

    def _compare(self) -> None:
        """Compare both databases: one that was restored, or lost in a power cut, is older."""
        last = self.disclosed.head(self.key)
        if not self.record.contains(last):
            raise StateError(LOG_SHORT)
        if self.record.last_answer() > last.number + 1:
            self.watch("what was disclosed is computed again: the machine's record has lost it")
            recall(self, last)
            self.disclosed.note_head(self.key, self.record.head())

    def _record(
        self,
        study: Study,
        number: int,
        asked: bytes,
        question: bytes,
        value: bytes,
        transcript: bytes,
        detail: str = "",
    ) -> Sent:
        """Record an answer as it is sent, now and whenever it is asked for again."""
        # The log binds what was asked and what was answered; the bytes are in the table beside it.
        content = digest(asked, value)
        head = self.record.append(study.digest, number, "answer", detail, content)
        sent = Sent(asked, question, value, transcript, head)
        self.record.keep(study.digest, number, sent)
        return sent

    def _response(self, study: bytes, number: int, sent: Sent) -> Response:
        """A recorded answer as it is sent."""
        return Response(study, number, "answer", sent.value, sent.transcript, head=sent.head)

    def _refused(self, study: bytes, number: int, error: InputError) -> Response:
        """Record that a question was refused, and say so without a word about single rows."""
        known = self.record.study(study)
        reason = str(error)
        if not isinstance(error, RequestError):  # it depends on the rows
            reason = "a rule of its owner, or its data, do not allow this answer"
        if known and refusals(self.record, known) <= self.policy.refusals_before_halt:
            # Random bytes in its entry: others see its hash, which discloses nothing of the reason.
            self.record.append(study, number, "refused", str(error), self._draw(16))
        self.watch(f"exchange {number} was refused: {error}")
        return self._without_answer(study, number, "refused", reason)

    def _without_answer(
        self,
        study: bytes,
        number: int,
        outcome: Literal["waiting", "refused", "failed"],
        reason: str,
    ) -> Response:
        return Response(study, number, outcome, reason=one_line(reason, 1000))
