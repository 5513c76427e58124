"""Every local solver: is it the prox, and is its stated error true?"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import fedsplit as fs
from fedsplit.arrays import Array, Factors, dots, matvec, norms
from fedsplit.clients.questions import Curvature, Gradient, Information, Prox, Value
from fedsplit.local import SOLVERS
from fedsplit.local.newton import LocalNewton
from fedsplit.local.solver import Merit, ProxSolver, backtrack
from fedsplit.losses.costs import Costs, Work
from fedsplit.losses.designs import extremes
from open.stochastic import StochasticProx
from open.subsampled_newton import SubsampledNewtonProx
from problems import LOSSES, clients, dimensions, loss, names, problem, ridges, seeds, sizes, steps

EXACT = fs.ExactProx()

VARIANTS: dict[str, ProxSolver] = {name: make() for name, make in SOLVERS.items()} | {
    "cvxpy": fs.CvxpyProx(),
    "gradient, paper's step": fs.GradientProx(7, step="paper"),
    "gradient, line search": fs.GradientProx(7, step="backtracking"),
    "gradient, given step": fs.GradientProx(7, step=1e-3),
    "SVRG": StochasticProx(),
    "SAGA": StochasticProx(9, 3, "saga"),
    "SGD": StochasticProx(9, 3, "sgd"),
    "subsampled Newton": SubsampledNewtonProx(2, 3),
    "Newton sketch": SubsampledNewtonProx(2, 5, "count"),
}


def arguments(p: fs.Problem, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((p.m, p.d))


@given(names, sizes, dimensions, seeds, ridges, steps)
def test_the_exact_prox_is_optimal_to_rounding(
    name: str, n: list[int], d: int, seed: int, ridge: float, s: float
) -> None:
    p = problem(name, n, d, seed, ridge)
    V = arguments(p, seed)
    answer = p.clients.ask(Prox(V, s, np.zeros(d), EXACT))
    g = p.clients.ask(Gradient(answer.rows)).rows
    scale = norms(answer.rows) + norms(V) + s * norms(g)
    # a prox from a stored inverse is exact up to the condition number of I + sH
    condition = 1 + (s * p.clients.ask(Curvature()).rows[:, 1] if name == "least-squares" else 0.0)
    assert (norms(s * g + answer.rows - V) <= 1e-12 * scale * condition).all()
    size = scale * (1 + s * p.clients.ask(Curvature(answer.rows)).rows[:, 1])
    assert (answer.error <= 1e-11 * size * condition).all()


@given(names, sizes, dimensions, seeds, ridges, steps)
def test_the_prox_is_firmly_nonexpansive(
    name: str, n: list[int], d: int, seed: int, ridge: float, s: float
) -> None:
    p = problem(name, n, d, seed, ridge)
    V, W = arguments(p, seed), arguments(p, seed + 1)
    P, Q = (p.clients.ask(Prox(v, s, np.zeros(d), EXACT)).rows for v in (V, W))
    inner = np.sum((P - Q) * (V - W), axis=1)
    assert (norms(P - Q) ** 2 <= inner + 1e-10 * (1 + norms(V - W) ** 2)).all()


@given(names, sizes, dimensions, seeds, ridges, steps)
def test_the_gradient_of_the_moreau_envelope_is_the_prox_residual(
    name: str, n: list[int], d: int, seed: int, ridge: float, s: float
) -> None:
    p = problem(name, n, d, seed, ridge)

    def envelope(v: Array) -> Array:
        U = p.clients.ask(Prox(v, s, np.zeros(d), EXACT)).rows
        return np.asarray(p.clients.ask(Value(U)).rows + norms(U - v) ** 2 / (2 * s))

    v, h = arguments(p, seed)[0], 1e-5
    U = p.clients.ask(Prox(v, s, np.zeros(d), EXACT)).rows
    numeric = np.stack(
        [(envelope(v + e) - envelope(v - e)) / (2 * h) for e in h * np.eye(d)], axis=1
    )
    np.testing.assert_allclose(
        (v - U) / s, numeric, rtol=1e-4, atol=1e-4 * (1 + abs(numeric).max())
    )


CONJUGATES: dict[
    str, tuple[Callable[[Any], Any], tuple[float, float]]
] = {  # f*(y) of f(x) = φ(x, b) with b = 1, if it has a formula, and where it is finite
    "least-squares": (lambda y: 0.5 * y * y + y, (-50.0, 50.0)),
    "logistic": (lambda y: -y * np.log(-y) + (1 + y) * np.log(1 + y), (-1 + 1e-15, -1e-15)),
    "multinomial": (lambda y: -y * np.log(-y) + (1 + y) * np.log(1 + y), (-1 + 1e-15, -1e-15)),
    "poisson": (lambda y: (y + 1) * np.log(y + 1) - (y + 1), (-1 + 1e-15, 50.0)),
    "gamma": (lambda y: (1 - y) * np.log(1 - y) - (1 - y), (-50.0, 1 - 1e-15)),
    "huber": (lambda y: 0.5 * y * y + y, (-0.7, 0.7)),
}


@pytest.mark.parametrize("name", sorted(CONJUGATES))
@pytest.mark.parametrize("s", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("v", [-2.0, 0.3, 4.0])
def test_moreau_identity_with_the_conjugate_in_one_dimension(name: str, s: float, v: float) -> None:
    """prox_{s f}(v) + s prox_{f*/s}(v/s) = v."""
    p = fs.Problem(loss(name, 1), [(np.ones((1, 1)), [1.0])])
    u = float(p.clients.ask(Prox(np.array([[v]]), s, np.zeros(1), EXACT)).rows[0, 0])
    conjugate, interval = CONJUGATES[name]
    dual = minimize_scalar(
        lambda y: conjugate(y) + 0.5 * s * (y - v / s) ** 2,
        bounds=interval,
        method="bounded",
        options={"xatol": 1e-12},
    )
    assert u + s * float(dual.x) == pytest.approx(v, abs=1e-6)


@given(
    st.sampled_from(sorted(VARIANTS)), names, sizes, dimensions, seeds, st.sampled_from([0.01, 0.3])
)
def test_the_stated_error_bounds_the_distance_to_the_prox(
    solver: str, name: str, n: list[int], d: int, seed: int, s: float
) -> None:
    p = problem(name, n, d, seed, 0.3)
    if name == "least-squares":  # for those that draw rows
        p = fs.Problem(fs.LeastSquares(rows=True), clients(name, n, d, seed), 0.3)
    known = np.isfinite(p.clients.ask(Curvature()).rows).all()
    if solver == "gradient, paper's step" and not known:  # refused, tested below
        return
    V = arguments(p, seed)
    answer = p.clients.ask(Prox(V, s, np.zeros(d), VARIANTS[solver]))
    exact = p.clients.ask(Prox(V, s, np.zeros(d), EXACT)).rows
    assert (norms(answer.rows - exact) <= answer.error * (1 + 1e-9) + 1e-11).all()


@pytest.mark.parametrize("step", ["client", "paper", "backtracking"])
@pytest.mark.parametrize("name", ["least-squares", "logistic", "huber"])
def test_more_gradient_steps_end_closer_to_the_prox(name: str, step: Any) -> None:
    p = problem(name, [30, 12, 3], 4, ridge=1.0)
    V = arguments(p, 0)
    exact = p.clients.ask(Prox(V, 0.1, np.zeros(4), EXACT)).rows
    ends = [
        p.clients.ask(Prox(V, 0.1, np.zeros(4), fs.GradientProx(e, step=step))).rows
        for e in (1, 10, 300)
    ]
    distances = [norms(U - exact).max() for U in ends]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-9


def test_the_line_search_replaces_an_unknown_curvature() -> None:
    p = problem("poisson", [30, 12], 4, ridge=1.0)
    V = arguments(p, 0)
    exact = p.clients.ask(Prox(V, 0.1, np.zeros(4), EXACT)).rows
    U = p.clients.ask(Prox(V, 0.1, np.zeros(4), fs.GradientProx(400))).rows
    np.testing.assert_allclose(U, exact, atol=1e-8)


def test_newton_finds_the_prox_from_a_start_where_the_cost_is_infinite() -> None:
    p = fs.Problem(fs.Poisson(), [(np.array([[1.0, 0.5], [2.0, 1.0]]), [3, 1])])
    V = np.array([[1.0, -2.0]])
    near = p.clients.ask(Prox(V, 0.5, np.zeros(2), EXACT)).rows
    for far in ([1e3, 0.0], [500.0, 500.0], [-1e5, 0.0]):
        np.testing.assert_allclose(
            p.clients.ask(Prox(V, 0.5, np.array(far), EXACT)).rows, near, rtol=1e-12
        )


def test_newton_survives_a_prox_argument_where_the_cost_is_infinite() -> None:
    p = fs.Problem(fs.Poisson(), [(np.array([[1.0]]), [3])])
    answer = p.clients.ask(Prox(np.array([[900.0]]), 1.0, np.array([900.0]), EXACT))
    u = float(answer.rows[0, 0])
    assert np.exp(u) - 3 + u - 900 == pytest.approx(0.0, abs=1e-10)


def test_the_answer_does_not_depend_on_the_start() -> None:
    for name in LOSSES:
        p = problem(name, [9, 30], 5, ridge=0.1)
        V = arguments(p, 3)
        a, b = (p.clients.ask(Prox(V, 2.0, start, EXACT)).rows for start in (np.zeros(5), 3 * V))
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_the_paper_step_needs_a_known_curvature() -> None:
    p = problem("poisson", [9], 2)
    with pytest.raises(fs.InputError, match=r'step="paper".*use step="client" or "backtracking"'):
        fs.solve(p, fs.FedSplit(step=0.1, prox=fs.GradientProx(3, step="paper")))


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 0},
        {"steps": 2.5},
        {"step": float("inf")},
        {"start": "here"},
        {"step": 0.0},
        {"step": -1.0},
        {"step": "large"},
        {"step": float("nan")},
    ],
)
def test_a_gradient_prox_that_makes_no_sense_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(fs.InputError, match="GradientProx"):
        fs.GradientProx(**settings)  # type: ignore[arg-type]  # wrong types are the point


def test_cvxpy_agrees_with_newton_to_its_own_accuracy() -> None:
    for name in LOSSES:
        p = problem(name, [30, 3], 4, ridge=0.5)
        V = arguments(p, 1)
        answer = p.clients.ask(Prox(V, 0.2, np.zeros(4), fs.CvxpyProx()))
        exact = p.clients.ask(Prox(V, 0.2, np.zeros(4), EXACT)).rows
        np.testing.assert_allclose(answer.rows, exact, atol=1e-3)
        assert (norms(answer.rows - exact) <= answer.error + 1e-12).all()


def test_cvxpy_has_no_expression_for_a_function_of_the_users_own() -> None:
    loss = fs.CustomLoss(lambda x, a: 0.5 * float(x @ x), lambda x, a: x, d=2)
    with pytest.raises(fs.InputError, match="use ExactProx or GradientProx"):
        fs.solve(fs.Problem(loss, [None]), fs.FedSplit(step=1.0, prox=fs.CvxpyProx()))


def test_the_stated_error_is_the_gradient_over_the_strong_convexity() -> None:
    """f(x) = 2(x - 1)², so ℓ = 4.

    At s = 1/2 and v = 3: h'(u) = 2(u - 1) + u - 3, the prox is 5/3, and 1 + sℓ = 3.
    """
    p = fs.Problem(fs.LeastSquares(), [(np.array([[2.0]]), [2.0])])
    answer = p.clients.ask(
        Prox(np.array([[3.0]]), 0.5, np.array([3.0]), fs.GradientProx(1, step=0.25))
    )
    u = 3.0 - 0.25 * 4.0
    assert answer.rows[0, 0] == pytest.approx(u)
    assert answer.error[0] == pytest.approx(abs(3 * u - 5) / 3)
    assert abs(u - 5 / 3) == pytest.approx(answer.error[0])  # tight where the curvature is constant


def test_newton_states_its_error_too() -> None:
    p = problem("logistic", [30, 12], 4, ridge=1.0)
    V = arguments(p, 0)
    answer = p.clients.ask(Prox(V, 0.7, np.zeros(4), EXACT))
    r = norms(0.7 * p.clients.ask(Gradient(answer.rows)).rows + answer.rows - V)
    assert (answer.error >= r / (1 + 0.7 * 0.5)).all()
    assert (answer.error <= 1e-11).all()


@pytest.mark.parametrize(("rows", "d"), [(9, 6), (40, 20), (70, 90)])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_an_answer_depends_neither_on_earlier_questions_nor_on_who_shares_the_block(
    name: str, rows: int, d: int
) -> None:
    p = problem(name, [rows] * 12 + [3] * 5, d, seed=4)
    # some clients are done at once, others need many steps: the block gets smaller on the way
    V = arguments(p, 1) * 10.0 ** np.arange(-8, 1).repeat(2)[:17, None]
    x = np.full(p.d, 1e-9)
    first = p.clients.ask(Prox(V, 0.7, x, EXACT)).rows
    p.clients.ask(Prox(V, 31.0, x, EXACT))
    np.testing.assert_array_equal(p.clients.ask(Prox(V, 0.7, x, EXACT)).rows, first)
    for at, costs in p.clients._blocks:
        for row, j in enumerate(np.arange(17)[at]):
            alone = Costs(costs.terms.take([row]), costs.ridge)
            own = EXACT.solve(alone, V[j : j + 1], 0.7, x)
            np.testing.assert_array_equal(own.u[0], first[j])


def test_with_a_ratio_newton_stops_after_most_of_the_way_and_uses_a_guess_of_the_inverse() -> None:
    p = problem("logistic", [40, 40, 40], 4, ridge=0.3)
    [(_, costs)] = p.clients._blocks
    X = np.random.default_rng(0).standard_normal((3, 4))
    V = X + 8.0
    M = 0.02 * (np.eye(4) + 0.3)
    exactly = costs.counted()
    exact = LocalNewton().solve(exactly.at(X), V, M)
    H = exact.hessian + M

    def length(E: Array) -> Array:
        return np.asarray(np.sqrt(dots(E, matvec(H, E))))

    # guesses: exact at the solution, slow, slower than Newton, and with steps that are far too long
    guesses = {scale: Factors(scale * H) for scale in (1.0, 1.8, 9.0, 1e-3)}
    for scale, first in {0.0: None, **guesses}.items():
        roughly = costs.counted()
        found = LocalNewton(ratio=0.1).solve(roughly.at(X), V, M, first)
        assert (length(found.X - exact.X) <= 0.12 * length(exact.X - X)).all(), scale
        assert (found.X != exact.X).any()
        assert roughly.work.factorisations < exactly.work.factorisations
    near = costs.counted()
    start = exact.X + 0.01 * X
    found = LocalNewton(ratio=0.1).solve(near.at(start), V, M, Factors(H.copy()))
    assert near.work.factorisations == 0
    assert (length(found.X - exact.X) <= 0.02 * length(exact.X - start)).all()


@given(names, sizes, dimensions, seeds, ridges, steps)
def test_newton_systems_are_solved(
    name: str, n: list[int], d: int, seed: int, ridge: float, s: float
) -> None:
    p = problem(name, n, d, seed, ridge)
    rng = np.random.default_rng(seed)
    x, D = 0.3 * rng.standard_normal(d), np.exp(rng.uniform(-1, 1, size=d)) / s
    for _, costs in p.clients._blocks:
        k = costs.terms.k
        X, G = np.tile(x, (k, 1)), rng.standard_normal((k, d))
        dense = np.linalg.solve(costs.hessian(X) + np.diag(D), G[:, :, None])[:, :, 0]
        np.testing.assert_allclose(
            costs.at(X).solve(D, G), dense, rtol=1e-7, atol=1e-9 * abs(dense).max()
        )


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_clients_with_fewer_rows_than_columns_are_solved_by_their_rows(name: str) -> None:
    p = problem(name, [1, 3, 5], 12, seed=2)
    rng = np.random.default_rng(0)
    x, D = 0.5 * rng.standard_normal(12), np.exp(rng.uniform(-1, 1, size=12))
    for _, costs in p.clients._blocks:
        assert costs.terms.rank < 12
        X, G = np.tile(x, (costs.terms.k, 1)), rng.standard_normal((costs.terms.k, 12))
        at = costs.at(X)
        H = at.hessian
        np.testing.assert_allclose(
            at.solve(D, G), np.linalg.solve(H + np.diag(D), G[:, :, None])[:, :, 0], 1e-9
        )
        largest = extremes(costs.terms.root(at.eta))[1]
        np.testing.assert_allclose(largest, np.linalg.eigvalsh(H)[:, -1], rtol=1e-9, atol=1e-12)


def test_a_step_beyond_rounding_is_refused_in_words() -> None:
    A = np.ones((5, 2))
    p = fs.Problem(fs.LeastSquares(), [(A, np.ones(5))])
    with pytest.raises(fs.InputError, match="use a smaller one"):
        p.clients.ask(Prox(np.zeros((1, 2)), 1e18, np.zeros(2), EXACT))


def test_a_line_search_leaves_a_start_with_a_huge_cost() -> None:
    p = fs.Problem(fs.Poisson(), [(np.array([[1.0]]), [3])])
    near = p.clients.ask(Prox(np.array([[2.0]]), 0.5, np.zeros(1), EXACT)).rows
    far = p.clients.ask(Prox(np.array([[2.0]]), 0.5, np.array([60.0]), fs.GradientProx(400))).rows
    np.testing.assert_allclose(far, near, rtol=1e-9)


def work(p: fs.Problem, solver: ProxSolver) -> list[Work]:
    """The work of one prox, per block."""
    done = []
    for at, costs in p.clients._blocks:
        counted = costs.counted()
        solver.solve(counted, arguments(p, 0)[at], 0.1, np.zeros(p.d))
        done.append(counted.work)
    return done


def test_the_work_of_gradient_steps_is_their_number_and_one_gradient_for_the_bound() -> None:
    assert work(problem("logistic", [20, 5], 4), fs.GradientProx(7)) == [Work(8, 0, 0)] * 2


def test_the_stored_factor_of_a_quadratic_is_counted_when_it_is_made() -> None:
    p = problem("least-squares", [20, 2], 4)
    # the residual of a prox by rows shows its rounding, that by d×d matrices is bounded before
    assert work(p, EXACT) == [Work(0, 0, 1), Work(1, 0, 1)]
    assert work(p, EXACT) == [Work(0, 0, 0), Work(1, 0, 0)]


def test_every_newton_step_is_a_gradient_a_hessian_and_a_factorisation() -> None:
    for done in work(problem("poisson", [20, 2], 4), EXACT):
        assert done.hessians == done.factorisations > 2
        assert done.gradients > done.hessians  # at every point, and in a line search at rounding


def test_a_hessian_by_differences_counts_its_gradients() -> None:
    loss = fs.CustomLoss(lambda x, a: 0.5 * float(x @ x), lambda x, a: x, d=3)
    (done,) = work(fs.Problem(loss, [None]), EXACT)
    assert done.hessians == 1
    assert done.gradients == 1 + 2 * 3 + 1  # at the start, for the Hessian, at the end


def test_the_stated_error_of_an_exact_prox_counts_rounding() -> None:
    """Against the prox in long doubles, where I + sH is badly conditioned."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((12, 3)) * np.array([1e3, 1.0, 1e-2])
        b, v, s = rng.standard_normal(12), rng.standard_normal(3), 30.0
        for n in (12, 2):
            B = A[:n].astype(np.longdouble)
            M, q = np.eye(3) + s * (B.T @ B), v + s * (B.T @ b[:n])
            exact = refined(M, q)
            p = fs.Problem(fs.LeastSquares(), [(A[:n], b[:n])])
            answer = p.clients.ask(Prox(v[None], s, v, EXACT))
            away = float(np.linalg.norm(np.asarray(answer.rows[0] - exact, dtype=np.float64)))
            assert 0 < away <= answer.error[0]
            # with fewer rows than columns the bound is the residual along the steepest direction
            assert answer.error[0] < 1e-3 or n == 2


