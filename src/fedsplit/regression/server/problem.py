"""One regression in the coordinates of its rounds: a value, which asks nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.methods import affordable
from fedsplit.penalties.coordinatewise import NonNegativeElasticNet
from fedsplit.regression.client.design import Frame, combine
from fedsplit.regression.families.family import CoefficientBlock, Family
from fedsplit.regression.options import AUTO, Settings
from fedsplit.regression.server.coordinates import Pool, check_independent, orthogonalise
from fedsplit.regression.server.federation import CodedRows

INFORMATION = "information"
"""The name of the method with matrices."""

CANCELLING = 1e4
"""Terms so many times larger than their sum are added up in twice the working precision."""


def inverse(H: Array) -> Array:
    """H⁻¹, (d, d), of a positive definite H; nan throughout if H is nearly singular."""
    diagonal = np.diag(H)
    if not (np.isfinite(H).all() and (diagonal > 0).all()):
        return np.full(H.shape, np.nan)
    scale = 1.0 / np.sqrt(diagonal)  # so that units do not pass for singularity
    spectrum, Q = np.linalg.eigh(scale[:, None] * H * scale)
    # an eigenvalue below this share of the largest may be rounding alone
    if spectrum[0] <= 1e-13 * spectrum[-1]:
        return np.full(H.shape, np.nan)
    R: Array = scale[:, None] * Q / np.sqrt(spectrum)
    return R @ R.T


@dataclass(frozen=True, eq=False)
class FitProblem:
    """What is minimised over x, (d,), and how x is related to the q coefficients of a table.

    Columns are always centred and scaled for the rounds; ``standardize`` only decides on which
    scale a penalty acts. Without a penalty they are also made orthonormal over all clients, so that
    columns that nearly depend on each other, such as a year and its square, cost no rounds.

    Coefficients come in named blocks. Those of the linear predictors have one coefficient for each
    of the p columns; after them come those that belong to no column, such as thresholds.
    """

    rows: CodedRows
    settings: Settings  # with the name of the method that was chosen
    pool: Pool
    frame: Frame  # what makes the clients' costs of their designs
    blocks: tuple[CoefficientBlock, ...]
    names: list[str]  # the q coefficients, those of aliased columns included
    predictors: int  # how many blocks have a coefficient for each column
    kept: Mask  # (q,): the coefficients that are not aliased
    # (q, d): takes x to coefficients of the scaled columns; those that are aliased are 0
    basis: Array
    unscaling: Array  # (q, q): takes these to the units of the files
    # (q, d): takes x to coefficients in the units of the files, but for the origin of the target,
    # for which (q,) is added
    back: Array
    origin: Array

    @property
    def family(self) -> Family:
        return self.settings.chosen_family

    @property
    def m(self) -> int:
        """How many clients answer; one in secure sums."""
        return len(self.rows.names)

    @property
    def d(self) -> int:
        """How many coefficients are fitted: the rank."""
        return len(self.frame.ridge)

    @property
    def unit(self) -> float:
        """The objective of the files over that of the rounds."""
        return self.frame.scaling.unit**2

    @property
    def columns(self) -> Mask:
        """Which of the p columns are not aliased."""
        return self.kept[: len(self.pool.names)]

    @property
    def bounded(self) -> bool:
        """Whether there is a minimiser without a penalty of the server, whatever the data."""
        return self.settings.ridge > 0 or self.family.bounded

    def for_each(self, values: Array, own: float) -> Array:
        """One value for each coefficient, (q,): that of its column, or ``own`` if it has none."""
        others = np.full(len(self.kept) - self.predictors * len(values), own)
        each: Array = np.concatenate([np.tile(values, self.predictors), others])
        return each

    def coefficients(self, x: Array) -> Array:
        """The coefficients in the units of the files, (..., q), at x, (..., d); aliased ones 0."""
        coef: Array = x @ self.back.T + self.origin
        return coef

    def by_name(self, x: Array) -> dict[str, float]:
        """The coefficients at x in the units of the files, by name."""
        return dict(zip(self.names, self.coefficients(x).tolist(), strict=True))

    def point_of_scaled(self, coef: Array) -> Array:
        """x at which those of the scaled columns are these, (q,) or (q, k)."""
        return np.linalg.solve(self.basis[self.kept], coef[self.kept])

    def penalised(self, power: int) -> Array:
        """The factor of a penalty on |coefficient|^power in the coordinates of the rounds, (d,).

        0 for the intercept.
        """
        scaling = self.frame.scaling
        scale = np.ones_like(scaling.scale) if self.settings.standardize else scaling.scale
        # the objective of the rounds is that of the files over unit²
        factor = (scaling.unit / scale) ** power / self.unit
        if self.pool.intercept is not None:
            factor[self.pool.intercept] = 0.0
        return self.for_each(factor, 0.0)[self.kept]

    def penalty(self, l1: float, l2: float = 0.0) -> NonNegativeElasticNet | None:
        """The penalty of the server, with these weights and the constraints of the settings."""
        constraints = self.nonnegative
        if not (l1 or l2 or constraints.any()):
            return None
        return NonNegativeElasticNet(l1 * self.penalised(1), l2 * self.penalised(2), constraints)

    @property
    def nonnegative(self) -> Mask:
        """Which of those fitted are constrained, (d,), by their names or by those of columns."""
        chosen = set(self.settings.nonnegative)
        unknown = chosen - {*self.names, *self.pool.names}
        if unknown:
            raise InputError(
                f"nonnegative: there is no coefficient {listed(sorted(unknown))}; "
                f"there are {listed(self.names, 12)}"
            )
        columns = [name for block in self.blocks for name in (block.own or self.pool.names)]
        pairs = zip(self.names, columns, strict=True)
        constrained = np.array([not chosen.isdisjoint(pair) for pair in pairs])
        # in the rounds columns are centred, and these have another sign there
        moved = self.for_each(self._is_intercept, 1.0) > 0
        if (constrained & moved).any():
            first = self.names[int(np.argmax(constrained & moved))]
            raise InputError(
                f"nonnegative: {first} is the level that columns are measured from, and cannot be "
                "constrained: leave it out"
            )
        return constrained[self.kept]

    def with_penalties(self, l1: float, ridge: float, tol: float) -> FitProblem:
        """The same regression with other penalties and another tolerance."""
        settings = replace(self.settings, l1=l1, ridge=ridge, tol=tol)
        return replace(self.with_ridge(ridge), settings=settings)

    def with_spread(self, spread: float) -> FitProblem:
        """The same regression with parameters of its family in these units."""
        return replace(self, frame=replace(self.frame, spread=spread))

    def with_ridge(self, ridge: float) -> FitProblem:
        """The same regression with a ridge of this weight at the clients."""
        return replace(self, frame=replace(self.frame, ridge=ridge * self.penalised(2)))

    def null_mean(self, more: float) -> float:
        """The share of events, with ``more`` trials whose share is ½; ½ without an intercept."""
        if self.pool.intercept is None:
            return 0.5
        weight = self.pool.weight
        return (weight * self.pool.target + 0.5 * more) / (weight + more)

    def start(self, reached: Mapping[str, float]) -> Array:
        """The coefficients ``reached``, if they are of these columns, or an intercept alone.

        If the loss is quadratic, moments have a better start: the solution, but for rounding.
        """
        if set(reached) == set(self.names):
            coef = np.array([reached[name] for name in self.names]) - self.origin
            at: Array = np.linalg.solve(self.back[self.kept], coef[self.kept])
            return at
        x = None
        if self.family.has_units and self.settings.method == INFORMATION:
            x = self.least_squares
        return self.intercept_alone if x is None else x

    @property
    def least_squares(self) -> Array | None:
        """The fit of least squares by the moments, (d,), but for rounding; None if there is none.

        Only of a family with units, whose clients tell the products with the target.
        """
        scaling = self.frame.scaling
        H = self.basis.T @ self.pool.products(scaling) @ self.basis
        products = self.basis.T @ self.pool.target_products(scaling)
        x: Array = inverse(H + np.diag(self.frame.ridge)) @ products
        return x if np.isfinite(x).all() else None

    @cached_property
    def intercept_alone(self) -> Array:
        """The model without covariates, (d,); 0 without an intercept."""
        pool, scaling = self.pool, self.frame.scaling
        x = np.zeros((self.predictors, len(pool.names)))
        if pool.intercept is not None:
            eta = self.family.null_predictor(pool.target, pool.classes, pool.log_exposure)
            x[:, pool.intercept] = (eta - scaling.origin) / scaling.unit
        own = self.family.null_own(pool.classes)
        return self.point_of_scaled(np.concatenate([x.ravel(), own]))

    @property
    def _is_intercept(self) -> Array:
        """1 for the constant term among the p columns, and 0 for the others."""
        here: Array = (np.arange(len(self.pool.names)) == self.pool.intercept).astype(np.float64)
        return here

    @cached_property
    def intercepts(self) -> Array:
        """The directions in which the predictors of all rows grow alike, (d, k)."""
        each = np.diag(self.for_each(self._is_intercept, 1.0))
        return self.point_of_scaled(each[:, each.any(axis=0)])


def set_up(rows: CodedRows, settings: Settings) -> Dialogue[FitProblem]:
    """The regression of coded rows, with the method that suits it."""
    problem = yield from _in_coordinates(rows, settings)
    d = problem.d
    if settings.method == AUTO and not settings.firth:
        chosen = INFORMATION
        if not (rows.matrices and affordable(problem.m, d)):
            chosen = "quasi-newton"
            if settings.secure:
                why = f"{d} coefficients are too many for matrices"
                if not rows.matrices:
                    why = "the rules of a client allow no matrix in every round"
                raise InputError(
                    f"secure sums need the method information, and {why}: fit fewer columns, or "
                    "openly"
                )
        problem = replace(problem, settings=replace(settings, method=chosen))
    return problem.with_ridge(settings.ridge)


def _in_coordinates(rows: CodedRows, settings: Settings) -> Dialogue[FitProblem]:
    """Make columns orthonormal over all clients, unless a penalty acts on them as they are.

    Clients are asked for moments once more, if those of the pool are poor.
    """
    family = settings.chosen_family
    pool = Pool(rows.moments, rows.intercept, centred=family.absorbs == "a constant")
    family.check_pool(pool)
    blocks = family.blocks(rows.plan.classes)
    p = len(pool.names)
    scaling = pool.scaling(family.has_units)
    predictors = sum([block.of_columns for block in blocks])
    follows = np.concatenate([np.full(len(block.own), block.follows) for block in blocks])
    own = np.eye(len(follows))
    symmetric = predictors > 1 and settings.symmetric
    whiten: Array | None = None
    precise = False
    kept: Mask = np.ones(p, dtype=bool)
    columns: Array = np.eye(p)
    if not settings.ridge and not settings.l1:
        found = yield from orthogonalise(rows, pool, scaling)
        if settings.aliased == "refuse":
            check_independent(rows, pool, found)
        kept = found.kept
        columns = columns[:, kept]
        if not settings.nonnegative:
            columns = found.whiten
            # whether terms nearly cancel in the combinations
            precise = bool(np.abs(columns).sum(axis=0).max(initial=0.0) > CANCELLING)
        if not settings.nonnegative or found.aliased:
            whiten = columns
    # the predictors of a row are combinations of the blocks of x
    mix = family.mix(predictors + 1, symmetric)
    basis: Array = block_diag(np.kron(mix, columns), own)
    centre, scale, unit, start = scaling
    one = np.diag(unit / scale)  # of one predictor
    if pool.intercept is not None:
        one[pool.intercept] -= unit * centre / scale
    unscaling: Array = block_diag(np.kron(np.eye(predictors), one), own)
    unscaling[p * predictors :, :p] = np.outer(follows, unit * centre / scale)
    back: Array = unscaling @ basis
    origin: Array = np.zeros(len(back))
    if pool.intercept is not None:
        origin[pool.intercept] = start
        if precise:
            # large terms nearly cancel in the intercept too
            means = combine(np.eye(1, p, pool.intercept), centre, scale, columns)
            back[pool.intercept : p * predictors : p] = np.kron(mix, unit * means)
    kept = np.concatenate([np.tile(kept, predictors), np.ones(len(own), dtype=bool)])
    frame = Frame(scaling, whiten, 1.0, symmetric, np.zeros(basis.shape[1]), precise)
    names = [name for block in blocks for name in block.names(pool.names)]
    coefficients = names, predictors, kept, basis, unscaling, back, origin
    return FitProblem(rows, settings, pool, frame, blocks, *coefficients)
