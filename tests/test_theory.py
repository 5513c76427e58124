"""The paper's propositions and theorems, and the numbers that follow, checked against runs."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import fedsplit as fs
from fedsplit import theory
from fedsplit.arrays import Array, norms
from fedsplit.clients.questions import Curvature, Gradient, Prox, Value
from fedsplit.local.solver import ProxSolver, Start
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.methods.method import Method
from fedsplit.methods.regularised import RegularisedState
from problems import LOSSES, clients, limit, problem, updated


def algorithm1(step: float, prox: ProxSolver | None = None) -> fs.FedSplit:
    """FedSplit as the paper has it."""
    return fs.FedSplit(step, prox)


def spiked(kappa: float, **sizes: int) -> fs.Problem:
    return fs.ensembles.spiked(**({"m": 6, "d": 20, "n": 50} | sizes), kappa=kappa)


def iterates(method: fs.FedSplit, p: fs.Problem, rounds: int) -> list[Array]:
    """z of the start and after each round."""
    found: list[Array] = [np.zeros((p.m, p.d))]
    fs.solve(p, method, rounds=rounds, tol=0, callbacks=[lambda row, state: found.append(state.z)])
    return found


def constants(p: fs.Problem) -> tuple[float, float, float]:
    """ℓ*, L* and κ."""
    bounds = p.clients.ask(Curvature()).rows
    ell, L = float(bounds[:, 0].min()), float(bounds[:, 1].max())
    return ell, L, L / ell


# Theorem 1 and the master theorem


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1e4])
def test_on_the_spiked_ensemble_z_contracts_by_exactly_rho(kappa: float) -> None:
    p = spiked(kappa)
    s = theory.fedsplit_step(1.0, kappa)
    target = theory.fedsplit_fixed_point(p.clients, p.solution(), s)
    distances = np.array([np.linalg.norm(z - target) for z in iterates(algorithm1(s), p, 200)])
    relative = distances / np.linalg.norm(target)
    if kappa == 1.0:  # ρ = 0: one round is exact
        assert relative[1] < 1e-14
        return
    clear = relative[1:] > 1e-4  # below, rounding shows in the ratio of two distances
    ratios = (distances[1:] / distances[:-1])[clear]
    assert len(ratios) > 10
    assert np.abs(ratios / theory.contraction(kappa) - 1).max() < 1e-11


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_exact_fedsplit_stays_within_theorem_1(name: str) -> None:
    p = problem(name, [40, 12, 4, 25], 4, seed=5, ridge=2.0)
    if name in ("poisson", "gamma"):  # no global L_j: the theorem says nothing
        assert not np.isfinite(p.clients.ask(Curvature()).rows[:, 1]).any()
        return
    ell, L, kappa = constants(p)
    s = theory.fedsplit_step(ell, L)
    x = p.solution()
    target = theory.fedsplit_fixed_point(p.clients, x, s)
    found = iterates(algorithm1(s), p, 60)
    distance = float(np.linalg.norm(found[0] - target))
    for t, z in enumerate(found):
        assert (
            np.linalg.norm(z.mean(axis=0) - x)
            <= theory.theorem1_bound(t, kappa, distance, p.m) * (1 + 1e-9) + 1e-12
        )


@pytest.mark.parametrize("start", ["iterate", "broadcast"])
@pytest.mark.parametrize("steps", [3, 10])
def test_inexact_fedsplit_stays_within_the_bounds_that_its_trace_gives(
    start: Start, steps: int
) -> None:
    p = spiked(10.0)
    s = theory.fedsplit_step(1.0, 10.0)
    method = algorithm1(s, prox=fs.GradientProx(steps, start=start, step="paper"))
    x = p.solution()
    target = theory.fedsplit_fixed_point(p.clients, x, s)
    found = iterates(method, p, 40)
    distance = float(np.linalg.norm(found[0] - target))
    result = fs.solve(p, method, rounds=40, tol=0)
    b = result.trace.error[result.trace.kind == "round"]  # the paper's step takes a set-up
    assert (b > 0).all()
    master = theory.master_bound(10.0, distance, np.sqrt(p.m) * b)
    for t, z in enumerate(found):
        assert np.linalg.norm(z - target) <= master[t] * (1 + 1e-9)
        bound = theory.theorem1_bound(t, 10.0, distance, p.m, b=float(b.max()))
        assert np.linalg.norm(z.mean(axis=0) - x) <= bound * (1 + 1e-9)


def test_theorem_1_rounds_suffice_and_one_less_does_not_on_the_worst_case() -> None:
    for kappa in (2.0, 10.0, 1e4):
        T = theory.theorem1_rounds(1e-6, kappa, 5.0, m=4)
        assert (
            theory.theorem1_bound(T, kappa, 5.0, 4)
            <= 1e-6
            < theory.theorem1_bound(T - 1, kappa, 5.0, 4)
        )
    assert theory.theorem1_rounds(10.0, 4.0, 1.0, m=4) == 0
    assert theory.theorem1_rounds(1e-6, 1.0, 1.0, m=1) == 1


def test_the_contraction_factor_has_the_papers_value() -> None:
    assert theory.contraction(1.0) == 0.0
    assert theory.contraction(9.0) == 0.5
    assert theory.contraction(1e4) == pytest.approx(99 / 101, rel=1e-15)


# FedGD's count of rounds (§4.3)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1e3])
def test_fedgd_rounds_suffice_and_one_less_does_not_on_the_worst_case(kappa: float) -> None:
    eps = 1e-4
    # f(x) = ½(x_1² + κx_2²) - ⟨(1, κ), x⟩: the error falls by (κ - 1)/(κ + 1) in either coordinate
    root = np.sqrt(kappa)
    p = fs.Problem(fs.LeastSquares(), [(np.diag([1.0, root]), np.array([1.0, root]))])
    T = theory.fedgd_rounds(eps, kappa, np.sqrt(2.0))
    method = fs.FedGD(theory.fedgd_step(1.0, kappa))
    found: list[float] = [np.sqrt(2.0)]
    fs.solve(
        p,
        method,
        rounds=T,
        tol=0,
        callbacks=[lambda row, state: found.append(float(np.linalg.norm(state.x - 1.0)))],
    )
    assert len(found) == T + 1
    assert found[T] <= eps * (1 + 1e-9) < found[T - 1]
    # to a gap: F - F* ≤ ½ΣL_j‖x - x*‖²
    assert p.objective(fs.solve(p, method, rounds=T, tol=0).x) <= 0.5 * kappa * eps**2 * (1 + 1e-9)


def test_fedgd_needs_order_kappa_rounds_and_fedsplit_order_root_kappa() -> None:
    for eps in (1e-3, 1e-9):
        gd = [theory.fedgd_rounds(eps, kappa, 1.0) for kappa in (1e2, 1e4, 1e6)]
        split = [theory.theorem1_rounds(eps, kappa, 1.0, m=1) for kappa in (1e2, 1e4, 1e6)]
        np.testing.assert_allclose(np.divide(gd[1:], gd[:-1]), 100.0, rtol=0.01)
        np.testing.assert_allclose(np.divide(split[1:], split[:-1]), 10.0, rtol=0.05)
    assert theory.fedgd_rounds(1e-6, 1e4, 1.0) == pytest.approx(5e3 * np.log(1e6), rel=1e-3)
    assert theory.fedgd_rounds(0.125, 3.0, 1.0) == 3
    assert theory.fedgd_rounds(2.0, 3.0, 1.0) == 0
    for eps, kappa in ((0.0, 3.0), (0.1, 0.5)):
        with pytest.raises(fs.InputError, match="must be a finite number"):
            theory.fedgd_rounds(eps, kappa, 1.0)
        with pytest.raises(fs.InputError, match="must be a finite number"):
            theory.theorem1_rounds(eps, kappa, 1.0, m=1)


# Corollary 1


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
@pytest.mark.parametrize("kappa", [10.0, 1e3])
def test_gradient_steps_from_the_argument_stay_within_corollary_1(steps: int, kappa: float) -> None:
    p = spiked(kappa)
    s = theory.fedsplit_step(1.0, kappa)
    V = np.random.default_rng(0).standard_normal((p.m, p.d))
    exact = p.clients.ask(Prox(V, s, V, fs.ExactProx())).rows
    U = p.clients.ask(Prox(V, s, V, fs.GradientProx(steps, start="argument", step="paper"))).rows
    for error, start in zip(norms(U - exact), norms(V - exact), strict=True):
        assert error <= theory.corollary1_bound(steps, kappa, start)


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_corollary_1_has_the_extremes_of_all_clients(steps: int) -> None:
    """One α for all: 1/(1 + s(ℓ* + L*)/2), also where a client's own curvature is far off."""
    p = problem("least-squares", [200, 8, 30], 4, seed=3, ridge=3.0)
    ell, L, kappa = constants(p)
    assert kappa > 40
    s = theory.fedsplit_step(ell, L)
    prox = fs.GradientProx(steps, start="argument", step=theory.inner_step(s, ell, L))
    V = np.random.default_rng(0).standard_normal((p.m, p.d))
    exact = p.clients.ask(Prox(V, s, V, fs.ExactProx())).rows
    errors = norms(p.clients.ask(Prox(V, s, V, prox)).rows - exact)
    for error, start in zip(errors, norms(V - exact), strict=True):
        assert error <= theory.corollary1_bound(steps, kappa, start)


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("name", ["spiked", "least-squares", "logistic"])
def test_backtracking_keeps_corollary_1_up_to_its_factor(name: str, steps: int) -> None:
    p = spiked(100.0) if name == "spiked" else problem(name, [60, 8, 30], 4, seed=3, ridge=3.0)
    ell, L, kappa = constants(p)
    s = theory.fedsplit_step(ell, L)
    V = 3.0 * np.random.default_rng(0).standard_normal((p.m, p.d))
    exact = p.clients.ask(Prox(V, s, V, fs.ExactProx())).rows
    prox = fs.GradientProx(steps, start="argument", step="backtracking")
    errors = norms(p.clients.ask(Prox(V, s, V, prox)).rows - exact)
    for error, start in zip(errors, norms(V - exact), strict=True):
        assert error <= theory.corollary1_bound(steps, kappa, start, factor=0.25) + 1e-14
    assert theory.corollary1_bound(steps, kappa, 1.0, factor=0.25) < 1.0


