"""Penalties and constraints: proxes against their definition, solutions against other software."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import ElasticNet, Lasso

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.methods import METHODS, parse
from fedsplit.penalties.class_elastic_net import ClassElasticNet
from fedsplit.penalties.coordinatewise import NonNegativeElasticNet
from penalty_examples import PENALTIES
from problems import begun, problem

D = 5

vectors = st.lists(st.floats(-3, 3), min_size=D, max_size=D).map(np.array)

TAKING = [name for name, kind in METHODS.items() if "penalty" in vars(kind())]
"""Methods that take a penalty."""

coordinatewise_names = [name for name, make in PENALTIES.items() if make(D).coordinatewise]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PENALTIES)
@given(v=vectors, other=vectors, t=st.sampled_from([0.1, 1.0, 5.0]))
def test_a_prox_minimises_what_it_should(name: str, v: Array, other: Array, t: float) -> None:
    penalty = PENALTIES[name](D)
    x = penalty.prox(v, t)

    def merit(u: Array) -> float:
        return penalty.value(u) + float(np.sum((u - v) ** 2)) / (2 * t)

    near = penalty.prox(x + 0.01 * other, 1e-9)  # feasible, and close to x
    for candidate in (penalty.prox(other, t), near, v):
        assert merit(x) <= merit(candidate) + 1e-9 * (1 + abs(merit(candidate)))


@pytest.mark.parametrize("name", coordinatewise_names)
@given(v=vectors, t=st.lists(st.floats(0.1, 4.0), min_size=D, max_size=D).map(np.array))
def test_a_coordinatewise_prox_takes_a_step_per_coordinate(name: str, v: Array, t: Array) -> None:
    penalty = PENALTIES[name](D)
    one_by_one = [penalty.prox(v, float(ti))[i] for i, ti in enumerate(t)]
    np.testing.assert_allclose(penalty.prox(v, t), one_by_one)


@pytest.mark.parametrize("name", PENALTIES)
@given(x=vectors, y=vectors)
def test_a_penalty_is_as_convex_as_it_states(name: str, x: Array, y: Array) -> None:
    penalty = PENALTIES[name](D)
    mu = getattr(penalty, "convexity", 0.0)
    x, y = penalty.prox(x, 1.0), penalty.prox(y, 1.0)  # inside
    middle = penalty.value(0.5 * (x + y)) + 0.125 * mu * float(np.sum((x - y) ** 2))
    ends = 0.5 * (penalty.value(x) + penalty.value(y))
    assert middle <= ends + 1e-12 * (1 + abs(ends))


@pytest.mark.parametrize("name", PENALTIES)
@given(x=vectors, y=vectors, gradient=vectors)
def test_a_dual_gap_bounds_what_any_point_could_gain(
    name: str, x: Array, y: Array, gradient: Array
) -> None:
    penalty = PENALTIES[name](D)
    if not hasattr(penalty, "dual_gap"):
        return
    x, y = penalty.prox(x, 0.1), penalty.prox(3 * y, 0.1)
    level = penalty.value(y)
    for scale in (1.0, 0.01):
        gain = scale * gradient @ (x - y) + penalty.value(x) - level
        assert gain <= penalty.dual_gap(x, scale * gradient, level) + 1e-9 * (1 + abs(gain))


@given(x=st.lists(st.floats(-3, 3), min_size=6, max_size=6).map(np.array))
def test_the_ridge_in_an_elastic_net_of_all_classes_is_part_of_it(x: Array) -> None:
    """It is reached where the coefficients of all classes but the reference are equal."""
    net = ClassElasticNet(np.full(2, 1e-9), np.array([0.3, 2.0]), classes=4)
    for point in (x, np.tile(x[:2], 3)):
        assert net.value(point) >= 0.5 * net.l2 @ point**2 * (1 - 1e-9)
    equal = np.tile([1.0, -2.0], 3)
    np.testing.assert_allclose(net.value(equal), 0.5 * net.l2 @ equal**2, rtol=1e-6)


def test_nothing_is_proved_while_a_coordinate_without_a_penalty_has_a_slope() -> None:
    for penalty in (fs.GroupL1(0.5, [[0, 1]]), fs.L1([0.5, 0.5, 0.0])):
        x = np.array([1.0, 0.0, 2.0])
        assert penalty.dual_gap(x, np.array([-0.5, 0.0, 0.1]), 3.0) == np.inf
        assert np.isfinite(penalty.dual_gap(x, np.array([-0.5, 0.0, 0.0]), 3.0))
    without = fs.GroupL1(0.0, [[0, 1]])
    assert without.dual_gap(x, np.array([0.1, 0.0, 0.0]), 3.0) == np.inf
    assert without.dual_gap(x, np.zeros(3), 3.0) == 0.0


def test_weights_for_each_coordinate_make_a_penalty_as_convex_as_the_least_of_them() -> None:
    assert fs.ElasticNet(0.1, [0.5, 2.0]).convexity == 0.5


def test_the_penalty_of_a_fit_bounds_coefficients_by_either_weight() -> None:
    zero, one, free = np.zeros(2), np.array([0.0, 1.0]), np.zeros(2, dtype=bool)
    for l1, l2, bounded in ((one, zero, True), (zero, one, True), (zero, zero, False)):
        assert NonNegativeElasticNet(l1, l2, free).bounded == bounded


def pooled(p: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([A for A, _ in p]), np.concatenate([b for _, b in p])


def sparse_clients(scales: Array | float = 1.0) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(5)
    x = np.where(rng.uniform(size=20) < 0.3, 2 * rng.standard_normal(20), 0.0)
    designs = [rng.standard_normal((n, 20)) for n in (50, 15, 80, 40)]
    return [(A * scales, A @ x + rng.standard_normal(len(A))) for A in designs]


def lasso(data: list[tuple[Array, Array]], lam: float) -> Array:
    """scikit-learn's coefficients."""
    A, b = pooled(data)
    model = Lasso(alpha=lam / len(b), fit_intercept=False, tol=1e-15, max_iter=10**6)
    coefficients: Array = model.fit(A, b).coef_
    return coefficients