def refined(M: Array, q: Array) -> Array:
    """The solution of Mu = q in long doubles, by residuals."""
    u = np.zeros_like(q)
    for _ in range(20):
        u = u + np.linalg.solve(M.astype(np.float64), (q - M @ u).astype(np.float64))
    return np.asarray(u)


@pytest.mark.parametrize("name", ["least-squares", "logistic", "poisson"])
@pytest.mark.parametrize("sizes", [[60, 40], [4, 3]])
def test_columns_over_sixteen_orders_of_magnitude_have_a_prox(name: str, sizes: list[int]) -> None:
    scale = 10.0 ** np.linspace(-8, 8, 6)
    plain = clients(name, sizes, 6)
    scaled = [(A * scale, b, w) for A, b, w in plain]
    p, q = (fs.Problem(loss(name, 6), each, 0.0) for each in (plain, scaled))
    V = arguments(p, 0)
    # the same prox in other units, with a step for each coordinate
    expected = p.clients.ask(Prox(V, 1.0, np.zeros(6), EXACT)).rows
    for at, costs in q.clients._blocks:
        start, centre = costs.at(np.zeros((costs.terms.k, 6))), V[at] / scale
        found = LocalNewton().solve(start, centre, scale**2).X
        np.testing.assert_allclose(found * scale, expected[at], rtol=1e-7, atol=1e-7)


