"""Standard errors, and what each client contributes to the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc

from fedsplit.arrays import Array
from fedsplit.loop.trace import Trace
from fedsplit.regression.client.design import Calibration
from fedsplit.regression.server.clustered import ClusteredCovariance

SINGULAR = 1e-13
"""An eigenvalue below this share of the largest may be rounding alone."""

CLIENT_COLUMNS = ("n", "missing", "leverage", "score", "shift", "coefficient")
"""The columns of ``contributions``."""


class PenalisedLikelihood(NamedTuple):
    """log L + ½ log det of the information, which Firth's regression maximises.

    Attributes
    ----------
    value : float
        At the estimate.
    null : float or None
        The maximum over the intercept alone, with the same columns in the information; None where
        the model has an offset.
    df : int
        How many coefficients there are beside the intercept.
    """

    value: float
    null: float | None
    df: int

    @property
    def ratio(self) -> float | None:
        """The likelihood ratio statistic of all covariates; None without ``null``."""
        if self.null is None:
            return None
        return 2.0 * (self.value - self.null)

    @property
    def p(self) -> float | None:
        """Its p-value by the χ² distribution."""
        if self.ratio is None or self.df == 0:
            return None
        return float(chdtrc(self.df, self.ratio))


class Inference(NamedTuple):
    """The numbers of a regression table, under the names that they have in ``Model``.

    They are in the units of the files, except for x, which is in the coordinates of the rounds.
    """

    names: Sequence[str]
    aliased: Sequence[str]
    coef: Array
    covariance_: Array | None
    robust: ClusteredCovariance | None
    errors: Array
    dispersion: float
    deviance: float
    null_deviance: float | None
    log_likelihood: float | None
    calibration: Calibration | None
    clients: pd.DataFrame
    trace: Trace
    proofs: Sequence[tuple[int, float | None]]
    floats: int
    converged: bool
    x: Array
    penalised: PenalisedLikelihood | None = None
    pearson: float | None = None

    def without(self, names: Collection[str]) -> Inference:
        """The same without numbers for these coefficients."""
        lost = np.array([name in names for name in self.names])
        either = lost[:, None] | lost

        def blank(matrix: Array | None) -> Array | None:
            if matrix is None:
                return None
            return np.where(either, np.nan, matrix)

        return self._replace(
            coef=np.where(lost, np.nan, self.coef),
            covariance_=blank(self.covariance_),
            robust=self.robust and self.robust.without(lost),
            errors=np.where(lost, np.nan, self.errors),
            aliased=[name for name in self.aliased if name not in names],
        )


def inverse(H: Array) -> Array:
    """H⁻¹, (d, d), of a positive definite H; nan throughout if H is nearly singular."""
    diagonal = np.diag(H)
    if not (np.isfinite(H).all() and (diagonal > 0).all()):
        return np.full(H.shape, np.nan)
    scale = 1.0 / np.sqrt(diagonal)  # so that units do not pass for singularity
    spectrum, Q = np.linalg.eigh(scale[:, None] * H * scale)
    if spectrum[0] <= SINGULAR * spectrum[-1]:
        return np.full(H.shape, np.nan)
    R: Array = scale[:, None] * Q / np.sqrt(spectrum)
    return R @ R.T


def contributions(
    sizes: Mapping[str, int],
    missing: Mapping[str, int],
    gradients: Array,
    information: Array,
    H: Array,
    back: Array,
    names: Sequence[str],
    dispersion: float,
) -> pd.DataFrame:
    """What each client contributes to the answer, to first order.

    Without client j the gradient of the others is -g_j, so that the coefficients move by
    (H - H_j)⁻¹ g_j.

    Parameters
    ----------
    sizes : mapping
        The rows of each of the m clients of the rounds, in their order.
    missing : mapping
        The rows that each client left out, those of clients without a complete row included.
    gradients, information : (m, d) and (m, d, d) arrays
        g_j and H_j at the solution, of the losses alone.
    H : (d, d) array
        The Hessian of the whole objective.
    back : (d, d) array
        Takes the coordinates of the rounds to coefficients.
    names : sequence of str
        Of the coefficients.
    dispersion : float
        φ, in the coordinates of the rounds.

    Returns
    -------
    DataFrame
        One row per client of ``missing``: ``n`` rows used and ``missing``; ``leverage``, its share
        of the information, tr(H⁻¹H_j)/d; ``score``, the length of g_j in the norm of the
        covariance; and ``coefficient``, the one that would move most without this client, with its
        ``shift`` in standard errors.
    """
    V = inverse(H)
    dispersion = max(dispersion, np.finfo(np.float64).tiny)  # 0 of a perfect fit
    errors = np.sqrt(dispersion * np.diag(back @ V @ back.T))
    rows = {name: (0, left_out, 0.0, 0.0, np.nan, "") for name, left_out in missing.items()}
    for (name, n), g, H_j in zip(sizes.items(), gradients, information, strict=True):
        leverage = float(np.sum(V * H_j) / len(V))
        score = float(np.sqrt(g @ V @ g / dispersion))
        shift = np.nan
        coefficient = ""
        if len(sizes) > 1:
            move = back @ (inverse(H - H_j) @ g) / errors
            if np.isfinite(move).all():
                most = int(np.argmax(np.abs(move)))
                shift = float(move[most])
                coefficient = names[most]
        rows[name] = (n, missing[name], leverage, score, shift, coefficient)
    index = pd.Index(list(rows), name="client")
    return pd.DataFrame(list(rows.values()), index=index, columns=list(CLIENT_COLUMNS))
