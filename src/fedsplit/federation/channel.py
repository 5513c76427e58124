"""The way from an analysis to the sites of a study: exchanges that are recorded, or replayed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fedsplit import fixed_point
from fedsplit.channels.channel import Reply, Request, TimelessChannel
from fedsplit.errors import InputError
from fedsplit.federation import masks
from fedsplit.federation.journal import Journal, Recorded
from fedsplit.federation.keys import SigningKey, digest
from fedsplit.federation.messages import (
    ENVELOPE,
    JOINING,
    Ending,
    Inquiry,
    LogHead,
    Message,
    Response,
    read_response,
    write_message,
)
from fedsplit.federation.questions import answer_limit, decode_answer, encode_request
from fedsplit.federation.study import Study
from fedsplit.federation.transport import Transport
from fedsplit.fixed_point import Limbs
from fedsplit.texts import one_line

Check: TypeAlias = Callable[[Mapping[str, Response]], Mapping[str, str]]
"""By site, what is wrong with its answer; sites whose answers can be used are left out."""


def each_alone(check: Callable[[str, Response], None]) -> Check:
    """The check of answers one by one, by what raises InputError for one that cannot be used."""

    def wrong(found: Mapping[str, Response]) -> dict[str, str]:
        reasons = {}
        for site, response in found.items():
            try:
                check(site, response)
            except InputError as error:
                reasons[site] = one_line(str(error))
        return reasons

    return wrong


class Waiting(Exception):
    """Sites have not answered, and by files nobody does while somebody waits.

    Attributes
    ----------
    number : int
        Of the exchange.
    missing : dict of str to str
        Why each site has not answered.
    """

    def __init__(self, number: int, missing: Mapping[str, str]) -> None:
        super().__init__(f"exchange {number} waits for {', '.join(missing)}")
        self.number = number
        self.missing = dict(missing)


class NextQuestion(Exception):
    """What an analysis asks next, after all that is recorded."""

    def __init__(self, request: Request) -> None:
        super().__init__("the next question")
        self.request = request


class Exchanges:
    """Sends the messages of a study, signed by ``key``, and records what comes back.

    ``note`` is called with a site and what went wrong there, in a line.
    """

    def __init__(
        self,
        study: Study,
        journal: Journal,
        key: SigningKey,
        transport: Transport,
        note: Callable[[str, str], object],
    ) -> None:
        self.study = study
        self.journal = journal
        self.waits = transport.waits
        self._key = key
        self._transport = transport
        self._note = note
        self._troubles: dict[str, str] = {}  # by site, what was said last
        # By site, the bytes that were verified last, and what they say: a signature takes as long
        # to verify as all else that is done about an answer.
        self._verified: dict[str, tuple[bytes, Response]] = {}

    def send(
        self,
        number: int,
        messages: Mapping[str, Message],
        seconds: float,
        largest: int,
        check: Check,
    ) -> dict[str, Recorded]:
        """Ask sites, record their answers in one transaction, and return what came, by site.

        ``largest`` is the most bytes of a value.
        """
        # Ed25519 is deterministic: a message that is made again has the same bytes.
        sent = {name: write_message(self._key, each) for name, each in messages.items()}
        began = time.monotonic()
        arrived: dict[str, tuple[bytes, float]] = {}
        for name, data in self._transport.exchange(sent, seconds, ENVELOPE + largest):
            if name in sent and name not in arrived:
                arrived[name] = data, time.monotonic() - began
        results = {name: self._read(number, name, arrived.get(name)) for name in sent}
        answers = {name: self.response(name, each) for name, each in results.items() if each.data}
        for name, why in check(answers).items():
            seconds = results[name].seconds if name in results else 0.0
            results[name] = Recorded("failed", None, why, seconds)
        with self.journal.transaction():
            for name, each in results.items():
                if each.data is not None:
                    self._add(number, name, each, answers[name].head)
        if number != JOINING and self.waits:
            self._say_who_is_waited_for(number, results)
        return results

    def _say_who_is_waited_for(self, number: int, results: Mapping[str, Recorded]) -> None:
        for name, recorded in results.items():
            if recorded.trouble and recorded.trouble != self._troubles.get(name):
                self._note(name, f"exchange {number} waits for it: {recorded.trouble}")
            self._troubles[name] = recorded.trouble

    def _read(self, number: int, site: str, arrival: tuple[bytes, float] | None) -> Recorded:
        """What came from one site, by the name of the connection that brought it."""
        if arrival is None:
            return Recorded("silent", None, "no answer in time" if self.waits else "", 0.0)
        data, seconds = arrival
        try:
            # The key is that of the connection's site, whatever the message says of its sender.
            response = self._response(site, data)
        except InputError as error:
            return Recorded("failed", None, one_line(str(error)), seconds)
        if (response.study, response.number) != (self.study.digest, number):
            return Recorded("failed", None, "a response that belongs to another exchange", seconds)
        if response.outcome != "answer":
            return Recorded(response.outcome, None, one_line(response.reason), seconds)
        return Recorded("answer", data, "", seconds)

    def _add(self, number: int, site: str, recorded: Recorded, head: LogHead | None) -> None:
        """Record an answer: whatever it is, the journal changes in rows of this site alone."""
        study, key = self.study.digest, self.study.members[site]
        if head is None or not self.journal.note_head(study, site, key, head):
            self._note(site, "its log was cut short or replaced")
        self.journal.add(study, number, site, recorded)

    def response(self, site: str, recorded: Recorded) -> Response:
        """A recorded response with an answer."""
        assert recorded.data is not None  # which only answers have
        return self._response(site, recorded.data)

    def _response(self, site: str, data: bytes) -> Response:
        known, response = self._verified.get(site, (None, None))
        if response is None or known is not data:
            response = read_response(bytes.fromhex(self.study.members[site]), data)
            self._verified[site] = data, response
        return response

    def posts(self, number: int) -> tuple[bytes, ...]:
        """The signed responses of all members to an exchange, as they came."""
        found = self.journal.responses(self.study.digest, number)
        return tuple(found[name].data or b"" for name in self.study.members)

    def end(self, summary: str, seconds: float = 10.0) -> None:
        """Tell the sites the result; those that are away are not waited for."""
        message = write_message(self._key, Ending(self.study.digest, summary))
        for _ in self._transport.exchange(
            dict.fromkeys(self.study.members, message), seconds, ENVELOPE
        ):
            pass

    def inquiry(
        self, number: int, question: bytes, site: str, posts: Sequence[bytes] = ()
    ) -> Inquiry:
        """A question as it goes to a site."""
        head = self.journal.head_of(self.study.members[site])
        return Inquiry(self.study.digest, number, question, tuple(posts), head)


class StudyChannel(ABC):
    """The sites of a study, each a cohort of one client.

    What is recorded is replayed first, with the time that it took; after that sites are asked.

    Attributes
    ----------
    number : int
        Of the last exchange.
    """

    free = False
    recorded = True

    def __init__(self, exchanges: Exchanges, names: Sequence[str]) -> None:
        self.names = [[name] for name in names]
        self.number = JOINING
        self._exchanges = exchanges
        self._time = 0.0
        # When the run would have begun without a break; None while answers are replayed.
        self._began: float | None = None

    def now(self) -> float:
        return self._time if self._began is None else time.monotonic() - self._began

    def wait(self, seconds: float) -> None:
        if self._began is None:
            self._time += seconds
        else:
            time.sleep(seconds)

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        own = {self.names[at][0]: request for at, request in requests.items()}
        questions = {name: encode_request(request) for name, request in own.items()}
        found = self._exchange(own, questions, timeout)
        return {
            at: self._reply(name, own[name], found[name])
            for at in requests
            for name in self.names[at]
        }

    @abstractmethod
    def _exchange(
        self, requests: Mapping[str, Request], questions: Mapping[str, bytes], timeout: float
    ) -> dict[str, Recorded]:
        """What is recorded of each site; those without a record are asked first."""

    @abstractmethod
    def _reply(self, name: str, request: Request, recorded: Recorded) -> Reply:
        """What came from a site, as the analysis receives it."""

    def _begin(self, number: int, asked: bytes) -> tuple[dict[str, Recorded], float | None]:
        """What is recorded of an exchange, which must be about the same questions, and its end.

        Raises
        ------
        InputError
            If another question is recorded, or the study allows no more.
        """
        study, journal = self._exchanges.study, self._exchanges.journal
        before, clock = journal.exchange(study.digest, number)
        if before not in (None, asked):
            raise InputError(
                f"{journal.path}: question {number} of this run differs from the recorded one: the "
                "program or the machine's arithmetic changed; propose the study anew"
            )
        if before is None and journal.answered(study.digest) >= study.questions:
            raise InputError(
                f"the study allows {study.questions} questions, and there is no result after them: "
                "propose one with more (questions), or with another method"
            )
        return journal.responses(study.digest, number), clock

    def _send(
        self,
        asked: bytes,
        messages: Mapping[str, Inquiry],
        timeout: float,
        largest: int,
        check: Check,
    ) -> dict[str, Recorded]:
        """Ask sites; by files, raise ``Waiting`` if one has not answered yet."""
        study, journal = self._exchanges.study, self._exchanges.journal
        if self._began is None:
            self._began = time.monotonic() - self._time
        with journal.transaction():
            journal.open(study.digest, self.number, asked)
        results = self._exchanges.send(self.number, messages, timeout, largest, check)
        silent = {name: e.trouble for name, e in results.items() if e.outcome == "silent"}
        if silent and not self._exchanges.waits:
            raise Waiting(self.number, silent)
        return results


class OpenChannel(StudyChannel):
    """The sites of an open study, which may be absent for some of its exchanges.

    ``without`` has sites that are not waited for, each with the reason.
    """

    def __init__(
        self, exchanges: Exchanges, names: Sequence[str], without: Mapping[str, str]
    ) -> None:
        super().__init__(exchanges, names)
        self._without = without

    def _exchange(
        self, requests: Mapping[str, Request], questions: Mapping[str, bytes], timeout: float
    ) -> dict[str, Recorded]:
        self.number += 1
        study, journal = self._exchanges.study, self._exchanges.journal
        asked = digest(
            *(part for name, each in questions.items() for part in (name.encode(), each))
        )
        found, clock = self._begin(self.number, asked)
        if clock is not None:
            self._time = clock
            return found
        messages = {
            name: self._exchanges.inquiry(self.number, each, name)
            for name, each in questions.items()
            if name not in found and name not in self._without
        }

        def check(site: str, response: Response) -> None:
            decode_answer(requests[site], response.value)

        largest = max(map(answer_limit, requests.values()))
        results = self._send(asked, messages, timeout, largest, each_alone(check))
        for name in questions.keys() - messages.keys() - found.keys():
            results[name] = Recorded("refused", None, f"left out: {self._without[name]}", 0.0)
        with journal.transaction():
            for name, each in results.items():
                if each.data is None:
                    journal.add(study.digest, self.number, name, each)
            journal.close_exchange(study.digest, self.number, self.now())
        return found | results

    def _reply(self, name: str, request: Request, recorded: Recorded) -> Reply:
        if recorded.data is None:
            return _no_answer(recorded)
        answer = decode_answer(request, self._exchanges.response(name, recorded).value)
        return Reply("answer", answer, seconds=recorded.seconds)


class SecureChannel(StudyChannel):
    """The sites of a secure study: all of them answer every question, or it waits."""

    def __init__(self, exchanges: Exchanges) -> None:
        super().__init__(exchanges, list(exchanges.study.members))
        self._transcript = exchanges.study.digest
        self._posts = self._exchanges.posts(JOINING)
        self._asked = b""

    def _exchange(
        self, requests: Mapping[str, Request], questions: Mapping[str, bytes], timeout: float
    ) -> dict[str, Recorded]:
        if len(set(questions.values())) != 1:
            raise InputError("secure sums: every site has to be asked the same question")
        question = next(iter(questions.values()))
        if question != self._asked:  # otherwise it is repeated, as some have not answered
            if self.number != JOINING:
                self._posts = self._exchanges.posts(self.number)
            self._transcript = masks.extended(self._transcript, self._posts)
            self.number, self._asked = self.number + 1, question
        study, journal = self._exchanges.study, self._exchanges.journal
        asked = digest(question)
        found, _ = self._begin(self.number, asked)
        messages = {
            name: self._exchanges.inquiry(self.number, question, name, self._posts)
            for name in questions
            if name not in found
        }
        if not messages:
            return found

        def check(answers: Mapping[str, Response]) -> dict[str, str]:
            # Masked numbers are uniform: nothing but their count and their place can be checked,
            # and how many there have to be is what most sites say, whoever answered first.
            before = {name: self._exchanges.response(name, each) for name, each in found.items()}
            every = {**before, **answers}
            lengths = Counter(len(each.value) for each in every.values())
            usual = lengths.most_common(1)[0][0] if lengths else 0
            wrong = {}
            for name, each in every.items():
                if each.transcript != self._transcript or len(each.value) != usual:
                    wrong[name] = "no contribution to the sum that was asked for"
                    found.pop(name, None)
            with journal.transaction():
                for name in before.keys() & wrong.keys():
                    journal.forget(study.digest, self.number, name)
            return wrong

        # an answer has eight bytes for a number
        largest = masks.NUMBER // 8 * max(map(answer_limit, requests.values()))
        results = self._send(asked, messages, timeout, largest, check)
        return found | results

    def _reply(self, name: str, request: Request, recorded: Recorded) -> Reply:
        if recorded.data is None:
            # whose text it is depends on where it came from, not on what it claims
            reply = _no_answer(recorded)
            return reply._replace(text=f"{name}: {reply.text}")
        numbers = fixed_point.from_bytes(self._exchanges.response(name, recorded).value)
        return Reply("answer", numbers, seconds=recorded.seconds)


class TranscriptChannel(TimelessChannel):
    """The members of a secure study as a site sees them: the sums that it has added up itself.

    The first question that has no sum in ``totals`` is raised as ``NextQuestion``.
    ``keys`` has what each question before it calls the coordinates that it is about.
    """

    def __init__(self, study: Study, totals: Sequence[Limbs]) -> None:
        self.names = [[name] for name in study.members]
        self.keys: list[str] = []
        self._totals = totals

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        if len(self.keys) == len(self._totals):
            raise NextQuestion(requests[0])
        total = self._totals[len(self.keys)]
        self.keys.append(requests[0].key)
        nothing = fixed_point.encode([0.0] * len(total))
        # the sum is all that the analysis sees: whose contribution is which does not matter
        return {at: Reply("answer", nothing if at else total) for at in requests}


def _no_answer(recorded: Recorded) -> Reply:
    outcome = recorded.outcome if recorded.outcome in ("refused", "failed") else "silent"
    return Reply(outcome, text=recorded.trouble, seconds=recorded.seconds)