def test_newton_at_no_metric_ends_at_the_shortest_minimiser_of_a_singular_cost() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 5))
    b = np.where(A @ rng.standard_normal(5) + 3 * rng.standard_normal(30) > 0, 1.0, -1.0)
    p = fs.Problem(fs.Logistic(), [(A, b)])
    ((_, costs),) = p.clients._blocks
    at = LocalNewton(most_steps=30).solve(costs.at(np.zeros((1, 5))), np.zeros((1, 5)), 0.0)
    assert norms(at.gradient)[0] <= 1e-11
    kernel = np.linalg.svd(A)[2][3:]
    # steps in units of a unit diagonal: nothing of the kernel beyond what those units mix in
    assert np.linalg.norm(kernel @ at.X[0]) <= np.linalg.norm(at.X[0])
    assert np.linalg.norm(at.X[0]) < 1e3


@pytest.mark.parametrize("d", [4, 30])
@pytest.mark.parametrize("name", ["logistic", "poisson", "huber"])
def test_one_newton_serves_numbers_diagonals_and_matrices(name: str, d: int) -> None:
    p = problem(name, [40, 50], d, ridge=0.3)
    V = 0.3 * arguments(p, 0)
    rng = np.random.default_rng(1)
    B = rng.standard_normal((d, 2 * d)) / np.sqrt(2 * d)
    metrics: list[Any] = [
        2.0,
        np.exp(rng.uniform(-1, 1, d)),
        B @ B.T,
        np.stack([B @ B.T, np.eye(d)]),
    ]
    for at, costs in p.clients._blocks:
        k = costs.terms.k
        for M in metrics:
            own = M[at] if np.ndim(M) == 3 else M
            whole = own * np.eye(d) if np.ndim(own) < 2 else own
            for first in (None, Factors(np.broadcast_to(3.0 * np.eye(d), (k, d, d)))):
                with np.errstate(over="ignore"):  # of a poor first step
                    end = LocalNewton().solve(costs.at(np.zeros((k, d))), V[at], own, first)
                G = end.gradient + matvec(np.broadcast_to(whole, (k, d, d)), end.X - V[at])
                assert (norms(G) <= 1e-9 * (1 + norms(end.gradient))).all()