def test_the_inner_rate_is_rho_itself() -> None:
    """With α = 2/(M + m) the inner steps contract by (M - m)/(M + m) = ρ.

    That is sharper than what Corollary 1 states.
    """
    for kappa in (10.0, 1e4):
        s = theory.fedsplit_step(1.0, kappa)
        alpha = theory.inner_step(s, 1.0, kappa)
        assert 1 - alpha * (1 + s) == pytest.approx(theory.contraction(kappa), rel=1e-12)


def test_starting_at_the_argument_can_diverge_and_says_so() -> None:
    p = spiked(100.0)
    method = algorithm1(
        theory.fedsplit_step(1.0, 100.0),
        prox=fs.GradientProx(1, start="argument", step="paper"),
    )
    with pytest.raises(fs.Diverged, match="broadcast"):
        fs.solve(p, method, rounds=2000, tol=0)


def test_starting_at_the_iterate_has_a_floor_and_at_the_broadcast_point_none() -> None:
    p = spiked(10.0)
    best = p.objective(p.solution())
    s = theory.fedsplit_step(1.0, 10.0)
    gaps = {}
    for start in ("iterate", "broadcast"):
        method = algorithm1(s, prox=fs.GradientProx(5, start=start))
        gaps[start] = fs.solve(p, method, rounds=300, tol=0).trace.objective[-1] - best
    assert gaps["iterate"] > 1e-6
    assert abs(gaps["broadcast"]) < 1e-11


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("kappa", [10.0, 100.0, pytest.param(1e3, marks=pytest.mark.slow)])
def test_any_number_of_steps_from_the_broadcast_point_is_exact_in_the_limit(
    steps: int, kappa: float
) -> None:
    p = spiked(kappa)
    method = algorithm1(theory.fedsplit_step(1.0, kappa), prox=fs.GradientProx(steps))
    result = limit(p, method, 20000, 1e-13)
    np.testing.assert_allclose(result.x, p.solution(), rtol=1e-8, atol=1e-9)


