"""How a model was computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from fedsplit.clients.oracle import Incident
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.server.report import FitCertificate


@dataclass(frozen=True, eq=False)
class Computation:
    """How a model was computed, and what is proved about it.

    Attributes
    ----------
    certificate : FitCertificate
    converged : bool
        Whether the tolerance is proved.
    trace : Trace
        One row per exchange with the clients, from their files to the table.
    first_round, rounds : int
        Which row of the trace is the method's first, and how many there are of it, set-up and
        proofs included.
    proofs : sequence of (int, float or None)
        The round of each proof, and the gap that it proves.
    warnings : sequence of str
        What could disclose single rows, and what was left out.
    version : str
        Of fedsplit.
    removed : mapping of str to str
        The clients that were removed during the run, with the reason: the model is that of the
        others.
    incidents : sequence of Incident
        Answers of remote clients that failed or were refused.
    logs : mapping of str to str
        Between organisations, the number and the hash of the last line of each client's log when
        the run ended, as in ``12:3f2a…``: with ``fedsplit audit`` its owner can show that the log
        was not cut short since.
    summed : sequence of str
        With ``secure``, the clients whose answers were added up.
    """

    certificate: FitCertificate
    converged: bool
    trace: Trace
    first_round: int
    rounds: int
    proofs: Sequence[tuple[int, float | None]]
    warnings: Sequence[str]
    version: str
    removed: Mapping[str, str] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    summed: Sequence[str] = ()

    def among(self, others: Sequence[Row]) -> Computation:
        """Return the run with the exchanges before and after its rounds.

        Those of a run that lost a client have set-ups of their own, and come before.
        """
        early = [at for at, row in enumerate(others, 1) if row.kind in ("handshake", "setup")]
        first = max(early, default=0)
        rows = [*others[:first], *self.trace.rows, *others[first:]]
        return replace(self, trace=Trace(self.trace.start, rows), first_round=first)

    @property
    def exchanges(self) -> int:
        """The number of exchanges with every client."""
        return sum(row.questions for row in self.trace.rows)

    @property
    def floats(self) -> int:
        """Numbers sent, both ways, over all clients."""
        return sum(row.floats_up + row.floats_down for row in self.trace.rows)

    @property
    def of_rounds(self) -> Trace:
        """The rows of the method's rounds alone."""
        last = self.first_round + self.rounds
        return Trace(self.trace.start, self.trace.rows[self.first_round : last])

    @property
    def attendance(self) -> pd.DataFrame:
        """How remote clients answered, one row per client.

        Columns: rounds ``answered``, ``median`` and ``longest`` seconds to an answer, the number
        of ``incidents``, and whether the client was ``removed``.
        """
        incidents = Counter(incident.client for incident in self.incidents)
        latency = self.of_rounds.latency
        names = list(dict.fromkeys([*latency, *self.removed]))
        rows = []
        for name in names:
            seconds = latency.get(name, np.zeros(0))
            answers = seconds[np.isfinite(seconds)]
            median = longest = np.nan
            if answers.size:
                median = float(np.median(answers))
                longest = float(np.max(answers))
            rows.append((answers.size, median, longest, incidents[name], name in self.removed))
        columns = ["answered", "median", "longest", "incidents", "removed"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name="client"))