@pytest.mark.parametrize(("offset", "v"), [(800.0, -799.0), (0.0, 900.0)])
def test_a_prox_is_exact_from_a_start_beyond_float64(offset: float, v: float) -> None:
    """It starts at v or at 0 instead, whichever has a finite cost."""
    data = [(np.ones((1, 1)), np.ones(1), np.ones(1), np.array([offset]))]
    [(_, costs)] = fs.Problem(fs.Poisson(), data).clients._blocks
    with np.errstate(over="ignore", invalid="ignore"):
        u = EXACT.solve(costs, np.array([[v]]), 1.0, np.array([900.0])).u
    np.testing.assert_allclose(costs.gradient(u) + u - v, 0.0, atol=1e-9)


@pytest.mark.parametrize(("s", "steps"), [(1.0, 0.5), (4.0, 0.25)])
def test_a_gradient_step_is_halved_until_it_gains_half_of_what_its_slope_promises(
    s: float, steps: float
) -> None:
    """At a curvature of 1 + s/2 that is at most its inverse, and so ½, or ¼."""
    p = fs.Problem(fs.LeastSquares(), [(np.array([[0.5**0.5]]), np.zeros(1))])
    once = fs.GradientProx(1, step="backtracking")
    u = p.clients.ask(Prox(np.zeros(1), s, np.ones(1), once)).rows
    np.testing.assert_allclose(u, 1.0 - steps * (1.0 + 0.5 * s))


