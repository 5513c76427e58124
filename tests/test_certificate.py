"""Certificates: never below the truth, tight where they can be, and honest where there is none."""

from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.questions import Decrement, Information, ProofScalars, Value
from fedsplit.dialogue import converse
from fedsplit.loop.certificate import Facts, ScaledHessian, near, prove
from problems import LOSSES, clients, problem


@pytest.mark.parametrize("problems", [60, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_true_gap_never_exceeds_the_bound(name: str, problems: int) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    ratios = []
    for seed in range(problems):
        d, m = int(rng.integers(1, 7)), int(rng.integers(1, 6))
        sizes = [int(n) for n in rng.integers(1, 60, size=m)]
        p = problem(name, sizes, d, seed, ridge=float(rng.choice([0.1, 1.0, 10.0])))
        best = p.solution()
        x = best + 10.0 ** rng.uniform(-7, 1) * rng.standard_normal(d)
        certificate = fs.certify(p.clients, x)
        gap, distance = p.objective(x) - p.objective(best), float(np.linalg.norm(x - best))
        rounding = 1e-13 * max(1.0, abs(p.objective(x)))
        if certificate.gap is None:
            assert "run more rounds" in certificate.reason
            continue
        assert certificate.distance is not None
        assert gap <= certificate.gap + rounding
        assert distance <= certificate.distance * (1 + 1e-9) + 1e-7 * np.sqrt(rounding)
        if gap > 1e3 * rounding:
            ratios.append(certificate.gap / gap)
    assert len(ratios) > 0.4 * problems
    tight = {
        "least-squares": 2.0,
        "logistic": 3.0,
        "multinomial": 3.0,
        "poisson": 4.0,
        "gamma": 4.0,
        "huber": 8.0,
    }
    assert np.median(ratios) < tight[name]


@pytest.mark.parametrize(
    "penalty",
    [
        fs.L1(3.0),
        fs.ElasticNet(2.0, 1.0),
        fs.GroupL1(4.0, [[0, 1], [2, 3]]),
        fs.Box(-0.1, 0.2),
        fs.NonNegative(),
        fs.Simplex(),
        fs.L2Ball(0.3),
    ],
    ids=lambda penalty: type(penalty).__name__,
)
@pytest.mark.parametrize("name", ["least-squares", "logistic"])
def test_with_a_penalty_the_bound_holds_in_every_round(name: str, penalty: fs.Penalty) -> None:
    p = problem(name, [30, 12, 25], 4, seed=3, ridge=0.5)
    method = fs.FedSplitInformation()
    fine = fs.solve(p, method, penalty=penalty, tol=1e-14)
    assert fine.converged
    best = p.objective(fine.x) + penalty.value(fine.x)
    proved = 0
    state = None
    for _ in range(5):
        run = fs.solve(p, method, penalty=penalty, state=state, rounds=2, tol=0)
        state = run.state
        certificate = fs.certify(p.clients, run.x, penalty, method.subgradient(run.state.inner))
        if certificate.gap is not None:
            proved += 1
            assert run.trace.objective[-1] - best <= certificate.gap + 1e-12 * abs(best)
    assert proved >= 3


def test_a_lasso_with_more_columns_than_rows_is_certified_on_its_support() -> None:
    p = problem("least-squares", [5, 3, 4], 20, seed=1)
    result = fs.solve(p, penalty=fs.L1(2.0))
    assert result.converged
    assert result.certificate.reason == "a quadratic bound"


@pytest.mark.slow
def test_a_certificate_costs_two_rounds_or_a_tenth_of_the_run() -> None:
    for name in LOSSES:
        for seed in range(5):
            p = problem(name, [30, 12, 25], 4, seed, ridge=1.0)
            for method in (fs.QuasiNewton(), fs.FedSplit(), fs.FedGD(0.005, local_steps=5)):
                result = fs.solve(p, method, rounds=400)
                spent = int(np.sum(result.trace.kind == "certificate"))
                assert spent <= max(2, result.rounds / 10), (name, seed, method)


def test_a_method_that_stops_at_a_wrong_point_is_not_called_converged() -> None:
    p = problem("least-squares", [30, 12, 25], 4, seed=2)
    result = fs.solve(p, fs.FedGD(local_steps=20), rounds=2000)
    gap = p.objective(result.x) - p.objective(p.solution())
    assert (result.stopped_by, result.converged) == ("residual", False)
    assert result.certificate.gap is not None
    assert gap > 1e-3
    assert gap <= result.certificate.gap <= 50 * gap


def test_without_strong_convexity_the_reason_says_what_to_do() -> None:
    wide = problem("huber", [3, 2], 9)
    assert fs.solve(wide).certificate.gap is None
    assert "add a ridge" in fs.solve(wide).certificate.reason
    assert "before a certificate" in fs.solve(wide, fs.QuasiNewton(), rounds=3).certificate.reason


PENALTIES: dict[str, tuple[fs.Penalty, float]] = {
    "l1": (fs.L1(3.0), 1.0),
    "elastic-net": (fs.ElasticNet(2.0, 1.0), 1.0),
    "group": (fs.GroupL1(4.0, [[0, 1], [2, 3]]), 1.0),
    "box": (fs.Box(-0.1, 0.2), 0.3),
    "simplex": (fs.Simplex(), 1.0),
    "ball": (fs.L2Ball(0.3), 0.5),
}


@pytest.mark.parametrize("name", sorted(PENALTIES))
def test_a_duality_bound_holds_at_any_feasible_point(name: str) -> None:
    penalty, size = PENALTIES[name]
    rng = np.random.default_rng(1)
    ratios = []
    for seed in range(15):
        p = problem("logistic", [30, 4, 25], 4, seed)
        best = fs.solve(p, penalty=penalty, tol=1e-13)
        least = p.objective(best.x) + penalty.value(best.x)
        for spread in (1e-3, 0.1, 1.0):
            x = penalty.prox(best.x + spread * size * rng.standard_normal(4), 1e-6)
            certificate = fs.certify(p.clients, x, penalty)
            gap = p.objective(x) + penalty.value(x) - least
            assert certificate.gap is not None
            assert gap <= certificate.gap + 1e-11 * least
            ratios.append(gap / certificate.gap)
    assert max(ratios) > 0.3  # not idle


def test_a_subgradient_that_is_not_told_is_not_taken_to_be_zero() -> None:
    p = problem("least-squares", [30, 12, 25], 4, seed=3)
    pooled = p.solution()  # the optimum without the penalty
    certificate = fs.certify(p.clients, pooled, fs.NonNegative([0]))
    assert certificate.gap is None
    lasso = fs.certify(p.clients, pooled, fs.L1(20.0))
    truth = (
        p.objective(pooled)
        + 20.0 * np.abs(pooled).sum()
        - fs.solve(p, penalty=fs.L1(20.0)).trace.objective[-1]
    )
    assert lasso.gap is not None
    assert truth <= lasso.gap


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_floor_is_below_every_cost(name: str) -> None:
    p = problem(name, [30, 12, 25], 4, seed=3)
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.1, 1.0, 3.0):
        x = scale * rng.standard_normal(4)
        told = ProofScalars(**p.clients.ask(Decrement(x, np.ones(4))).parts)
        assert (told.floor <= told.value + 1e-9).all()
        np.testing.assert_allclose(told.value, p.clients.ask(Value(x)).rows)


def test_the_bound_of_an_unbalanced_sample_far_from_its_optimum_holds() -> None:
    labels = np.where(np.arange(50) < 49, 1.0, -1.0)
    p = fs.Problem(fs.Logistic(), [(np.ones((50, 1)), labels)])
    for x in np.linspace(2.6, 5.0, 25):
        certificate = fs.certify(p.clients, np.array([x]))
        if certificate.gap is not None:
            assert p.objective(np.array([x])) - p.objective(p.solution()) <= certificate.gap + 1e-12


def test_the_certificate_does_not_depend_on_the_units_of_the_columns() -> None:
    rng = np.random.default_rng(4)
    A, units = rng.standard_normal((60, 5)), 10.0 ** np.array([-6.0, -2.0, 0.0, 3.0, 6.0])
    b, x = np.where(rng.logistic(size=60) < A[:, 0], 1.0, -1.0), 0.05 * rng.standard_normal(5)
    one, other = (
        fs.Problem(fs.Logistic(), [(A[:30] * u, b[:30]), (A[30:] * u, b[30:])])
        for u in (1.0, units)
    )
    x = one.solution() + 1e-3 * x
    first, second = fs.certify(one.clients, x), fs.certify(other.clients, x / units)
    assert first.gap is not None
    # not to more digits: bounds on how fast the Hessian changes are told as powers of two
    assert second.gap == pytest.approx(first.gap, rel=1e-2)


def test_a_claim_about_curvature_that_the_hessian_refutes_is_refused() -> None:
    H = np.diag([1.0, 30.0])
    loss = fs.CustomLoss(
        lambda x, c: float(0.5 * x @ H @ x - c @ x),
        lambda x, c: H @ x - c,
        2,
        lambda x, c: H,
        lambda c: (20.0, 30.0),
    )
    p = fs.Problem(loss, [np.array([1.0, 2.0]), np.array([-3.0, 1.0])])
    with pytest.raises(fs.InputError, match="it is less"):
        fs.certify(p.clients, np.zeros(2))


def test_eigenvalues_at_the_level_of_rounding_prove_nothing() -> None:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    A = np.diag(np.sqrt([1.0, 1.0, 1.0, 1e-15])) @ Q
    p = fs.Problem(fs.LeastSquares(), [(A, np.ones(4))])
    assert fs.certify(p.clients, np.zeros(4)).gap is None


def test_the_last_rounds_of_a_budget_are_kept_for_a_proof() -> None:
    p = problem("least-squares", [30, 12, 25], 6, seed=3)
    result = fs.solve(p, fs.FedSplit(1e-3), rounds=30)
    assert (result.stopped_by, result.converged, result.rounds) == ("rounds", False, 30)
    assert result.certificate.gap is not None
    assert p.objective(result.x) - p.objective(p.solution()) <= result.certificate.gap


def test_a_long_run_asks_once_how_large_the_objective_is() -> None:
    far = [(A, b + 1e3, w) for A, b, w in clients("least-squares", [30, 12, 25], 6, seed=3)]
    result = fs.solve(fs.Problem(fs.LeastSquares(), far), fs.FedSplit(1e-2), rounds=2000)
    assert result.stopped_by == "certificate"
    assert result.certificate.objective > 1e6
    asked = [row.floats_up for row in result.trace.rows if row.kind == "certificate"]
    assert asked == [3, 3 * 6, 3 * len(ProofScalars._fields)]  # F(x), the gradients, the scalars


PROXES: list[fs.Penalty | None] = [
    None,
    None,
    fs.L1(2.0),
    fs.ElasticNet(1.0, 0.5),
    fs.NonNegative(),
    fs.L2Ball(0.4),
]


@pytest.mark.slow
def test_huber_near_its_optimum_has_the_bound_of_a_quadratic_without_a_ridge() -> None:
    rng = np.random.default_rng(8)
    ratios = []
    for seed in range(300):
        d, penalty = int(rng.integers(1, 5)), PROXES[seed % len(PROXES)]
        p = problem(
            "huber", [int(n) for n in rng.integers(8, 40, size=rng.integers(1, 4))], d, seed
        )
        x, subgradient = p.solution() + 10.0 ** rng.uniform(-7, 0.5) * rng.standard_normal(d), None
        least = p.objective(p.solution())
        if penalty is not None:
            v, t = fs.solve(p, penalty=penalty, tol=1e-13).x, 10.0 ** rng.uniform(-3, -1)
            least = p.objective(v) + penalty.value(v)
            v = v + 10.0 ** rng.uniform(-7, -1) * rng.standard_normal(d)
            v = v - t * p.gradient(v)
            x = penalty.prox(v, t)
            subgradient = (v - x) / t  # of the penalty, at x
        certificate = fs.certify(p.clients, x, penalty, subgradient)
        if certificate.reason != "a quadratic bound near x":
            assert (
                certificate.gap is not None
                or certificate.hopeful
                or "positive definite" in certificate.reason
            )
            continue
        assert certificate.gap is not None
        gap = p.objective(x) + (0.0 if penalty is None else penalty.value(x)) - least
        assert gap <= certificate.gap + 1e-11 * least
        if gap > 1e-9 * least:
            ratios.append(certificate.gap / gap)
    assert len(ratios) > 50
    assert np.median(ratios) < 4.0


def test_huber_is_proved_without_a_ridge() -> None:
    p = problem("huber", [30, 25, 40], 3)
    result = fs.solve(p)
    assert result.converged
    assert (result.stopped_by, result.certificate.reason) == (
        "certificate",
        "a quadratic bound near x",
    )
    far = fs.certify(p.clients, result.x + 0.3)
    assert (far.gap, far.hopeful) == (None, True)
    assert "run more rounds" in far.reason


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_radius_bounds_the_distance_in_the_norm_of_the_hessian(name: str) -> None:
    rng = np.random.default_rng(2)
    ratios = []
    for seed in range(60):
        p = problem(name, [30, 12, 25], 4, seed, ridge=0.1)
        best = p.solution()
        x = best + 10.0 ** rng.uniform(-6, 0) * rng.standard_normal(4)
        radius = fs.certify(p.clients, x).radius
        if radius is not None:
            H = p.clients.ask(Information(x)).rows.sum(axis=0)
            away = float(np.sqrt((x - best) @ H @ (x - best)))
            assert away <= radius * (1 + 1e-8) + 1e-9
            ratios.append(radius / away)
    assert len(ratios) > 20
    assert np.median(ratios) < 2.0


def exactly_solved(A: Array, b: Array) -> tuple[list[list[Fraction]], list[Fraction]]:
    """AᵀA, and the x with AᵀAx = Aᵀb, in fractions."""
    columns = [[Fraction(a) for a in column] for column in A.T.tolist()]
    target = [Fraction(each) for each in b.tolist()]
    H = [[sum(map(mul, one, other), Fraction()) for other in columns] for one in columns]
    rows = [
        [*line, sum(map(mul, each, target), Fraction())]
        for line, each in zip(H, columns, strict=True)
    ]
    for i, pivot in enumerate(rows):
        rows[i] = [each / pivot[i] for each in pivot]
        for k, row in enumerate(rows):
            if k != i:
                rows[k] = [a - row[i] * b for a, b in zip(row, rows[i], strict=True)]
    return H, [row[-1] for row in rows]


def test_at_the_optimum_the_bounds_count_the_rounding_of_gradients() -> None:
    """Nearly collinear columns, at the float64 next to the minimiser and at the one that is found.

    The gradient there is rounding, and may well be zero.
    """
    for seed in range(30):
        rng = np.random.default_rng(seed)
        away = 10.0 ** rng.uniform(-6, -1)
        x = 10.0 ** rng.uniform(0, 4) * rng.standard_normal(3)
        data = []
        for _ in range(3):
            A = rng.standard_normal((15, 3))
            A[:, 1] = A[:, 0] + away * A[:, 1]
            data.append((A, A @ x + 10.0 ** rng.uniform(-3, 1) * rng.standard_normal(15)))
        p = fs.Problem(fs.LeastSquares(), data)
        A, b = np.concatenate([A for A, _ in data]), np.concatenate([b for _, b in data])
        H, best = exactly_solved(A, b)
        for point in (np.array([float(each) for each in best]), p.solution()):
            certificate = fs.certify(p.clients, point)
            h = [Fraction(each) - exact for each, exact in zip(point.tolist(), best, strict=True)]
            squared = sum(
                (a * H[i][k] * b for i, a in enumerate(h) for k, b in enumerate(h)), Fraction()
            )
            assert certificate.gap is not None
            assert certificate.radius is not None
            assert squared / 2 <= Fraction(certificate.gap)
            assert squared <= Fraction(certificate.radius) ** 2


def fitted_to_rounding(factors: list[float]) -> tuple[list[Any], Array, float, float]:
    """Clients whose residuals Ax - b are 0 in float64 at a rounded x, where they are not exactly.

    Returns the data, x, the exact F(x) - F* and the exact |x - x*|.
    """
    A = np.array([[3.0], [6.0]])
    x = np.array([1.0 / 3.0])
    data: list[Any] = [(factor * A, factor * A @ x) for factor in factors]
    stacked = np.concatenate([rows for rows, _ in data])
    H, best = exactly_solved(stacked, np.concatenate([b for _, b in data]))
    h = Fraction(float(x[0])) - best[0]
    return data, x, float(h * h * H[0][0] / 2), abs(float(h))


@pytest.mark.parametrize("penalty", [None, fs.Box(-1e9, 1e9), fs.L2Ball(1e9)])
def test_where_every_residual_rounds_to_zero_no_bound_is_zero(penalty: Any) -> None:
    data, x, gap, distance = fitted_to_rounding([1.0, 10.0])
    assert 0 < gap < 1e-30
    p = fs.Problem(fs.Huber(1e12), data)  # never beyond its delta: squares, row by row
    assert p.objective(x) == 0.0
    certificate = fs.certify(p.clients, x, penalty)
    assert certificate.gap is not None
    assert certificate.gap >= gap
    assert certificate.distance is None or certificate.distance >= distance


def test_strong_convexity_counts_the_rounding_of_gradients_too() -> None:
    data, _, _, _ = fitted_to_rounding([1.0, 10.0])
    stated = fs.CustomLoss(
        lambda x, D: 0.5 * float(np.sum((D[0] @ x - D[1]) ** 2)),
        lambda x, D: np.asarray(D[0].T @ (D[0] @ x - D[1])),
        1,
        lambda x, D: np.asarray(D[0].T @ D[0]),
        curvature=lambda D: (0.9 * float(np.sum(D[0] ** 2)), 1.1 * float(np.sum(D[0] ** 2))),
        floor=0.0,
    )  # that says nothing of its third derivative
    result = fs.solve(fs.Problem(stated, data), fs.FedSplitInformation(), tol=1e-13)
    _, best = exactly_solved(
        np.concatenate([A for A, _ in data]), np.concatenate([b for _, b in data])
    )
    assert result.certificate.reason == "strong convexity"
    assert result.certificate.distance is not None
    assert result.certificate.distance >= abs(Fraction(float(result.x[0])) - best[0])
    assert result.certificate.distance > 0


def test_a_client_with_a_singular_hessian_rounds_by_its_own_scale() -> None:
    """Not by that of the others, whose numbers are much smaller here."""
    x = np.array([-4e-8 / 7.0, 0.0])
    small = np.array([[0.11, 0.04], [0.01, 0.1], [0.01, -0.02]])
    large = np.array([[200.0, -200.0], [-500.0, 500.0], [-200.0, 200.0]])
    data = [(small, small @ x), (large, large @ x)]
    H, best = exactly_solved(np.concatenate([small, large]), np.concatenate([b for _, b in data]))
    h = [Fraction(each) - exact for each, exact in zip(x.tolist(), best, strict=True)]
    squared = sum((a * H[i][k] * b for i, a in enumerate(h) for k, b in enumerate(h)), Fraction())
    certificate = fs.certify(fs.Problem(fs.Huber(1e12), data).clients, x)
    assert certificate.gap is not None
    assert squared / 2 <= Fraction(certificate.gap)


def test_a_bound_without_curvature_has_no_radius() -> None:
    p = problem("huber", [5, 3, 4], 20, seed=1)
    result = fs.solve(p, penalty=fs.Box(-0.1, 0.1))
    assert result.certificate.reason == "a duality bound"
    assert result.certificate.radius is None


def test_residuals_at_delta_at_the_optimum_leave_the_residual_of_the_method_to_decide() -> None:
    data = [
        (np.ones((3, 1)), b) for b in ([1.0, 2.0, 3.0], [1.0, 1.0, 3.0], [2.0, 3.0, 2.0])
    ]  # the optimum is 2
    result = fs.solve(fs.Problem(fs.Huber(1.0), data), fs.FedSplit())
    assert (result.stopped_by, result.converged, result.certificate.gap) == ("residual", True, None)
    assert result.x[0] == pytest.approx(2.0, abs=1e-9)


def test_clients_without_a_definite_hessian_prove_the_gap_by_that_of_their_sum() -> None:
    p = problem("logistic", [3] * 30, 5, seed=1)
    x = p.solution() + 1e-4
    told = p.clients.ask(Decrement(x, np.ones(5))).parts
    assert np.isinf(told["q"]).all()
    certificate = fs.certify(p.clients, x)
    assert certificate.reason == "self-concordance"
    assert certificate.gap is not None
    truth = p.objective(x) - p.objective(p.solution())
    assert truth <= certificate.gap + 1e-12 <= 1.1 * truth
    result = fs.solve(p, fs.QuasiNewton())
    assert (result.converged, result.stopped_by) == (True, "certificate")
    assert result.trace.rows[-1].floats_up == 30 * 5 * 5


def test_hessians_that_are_too_large_are_not_asked_for() -> None:
    p = problem("logistic", [3] * 30, 5, seed=1)
    small, large = (
        converse(prove(p.solution(), largest=most), p.clients) for most in (30 * 5 * 5, 749)
    )
    assert small.gap is not None
    certificate = large
    assert certificate.gap is None
    assert "no client's Hessian" in certificate.reason


def test_the_bound_of_a_lasso_with_more_columns_than_rows_is_that_of_its_support() -> None:
    p = problem("least-squares", [4] * 5, 40, seed=2)
    penalty = fs.L1(3.0)
    best = fs.solve(p, fs.QuasiNewton(), penalty=penalty, rounds=200, tol=0).x
    assert 0 < np.count_nonzero(best) < 20  # strictly fewer than all rows
    value = p.objective(best) + penalty.value(best)
    for size in (1e-3, 1e-6):
        x = best + size * np.sign(best)
        certificate = fs.certify(p.clients, x, penalty)
        assert certificate.gap is not None
        assert certificate.reason == "a quadratic bound"
        assert certificate.distance is None  # the Hessian is singular off the support
        truth = p.objective(x) + penalty.value(x) - value
        assert 0.9 * truth - 1e-13 <= certificate.gap <= 1.1 * truth + 1e-13


@pytest.mark.parametrize("penalty", [fs.L1([1.0, 0.0, 2.0]), fs.ElasticNet(1.0, 0.5)])
def test_the_nearest_subgradient_and_its_slack_are_below_the_penalty(
    penalty: fs.L1 | fs.ElasticNet,
) -> None:
    rng = np.random.default_rng(0)
    for x in (np.zeros(3), np.array([0.0, 1.0, -2.0])):
        for v in 2.0 * rng.standard_normal((20, 3)):
            slope, slack = penalty.nearest_subgradient(x, v)
            assert (slack >= 0).all()
            for h in rng.standard_normal((20, 3)):
                rise = penalty.value(x + h) - penalty.value(x)
                assert rise >= slope @ h + slack @ np.abs(h) - 1e-12
            # Towards v, no other subgradient is closer: v - slope is normal to the subdifferential.
            assert (v - slope) @ (slope - penalty.nearest_subgradient(x, -v)[0]) >= -1e-12


def test_a_certificate_has_no_objective_of_an_earlier_x() -> None:
    # one observation of two columns on different scales: the first proof finds no curvature
    p = fs.Problem(fs.Huber(), [(np.array([[1e-6, 1e6]]), np.array([5.0]))])
    result = fs.solve(p, fs.GIANT(), x0=np.array([1e6, -1e-6]), tol=1e-15)
    objective = result.certificate.objective
    assert np.isnan(objective) or np.isclose(objective, p.objective(result.x))


def test_huber_without_curvature_is_not_called_converged_while_its_slope_goes_on() -> None:
    # every residual is beyond the kink, and steps are short beside the large coordinate of x
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 2)) * [1e-6, 1e6]
    p = fs.Problem(fs.Huber(), [(A[:20], np.zeros(20)), (A[20:], np.zeros(20))])
    with pytest.warns(fs.NotConverged):
        result = fs.solve(p, fs.AGD(), x0=np.array([1e6, 1.0]), rounds=60)
    assert not result.converged
    assert p.objective(result.x) > 1e6


