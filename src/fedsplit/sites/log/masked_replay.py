"""The masked answers of a log, computed again: the client's own masks are taken off first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsplit import fixed_point
from fedsplit.channels.channel import Request, Step
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.summing import Memory
from fedsplit.remote.messages import content_digest
from fedsplit.sites.studies.study import Study


class MaskedReplay:
    """Computes what a client added to sums again, in the order in which it was asked.

    Parameters
    ----------
    folder : Path
        Of the client's studies, with its keys.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By study, the last exchange with what was sent, and what the next one begins from.
        self._last: dict[str, tuple[Step, NDArray[np.int64]]] = {}
        self._memories: dict[str, Memory] = {}

    def difference(
        self,
        study: Study,
        cohort: DatasetCohort,
        request: Request,
        told: NDArray[np.int64],
        answer: Callable[[Callable[[Request], Any], Request], Any],
    ) -> float:
        """How far what was sent is from what comes out, relative to the largest number.

        Parameters
        ----------
        study : Study
        cohort : DatasetCohort
            The client as it was.
        request : Request
        told : (n, 4) array of int64
            What was sent.
        answer : callable
            Calls what answers with a request, and again with its preparation where that is needed.
        """
        from fedsplit.sites.secure.participation import SecureStudy  # needs cryptography

        step = request.step
        assert step is not None  # the answer is masked
        name = study.hash
        if name in self._last and self._last[name][0] == step:
            return 0.0 if np.array_equal(self._last[name][1], told) else np.inf  # asked again
        [own] = cohort.names
        site = SecureStudy(self._folder / name, name, study.members, own)
        digest = content_digest(request)
        cohort.sums.memory = self._memories.get(name, Memory())
        cohort.sums.stream = partial(site.stream, digest)
        [again] = answer(cohort.sums.contributions, request)
        self._memories[name] = cohort.sums.memory
        self._last[name] = step, told
        plain = site.unmasked(step.number, step.members, digest, told.view(np.uint64))
        if np.array_equal(plain, again):
            return 0.0
        if plain.shape != again.shape:
            return np.inf
        sent, found = fixed_point.decode(plain), fixed_point.decode(again)
        return float(np.abs(sent - found).max() / np.abs(sent).max(initial=2.0**-128))
