"""Random regressions and random starts, and a pooled Newton's method to compare with.

The same seed gives the same problem, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.losses.linear import LinearLoss
from fedsplit.methods.method import Method
from measuring import head, row

PROBLEMS = 600
STARTS = 1000

ROUNDS = 100
"""The budget of a run; Newton's method gets as many steps."""

VANISHED = 1e-8
"""A column that keeps a smaller share of its information at 0 has a coefficient without end."""

LOSSES = (
    fs.LeastSquares(),
    fs.Logistic(),
    fs.Multinomial(3),
    fs.Multinomial(5),
    fs.Poisson(),
    fs.Gamma(),
    fs.Huber(1.0),
)

DESIGNS = ("normal", "units", "binary", "correlated", "heavy", "shifted")
SPLITS = ("iid", "sorted", "zipf", "small")


class Drawn(NamedTuple):
    """A random problem.

    Attributes
    ----------
    problem : Problem
    x0 : (d,) array
        Where the methods start.
    words : str
        What it is like.
    """

    problem: fs.Problem
    x0: Array
    words: str


def random_glm(seed: int) -> Drawn:
    """A regression of any family, size, design, split, weights, ridge and separation; x0 = 0."""
    rng = np.random.default_rng([seed, 14])
    loss = LOSSES[seed % len(LOSSES)]
    return _draw(loss, rng, scale=float(rng.choice([0.1, 0.5, 1.0, 3.0, 10.0])))


def random_start(seed: int) -> Drawn:
    """A regression as they usually are, from a start that may be far off."""
    rng = np.random.default_rng([seed, 41])
    loss = LOSSES[seed % len(LOSSES)]
    drawn = _draw(loss, rng, scale=0.5)
    far = 10.0 ** rng.uniform(-1.0, 2.0)
    x0 = far * rng.standard_normal(drawn.problem.d)
    return drawn._replace(x0=x0, words=f"{drawn.words}, start {far:.2g}")


def _draw(loss: LinearLoss | fs.Multinomial, rng: Generator, scale: float) -> Drawn:
    columns = int(rng.choice([1, 2, 3, 5, 8, 12]))
    m = int(rng.choice([1, 2, 3, 6, 12, 30]))
    design = str(rng.choice(DESIGNS))
    split = str(rng.choice(SPLITS))
    weighting = str(rng.choice(["none", "none", "spread", "wild", "zeros"]))
    ridge = float(rng.choice([0.0, 0.0, 1e-6, 1e-3, 1.0]))
    sizes = _sizes(rng, m, columns, split)
    n = int(sizes.sum())
    A = _design(rng, n, columns, design)
    classes = getattr(loss, "classes", 2)
    x = scale * rng.standard_normal((columns, classes - 1))
    x /= np.sqrt(np.mean(A**2, axis=0))[:, None] * np.sqrt(columns)
    eta = A @ x
    if not isinstance(loss, fs.Multinomial):
        eta = eta[:, 0]
    if isinstance(loss, fs.Poisson | fs.Gamma):  # no means that dwarf all the others
        eta = np.clip(eta, -8.0, 8.0)
    b = loss.sample(eta, rng)
    if split == "sorted":
        order = np.argsort(b, kind="stable")
        A = A[order]
        b = b[order]
    weights = _weights(rng, n, np.cumsum(sizes) - sizes, weighting)
    bounds = np.cumsum(sizes)[:-1]
    pieces = [np.split(each, bounds) for each in (A, b, weights)]
    clients = list(zip(*pieces, strict=True))
    words = (
        f"{type(loss).__name__} {columns}×{classes - 1}, m={m}, n={n}, {design}, {split}, "
        f"weights {weighting}, ridge {ridge:g}, scale {scale:g}"
    )
    problem = fs.Problem(loss, clients, ridge)
    return Drawn(problem, np.zeros(problem.d), words)