def test_in_one_block_clients_with_a_known_curvature_take_its_step_and_others_search() -> None:
    """L_1 is stated, L_0 is not; both curvatures are 3."""
    three = fs.CustomLoss(
        lambda x, _: 1.5 * float(x @ x),
        lambda x, _: 3.0 * x,
        d=1,
        curvature=lambda L: (0.0, L),
    )
    p = fs.Problem(three, [np.inf, 4.0])
    u = p.clients.ask(Prox(np.zeros(1), 1.0, np.ones(1), fs.GradientProx(1))).rows
    # ∇h = 4 at 1: a search halves 1 to ¼, the known step is 1/(1 + 4)
    np.testing.assert_allclose(u, [[0.0], [1.0 - 4.0 / 5.0]], atol=1e-15)


def test_a_search_uphill_moves_nobody() -> None:
    [(_, costs)] = problem("logistic", [20], 3, ridge=1.0).clients._blocks
    merit = Merit(np.zeros((1, 3)), 1.0)
    at = costs.at(np.ones((1, 3)))
    G = merit.gradient(at)
    found = backtrack(merit, at, merit.value(at), -G, dots(G, G))
    assert not found.moved.any()
    np.testing.assert_array_equal(found.at.X, at.X)


def test_a_cost_that_is_not_a_number_is_worse_than_any_other() -> None:
    outside = fs.CustomLoss(
        lambda x, _: float(x @ x) if x[0] < 2 else np.nan, lambda x, _: 2 * x, d=1
    )
    [(_, costs)] = fs.Problem(outside, [None]).clients._blocks
    assert Merit(np.zeros((1, 1)), 1.0).value(costs.at(np.full((1, 1), 3.0))) == np.inf


