"""What clients of a fit tell of their rows, as numbers that may be added, and the sums read back.

Each pair is about one kind of entry. Products about a client's own mean are told about zero,
exactly, so that the server subtracts the mean of all rows without a rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedsplit.arrays import Array, packed, unpacked
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.regression.client.design import BINS, Calibration, Moments
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.measuring import Measured
from fedsplit.sums import (
    SMALLEST_SQUARE,
    Summands,
    Total,
    about_means,
    quotients,
    rounded,
)

EXPOSED = 80.0
"""The logarithm of an exposure is at most this, and at least its negative in a sum: it is a start
only."""


def add_measured(to: Summands, statistics: Mapping[str, Statistic], entry: Measured) -> None:
    """How many rows have a value, and the parts of statistics."""
    to.add([entry.used])
    for text, statistic in statistics.items():
        statistic.add(to, entry.parts[text])
    add_warnings(to, entry.warnings)


def read_measured(total: Total, statistics: Mapping[str, Statistic]) -> Measured:
    """The statistics of the rows of all clients."""
    used = total.count()
    parts = {text: statistic.read(total) for text, statistic in statistics.items()}
    return Measured(used, parts, read_warnings(total))


def add_warnings(to: Summands, warnings: Sequence[Finding]) -> None:
    """Whether there are any: what they say is for the client's owner alone."""
    to.add([float(bool(warnings))])


def read_warnings(total: Total) -> list[Finding]:
    """How many clients have warnings, if some do."""
    count = total.count()
    if not count:
        return []
    what = "clients have warnings about their rows"
    one = f"{count} of {total.m} {what}, which with secure sums their owners alone see"
    return [Finding("", one, what, "")]


def add_moments(to: Summands, moments: Moments) -> None:
    """Sums of weights, columns, and products of columns about zero."""
    means = np.array([*moments.mean, moments.target_mean, moments.net_mean])
    # that of y is not told, and about that of the target
    own = moments.target_scatter
    scatters = np.array([*np.diag(moments.scatter), own, own])
    squares = scatters + moments.weight * np.square(means)
    # a sum of squares that the unit swallows would be zero for the server
    to.require(bool(((squares[:-1] == 0) | (squares[:-1] >= SMALLEST_SQUARE)).all()))
    to.add([moments.n, moments.floor, *moments.classes])
    to.add([math.exp(min(moments.log_exposed, EXPOSED))])
    p = len(moments.mean)
    columns = np.arange(len(moments.cross))
    i, j = np.tril_indices(p)
    pairs = (np.concatenate([i, [p], columns]), np.concatenate([j, [p], 0 * columns + p + 1]))
    within = np.concatenate([packed(moments.scatter), [own], moments.cross])
    to.add_about_means(moments.weight, means, scatters, pairs, within)


def read_moments(total: Total, names: Sequence[str], classes: int, quadratic: bool) -> Moments:
    """The moments of the rows of all clients, each rounded once."""
    p = len(names)
    n, floor = total.count(), total.number()
    counts = tuple(total.count() for _ in range(classes))
    exposed = total.number()
    i, j = np.tril_indices(p)
    told = total.wide(1 + p + 2 + len(i) + 1 + p * quadratic)
    weight, sums, target, net = told[0], told[1 : p + 1], told[p + 1], told[p + 2]
    products, [square, *crossed] = np.split(told[p + 3 :], [len(i)])
    cross: Array = np.zeros(0)
    if quadratic:
        cross = about_means(np.array(crossed, dtype=object), sums, net, weight)
    scatter = unpacked(about_means(products, sums[i], sums[j], weight))
    np.fill_diagonal(scatter, np.maximum(np.diag(scatter), 0.0))
    return Moments(
        names=names,
        n=n,
        weight=rounded(weight),
        mean=quotients(sums, weight),
        scatter=scatter,
        target_mean=target / weight,
        target_scatter=max(0.0, float(about_means(square, target, target, weight))),
        log_exposed=math.log(max(exposed, math.exp(-EXPOSED))),
        classes=counts,
        floor=floor,
        net_mean=net / weight,
        cross=cross,
    )


def add_number(to: Summands, value: float | None) -> None:
    """A number if there is one, and whether there is; an infinite one is counted."""
    to.add([float(value is not None)])
    add_entries(to, value or 0.0)


def read_number(total: Total) -> float | None:
    """A number that was added by ``add_number``; nan if that of a client is infinite."""
    known = total.count()
    [value] = read_entries(total, 1)
    if not known:
        return None
    return float(value)


def add_entries(to: Summands, entries: float | Array) -> None:
    """The entries of an array, and whether they are infinite."""
    known = np.atleast_1d(np.asarray(entries, dtype=np.float64))
    usable = np.isfinite(known).all()
    to.add(known if usable else np.zeros_like(known))
    to.add([float(not usable)])


def read_entries(total: Total, *shape: int) -> Array:
    """An array that was added by ``add_entries``; nan throughout if that of a client was."""
    found = total.take(*shape)
    if total.count():
        return np.full(shape, np.nan)
    return found


def add_calibration(to: Summands, calibration: Calibration | None) -> None:
    """Counts if there are any, and whether there are."""
    to.add([float(calibration is not None)])
    to.add(np.array(calibration or Calibration.withheld()))


def read_calibration(total: Total) -> Calibration | None:
    """The counts of all clients."""
    known = total.count()
    found = Calibration(*total.take(3, len(BINS) - 1))
    if not known:
        return None
    return found
