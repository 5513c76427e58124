"""Proved gaps against true ones in 60 digits: ``python benchmarks/certificates.py [problems]``.

Each random problem is solved by one of several methods, and F(x) - F* is computed again with 60
decimal digits, from the same rows and the same x. A certificate is false if its gap is smaller.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal, getcontext
from typing import Any

import numpy as np

import fedsplit as fs

getcontext().prec = 60

Vector = list[Decimal]

LOSSES: dict[str, tuple[Callable[[], Any], Callable[[Decimal, Decimal], tuple[Decimal, ...]]]] = {}
"""By name, the loss, and φ, φ' and φ'' in decimal digits."""


def _loss(name: str, make: Callable[[], Any]) -> Callable[[Any], Any]:
    def add(phi: Any) -> Any:
        LOSSES[name] = make, phi
        return phi

    return add


@_loss("least-squares", fs.LeastSquares)
def least_squares(eta: Decimal, b: Decimal) -> tuple[Decimal, ...]:
    """(η - b)²/2."""
    r = eta - b
    return r * r / 2, r, Decimal(1)


@_loss("logistic", fs.Logistic)
def logistic(eta: Decimal, b: Decimal) -> tuple[Decimal, ...]:
    """log(1 + exp(-bη)) for b = ±1."""
    e = (-b * eta).exp()
    share = e / (1 + e)
    return (1 + e).ln(), -b * share, share * (1 - share)


@_loss("poisson", fs.Poisson)
def poisson(eta: Decimal, b: Decimal) -> tuple[Decimal, ...]:
    """exp(η) - bη, up to a constant that a gap does not see."""
    mean = eta.exp()
    return mean - b * eta, mean - b, mean


@_loss("gamma", fs.Gamma)
def gamma(eta: Decimal, b: Decimal) -> tuple[Decimal, ...]:
    """b exp(-η) + η, up to a constant."""
    e = b * (-eta).exp()
    return e + eta, 1 - e, e


@_loss("huber", lambda: fs.Huber(1.0))
def huber(eta: Decimal, b: Decimal) -> tuple[Decimal, ...]:
    """r²/2 up to |r| = 1, |r| - ½ beyond."""
    r = eta - b
    if abs(r) <= 1:
        return r * r / 2, r, Decimal(1)
    return abs(r) - Decimal("0.5"), Decimal(1).copy_sign(r), Decimal(0)


METHODS: Sequence[fs.Method[Any]] = (
    fs.FedSplitInformation(),
    fs.FedSplit(),
    fs.QuasiNewton(),
    fs.LBFGS(),
)


def targets(name: str, eta: Any, rng: np.random.Generator) -> Any:
    """Draw targets that suit a loss."""
    if name == "logistic":
        return np.where(rng.random(len(eta)) < 1 / (1 + np.exp(-eta)), 1.0, -1.0)
    if name == "poisson":
        return rng.poisson(np.exp(np.clip(eta, -5, 3))).astype(float)
    if name == "gamma":
        return rng.gamma(2.0, np.exp(np.clip(eta, -5, 3)) / 2.0) + 1e-3
    return eta + rng.standard_normal(len(eta)) * rng.choice([0.1, 1.0, 5.0])


def exact_gap(
    phi: Callable[[Decimal, Decimal], tuple[Decimal, ...]],
    clients: Sequence[tuple[Any, Any]],
    ridge: float,
    x: Any,
) -> Decimal:
    """F(x) - F* by Newton's method in decimal digits from x."""
    rows = [[Decimal(float(a)) for a in row] for A, _ in clients for row in A]
    b = [Decimal(float(each)) for _, each_b in clients for each in each_b]
    lam = Decimal(ridge)
    start = [Decimal(float(each)) for each in x]

    def value(u: Vector) -> Decimal:
        total = sum((phi(_dot(a, u), t)[0] for a, t in zip(rows, b, strict=True)), Decimal(0))
        return total + lam * _dot(u, u) / 2

    u = start
    F = value(u)
    for _ in range(60):
        g, H = _derivatives(phi, rows, b, lam, u)
        # a shift far below all digits that are compared, where Huber's curvature vanishes
        step = _solved(
            [
                [h + (Decimal("1e-40") if i == j else 0) for j, h in enumerate(line)]
                for i, line in enumerate(H)
            ],
            g,
        )
        t = Decimal(1)
        while True:
            trial = [each - t * s for each, s in zip(u, step, strict=True)]
            now = value(trial)
            if now <= F or t < Decimal("1e-12"):
                break
            t /= 2
        if F - now <= Decimal("1e-45") * (1 + abs(F)):
            F = min(F, now)
            break
        u, F = trial, now
    return value(start) - F