# Propositions 1-3 and the closed forms


@pytest.mark.parametrize("local_steps", [1, 2, 10, 100])
def test_fedgd_stops_at_its_closed_form(local_steps: int) -> None:
    p = fs.ensembles.isotropic(m=5, d=10, n=30)
    s = 1 / constants(p)[1]
    point = theory.fedgd_fixed_point(p.clients, s, local_steps)
    end = limit(p, fs.FedGD(s, local_steps), 5000, 1e-15).x
    assert np.linalg.norm(end - point) <= 1e-9 * np.linalg.norm(point)
    assert theory.fedgd_defect(p.clients, point, s, local_steps) < 1e-9
    if local_steps == 1:
        np.testing.assert_allclose(point, p.solution(), rtol=1e-12)
    else:
        assert p.objective(point) - p.objective(p.solution()) > 1e-2
        assert theory.optimality_defect(p.clients, point) > 1e-1
        assert theory.fedgd_defect(p.clients, p.solution(), s, local_steps) > 1e-1


@pytest.mark.parametrize("ridge", [0.0, 4.0])
def test_fedprox_stops_at_its_closed_form(ridge: float) -> None:
    p = fs.ensembles.isotropic(m=5, d=10, n=30).with_ridge(ridge)
    s = 1 / constants(p)[1]
    point = theory.fedprox_fixed_point(p.clients, s)
    end = limit(p, fs.FedProx(s), 5000, 1e-15).x
    assert np.linalg.norm(end - point) <= 1e-9 * np.linalg.norm(point)
    assert theory.fedprox_defect(p.clients, point, s) < 1e-9
    assert p.objective(point) - p.objective(p.solution()) > 1e-3
    assert theory.fedprox_defect(p.clients, p.solution(), s) > 1e-1