def test_newton_ends_where_rounding_is_that_of_rows_which_cancel() -> None:
    """Their gradients are a thousand times as long as their sum."""
    rng = np.random.default_rng(0)
    A = 1e3 * rng.standard_normal((2000, 3))
    b = np.where(rng.logistic(size=2000) < A @ np.array([1e-3, 0.0, -1e-3]), 1.0, -1.0)
    [(_, costs)] = fs.Problem(fs.Logistic(), [(A, b)]).clients._blocks
    counted = costs.counted()
    EXACT.solve(counted, np.ones((1, 3)), 1.0, np.zeros(3))
    assert counted.work.factorisations <= 12


def test_a_client_whose_chord_steps_fail_goes_on_by_newton_steps() -> None:
    """Even if it is alone in its block."""
    p = problem("poisson", [40], 3, ridge=0.3)
    ((_, costs),) = p.clients._blocks
    start = costs.at(np.ones((1, 3)))
    poor = Factors(1e3 * np.eye(3)[None])  # steps that are far too short
    end = LocalNewton(0.1, most_steps=10).solve(start, start.X, np.eye(3), poor)
    exact = LocalNewton().solve(start, start.X, np.eye(3))
    way = norms(exact.X - start.X)
    assert (norms(end.X - exact.X) <= 0.2 * way).all()


