"""Every method of the table: where it stops, and that a run can be interrupted and continued."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import Unreliable
from fedsplit.arrays import Array
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Curvature, Descend, Direction, Information
from fedsplit.clients.stacked import StackedClients
from fedsplit.methods import METHODS, parse
from fedsplit.methods.admm import ADMM
from fedsplit.methods.cg import CG
from fedsplit.methods.feddyn import FedDyn
from fedsplit.methods.gd import AGD, GD
from fedsplit.methods.giant import GIANT
from fedsplit.methods.information import Newton
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.method import FirstOrder, Method
from fedsplit.methods.scaffnew import Scaffnew
from fedsplit.methods.scaffold import SCAFFOLD
from problems import LOSSES, begun, problem, updated

SIZES, D = [40, 15, 25, 9], 4

EXACT = [name for name in METHODS if name != "fedprox"]
"""Methods whose fixed point is the minimiser."""

BUDGET = {
    "gd": 150,
    "agd": 150,
    "cg": 10,
    "lbfgs": 40,
    "admm": 100,
    "scaffnew": 200,
    "feddyn": 100,
    "giant": 120,
    "newton": 30,
    "fedgd": 300,
    "fedavg": 300,
    "fedsplit": 100,
    "quasi-newton": 60,
    "information": 30,
}
"""In how many rounds a method reaches the minimiser; 400 for those that are not here."""

WRONG = ["fedgd:local_steps=5", "fedprox"]
"""Methods that stop at another point."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    """The loss with the most local work is for the slow tests."""
    return [pytest.mark.slow] * (name == "multinomial")


QUICK = [pytest.param(name, marks=marks(name)) for name in sorted(LOSSES)]
"""All losses."""

UNANIMOUS = [name for name in METHODS if parse(name).unanimous]


def pairs(methods: Iterable[str], losses: Iterable[str]) -> list[Any]:
    """Every method with every loss that it is for: conjugate gradients are for quadratics."""
    return [
        pytest.param(which, name, marks=marks(name))
        for which, name in product(methods, losses)
        if which != "cg" or name == "least-squares"
    ]


def a_problem(name: str) -> fs.Problem:
    return problem(name, SIZES, D, seed=1, ridge=5.0)


def away(p: fs.Problem, x: Array) -> float:
    """The distance from the minimiser, relative to its size."""
    x_star = p.solution()
    return float(np.linalg.norm(x - x_star) / np.linalg.norm(x_star))


@pytest.mark.parametrize(("which", "name"), pairs(EXACT, sorted(LOSSES)))
def test_a_method_with_the_right_fixed_point_reaches_the_minimiser(which: str, name: str) -> None:
    p = a_problem(name)
    rounds = BUDGET.get(which, 200)
    result = fs.solve(p, parse(which), rounds=rounds, tol=0)
    assert result.rounds <= rounds
    assert away(p, result.x) <= 1e-6


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("which", WRONG)
def test_fedgd_and_fedprox_stop_at_the_wrong_point_of_their_propositions(
    which: str, name: str
) -> None:
    p = a_problem(name)
    result = fs.solve(p, parse(which), rounds=150, tol=0)
    s = float(result.state.inner.s)
    if which != "fedprox":
        defect = fs.theory.fedgd_defect(p.clients, result.x, s, 5)
    else:
        defect = fs.theory.fedprox_defect(p.clients, result.x, s)
    assert defect <= 1e-7 * fs.theory.optimality_defect(p.clients, np.zeros(D))
    assert away(p, result.x) >= 1e-3


@pytest.mark.parametrize("which", WRONG)
def test_on_least_squares_they_miss_by_what_the_closed_form_says(which: str) -> None:
    p = a_problem("least-squares")
    result = fs.solve(p, parse(which), rounds=400, tol=0)
    s = float(result.state.inner.s)
    if which != "fedprox":
        limit = fs.theory.fedgd_fixed_point(p.clients, s, 5)
    else:
        limit = fs.theory.fedprox_fixed_point(p.clients, s)
    np.testing.assert_allclose(result.x, limit, rtol=1e-9)
    assert away(p, limit) >= 1e-3


@pytest.mark.parametrize(("which", "name"), pairs([*EXACT, *WRONG], ["least-squares", "poisson"]))
def test_continuing_from_any_round_is_exact_to_the_bit(which: str, name: str) -> None:
    p = a_problem(name)
    method = parse(which)
    whole = fs.solve(p, method, rounds=9, tol=0)
    for first in (4, 5, 6):  # a different question comes next in each
        begun = fs.solve(p, method, rounds=first, tol=0)
        assert begun.rounds == first or begun.stopped_by == "method"  # one question an update
        rest = fs.solve(p, method, rounds=9 - first, tol=0, state=begun.state)
        np.testing.assert_array_equal(rest.x, whole.x)
        np.testing.assert_array_equal(rest.trace.objective, whole.trace.objective[begun.rounds :])


@pytest.mark.parametrize("which", EXACT)
def test_a_method_that_has_converged_is_at_the_minimiser(which: str) -> None:
    p = a_problem("least-squares")
    result = fs.solve(p, parse(which), rounds=3000, tol=1e-10)
    assert result.converged
    best = p.objective(p.solution())
    assert p.objective(result.x) - best <= 1e-9 * best


def test_restarts_make_agd_fast_without_knowing_the_strong_convexity() -> None:
    rng = np.random.default_rng(2)
    A = rng.standard_normal((3, 30, 6)) * np.logspace(0, 2, 6)  # a condition number of about 1e4
    p = fs.Problem(fs.LeastSquares(), [(a, rng.standard_normal(30)) for a in A])
    assert away(p, fs.solve(p, AGD(), rounds=1500, tol=0).x) <= 1e-6
    assert away(p, fs.solve(p, GD(), rounds=1500, tol=0).x) >= 1e-2


@pytest.mark.parametrize("distinct", [2, 3, 5])
def test_cg_needs_as_many_rounds_as_there_are_distinct_eigenvalues(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    d = 7
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    A = np.sqrt(np.resize(np.arange(1.0, distinct + 1), d))[:, None] * Q.T
    p = fs.Problem(fs.LeastSquares(), [(A, rng.standard_normal(d)) for _ in range(3)])
    early, done = (
        fs.solve(p, CG(), rounds=k, tol=0) for k in (distinct, distinct + 1)
    )  # one is the first gradient
    assert away(p, early.x) > 1e-3
    assert away(p, done.x) <= 1e-12


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_cg_ends_by_itself_on_an_ill_conditioned_quadratic_from_any_start(scale: float) -> None:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((4, 20, 6)) * np.logspace(0, 4, 6)
    x = scale * rng.standard_normal(6)
    p = fs.Problem(fs.LeastSquares(), [(a, a @ x + scale * rng.standard_normal(20)) for a in A])
    for x0 in (np.zeros(6), p.solution(), 2.0 * p.solution()):
        result = fs.solve(p, CG(), rounds=200, tol=0, x0=x0)
        assert result.stopped_by == "method"
        assert away(p, result.x) <= 1e-8


def test_cg_does_not_take_rounding_for_a_cost_that_is_not_quadratic() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((4, 20, 12)) * np.logspace(0, 6, 12)  # a condition number of 1e12
        p = fs.Problem(fs.LeastSquares(), [(a, rng.standard_normal(20)) for a in A])
        assert fs.solve(p, CG(), rounds=100, tol=0).rounds > 12


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"least-squares"}))
def test_cg_refuses_costs_that_are_not_quadratic(name: str) -> None:
    with pytest.raises(fs.InputError, match="not quadratic"):
        fs.solve(a_problem(name), CG(), rounds=100)


def test_the_default_steps_are_those_of_the_docstrings() -> None:
    p = a_problem("least-squares")
    ell, L = p.clients.ask(Curvature()).rows.T

    def step(method: Method[Any]) -> float:
        return float(fs.solve(p, method, rounds=2, tol=0).step)

    assert step(GD()) == pytest.approx(2 / (ell.sum() + L.sum()))
    assert step(AGD()) == pytest.approx(1 / L.sum())
    assert step(ADMM()) == step(FedDyn()) == pytest.approx(1 / np.sqrt(ell.min() * L.max()))
    assert step(SCAFFOLD(local_steps=4)) == pytest.approx(1 / (4 * L.max()))
    assert step(Scaffnew()) == pytest.approx(1 / L.max())
    state: Any = fs.solve(p, Scaffnew(), rounds=2, tol=0).state.inner
    assert state.p == pytest.approx(np.sqrt(ell.min() / L.max()))
    flat = problem("logistic", SIZES, D)
    assert fs.solve(flat, GD(), rounds=2, tol=0).step == pytest.approx(
        1 / flat.clients.ask(Curvature()).rows[:, 1].sum()
    )


def test_scaffnew_depends_on_its_seed_and_on_nothing_else() -> None:
    p = a_problem("logistic")
    a, b, c = (fs.solve(p, Scaffnew(seed=seed), rounds=9, tol=0).x for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_scaffnew_converges_with_half_of_the_clients_in_a_round() -> None:
    p = problem("least-squares", [20, 30, 25, 40], 3, ridge=5.0)
    result = fs.solve(p, Scaffnew(), rounds=100, participation=0.5, tol=0)
    np.testing.assert_allclose(result.x, p.solution(), rtol=1e-6)


def test_with_probability_one_scaffnew_is_gradient_descent_on_the_mean() -> None:
    p = a_problem("logistic")
    a = fs.solve(p, Scaffnew(step=0.02, probability=1.0), rounds=9, tol=0).x
    np.testing.assert_allclose(a, fs.solve(p, fs.FedGD(step=0.02), rounds=9, tol=0).x, rtol=1e-12)


def test_newton_is_exact_on_a_quadratic_after_one_iteration() -> None:
    p = a_problem("least-squares")
    result = fs.solve(p, Newton(), rounds=2, tol=0)  # the second is about where the first led
    assert away(p, result.x) <= 1e-12
    assert list(result.trace.kind) == ["round", "round"]
    assert D * (D + 1) // 2 < result.trace.floats_up[1] / len(SIZES) < D * (D + 1) // 2 + 40


def test_giant_is_newton_where_the_clients_are_the_same() -> None:
    rng = np.random.default_rng(0)
    data = (rng.standard_normal((20, 3)), rng.standard_normal(20))
    p = fs.Problem(fs.LeastSquares(), [data] * 3)
    assert away(p, fs.solve(p, GIANT(), rounds=3, tol=0).x) <= 1e-8


@pytest.mark.parametrize("name", QUICK)
def test_giant_goes_down_even_where_local_hessians_are_singular(name: str) -> None:
    p = problem(name, [2, 40, 2, 30, 1, 2], 6, seed=1)
    gap = fs.solve(p, GIANT(), rounds=200, tol=0).trace.objective - p.objective(p.solution())
    # slowly, as a client with one row is a poor model of all
    assert gap[-1] <= 1e-2 * gap[0]


@pytest.mark.parametrize("method", [LBFGS(), Newton(), GIANT()], ids=repr)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_line_search_does_not_depend_on_the_units(method: Method[Any], scale: float) -> None:
    rng = np.random.default_rng(0)
    A = scale * rng.standard_normal((4, 30, 3))
    p = fs.Problem(fs.Logistic(), [(a, np.where(rng.random(30) < 0.5, 1, -1)) for a in A])
    assert away(p, fs.solve(p, method, rounds=150, tol=0).x) <= 1e-6


@pytest.mark.parametrize("method", [LBFGS(), Newton(), GIANT()], ids=repr)
def test_the_line_search_goes_on_where_the_objective_is_flat_to_rounding(
    method: Method[Any],
) -> None:
    p = a_problem("huber")
    assert away(p, fs.solve(p, method, rounds=200, tol=0).x) <= 1e-12


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_local_newton_direction_is_the_solution_of_the_local_system(name: str) -> None:
    p, g = a_problem(name), np.arange(1.0, D + 1)
    H = p.clients.ask(Information(np.zeros(D))).rows
    np.testing.assert_allclose(
        p.clients.ask(Direction(np.zeros(D), g)).rows, np.linalg.solve(H, g), rtol=1e-7
    )


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_client_with_fewer_rows_than_columns_has_a_direction_of_ascent_too(name: str) -> None:
    clients, g = problem(name, [2, 30, 1], D).clients, np.arange(1.0, D + 1)
    rows = clients.ask(Direction(np.zeros(D), g)).rows
    assert np.isfinite(rows).all()
    assert (rows @ g > 0).all()


def test_a_client_without_curvature_answers_the_gradient_itself() -> None:
    data = [(np.eye(D), np.ones(D)), (np.zeros((5, D)), np.zeros(5))]
    g = np.arange(1.0, D + 1)
    rows = fs.Problem(fs.LeastSquares(), data).clients.ask(Direction(np.zeros(D), g)).rows
    np.testing.assert_array_equal(rows[1], g)


def unreliable(p: fs.Problem) -> Unreliable:
    """Clients of whom about half answer each question."""
    rng = np.random.default_rng(0)
    return Unreliable(p, lambda: rng.random(p.m) < 0.5)


@pytest.mark.parametrize("which", sorted({*EXACT} - {*UNANIMOUS} - {"fedgd", "fedavg"}))
def test_clients_that_are_often_absent_do_not_change_the_fixed_point(which: str) -> None:
    p = a_problem("least-squares")
    assert away(p, fs.solve(unreliable(p), parse(which), rounds=300, tol=0).x) <= 1e-6


@pytest.mark.parametrize("method", [ADMM(0.1), FedDyn(10.0), SCAFFOLD(1e-3)], ids=repr)
def test_what_the_server_knows_of_a_client_stays_while_it_is_absent(method: Method[Any]) -> None:
    p = a_problem("least-squares")
    some = unreliable(p)
    known = {
        ADMM: lambda state: state.x + state.u,
        FedDyn: lambda state: state.g,
        SCAFFOLD: lambda state: state.c,
    }
    before: Any = fs.solve(p, method, rounds=3, tol=0).state.inner
    after: Any = updated(method, some, before)
    absent = np.random.default_rng(0).random(p.m) >= 0.5
    assert 0 < absent.sum() < p.m
    a, b = (known[type(method)](state) for state in (before, after))
    np.testing.assert_allclose(a[absent], b[absent], rtol=1e-12)
    assert (np.abs(a - b)[~absent] > 1e-6).any(axis=1).all()


def test_scaffnew_takes_one_over_p_local_steps_on_average_and_never_more_than_ten_times_that() -> (
    None
):
    taken: list[int] = []

    class Counting(StackedClients):
        def ask(self, question: CostQuestion) -> fs.Answer:
            if isinstance(question, Descend):
                taken.append(question.steps)
                question = replace(question, steps=1)
            return super().ask(question)

    one = fs.LeastSquares().stack([(np.ones((1, 1)), np.ones(1))], np.zeros(1))
    fs.solve(Counting(*one, np.zeros(1)), Scaffnew(step=0.1, probability=0.2), rounds=2000, tol=0)
    assert np.mean(taken) == pytest.approx(5.0, rel=0.1)
    assert max(taken) <= 50


@pytest.mark.parametrize("which", UNANIMOUS)
def test_a_method_that_needs_every_client_says_so(which: str) -> None:
    some = unreliable(a_problem("least-squares"))
    with pytest.raises(fs.InputError, match="needs every client's answer"):
        fs.solve(some, parse(which), rounds=20)


SETTINGS = "step|memory|prox|local_steps|probability|seed|alpha|growth|affine|roundoff"


@pytest.mark.parametrize(
    "build",
    [
        lambda: GD(step=0.0),
        lambda: AGD(step=-1.0),
        lambda: LBFGS(memory=0),
        lambda: LBFGS(memory=2.5),  # type: ignore[arg-type]  # wrong values are the point
        lambda: ADMM(step=float("inf")),
        lambda: ADMM(prox=fs.ExactProx),  # type: ignore[arg-type]  # the same: a class
        lambda: SCAFFOLD(step=float("nan")),
        lambda: SCAFFOLD(local_steps=0),
        lambda: Scaffnew(step=0.0),
        lambda: Scaffnew(probability=0.0),
        lambda: Scaffnew(probability=1.5),
        lambda: Scaffnew(seed=-1),
        lambda: GD(growth=-1),
        lambda: GD(growth=0.9),
        lambda: AGD(growth=0.0),
        lambda: CG(affine="a"),  # type: ignore[arg-type]  # the same
        lambda: CG(roundoff=-1e-10),
        lambda: CG(affine=None),  # type: ignore[arg-type]  # the same: it is not optional
        lambda: FedDyn(alpha=0.0),
        lambda: FedDyn(prox=3),  # type: ignore[arg-type]  # the same
    ],
)
def test_settings_that_make_no_sense_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(fs.InputError, match=SETTINGS):
        build()


@pytest.mark.parametrize(("curvature", "allowed"), [(0.99, True), (1.0, True), (1.01, False)])
def test_a_searched_step_is_taken_up_to_the_curvature_it_stands_for(
    curvature: float, allowed: bool
) -> None:
    known = FirstOrder(3.0, np.array([1.0, -2.0]))
    s = 0.25
    move = -s * known.g
    F = known.F + float(known.g @ move) + 0.5 * curvature / s * float(move @ move)
    assert known.bounds(F, move, s) is allowed


def test_a_refused_step_of_agd_forgets_the_momentum() -> None:
    p = problem("poisson", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    method = AGD(growth=2.0)
    refused = 0
    state = begun(method, p.clients, np.full(5, 1.0))
    for _ in range(40):
        after = updated(method, p.clients, state)
        if after.s < state.s:
            refused += 1
            assert after.theta == 1.0
            np.testing.assert_array_equal(after.x, state.x)
        else:
            assert after.theta > 1.0
            assert after.s == pytest.approx(method.growth * state.s)
        state = after
    assert refused