def _sizes(rng: Generator, m: int, columns: int, split: str) -> NDArray[np.int64]:
    """Rows of each client, (m,)."""
    if split == "small":  # fewer rows than columns, where there are some columns
        return rng.integers(1, max(2, columns), size=m)
    if split == "zipf":
        return np.maximum(1, 40 * columns // np.arange(1, m + 1))
    return rng.integers(2, 6 * columns + 4, size=m)


def _design(rng: Generator, n: int, columns: int, design: str) -> Array:
    A = rng.standard_normal((n, columns))
    if design == "units":
        A *= 10.0 ** rng.uniform(-3.0, 3.0, size=columns)
    elif design == "binary":
        A = (A > 1.0).astype(np.float64)
        A[rng.integers(n, size=columns), np.arange(columns)] = 1.0  # no column of zeros
    elif design == "correlated":
        A = A + 10.0 * rng.standard_normal((n, 1))
    elif design == "heavy":
        A = rng.standard_t(3, size=(n, columns))
    elif design == "shifted":
        A = A + 2.0 * rng.standard_normal(columns)
    if columns > 1 and design != "units":
        A[:, 0] = 1.0
    return A


def _weights(rng: Generator, n: int, firsts: NDArray[np.int64], weighting: str) -> Array:
    if weighting == "spread":
        return rng.uniform(0.5, 2.0, size=n)
    if weighting == "wild":
        return 10.0 ** rng.uniform(-2.0, 2.0, size=n)
    weights = np.ones(n)
    if weighting == "zeros":  # never of a whole client
        weights[rng.random(n) < 0.2] = 0.0
        weights[firsts] = 1.0
    return weights


def pooled_newton(problem: fs.Problem, x0: Array, steps: int = ROUNDS) -> Array | None:
    """The pooled minimiser by Newton's method with a line search; None where that does not end.

    It ends where the Newton decrement is at the level of rounding. Where classes are separable, or
    a column says nothing, there is no minimiser, or no unique one.
    """
    x = x0
    F = problem.objective(x)
    least = VANISHED * np.diag(problem.clients.pooled_information(np.zeros_like(x0)))
    for _ in range(steps):
        g = problem.gradient(x)
        H = problem.clients.pooled_information(x)
        if not (np.isfinite(F) and np.isfinite(H).all()):
            return None
        root = np.sqrt(np.diag(H))
        if (root**2 <= least).any():
            return None
        scaled = H / np.outer(root, root)
        if np.linalg.cond(scaled) > 1e12:
            return None
        step = np.linalg.solve(scaled, g / root) / root
        decrement2 = float(g @ step)
        if decrement2 <= 1e-18 * max(1.0, abs(F)):
            return x
        t = 1.0
        while t > 1e-10:
            ahead = problem.objective(x - t * step)
            if ahead <= F - 1e-4 * t * decrement2 + 1e-15 * abs(F):
                break
            t /= 2.0
        x = x - t * step
        F = problem.objective(x)
    return None


@dataclass(frozen=True)
class Outcome:
    """How a method fared where Newton's method found the minimiser.

    Attributes
    ----------
    words : str
        What the problem is like.
    solved : bool
        Whether Newton's method solves it.
    converged : bool
        Whether the method says so, and is right.
    questions : int
    gap : float
        F(x) - F*, relative to max(|F*|, F(0) - F*) as a tolerance is; nan where nobody knows F*.
    """

    words: str
    solved: bool
    converged: bool
    questions: int
    gap: float

    @property
    def failed(self) -> bool:
        return self.solved and not self.converged


def attempt(drawn: Drawn, method: Method[Any] | None, tol: float = 1e-9) -> Outcome:
    """Run a method, the default of ``solve`` if None, on what Newton's method solves."""
    problem, x0, words = drawn
    with np.errstate(all="ignore"):
        best = pooled_newton(problem, x0)
        if best is None and x0.any():
            best = pooled_newton(problem, np.zeros_like(x0))
    if best is None:
        return Outcome(words, False, False, 0, np.nan)
    try:
        result = fs.solve(problem, method, rounds=ROUNDS, tol=tol, x0=x0)
    except fs.Diverged as error:
        return Outcome(words, True, False, error.round, np.inf)
    F = problem.objective(best)
    scale = max(abs(F), problem.objective(np.zeros_like(x0)) - F)
    gap = (problem.objective(result.x) - F) / scale
    return Outcome(words, True, result.converged and gap <= 2.0 * tol, result.rounds, gap)


def show(quick: bool = False) -> None:
    """Run them all with the default of ``solve``, or some; print how many fail."""
    head("random problems", "with a minimiser", "not found", "questions: median", "most")
    for title, draw, count in (
        ("regressions", random_glm, PROBLEMS),
        ("starts", random_start, STARTS),
    ):
        known: list[Outcome] = []
        for seed in range(count // 20 if quick else count):
            outcome = attempt(draw(seed), None)
            if outcome.failed:
                print(f"{title} {seed}: {outcome}")
            if outcome.solved:
                known.append(outcome)
        questions = [outcome.questions for outcome in known]
        failed = sum(outcome.failed for outcome in known)
        row(
            *(title, f"{len(known)}", f"{failed}"),
            *(f"{np.median(questions):.0f}", f"{max(questions)}"),
        )