@pytest.mark.parametrize(
    "name",
    [*sorted(LOSSES.keys() - {"multinomial"}), pytest.param("multinomial", marks=pytest.mark.slow)],
)
def test_limits_satisfy_the_fixed_point_relations_and_only_fedsplit_is_optimal(name: str) -> None:
    p = problem(name, [30, 25, 40], 3, seed=9, ridge=1.0)
    s = 0.5 / float(p.clients.ask(Curvature(p.solution())).rows[:, 1].max())
    gd = limit(p, fs.FedGD(s, 5), 20000, 1e-14).x
    prox = limit(p, fs.FedProx(s), 20000, 1e-14).x
    split = limit(p, algorithm1(s), 20000, 1e-14)
    assert theory.fedgd_defect(p.clients, gd, s, 5) < 1e-8
    assert theory.fedprox_defect(p.clients, prox, s) < 1e-8
    assert theory.fedsplit_defect(p.clients, split.state.inner.z, s) < 1e-9
    assert theory.optimality_defect(p.clients, split.x) < 1e-8
    assert theory.optimality_defect(p.clients, gd) > 1e-3
    assert theory.optimality_defect(p.clients, prox) > 1e-3


def test_the_fixed_point_of_fedsplit_is_x_minus_s_gradients() -> None:
    for p in (fs.ensembles.spiked(m=6, d=20, n=50), fs.ensembles.isotropic(m=5, d=10, n=30)):
        x = p.solution()
        ell, L, _ = constants(p)
        s = theory.fedsplit_step(ell, L)
        target = theory.fedsplit_fixed_point(p.clients, x, s)
        z = fs.solve(p, algorithm1(s), rounds=500, tol=0).state.inner.z
        assert np.linalg.norm(z - target) <= 2e-14 * np.linalg.norm(target)
        assert theory.fedsplit_defect(p.clients, target, s) <= 1e-13 * np.linalg.norm(target)


@pytest.mark.parametrize("loss", [fs.LeastSquares(), fs.Huber(0.5)], ids=repr)
@pytest.mark.parametrize("method", [fs.FedGD(0.01, 10), fs.FedProx(0.3), algorithm1(0.3)], ids=repr)
def test_where_all_clients_share_a_minimiser_every_method_is_right(
    method: Method[Any], loss: fs.Huber
) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(4)
    designs = [rng.standard_normal((n, 4)) for n in (8, 12, 30)]
    p = fs.Problem(loss, [(A, A @ x) for A in designs])
    np.testing.assert_allclose(limit(p, method, 5000, 1e-15).x, x, rtol=1e-10)
    assert theory.fedgd_defect(p.clients, x, 0.01, 10) < 1e-12
    assert theory.fedprox_defect(p.clients, x, 0.3) < 1e-12


