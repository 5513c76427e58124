"""Whether a client under rules tells how its predictions are spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.answered import Asked, SinglesOut
from fedsplit.regression.client.guards.blocks import of_calibration
from fedsplit.regression.client.guards.matrices import Ledger
from fedsplit.regression.client.guards.rules import Rules

MOST_CALIBRATIONS = 5
"""How often a client under rules counts the predictions of targets with the same column."""


def may_calibrate(
    dataset: Dataset | None, design: Design, asked: Asked, ledgers: Sequence[Ledger], rules: Rules
) -> bool:
    """Whether counts of predictions may be told; if so, they are recorded.

    Parameters
    ----------
    dataset : Dataset or None
        Of the client, if what it has answered is known here.
    design : Design
        Its rows, scaled.
    asked : Asked
        With the point at which predictions are counted.
    ledgers : sequence of Ledger
        The calibrations of each column of the target.
    rules : Rules
    """
    assert asked.point is not None
    digest = asked.digest
    if any(each.total >= MOST_CALIBRATIONS and digest not in each for each in ledgers):
        return False
    for each in ledgers:
        each.add(digest, 1)
    if dataset is None:
        return True
    # there has to be room for other models after it
    careful = replace(rules, leverage=0.5 * rules.leverage)
    try:
        dataset.admit(asked, of_calibration(design, asked.point, rules.withheld), careful)
    except SinglesOut:
        return False
    return True
