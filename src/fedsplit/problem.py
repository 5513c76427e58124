"""A federated problem: a loss, the clients' data, a ridge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from html import escape
from pathlib import Path
from typing import Self, cast

import numpy as np

from fedsplit.arrays import EPS, Array, Factors
from fedsplit.checks import count, instance, weights
from fedsplit.clients.questions import Gradient, Value
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.data.libsvm import read_libsvm
from fedsplit.data.splitting import split_rows
from fedsplit.device.backend import numbers
from fedsplit.device.clients import DeviceClients
from fedsplit.device.placing import StackedRows, belongs_on_device, place
from fedsplit.errors import InputError, NoMinimiser
from fedsplit.losses.scalar import Logistic
from fedsplit.losses.systems import conjugate_gradients
from fedsplit.losses.terms import Block, Loss
from fedsplit.threads import one_blas_thread

MOST_COORDINATES = 2000
"""The most coordinates for which ``Problem.solution`` factorises the pooled Hessian: with more it
takes minutes."""


class Problem:
    """Minimise F(x) = Σ_j f_j(x) + (λ/2)‖x‖², where f_j sums the loss over client j's observations.

    Parameters
    ----------
    loss : Loss
        ``LeastSquares()``, ``Logistic()``, ``Multinomial(classes)``, ``Poisson()``, ``Gamma()``,
        ``Huber(delta)``, or one of your own: ``ScalarLoss``, ``CustomLoss``, ``CvxpyLoss``.
    clients : sequence
        One (A, b), (A, b, weights) or (A, b, weights, offset) per client: A is (n_j, d), an array
        or a sparse one of SciPy's, which is never made dense; the others are (n_j,). Sizes n_j may
        differ. The predictor is η = Ax + offset; weights and offset may be None.
    ridge : float or (d,) array
        λ of the whole objective; each of the m clients carries λ/m.
    device : str, optional
        "cuda" puts the rows on a GPU. Arrays that are on a device already are taken as they are,
        also as ``StackedRows``. See docs/scale.md.
    dtype : str, optional
        "float32" or "float64", for rows on a device; None is that of the arrays.

    Attributes
    ----------
    clients : StackedClients or DeviceClients
        The in-process clients, an oracle that ``solve`` asks.
    m, d : int
        The number of clients, and of coordinates of x.
    ridge : () or (d,) array
        λ.
    blocks : list of Block
        The clients' loss terms; empty where these are on a device.
    """

    def __init__(
        self,
        loss: Loss,
        clients: Sequence[object] | StackedRows,
        ridge: float | Sequence[float] | Array = 0.0,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        instance("loss", loss, "a Loss", "stack")
        self.loss = loss
        self.ridge = weights("ridge", ridge)
        self.blocks: list[Block] = []
        if belongs_on_device(clients, device):
            rows = place(loss, clients, self.ridge, device, dtype)
            self.m = rows.m
            self.d = rows.d
            share = np.broadcast_to(self.ridge / self.m, (self.d,))
            # they answer the same questions
            self.clients = cast(StackedClients, DeviceClients(rows, share))
            return
        if dtype is not None:
            raise InputError("dtype is for rows on a device: pass device=, or leave it out")
        with one_blas_thread():
            self.d, self.blocks = loss.stack(clients, self.ridge)
        self._check_length()
        self.m = sum(len(block.clients) for block in self.blocks)
        self.clients = self._stacked(self.blocks)

    @classmethod
    def from_libsvm(
        cls,
        path: str | Path,
        loss: Loss | None = None,
        *,
        clients: int = 1,
        split: str = "iid",
        ridge: float | Sequence[float] | Array = 0.0,
        seed: int = 0,
    ) -> Self:
        """The rows of a LIBSVM file, dealt out to clients; they stay sparse.

        Parameters
        ----------
        path : str or Path
        loss : Loss, optional
            None is ``Logistic()`` for targets of two values, the larger of which is the class 1.
            Any other loss takes the targets as they are.
        clients : int
        split : {"iid", "label", "dirichlet", "zipf"}
            Which rows each client gets, see ``fedsplit.data.splitting.split_rows``.
        ridge : float or (d,) array
            λ of the whole objective, as in ``Problem``.
        seed : int
            Random seed of the split.
        """
        A, b = read_libsvm(path)
        if loss is None:
            values = np.unique(b)
            if len(values) != 2:
                raise InputError(
                    f"{path}: the targets have {len(values)} different values, and logistic "
                    "regression needs two: in Python, pass loss="
                )
            loss = Logistic()
            b = np.where(b == values[1], 1.0, -1.0)
        parts = split_rows(b, count("clients", clients), split, count("seed", seed, least=0))
        return cls(loss, [(A[rows], b[rows]) for rows in parts], ridge)

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value}" for name, value in self._facts.items())
        return f"Problem({words})"

    def _repr_html_(self) -> str:
        """The problem as a table, for notebooks."""
        cells = "".join(
            f"<tr><th>{name}</th><td>{escape(value)}</td></tr>"
            for name, value in self._facts.items()
        )
        return f"<table><caption>Problem</caption>{cells}</table>"

    @property
    def _facts(self) -> dict[str, str]:
        """What a reader wants to know, in words: no data."""
        return {
            "loss": re.sub(" at 0x[0-9a-fA-F]+", "", repr(self.loss)),
            "clients": str(self.m),
            "coordinates": str(self.d),
            "ridge": np.array2string(self.ridge, threshold=6, edgeitems=3),
        }

    def with_ridge(self, ridge: float | Sequence[float] | Array) -> Self:
        """This problem with another ridge; its data are not copied."""
        other = copy(self)
        other.ridge = weights("ridge", ridge)
        other._check_length()
        other.clients = other.among(self.m)
        return other

    def _check_length(self) -> None:
        """Raise InputError unless the ridge is a number, or has one for each coordinate."""
        if self.ridge.shape not in ((), (self.d,)):
            raise InputError(
                f"ridge must be a number or have {self.d} entries, its shape is {self.ridge.shape}"
            )

    def part(self, clients: range) -> Self:
        """Some neighbouring clients; the ridge is still that of the whole objective."""
        other = copy(self)
        other.m = len(clients)
        if not self.blocks:
            raise InputError("clients on a device stay in this process: use no other engine")
        blocks = [block.part(clients) for block in self.blocks]
        other.blocks = [block for block in blocks if block.clients]
        other.clients = self._stacked(other.blocks)
        return other

    def among(self, m: int) -> StackedClients:
        """These clients as part of m in all, each of which carries λ/m."""
        return self.clients.with_ridge(np.broadcast_to(self.ridge / m, (self.d,)))

    def objective(self, x: Array) -> float:
        """F(x), with the ridge."""
        return float(self._together.ask(Value(self._point(x))).rows.sum())

    def gradient(self, x: Array) -> Array:
        """∇F(x), (d,)."""
        result: Array = self._together.ask(Gradient(self._point(x))).rows.sum(axis=0)
        return result

    def solution(self) -> Array:
        """The pooled minimiser by Newton's method on F; one of them, if it is not unique.

        It sees all the data at once: for tests and simulations only.

        Raises
        ------
        NoMinimiser
            If F still falls after many steps, as for separable classes without a ridge.
        """
        x: Array = np.zeros(self.d)
        F = self.objective(x)
        first = np.linalg.norm(self.gradient(x))
        idle = 0  # how many steps in a row have not lowered F beyond rounding
        most = 100
        with one_blas_thread(), np.errstate(**QUIET):
            for _ in range(most):
                g = self.gradient(x)
                step, solved = self._newton_step(x, g)
                size = np.linalg.norm(g)
                # without curvature along part of its gradient: down as far as F falls
                flat = size > 1e-8 * first and not solved
                before = F
                x, F = self._line_search(x, F, g / size if flat else step, grow=flat)
                idle = idle + 1 if before - F <= 1e-12 * abs(before) else 0
                if idle == 2:  # the first of them may have half of the digits, the next has all
                    return x
        raise NoMinimiser(
            f"no minimiser found in {most} Newton steps: the objective may fall forever "
            "(separable classes, for instance); add a ridge"
        )

    def _newton_step(self, x: Array, g: Array) -> tuple[Array, bool]:
        """A solution of ∇²F(x)·step = g, and whether there is one: ∇²F may be singular."""
        if self.d > MOST_COORDINATES or any(block.terms.large for block in self.blocks):
            times, diagonal = self._together.pooled_products(x)
            step = conjugate_gradients(times, g[None], diagonal[None], 1e-8)
            left = g - times(step)[0]
        else:
            H = self._together.pooled_information(x)
            diagonal = np.diag(H)
            step = Factors(H[None]).solve(g[None])
            left = g - H @ step[0]
        unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # bad scaling does no harm
        return step[0], bool(np.linalg.norm(left / unit) <= 1e-3 * np.linalg.norm(g / unit))

    @property
    def _together(self) -> StackedClients:
        """The clients, or the one that they are together on a device."""
        return self.clients if self.blocks else cast(DeviceClients, self.clients).pooled()

    def _stacked(self, blocks: list[Block]) -> StackedClients:
        """The clients in these blocks, each with λ/m."""
        return StackedClients(self.d, blocks, np.broadcast_to(self.ridge / self.m, (self.d,)))

    def _line_search(
        self, x: Array, F: float, step: Array, grow: bool = False
    ) -> tuple[Array, float]:
        """x - t·step and F there, for the first t of 1, ½, ¼, … at which F does not rise.

        With ``grow``, t is then doubled while F falls.
        """
        # not ``backtrack``, which asks for a sufficient decrease and never lengthens a step
        t = 1.0
        while not (value := self.objective(x - t * step)) <= F + 16 * EPS * abs(F):  # also for nan
            t *= 0.5
            if t < 1e-18:
                return x, F
        while grow and (further := self.objective(x - 2 * t * step)) < value:
            t, value = 2 * t, further
        return x - t * step, value

    def _point(self, x: Array) -> Array:
        point = numbers(x)
        if point is None:
            raise InputError(f"x must be {self.d} numbers, not of type {type(x).__name__}")
        if point.shape != (self.d,):
            raise InputError(f"x must have shape ({self.d},), not {point.shape}")
        return point