def test_the_lasso_is_scikit_learns_with_the_same_zeros() -> None:
    data = sparse_clients()
    reference = lasso(data, 30.0)
    result = fs.solve(fs.Problem(fs.LeastSquares(), data), penalty=fs.L1(30.0))
    assert result.converged
    np.testing.assert_allclose(result.x, reference, atol=1e-8)
    assert 0 < np.sum(reference == 0) < 20
    np.testing.assert_array_equal(result.x == 0, reference == 0)


@pytest.mark.parametrize("which", TAKING)
def test_every_method_that_takes_a_penalty_proves_the_lasso(which: str) -> None:
    data = [(A, b) for A, b in sparse_clients() if len(b) > 20]  # Theorem 1's step needs ℓ* > 0
    reference = lasso(data, 30.0)
    p = fs.Problem(fs.LeastSquares(), data)
    result = fs.solve(p, parse(which), penalty=fs.L1(30.0), rounds=1000)
    assert result.stopped_by == "certificate"
    np.testing.assert_allclose(result.x, reference, atol=2e-5)
    np.testing.assert_array_equal(result.x == 0, reference == 0)


def test_the_elastic_net_is_scikit_learns() -> None:
    data = sparse_clients()
    A, b = pooled(data)
    l1, l2 = 20.0, 5.0
    model = ElasticNet(
        alpha=(l1 + l2) / len(b),
        l1_ratio=l1 / (l1 + l2),
        fit_intercept=False,
        tol=1e-15,
        max_iter=10**6,
    )
    result = fs.solve(fs.Problem(fs.LeastSquares(), data), penalty=fs.ElasticNet(l1, l2))
    np.testing.assert_allclose(result.x, model.fit(A, b).coef_, atol=1e-8)


def test_badly_scaled_features_are_solved_in_any_units() -> None:
    scales = 10.0 ** np.random.default_rng(0).uniform(-3, 3, size=20)
    p = fs.Problem(fs.LeastSquares(), sparse_clients(scales))
    # The same problem in other units.
    lasso = fs.solve(p, fs.QuasiNewton(), penalty=fs.L1(30.0 * scales), tol=1e-12)
    assert lasso.converged
    assert lasso.rounds <= 60
    assert lasso.notes == (f"method: {lasso.method}",)
    other = fs.Problem(fs.LeastSquares(), sparse_clients())
    plain = fs.solve(other, fs.QuasiNewton(), penalty=fs.L1(30.0), tol=1e-12)
    np.testing.assert_allclose(lasso.x * scales, plain.x, atol=1e-6)


@pytest.mark.parametrize("name", ["logistic", "poisson"])
@pytest.mark.parametrize("which", TAKING)
def test_constraints_agree_with_scipy(name: str, which: str) -> None:
    p = problem(name, [40, 25, 60], 3, seed=2, ridge=0.3)
    result = fs.solve(p, parse(which), penalty=fs.Box(-0.2, 0.3), tol=1e-13)
    found = minimize(
        p.objective,
        np.zeros(3),
        jac=p.gradient,
        bounds=[(-0.2, 0.3)] * 3,
        tol=1e-14,
        options={"ftol": 1e-15},
    )
    np.testing.assert_allclose(result.x, found.x, atol=1e-6)
    assert result.converged


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("which", TAKING)
def test_a_method_that_takes_a_penalty_stops_where_the_subgradients_cancel(
    which: str, name: str
) -> None:
    p = problem("logistic", [40, 25, 60], 4, seed=2, ridge=5.0)
    penalty = PENALTIES[name](4)
    method = parse(which).with_penalty(penalty)
    result = fs.solve(p, method, tol=1e-13, rounds=400)
    subgradient = method.subgradient(result.state.inner)
    assert subgradient is not None
    np.testing.assert_allclose(p.gradient(result.x) + subgradient, 0.0, atol=1e-4)
    # γ is a subgradient of g at x if and only if x = prox_{tg}(x + tγ).
    np.testing.assert_allclose(penalty.prox(result.x + subgradient, 1.0), result.x, atol=1e-9)