@pytest.mark.parametrize("name", ["least-squares", "logistic", "huber"])
def test_the_gradient_of_the_moreau_envelope_is_the_way_to_the_prox(name: str) -> None:
    p = problem(name, [30, 12, 7], 3, seed=4)
    s = 0.3
    points = np.random.default_rng(1).standard_normal((p.m, p.d))
    envelope = theory.moreau_envelope(p.clients, points, s)
    moved = p.clients.ask(Prox(points, s, points, fs.ExactProx())).rows
    np.testing.assert_allclose(envelope.gradient, (points - moved) / s, rtol=1e-12)
    # an infimum over all u, of which u = x and u = prox are two
    assert (envelope.value < p.clients.ask(Value(points)).rows).all()
    there = p.clients.ask(Value(moved)).rows + np.square(points - moved).sum(axis=1) / (2 * s)
    np.testing.assert_allclose(envelope.value, there, rtol=1e-12)
    h = 1e-5
    for k in range(p.d):
        step = h * np.eye(p.d)[k]
        up, down = (theory.moreau_envelope(p.clients, points + t, s).value for t in (step, -step))
        np.testing.assert_allclose((up - down) / (2 * h), envelope.gradient[:, k], rtol=1e-5)


@pytest.mark.parametrize("name", ["least-squares", "logistic"])
def test_fedprox_ends_at_the_minimiser_of_the_sum_of_the_moreau_envelopes(name: str) -> None:
    p = problem(name, [30, 25, 40], 3, seed=9, ridge=1.0)
    s = 0.1
    end = limit(p, fs.FedProx(s), 20000, 1e-14).x

    def envelopes(x: Array) -> tuple[float, Array]:
        found = theory.moreau_envelope(p.clients, x, s)
        return float(found.value.sum()), found.gradient.sum(axis=0)

    least = scipy.optimize.minimize(envelopes, np.zeros(p.d), jac=True, options={"gtol": 1e-9})
    np.testing.assert_allclose(end, least.x, rtol=1e-6)
    assert envelopes(end)[0] == pytest.approx(least.fun, rel=1e-12)
    assert envelopes(p.solution())[0] > least.fun + 1e-4


@pytest.mark.parametrize(
    "factor",
    [
        *(1e-2, 1e-1, 1.0, 1e1, 1e2),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (1e-3, 1e3)),
    ],
)
def test_fedsplit_is_right_for_steps_over_six_orders_of_magnitude(factor: float) -> None:
    p = fs.ensembles.spiked(m=3, d=4, n=12, kappa=4.0)
    s = factor * theory.fedsplit_step(1.0, 4.0)
    result = limit(p, algorithm1(s), 30000, 1e-15)
    np.testing.assert_allclose(result.x, p.solution(), rtol=1e-9)


# The paper's experiments, as far as they need no figure


def test_figure_1_has_the_floors_of_the_closed_forms() -> None:
    p = fs.ensembles.isotropic(m=25, d=100, n=500, noise=0.25)
    s = 1 / constants(p)[1]
    best = p.objective(p.solution())
    floors = {}
    runs: list[tuple[str, Method[Any], Array]] = [
        ("e=10", fs.FedGD(s, 10), theory.fedgd_fixed_point(p.clients, s, 10)),
        ("e=100", fs.FedGD(s, 100), theory.fedgd_fixed_point(p.clients, s, 100)),
        ("prox", fs.FedProx(s), theory.fedprox_fixed_point(p.clients, s)),
    ]
    for label, method, point in runs:
        floors[label] = fs.solve(p, method, rounds=60, tol=0).trace.objective[-1] - best
        assert floors[label] == pytest.approx(p.objective(point) - best, rel=0.01)
    assert 1.5 < floors["e=10"] < 3.5
    assert 2.0 < floors["e=100"] < 4.0
    assert 0.15 < floors["prox"] < 0.3
    assert abs(fs.solve(p, fs.FedGD(s), rounds=150, tol=0).trace.objective[-1] - best) < 1e-8


@pytest.mark.parametrize(
    ("kappa", "rounds"),
    [(10 ** (k / 2), T) for k, T in enumerate([1, 6, 10, 19, 34, 64, 116, 218, 410])],
    ids=lambda v: f"{v:g}",
)
def test_figure_4_needs_the_measured_number_of_rounds(kappa: float, rounds: int) -> None:
    p = fs.ensembles.spiked(kappa=kappa)
    best = p.objective(p.solution())
    result = fs.solve(
        p,
        algorithm1(theory.fedsplit_step(1.0, kappa)),
        rounds=600,
        tol=0,
        callbacks=[lambda row, state: bool(row.objective - best <= 1e-3)],
    )
    assert result.stopped_by == "callback"
    assert abs(result.rounds - rounds) <= max(2, 0.1 * rounds)