def test_the_papers_step_is_that_of_the_extremes_over_all_clients() -> None:
    """α = 1/(1 + s(ℓ_* + L^*)/2) at every client."""
    p = problem("least-squares", [30, 12], 4, ridge=1.0)
    bounds = p.clients.ask(Curvature()).rows
    ell, L, s = bounds[:, 0].min(), bounds[:, 1].max(), 0.1
    solver = fs.GradientProx(1, step="paper").for_bounds(ell, L)
    V = arguments(p, 0)
    x = np.zeros(4)
    alpha = 1 / (1 + s * (ell + L) / 2)
    expected = x - alpha * (s * p.clients.ask(Gradient(x)).rows + x - V)
    np.testing.assert_allclose(p.clients.ask(Prox(V, s, x, solver)).rows, expected, rtol=1e-12)
    assert fs.GradientProx(3).for_bounds(ell, L) == fs.GradientProx(3)
    own = p.clients.ask(Prox(V, s, x, fs.GradientProx(1))).rows
    alphas = 1 / (1 + s * bounds[:, 1:])
    expected = x - alphas * (s * p.clients.ask(Gradient(x)).rows + x - V)
    np.testing.assert_allclose(own, expected, rtol=1e-12)


def test_work_is_counted_for_each_question_by_itself() -> None:
    p = problem("logistic", [20, 5], 4)
    for _ in range(2):
        assert p.clients.ask(Gradient(np.zeros(4))).work.tolist() == [[1, 0, 0]] * 2
        assert p.clients.ask(Information(np.zeros(4))).work.tolist() == [[0, 1, 0]] * 2


