"""What a fit proves, and what its numbers mean."""

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

import fedsplit as fs
from fedsplit.clients.questions import Gradient, ProofScalars
from fedsplit.data.formula.formula import Formula
from fedsplit.penalties.coordinatewise import NonNegativeElasticNet
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.server import minimise
from fedsplit.regression.server.federation import Progress
from fedsplit.regression.server.inference import Point
from hospitals import FORMULA, RANDHIE, people, proved


@pytest.mark.parametrize("family", FAMILIES)
def test_no_coefficient_is_farther_from_the_pooled_one_than_proved(family: str) -> None:
    target = {"logistic": "ill", "poisson": "visits", "gamma": "stay", "multinomial": "ward"}.get(
        family, "score"
    )
    formula = f"{target} ~ {'age + hours' if family == 'multinomial' else 'age + ward'}"
    for seed in range(2):
        frames = people(seed)
        best = fs.fit(pd.concat(frames.values()), formula, family=family, tol=1e-11)
        for tol in (1e-2, 1e-5, 1e-9):
            model = fs.fit(frames, formula, family=family, tol=tol)
            assert model.converged
            away = np.abs(model.params - best.params) / model.estimates.errors
            assert proved(model) <= tol
            assert away.max() <= proved(model) + 1e-10


def test_too_few_rounds_are_said_and_the_bound_still_holds() -> None:
    model = fs.fit(RANDHIE, FORMULA, family="poisson", rounds=10, method="quasi-newton")
    best = fs.fit(RANDHIE, FORMULA, family="poisson")
    assert not model.converged
    away = float(np.max(np.abs(model.params - best.params) / best.estimates.errors))
    assert 1e-9 < away <= proved(model)
    assert "converged NO" in model.summary()


def test_units_do_not_change_the_answer_but_their_own() -> None:
    frames = people()
    model = fs.fit(frames, "stay ~ age + ward")
    scaled = {
        name: frame.assign(age=1e6 * frame.age, stay=1e-8 * frame.stay)
        for name, frame in frames.items()
    }
    other = fs.fit(scaled, "stay ~ age + ward")
    expected = model.params * 1e-8 * np.where(model.params.index == "age", 1e-6, 1.0)
    np.testing.assert_allclose(other.params, expected, rtol=1e-8)
    assert other.converged
    shifted = {name: frame.assign(age=1e6 + frame.age) for name, frame in frames.items()}
    np.testing.assert_allclose(
        fs.fit(shifted, "stay ~ age + ward").params["age"], model.params["age"], rtol=1e-7
    )


def test_columns_that_nearly_depend_on_each_other_cost_no_rounds() -> None:
    rng = np.random.default_rng(0)
    year = rng.integers(1990, 2021, 2000).astype(float)
    y = 0.1 * (year - 2000) + 0.01 * (year - 2000) ** 2 + rng.standard_normal(2000)
    frame = pd.DataFrame(
        {
            "year": year,
            "y": y,
            "n": rng.poisson(np.exp(0.02 * (year - 2000))),
            "c": np.arange(2000) % 5,
        }
    )
    model = fs.fit(frame, "y ~ year + I(year**2)", group="c")
    assert model.converged
    assert model.rounds < 20
    centred = sm.OLS(y, np.column_stack([np.ones(2000), year - 2005, (year - 2005) ** 2])).fit()
    assert model.params["I(year ** 2)"] == pytest.approx(centred.params[2], rel=1e-7)
    counts = fs.fit(frame, "n ~ year + I(year**2)", family="poisson", group="c")
    assert counts.converged
    assert counts.rounds < 40


def test_a_heavy_tail_is_no_separation() -> None:
    for seed in (5, 33, 41):
        rng = np.random.default_rng(seed)
        x = rng.standard_t(1.5, 200)
        y = (rng.random(200) < expit(2 * x)).astype(float)
        model = fs.fit(
            pd.DataFrame({"x": x, "y": y, "c": np.arange(200) % 2}),
            "y ~ x",
            family="logistic",
            group="c",
        )
        with np.errstate(over="ignore"):
            pooled = sm.GLM(y, sm.add_constant(x), family=sm.families.Binomial()).fit(
                tol=1e-14, maxiter=200
            )
        assert model.converged
        np.testing.assert_allclose(model.params, pooled.params, rtol=1e-6)


def test_robust_standard_errors_keep_their_digits_where_a_mean_is_large() -> None:
    rng = np.random.default_rng(0)
    c = np.arange(400) % 8
    t = rng.standard_normal(400) + 0.5 * c
    y = t + c * rng.standard_normal(8)[c] + rng.standard_normal(400)
    near, far = (
        fs.fit(pd.DataFrame({"t": mean + t, "y": y, "c": c}), "y ~ t", group="c")
        .cov_params(robust=True)
        .loc["t", "t"]
        for mean in (0.0, 1e8)
    )
    assert far == pytest.approx(near, rel=1e-6)


