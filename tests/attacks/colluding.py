"""A server with secure sums whose partners tell it what they added: it reads what a site adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attacks.server import Refused, Server
from fedsplit import fixed_point
from fedsplit.channels.channel import Request
from fedsplit.channels.summed import FEWEST
from fedsplit.clients.question import Question
from fedsplit.errors import InputError
from fedsplit.federation import keys, masks
from fedsplit.federation.keys import digest
from fedsplit.federation.messages import Inquiry, Response
from fedsplit.federation.questions import decode_request, encode_request
from fedsplit.federation.site.admission import admit
from fedsplit.federation.site.site import Site
from fedsplit.regression.client.plan import Coding
from fedsplit.sums import Total


class UnmaskedSite(Site):
    """A site whose masks everybody else knows, in a study to which every question belongs."""

    def _answer(self, inquiry: Inquiry) -> Response:
        state, _ = admit(self, inquiry)
        study, asked = state.study, digest(inquiry.question)
        rows, _ = self._rows_of(state)
        rows.records = True
        request = self.prepared(study, rows, decode_request(inquiry.question))
        memory = self.record.memory(study.digest)
        stream = masks.last_digits(state.secret, inquiry.question)
        numbers, after = rows.contribution(request, memory, stream)
        self.record.keep_memory(study.digest, after)
        value = fixed_point.to_bytes(numbers)
        self.disclosed.note_head(keys.public_bytes(self._key), self.record.head())
        sent = self._record(study, inquiry.number, asked, inquiry.question, value, b"")
        return self._response(study.digest, inquiry.number, sent)


class Colluding(Server):
    """The same attacks by what the site adds to sums of three."""

    kind = UnmaskedSite

    def coding(self, formula: str, family: str = "gaussian", **changes: Any) -> Coding:
        # a question about sums names no client: a site refuses one that does
        return replace(super().coding(formula, family, **changes), names=())

    def ask(self, question: Question, key: str = "") -> Any:
        asked = question.for_sums(FEWEST)
        request = Request(asked, key, FEWEST, self.settled.get(key), sums=True)
        response = self.asked.inquire(encode_request(request))
        if response.outcome != "answer":
            raise Refused(response.reason)
        try:
            found = asked.of_total(Total(fixed_point.from_bytes(response.value), 1))
        except InputError as error:  # the site has added nothing
            raise Refused(str(error)) from None
        return found[0] if isinstance(found, list) else found