@pytest.mark.parametrize("x", ["a", np.zeros(2), np.zeros((3, 1))], ids=repr)
def test_a_point_of_another_shape_is_refused(x: Any) -> None:
    p = problem("least-squares", [10, 10], 3)
    with pytest.raises(fs.InputError, match="x must be 3 numbers"):
        fs.certify(p.clients, x)


@pytest.mark.parametrize("nu", [1e-6, 5e-5, 9e-5, 1.1e-4, 1e-3])
def test_where_the_formula_would_cancel_its_series_takes_its_place(nu: float) -> None:
    """ψ(t) = (e⁻ᵗ + t - 1)/t², whose series is ½ - t/6 + t²/24 - t³/120."""
    one = ProofScalars.of({"value": np.ones(1), "leverage": np.ones(1)})
    rho = -np.log1p(-nu)
    psi = 0.5 - rho / 6.0 + rho**2 / 24.0 - rho**3 / 120.0
    bound = near(nu, 1.0, one)
    assert bound.reason == "self-concordance"
    assert bound.gap == pytest.approx(nu**2 / (4.0 * psi), rel=1e-8, abs=0.0)
    assert bound.radius == pytest.approx(rho)


def test_the_least_eigenvalue_is_never_above_the_true_one() -> None:
    for apart in (1e-13, 1e-12, 1e-6, 0.5):
        H = np.array([[1.0, 1.0 - apart], [1.0 - apart, 1.0]])  # its least eigenvalue is ``apart``
        scaled = ScaledHessian(H)
        exact = 1.0 - H[0, 1]
        assert 0.9 * exact <= scaled.least() <= exact
        nu, _ = scaled.inverse_norm(np.array([1.0, -1.0]))
        assert nu**2 >= 2.0 / exact