def test_a_fit_without_residuals_converges_and_large_offsets_are_no_trouble() -> None:
    frames = people()
    for frame in frames.values():
        frame["exact"] = 1.0 + 2.0 * frame.age
        frame["far"] = 800.0
    assert fs.fit(frames, "exact ~ age + hours").converged
    plain = fs.fit(frames, "visits ~ age", family="poisson")
    shifted = fs.fit(frames, "visits ~ age", family="poisson", offset="far")
    assert shifted.params["Intercept"] == pytest.approx(plain.params["Intercept"] - 800.0, rel=1e-9)


def test_every_round_is_reported_and_the_last_gap_is_proved_in_the_files_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Progress] = []
    frames = {name: frame.assign(score=1e3 * frame.score) for name, frame in people().items()}
    model = fs.fit(frames, "score ~ age", progress=seen.append, method="quasi-newton")
    *moves, last = seen
    first = list(model.run.of_rounds.kind).index("round") + 1  # after the set-up
    assert [each.round for each in moves] == list(range(first, first + len(moves)))
    assert all(each.proved for each in moves)
    trace = model.run.of_rounds
    excess = trace.objective - trace.objective.min()
    gaps = [gap for gap, kind in zip(excess[1:], trace.kind, strict=True) if kind == "round"]
    assert all(each.gap >= gap * (1 - 1e-9) for each, gap in zip(moves, gaps, strict=True))
    floats = int(trace.floats_up.sum() + trace.floats_down.sum())
    assert last == Progress(model.rounds, model.certificate.gap or 0.0, 3, 3, floats, proved=True)
    seen.clear()
    # so that the first proofs are asked too early
    rule = partial(minimise.ProvedDistance, caution=1e-12)
    monkeypatch.setattr(minimise, "ProvedDistance", rule)
    early = fs.fit(RANDHIE, FORMULA, family="poisson", method="quasi-newton", progress=seen.append)
    assert len(early.run.proofs) > 1
    assert [each.round for each in seen] == sorted(each.round for each in seen)
    assert [each.floats for each in seen] == sorted(each.floats for each in seen)


def test_with_matrices_every_round_is_reported_with_what_it_proves() -> None:
    seen: list[Progress] = []
    model = fs.fit(RANDHIE, FORMULA, family="poisson", progress=seen.append)
    assert [each.round for each in seen] == list(range(1, model.rounds + 1))
    assert seen[-1].gap == model.certificate.gap
    assert seen[-1].proved


@pytest.mark.parametrize("method", ["scaffold", "fedgd", "giant", "quasi-newton", "information"])
@pytest.mark.parametrize("rounds", [12, 50, 64])
def test_rounds_is_a_maximum_also_where_set_up_and_a_search_for_separation_take_some(
    method: str, rounds: int
) -> None:
    # a direction in which x keeps moving: whether rows are separated is asked on the way
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200)
    frame = pd.DataFrame({"x": x, "y": (x > rng.normal(0, 0.02, 200)).astype(float)})
    frame["c"] = np.arange(200) % 4
    model = fs.fit(
        frame, "y ~ x", family="logistic", group="c", method=method, rounds=rounds, tol=1e-14
    )
    assert model.rounds <= rounds


@pytest.mark.slow
def test_rounds_are_not_exceeded_and_rounding_ends_a_run_that_asks_for_too_much() -> None:
    assert fs.fit(RANDHIE, FORMULA, family="poisson", rounds=12).rounds <= 12
    for tol in (1e-11, 1e-15):
        model = fs.fit(RANDHIE, FORMULA, family="poisson", tol=tol)
        assert model.rounds < 60
        assert proved(model) < 1e-10


def test_weights_are_precisions_and_offsets_are_known_parts() -> None:
    frames = people()
    pool = pd.concat(frames.values())
    A = np.column_stack([np.ones(len(pool)), pool.age])
    model = fs.fit(frames, "score ~ age", weights="hours")
    wls = sm.WLS(pool.score, A, weights=pool.hours).fit()
    np.testing.assert_allclose(model.params, wls.params, rtol=1e-9)
    np.testing.assert_allclose(model.estimates.errors, wls.bse, rtol=1e-9)
    both = fs.fit(frames, "visits ~ age", family="poisson", offset="score", exposure="hours")
    glm = sm.GLM(
        pool.visits, A, family=sm.families.Poisson(), offset=pool.score, exposure=pool.hours
    ).fit(tol=1e-14)
    np.testing.assert_allclose(both.params, glm.params, rtol=1e-8)