def test_a_line_search_leaves_clients_without_a_step_where_they_are() -> None:
    p = problem("logistic", [20, 20, 20], 3, ridge=0.3)
    ((_, costs),) = p.clients._blocks
    merit = Merit(np.zeros((3, 3)), 1.0)
    at = costs.at(np.ones((3, 3)))
    G = merit.gradient(at)
    step = np.stack([G[0], np.full(3, np.nan), -G[2]])
    end = backtrack(merit, at, merit.value(at), step, dots(G, step))
    assert end.moved.tolist() == [True, False, False]
    np.testing.assert_array_equal(end.at.X[1:], at.X[1:])
    np.testing.assert_array_equal(end.h, merit.value(end.at))
    assert end.h[0] < merit.value(at)[0]


def test_the_stated_error_counts_the_rounding_of_sums_that_cancel() -> None:
    """Slopes of 1e6 with both signs: the residual may be 0 by chance, the error is not."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        a = rng.standard_normal(2)
        A = np.stack([a, -a, rng.standard_normal(2)])
        b = np.array([1e6, 1e6, 1.0])
        p = fs.Problem(fs.Huber(1e5), [(A, b)])
        answer = p.clients.ask(Prox(rng.standard_normal((1, 2)), 0.5, np.zeros(2), EXACT))
        assert answer.error[0] >= 0.5 * np.finfo(float).eps * 2e5 * np.linalg.norm(a)
