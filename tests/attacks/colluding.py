"""A server with secure sums whose partners tell it what they added: it reads what a site adds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.server import NAME, Refused, Server
from fedsplit.channels.channel import Request
from fedsplit.channels.summed import FEWEST
from fedsplit.clients.question import Question
from fedsplit.errors import InputError
from fedsplit.remote.messages import read_reply, write_request
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site
from fedsplit.sums import Total


class UnmaskedSite(Site):
    """A site whose masks everybody else knows, in a study that allows everything."""

    def _answer(self, request: Request) -> Any:
        self._check_allowed(request, self.name)
        [numbers] = self._from_rows(request, self._cohort.sums.contributions)
        return numbers.view(np.int64)


class Colluding(Server):
    """The same attacks by what the site adds to sums of three."""

    def started(self, fresh: bool = False) -> Site:
        options = SiteOptions(rules=self.rules, fresh=fresh)
        site = UnmaskedSite(NAME, str(self.path), folder=self.folder, options=options)
        site._rows.cohort.records = True
        return site

    def ask(self, question: Question, key: str = "") -> Any:
        asked = question.for_sums(FEWEST)
        message = write_request(Request(asked, key, FEWEST, sums=True))
        reply = read_reply(self.site.reply(message), NDArray[np.int64], 0.0)
        if reply.outcome != "answer":
            raise Refused(reply.text)
        try:
            found = asked.of_total(Total(reply.value.view(np.uint64), 1))
        except InputError as error:  # the site has added nothing
            raise Refused(str(error)) from None
        return found[0] if isinstance(found, list) else found