def _dot(a: Vector, b: Vector) -> Decimal:
    return sum((p * q for p, q in zip(a, b, strict=True)), Decimal(0))


def _derivatives(
    phi: Callable[[Decimal, Decimal], tuple[Decimal, ...]],
    rows: Sequence[Vector],
    b: Vector,
    lam: Decimal,
    u: Vector,
) -> tuple[Vector, list[Vector]]:
    d = len(u)
    g = [lam * each for each in u]
    H = [[lam if i == j else Decimal(0) for j in range(d)] for i in range(d)]
    for a, t in zip(rows, b, strict=True):
        _, slope, curvature = phi(_dot(a, u), t)
        for i in range(d):
            g[i] += slope * a[i]
            for j in range(d):
                H[i][j] += curvature * a[i] * a[j]
    return g, H


def _solved(H: list[Vector], g: Vector) -> Vector:
    """H⁻¹g by elimination with pivots."""
    d = len(g)
    M = [[*line, right] for line, right in zip(H, g, strict=True)]
    for i in range(d):
        p = max(range(i, d), key=lambda k: abs(M[k][i]))
        M[i], M[p] = M[p], M[i]
        for k in range(d):
            if k != i and M[k][i] != 0:
                factor = M[k][i] / M[i][i]
                M[k] = [a - factor * c for a, c in zip(M[k], M[i], strict=True)]
    return [M[i][d] / M[i][i] for i in range(d)]


def main(problems: int) -> None:
    """Print how many gaps were proved, how many of them are false, and how loose they are."""
    warnings.simplefilter("ignore", fs.NotConverged)  # a large gap is a certificate too
    proved: Counter[str] = Counter()
    false = 0
    looseness = []
    for seed in range(problems):
        rng = np.random.default_rng(seed)
        name = list(LOSSES)[seed % len(LOSSES)]
        make, phi = LOSSES[name]
        m, d = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        scale = 10.0 ** rng.uniform(-2, 2, d)
        x_true = rng.standard_normal(d) / scale
        clients = []
        for _ in range(m):
            A = rng.standard_normal((int(rng.integers(d, 4 * d + 4)), d)) * scale
            clients.append((A, targets(name, A @ x_true, rng)))
        ridge = float(rng.choice([0.0, 0.0, 1e-3, 1.0]))
        method = METHODS[(seed // len(LOSSES)) % len(METHODS)]
        tol = float(10.0 ** rng.uniform(-10, -3))
        try:
            result = fs.solve(fs.Problem(make(), clients, ridge=ridge), method, tol=tol)
        except (fs.Diverged, fs.NoMinimiser):
            proved["no minimiser, or diverged"] += 1
            continue
        gap = result.certificate.gap
        if gap is None:
            proved["nothing"] += 1
            continue
        proved["a gap"] += 1
        true = exact_gap(phi, clients, ridge, result.x)
        if true > Decimal(gap):
            false += 1
            print(f"FALSE: seed {seed}, {name}: proved {gap:.3e}, true {float(true):.3e}")
        elif true > Decimal("1e-30"):
            looseness.append(gap / float(true))
    print(f"{problems} problems, proved: {dict(proved)}; false: {false}")
    print(f"proved over true gap, median: {np.median(looseness):.2g}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
