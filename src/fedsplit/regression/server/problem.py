"""One regression in the coordinates of its rounds: a value, which asks nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.methods import affordable
from fedsplit.penalties.coordinatewise import NonNegativeElasticNet
from fedsplit.regression.client.coding import Frame
from fedsplit.regression.client.design import Scaling
from fedsplit.regression.families.family import Family
from fedsplit.regression.options import AUTO, Settings
from fedsplit.regression.server.coordinates import Coordinates, Pool, find_coordinates
from fedsplit.regression.server.federation import CodedRows

INFORMATION = "information"
"""The name of the method with matrices."""


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
    """What is minimised, and what that means in the units of the files.

    Columns are always centred and scaled for the rounds; ``standardize`` only decides on which
    scale a penalty acts. Without a penalty they are also made orthonormal over all clients, so that
    columns that nearly depend on each other, such as a year and its square, cost no rounds.

    Attributes
    ----------
    settings : Settings
        With the name of the method that was chosen.
    names : list of str
        The q coefficients, those of aliased columns included.
    frame : Frame
        What makes the clients' costs of their designs.
    """

    rows: CodedRows
    settings: Settings
    names: list[str]
    pool: Pool
    coordinates: Coordinates
    frame: Frame

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
    def scaling(self) -> Scaling:
        return self.frame.scaling

    @property
    def unit(self) -> float:
        """The objective of the files over that of the rounds."""
        return self.scaling.unit**2

    @property
    def basis(self) -> Array:
        return self.coordinates.basis

    @property
    def back(self) -> Array:
        return self.coordinates.back

    @property
    def kept(self) -> Mask:
        return self.coordinates.kept

    @property
    def aliased(self) -> list[str]:
        """The coefficients of columns that those before them determine."""
        return [name for name, kept in zip(self.names, self.kept, strict=True) if not kept]

    @property
    def bounded(self) -> bool:
        """Whether there is a minimiser without a penalty of the server, whatever the data."""
        return self.settings.ridge > 0 or self.family.bounded

    @property
    def reports_separation(self) -> bool:
        """Whether coefficients that grow without bound are reported rather than refused."""
        return self.settings.separation == "report"

    def by_name(self, x: Array) -> dict[str, float]:
        """The coefficients at x in the units of the files, by name."""
        return dict(zip(self.names, self.coordinates.coefficients(x).tolist(), strict=True))

    def penalised(self, power: int) -> Array:
        """The factor of a penalty on |coefficient|^power in the coordinates of the rounds, (d,).

        0 for the intercept.
        """
        scale = self.scaling.scale
        if self.settings.standardize:
            scale = np.ones_like(scale)
        # the objective of the rounds is that of the files over unit²
        factor = (self.scaling.unit / scale) ** power / self.unit
        if self.pool.intercept is not None:
            factor[self.pool.intercept] = 0.0
        return self.coordinates.for_each(factor, 0.0)[self.kept]

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
        columns = [
            name for block in self.coordinates.blocks for name in (block.own or self.pool.names)
        ]
        pairs = zip(self.names, columns, strict=True)
        constrained = np.array([name in chosen or column in chosen for name, column in pairs])
        # in the rounds columns are centred, and these have another sign there
        moved = self.coordinates.for_each(self._is_intercept.astype(np.float64), 1.0) > 0
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
        return replace(self.with_ridge(ridge * self.penalised(2)), settings=settings)

    def with_spread(self, spread: float) -> FitProblem:
        """The same regression with parameters of its family in these units."""
        return replace(self, frame=replace(self.frame, spread=spread))

    def with_ridge(self, ridge: Array) -> FitProblem:
        """The same regression with this ridge, (d,), at the clients."""
        return replace(self, frame=replace(self.frame, ridge=ridge))

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
            return self.coordinates.point(np.array([reached[name] for name in self.names]))
        x = None
        if self.family.has_units and self.settings.method == INFORMATION:
            x = self.least_squares
        return self.intercept_alone if x is None else x

    @property
    def least_squares(self) -> Array | None:
        """The fit of least squares by the moments, (d,), but for rounding; None if there is none.

        Only of a family with units, whose clients tell the products with the target.
        """
        H = self.basis.T @ self.pool.products(self.scaling) @ self.basis
        products = self.basis.T @ self.pool.target_products(self.scaling)
        x: Array = inverse(H + np.diag(self.frame.ridge)) @ products
        return x if np.isfinite(x).all() else None

    @property
    def intercept_alone(self) -> Array:
        """The model without covariates, (d,); 0 without an intercept."""
        pool = self.pool
        x = np.zeros((self.coordinates.predictors, len(pool.names)))
        if pool.intercept is not None:
            eta = self.family.null_predictor(pool.target, pool.classes, pool.log_exposure)
            x[:, pool.intercept] = (eta - self.scaling.origin) / self.scaling.unit
        own = self.family.null_own(pool.classes)
        return self.coordinates.point_of_scaled(np.concatenate([x.ravel(), own]))

    @property
    def _is_intercept(self) -> Mask:
        """Which of the p columns is the constant term."""
        found: Mask = np.arange(len(self.pool.names)) == self.pool.intercept
        return found

    @property
    def intercepts(self) -> Array:
        """The directions in which the predictors of all rows grow alike, (d, k)."""
        each = np.diag(self.coordinates.for_each(self._is_intercept.astype(np.float64), 1.0))
        return self.coordinates.point_of_scaled(each[:, each.any(axis=0)])


def set_up(rows: CodedRows, settings: Settings) -> Dialogue[FitProblem]:
    """The regression of coded rows."""
    family = settings.chosen_family
    pool = Pool(rows.moments, rows.intercept, centred=family.absorbs == "a constant")
    family.check_pool(pool)
    found = yield from find_coordinates(rows, pool, settings, family.blocks(rows.plan.classes))
    names = [name for block in found.blocks for name in block.names(pool.names)]
    d = int(found.kept.sum())
    if settings.method == AUTO and not settings.firth:
        chosen = INFORMATION
        if not (rows.matrices and affordable(len(rows.names), d)):
            chosen = "quasi-newton"
            if settings.secure:
                raise InputError(_no_matrices(rows, d))
        settings = replace(settings, method=chosen)
    problem = FitProblem(rows, settings, names, pool, found, found.frame)
    return problem.with_ridge(settings.ridge * problem.penalised(2))


def _no_matrices(rows: CodedRows, d: int) -> str:
    """Why there can be no secure sums."""
    why = f"{d} coefficients are too many for matrices"
    if not rows.matrices:
        why = "the rules of a client allow no matrix in every round"
    return f"secure sums need the method information, and {why}: fit fewer columns, or openly"