def test_figure_2b_needs_the_measured_number_of_rounds_at_a_tenth_of_the_size() -> None:
    p = spiked(10.0, m=25, d=50, n=500)
    best = p.objective(p.solution())
    gaps = {
        method: fs.solve(p, method, rounds=60, tol=0).trace.objective - best
        for method in (
            algorithm1(theory.fedsplit_step(1.0, 10.0)),
            fs.FedGD(theory.fedgd_step(1.0, 10.0)),
        )
    }
    split, gd = (int(np.argmax(gap <= 1e-3)) for gap in gaps.values())
    assert 8 <= split <= 14
    assert gd > 2 * split


# Theorem 2


Observed = tuple[Array, ...]


@pytest.mark.parametrize("eps", [1.0, 1e-2])
def test_theorem_2_reaches_eps_on_a_singular_least_squares_problem(eps: float) -> None:
    rng = np.random.default_rng(3)
    halves = [rng.standard_normal((n, 4)) for n in (10, 25, 40)]
    data: list[Observed] = [
        (np.hstack([A, A]), A @ np.ones(4) + rng.standard_normal(len(A))) for A in halves
    ]
    p = fs.Problem(fs.LeastSquares(), data)
    assert p.clients.ask(Curvature()).rows[:, 0].max() == 0.0
    assert np.linalg.matrix_rank(p.clients.pooled_information(np.zeros(8))) == 4
    check_theorem_2(data, fs.LeastSquares(), eps)


@pytest.mark.parametrize("eps", [1.0, 1e-2])
def test_theorem_2_reaches_eps_on_logistic_regression_without_a_ridge(eps: float) -> None:
    check_theorem_2(list(clients("logistic", [60, 25, 80], 4, seed=1)), fs.Logistic(), eps)


def check_theorem_2(data: list[Observed], loss: fs.LeastSquares | fs.Logistic, eps: float) -> None:
    p = fs.Problem(loss, data)
    x = p.solution()
    radius = 1.2 * float(np.linalg.norm(x))
    result = fs.solve(p, fs.RegularisedFedSplit(eps, radius), rounds=10**6)
    assert result.stopped_by == "method"
    assert result.converged
    assert p.objective(result.x) - p.objective(x) <= eps
    L, g = p.clients.ask(Curvature()).rows[:, 1], norms(p.clients.ask(Gradient(np.zeros(p.d))).rows)
    plan = theory.theorem2(eps, radius, L, g)
    assert result.rounds == plan.rounds + 2  # two set-up rounds: curvature and gradients
    # the run went to the minimiser of F + (mλ/2)‖x‖², from within the plan's B of its fixed point
    ridged = fs.Problem(loss, data, ridge=p.m * plan.lam)
    target = theory.fedsplit_fixed_point(ridged.clients, ridged.solution(), plan.s)
    assert np.linalg.norm(target) <= np.linalg.norm(radius + plan.s * (g + (L + plan.lam) * radius))
    rho = theory.contraction((L.max() + plan.lam) / plan.lam)
    assert np.linalg.norm(result.state.inner.z - target) <= rho**plan.rounds * np.linalg.norm(
        target
    ) * (1 + 1e-6)


@pytest.mark.slow
def test_theorem_2_is_centred_at_the_start() -> None:
    p = problem("logistic", [60, 25, 80], 4, seed=1)
    x = p.solution()
    start = x + np.array([1.0, -1.0, 0.5, 0.0])
    result = fs.solve(p, fs.RegularisedFedSplit(1e-3, 1.6), rounds=10**6, x0=start)
    assert result.stopped_by == "method"
    assert p.objective(result.x) - p.objective(x) <= 1e-3
    assert isinstance(result.state.inner, RegularisedState)
    pull = (
        p.m * result.state.inner.lam * (result.x - start)
    )  # ∇F_λ = ∇F + mλ(x - x¹) vanishes, ∇F alone does not
    assert np.linalg.norm(p.gradient(result.x) + pull) < 1e-2 * np.linalg.norm(p.gradient(result.x))


def test_the_plan_of_theorem_2_by_hand() -> None:
    """m = 2, ε = 2, D = 1: λ = 1, L* + λ = 4, s = 1/2 and κ = 4.

    B² = (1 + (1 + 4)/2)² + (1 + (3 + 2)/2)² = 24.5.
    """
    plan = theory.theorem2(2.0, 1.0, np.array([3.0, 1.0]), np.array([1.0, 3.0]))
    assert plan.lam == 1.0
    assert plan.s == 0.5
    assert plan.rounds == np.ceil(3 / 4 * np.log((3 + 1 + 2) * 24.5 / (2 * 2)))