def test_standardize_says_on_which_scale_a_penalty_acts() -> None:
    frames = people()
    pool = pd.concat(frames.values())
    age = (pool.age - pool.age.mean()) / pool.age.std(ddof=0)
    model = fs.fit(frames, "score ~ age", ridge=30.0, standardize=True)
    y = pool.score - pool.score.mean()
    slope = float(age @ y / (age @ age + 30.0))
    assert model.params["age"] == pytest.approx(slope / pool.age.std(ddof=0), rel=1e-9)
    plain = fs.fit(frames, "score ~ age", ridge=30.0)
    a = pool.age - pool.age.mean()
    assert plain.params["age"] == pytest.approx(float(a @ y / (a @ a + 30.0)), rel=1e-9)


def test_a_frame_is_not_changed_by_a_fit() -> None:
    frames = people()
    before = {name: frame.copy() for name, frame in frames.items()}
    fs.fit(frames, "visits ~ age + ward", family="poisson", standardize=True, ridge=1.0)
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, before[name])


def test_the_same_fit_twice_gives_the_same_bits() -> None:
    first, second = (fs.fit(RANDHIE, FORMULA, family="poisson") for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert math.isfinite(first.deviance)


def test_a_formula_without_intercept_is_the_same_by_option_and_by_formula() -> None:
    one = fs.fit(people(), "score ~ age + hours", intercept=False)
    other = fs.fit(people(), "score ~ age + hours - 1")
    assert one.to_dict()["coef"] == other.to_dict()["coef"]
    assert not Formula("y ~ x - 1").intercept


@pytest.mark.parametrize("method", ["giant", "fedsplit", "quasi-newton", "information"])
def test_a_fit_has_converged_if_and_only_if_the_tolerance_is_proved(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that the first proofs are asked too early
    rule = partial(minimise.ProvedDistance, caution=1e-8)
    monkeypatch.setattr(minimise, "ProvedDistance", rule)
    for rounds in (15, 30, 2000):
        model = fs.fit(
            people(), "ill ~ age", family="logistic", method=method, rounds=rounds, tol=1e-7
        )
        proved = model.certificate.standard_errors
        assert model.converged == (proved is not None and proved <= 1e-7)


def test_a_proof_is_about_the_objective_with_its_penalty() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2, 20, 3))
    information = A.transpose(0, 2, 1) @ A
    gradients, x, l2 = rng.standard_normal((2, 3)), np.array([1.0, -2.0, 3.0]), 50.0 * np.ones(3)
    quadratic = ProofScalars.of(
        {"value": np.ones(2), "norm": np.zeros(2), "leverage": np.zeros(2), "floor": np.zeros(2)}
    )
    nothing = np.zeros(3)
    penalty = NonNegativeElasticNet(nothing, l2, nothing > 1)
    H = information.sum(axis=0) + np.diag(l2)
    slope = gradients.sum(axis=0) + l2 * x
    radius = math.sqrt(slope @ np.linalg.solve(H, slope))
    any_problem: Any = None
    answers = any_problem, x, gradients, information, quadratic
    for least in (None, information.sum(axis=0)):
        found = Point.of(*answers, penalty, l2 * x, least)
        assert found.proved.radius == pytest.approx(radius, rel=1e-9)
        np.testing.assert_allclose(found.hessian, H, rtol=1e-12)
    # a Hessian that may be smaller proves less
    less = 0.5 * information.sum(axis=0)
    found = Point.of(*answers, penalty, l2 * x, less)
    assert (found.proved.radius or 0.0) > radius


@pytest.mark.parametrize("rounds", range(14, 20))
def test_a_round_of_many_questions_leaves_of_the_budget_what_a_proof_needs(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Talkative(fs.GD):
        def update(self, state: Any) -> Any:
            for _ in range(4):
                yield Gradient(state.x)
            return (yield from super().update(state))

    monkeypatch.setattr("fedsplit.regression.server.glm.parse", lambda name: Talkative())
    model = fs.fit(people(), "ill ~ age", family="logistic", method="gd", rounds=rounds)
    assert model.rounds <= rounds
    assert model.run.proofs
    assert not model.converged


def test_newton_steps_from_a_proof_that_falls_short_end_a_fit_by_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[str, Any] = {"family": "logistic", "method": "quasi-newton"}
    usual = fs.fit(people(), "ill ~ age + hours", **options)
    rule = partial(minimise.ProvedDistance, caution=1e-14)
    monkeypatch.setattr(minimise, "ProvedDistance", rule)
    early = fs.fit(people(), "ill ~ age + hours", **options)
    assert early.converged
    assert 1 < len(early.run.proofs) <= 4
    kinds = [list(each.run.of_rounds.kind).count("round") for each in (early, usual)]
    assert kinds[0] < kinds[1]
    np.testing.assert_allclose(early.params, usual.params, rtol=1e-8)
