"""Grouped targets of two classes: rows that stand for several trials.

A row of s successes and f failures is fitted as two rows, of each class, with weights s and f:
coefficients, standard errors and separation follow as for single trials. What R counts and measures
by group, rather than by trial, is kept in ``Groups``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from fedsplit.arrays import Array, Mask

WHOLE = 1e-3
"""A count may be so far from a whole number: R's tolerance."""


class Groups(NamedTuple):
    """What is counted by group.

    Attributes
    ----------
    rows : int
        Groups with at least one trial.
    floor : float
        The loss of the model that predicts the share of each group.
    log_choices : float
        Σ log C(s + f, s), which the log-likelihood of trials in any order has in addition.
    """

    rows: int
    floor: float
    log_choices: float


class Trials(NamedTuple):
    """Grouped rows, as rows of one class each.

    Attributes
    ----------
    rows : (n,) array of int
        Which group each one belongs to.
    b, w : (n,) arrays
        Class and weight.
    groups : Groups
    """

    rows: Array
    b: Array
    w: Array
    groups: Groups


def whole(counts: Array) -> Mask:
    """Which are whole numbers from 0 on, (n,)."""
    valid: Mask = np.isfinite(counts) & (counts >= 0) & (np.abs(counts - np.rint(counts)) <= WHOLE)
    return valid


def of_counts(successes: Array, failures: Array, weights: Array) -> Trials:
    """Split groups into rows of one class.

    Parameters
    ----------
    successes, failures : (k,) arrays
    weights : (k,) array
        How often each group counts; a group of weight 0 is left out.
    """
    trials = successes + failures
    used = (trials > 0) & (weights > 0)
    w = np.concatenate([weights * successes, weights * failures])
    b = np.repeat([1.0, 0.0], len(trials))
    rows = np.tile(np.arange(len(trials)), 2)
    # in the order of the groups
    order = np.argsort(rows[w > 0], kind="stable")
    s, f, m, v = (each[used] for each in (successes, failures, trials, weights))
    floor = float(v @ -(xlogy(s, s / m) + xlogy(f, f / m)))
    choices = float(v @ (gammaln(m + 1.0) - gammaln(s + 1.0) - gammaln(f + 1.0)))
    groups = Groups(int(used.sum()), floor, choices)
    return Trials(rows[w > 0][order], b[w > 0][order], w[w > 0][order], groups)