def test_with_one_local_step_the_defect_of_fedgd_is_the_gradient() -> None:
    p = problem("logistic", [20, 30], 3, ridge=0.5)
    x = np.array([0.3, -1.0, 0.2])
    defect = theory.fedgd_defect(p.clients, x, 0.01, 1)
    assert defect == pytest.approx(theory.optimality_defect(p.clients, x))
    assert defect == pytest.approx(np.linalg.norm(p.gradient(x)))


def test_the_defect_of_fedsplit_is_the_length_of_its_step() -> None:
    p = problem("logistic", [20, 30], 3, ridge=0.5)
    z = np.random.default_rng(0).standard_normal((2, 3))
    state = updated(fs.FedSplit(0.3), p.clients, FedSplitState(z.mean(axis=0), z, 0.3))
    assert theory.fedsplit_defect(p.clients, z, 0.3) == pytest.approx(np.linalg.norm(state.z - z))


def test_bounds_by_hand() -> None:
    """κ = 9: ρ = 1/2, √κ + 1 = 4."""
    assert theory.theorem1_bound(2, 9.0, 8.0, m=4, b=0.1) == pytest.approx(0.25 * 8 / 2 + 0.4)
    np.testing.assert_allclose(
        theory.master_bound(9.0, 8.0, [1.0, 0.5]), [8.0, 4.0 + 2.0, 3.0 + 1.0]
    )
    assert theory.corollary1_bound(2, 9.0, 16.0) == pytest.approx(9.0)
    assert theory.corollary1_bound(2, 9.0, 256.0, factor=0.25) == pytest.approx(225.0)
    assert theory.inner_step(0.5, 1.0, 3.0) == 0.5
    assert theory.fedsplit_step(1e-200, 1e-200) == pytest.approx(1e200)
    assert theory.fedgd_step(1.0, 3.0) == 0.5


def test_closed_forms_are_for_quadratic_costs_only() -> None:
    with pytest.raises(fs.InputError, match="not quadratic"):
        theory.fedprox_fixed_point(problem("logistic", [9, 9], 2).clients, 1.0)


def test_theorem_2_takes_the_paper_rate_in_eps() -> None:
    L, g = np.array([2.0, 3.0]), np.array([1.0, 1.0])
    few, many = theory.theorem2(1e-2, 1.0, L, g), theory.theorem2(1e-6, 1.0, L, g)
    # √(1/ε) times a logarithm: 100 times more, and a little
    assert 100 <= many.rounds / few.rounds <= 400


def test_theorem_2_needs_a_finite_curvature_and_sensible_numbers() -> None:
    p = problem("poisson", [9, 4], 2)
    with pytest.raises(fs.InputError, match="finite L_j"):
        fs.solve(p, fs.RegularisedFedSplit(0.1, 1.0))
    for eps, radius in ((0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)):
        with pytest.raises(fs.InputError, match=r"(eps|radius) must be a finite number above 0"):
            fs.solve(problem("logistic", [9, 4], 2), fs.RegularisedFedSplit(eps, radius))


@pytest.mark.parametrize("method", [fs.FedSplit, fs.FedProx])
def test_the_papers_inner_step_has_the_extremes_over_all_clients(method: Any) -> None:
    """Corollary 1's α = 1/(1 + s(ℓ_* + L^*)/2) is the same for every client, however unlike."""
    rng = np.random.default_rng(4)
    clients = [(scale * rng.standard_normal((30, 4)), rng.standard_normal(30)) for scale in (1, 9)]
    p = fs.Problem(fs.LeastSquares(), clients)
    spectra = [np.linalg.eigvalsh(A.T @ A) for A, _ in clients]
    s = 0.01
    alpha = 1.0 / (1.0 + 0.5 * s * (spectra[0][0] + spectra[1][-1]))
    by_name = fs.solve(p, method(s, fs.GradientProx(3, step="paper")), rounds=12, tol=0)
    by_number = fs.solve(p, method(s, fs.GradientProx(3, step=float(alpha))), rounds=11, tol=0)
    np.testing.assert_allclose(by_name.x, by_number.x, rtol=1e-9)  # one round more asks for ℓ and L