@pytest.mark.parametrize(("nu", "proved"), [(0.9e-3, True), (1.1e-3, False)])
def test_every_client_has_to_be_quadratic_as_far_as_the_optimum(nu: float, proved: bool) -> None:
    balls = ProofScalars.of({"value": np.ones(2), "steady": np.array([1e9, 1e-3])})
    assert np.isfinite(near(nu, 1.0, balls).gap) == proved


def test_the_penalty_of_the_optimum_is_at_most_the_objective_less_the_floor() -> None:
    levels: list[float] = []

    class Level:
        """0 everywhere, with a duality bound that notes the level."""

        def value(self, x: Array) -> float:
            return 0.0

        def prox(self, v: Array, t: float | Array) -> Array:
            return v

        def dual_gap(self, x: Array, gradient: Array, level: float) -> float:
            levels.append(level)
            return 1.0

    scalars = ProofScalars.of({"value": np.array([3.0, 4.0]), "floor": np.array([-1.0, 2.0])})
    Facts(np.ones(2), np.ones(2), scalars, Level(), gradient=np.ones(2)).certificate()
    assert levels == [7.0 - 1.0]


def test_no_gap_below_the_last_digits_of_the_objective_is_proved() -> None:
    p = problem("logistic", [60, 70, 80], 4, seed=3, ridge=1.0)
    certificate = fs.certify(p.clients, p.solution())
    digits = 4 * np.finfo(float).eps * float(p.clients.ask(Value(p.solution())).rows.sum())
    assert certificate.gap is not None
    assert certificate.gap >= digits
    assert certificate.rounding >= digits