@pytest.mark.parametrize("which", TAKING)
def test_a_start_outside_a_constraint_is_moved_into_it(which: str) -> None:
    p = problem("logistic", [40, 25], 3, seed=2, ridge=1.0)
    box = fs.Box(-0.2, 0.3)
    state = begun(parse(which).with_penalty(box), p.clients, np.array([3.0, 0.1, -4.0]))
    assert box.value(state.x) == 0.0


def test_a_prox_of_the_users_own_works_like_ours() -> None:
    class Own:
        def value(self, x: Array) -> float:
            return 3.0 * float(np.abs(x).sum())

        def prox(self, v: Array, t: float | Array) -> Array:
            return np.sign(v) * np.maximum(np.abs(v) - 3.0 * t, 0.0)

    p = problem("least-squares", [30, 12, 25], 4, seed=3)
    own, ours = fs.solve(p, penalty=Own()), fs.solve(p, penalty=fs.L1(3.0))
    np.testing.assert_allclose(own.x, ours.x, atol=1e-9)
    assert own.converged


def test_what_is_no_penalty_is_refused() -> None:
    p = problem("least-squares", [30, 12], 3)
    with pytest.raises(fs.InputError, match="penalty"):
        fs.solve(p, penalty=3.0)  # type: ignore[arg-type]  # the wrong type is the point
    with pytest.raises(fs.InputError, match="FedGD takes none: use FedSplit"):
        fs.solve(p, fs.FedGD(), penalty=fs.L1(1.0))
    for wrong in (
        lambda: fs.L1(-1.0),
        lambda: fs.L1("much"),  # type: ignore[arg-type]  # the same
        lambda: fs.ElasticNet(1.0, -2.0),
        lambda: fs.GroupL1(1.0, [[0, 1], [1, 2]]),
        lambda: fs.GroupL1(1.0, [[]]),
        lambda: fs.Box(1.0, 0.0),
        lambda: fs.Simplex(0.0),
        lambda: fs.L2Ball(-1.0),
    ):
        with pytest.raises(fs.InputError):
            wrong()


def test_a_box_with_steps_for_each_coordinate_is_kept_to_the_bit() -> None:
    scales = 10.0 ** np.random.default_rng(0).uniform(-3, 3, size=20)
    p = fs.Problem(fs.LeastSquares(), sparse_clients(scales))
    result = fs.solve(p, fs.QuasiNewton(), penalty=fs.Box(-0.3 / scales, 0.7 / scales))
    assert np.shape(result.step) == (20,)
    assert result.converged
    assert np.isfinite(result.trace.objective[1:]).all()


def test_a_penalty_in_the_method_is_that_of_the_run() -> None:
    p = problem("least-squares", [30, 12, 25], 4, seed=3)
    inside = fs.solve(p, fs.QuasiNewton(penalty=fs.L1(3.0)))
    outside = fs.solve(p, fs.QuasiNewton(), penalty=fs.L1(3.0))
    np.testing.assert_array_equal(inside.x, outside.x)
    np.testing.assert_array_equal(inside.trace.objective, outside.trace.objective)


@pytest.mark.parametrize(
    "wrong",
    [fs.L1([1.0, 2.0]), fs.Box([0.0, 0.0], 1.0), fs.NonNegative([7]), fs.GroupL1(1.0, [[5]])],
)
def test_a_penalty_of_other_coordinates_is_refused_before_the_run(wrong: fs.Penalty) -> None:
    with pytest.raises(fs.InputError, match="3 coordinates"):
        fs.solve(problem("least-squares", [30, 12], 3), penalty=wrong)


def test_the_simplex_takes_points_beyond_which_its_total_is_rounding() -> None:
    simplex = fs.Simplex(0.5)
    np.testing.assert_array_equal(simplex.prox(np.array([1e20, -1e20, 0.0]), 1.0), [0.5, 0.0, 0.0])
    np.testing.assert_array_equal(simplex.prox(np.array([1e20, 1e20]), 1.0), [0.25, 0.25])


@pytest.mark.parametrize("groups", ["ab", None, [3], [[0.5]]], ids=repr)
def test_groups_that_are_no_lists_of_whole_numbers_are_refused(groups: Any) -> None:
    with pytest.raises(fs.InputError, match="groups hold coordinates"):
        fs.GroupL1(1.0, groups)
