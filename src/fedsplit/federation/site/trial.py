"""A study that is tried on the own rows alone, before its owner approves it.

The analysis runs in this process under the rules of the site, so that a question which would be
refused is found before others have answered. Nothing is recorded, and nothing is sent.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedsplit import fixed_point
from fedsplit.channels.channel import Reply, Request, TimelessChannel
from fedsplit.errors import InputError
from fedsplit.federation import masks
from fedsplit.federation.questions import encode_request
from fedsplit.federation.site.rows import StudyRows
from fedsplit.federation.study import Study
from fedsplit.regression.client.guards.rules import ADVICE
from fedsplit.regression.client.questions import FitQuestion


class Trial(NamedTuple):
    """What became of a study on the own rows alone.

    Attributes
    ----------
    answered : int
        How many questions could be answered.
    refused : str
        Why the next one would be refused; empty if none was.
    ended : str
        Why the analysis of these rows alone ended before it had a result, which says nothing of
        the analysis of all sites; empty if it had one.
    notes : list of str
        What the owner alone should know.
    copy : str
        The name of the copy of the rows that it was tried on; empty if there was none.
    """

    answered: int = 0
    refused: str = ""
    ended: str = ""
    notes: Sequence[str] = ()
    copy: str = ""

    def lines(self) -> list[str]:
        """The same in words."""
        found = f"all {self.answered} questions would be answered, by your rows and rules alone"
        if self.refused:
            found = f"REFUSED: question {self.answered + 1} would not be answered: {self.refused}"
        elif self.ended:
            found = (
                f"{self.answered} questions would be answered; more could not be tried, as your "
                f"rows alone have no such model ({self.ended})"
            )
        return [found, *(f"note: {each}" for each in self.notes)]


class _Refused(Exception):
    """A question that these rows would not answer: no InputError, which an analysis may catch."""


class TrialChannel(TimelessChannel):
    """The own rows in the place of all sites: in a secure study the others add zeros.

    Attributes
    ----------
    answered : int
    warnings : list of str
        What the coordinator of an open study would be warned of.
    """

    def __init__(self, study: Study, name: str, rows: StudyRows) -> None:
        self.names = [[each] for each in study.members] if study.secure else [[name]]
        self.answered = 0
        self.warnings: list[str] = []
        self._study = study
        self._rows = rows
        self._memory: bytes | None = None
        self._preparations: dict[str, Any] = {}

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        request = requests[0]
        if request.preparation is not None:
            self._preparations[request.key] = request.preparation
        elif request.key and not self._rows.has_prepared(request.key):
            request = request._replace(preparation=self._preparations[request.key])
        try:
            if self.answered == self._study.questions:
                raise InputError(f"the study allows {self.answered} questions, which are too few")
            self._study.analysis.check_request(self._study, request, self.answered)
            value = self._value(request)
        except InputError as error:
            raise _Refused(str(error)) from None
        self.answered += 1
        if not self._study.secure:
            return {0: Reply("answer", value)}
        nothing = fixed_point.encode([0.0] * len(value))
        return {at: Reply("answer", nothing if at else value) for at in requests}

    def _value(self, request: Request) -> Any:
        if not self._study.secure:
            columns = self._study.analysis.columns
            value = request.question.narrowed(self._rows.answer(request), columns)
            if isinstance(request.question, FitQuestion):
                for entry in request.question.entries(value):
                    self.warnings += [each.one for each in getattr(entry, "warnings", ())]
            return value
        stream = masks.last_digits(bytes(32), encode_request(request))
        value, self._memory = self._rows.contribution(request, self._memory, stream)
        return value


def tried(study: Study, name: str, rows: StudyRows) -> Trial:
    """Run the analysis of a study on the own rows."""
    channel = TrialChannel(study, name, rows)
    refused = ended = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a model that nobody will see
            study.analysis.run(channel, study.secure)
    except _Refused as error:
        refused = str(error).replace(ADVICE, "change it in site.toml, or decline the study")
    except (ValueError, ArithmeticError, RuntimeError) as error:
        # A model of all sites may well be none of one of them.
        ended = str(error)
    notes = dict.fromkeys([*channel.warnings, *rows.notes()])
    return Trial(channel.answered, refused, ended, list(notes))
