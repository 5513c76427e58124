"""Fits with noise: sensitivity, noise, accounting, estimates, and what is refused."""

import json
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import chi2

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.commands.app import run
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError, ShortClip
from fedsplit.regression.client.noise import (
    MARGIN,
    BoundedRows,
    Noise,
    RowVectors,
    discrete_gaussian,
    shortened,
    source_of,
    split,
)
from fedsplit.regression.client.privacy import SLACK, DeclaredColumns, bounds_of, noise_multiplier
from fedsplit.regression.families import FAMILIES

pytest.importorskip("dp_accounting", reason="the extra dp is not installed")

FORMULA = "y ~ x + C(g)"
NUMBERS: Any = {"y": "number", "x": "number", "g": "text"}
DECLARED: dict[str, Any] = {"types": NUMBERS, "levels": {"g": ["a", "b"], "y": ["0", "1"]}}
BOUNDS: dict[str, dict[str, float]] = {
    "gaussian": {"score": 3.0},
    "logistic": {},
    "poisson": {"score": 5.0, "weight": 4.0},
    "gamma": {"score": 2.0, "weight": 3.0},
    "huber": {},
}
NOISY = sorted(BOUNDS)
HUGE = [0.0, 1e-300, -1.0, 1e3, -1e12, 1e155, -1e300, 1.7e308]


def simulated(family: str, n: int, m: int = 3, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Rows of m clients, with ‖a‖ ≤ 2 and η = -0.4 + 0.8x + 0.5·1[g = b]."""
    rng = np.random.default_rng(seed)
    found = {}
    for j in range(m):
        x = rng.uniform(-1, 1, n)
        g = rng.choice(["a", "b"], n)
        eta = -0.4 + 0.8 * x + 0.5 * (g == "b")
        y = {
            "gaussian": eta + 0.5 * rng.standard_normal(n),
            "logistic": (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int),
            "poisson": rng.poisson(np.exp(eta)),
            "gamma": np.exp(eta) * rng.gamma(10.0, 0.1, n),
            "huber": eta + 0.5 * rng.standard_normal(n),
        }[family]
        found[f"c{j}"] = pd.DataFrame({"y": y, "x": x, "g": g})
    return found


def declared(family: str) -> dict[str, Any]:
    levels = DECLARED["levels"] if family == "logistic" else {"g": ["a", "b"]}
    return {"types": NUMBERS, "levels": levels, "family": family}


def privacy(family: str = "logistic", epsilon: float = 2.0, **more: Any) -> fs.Privacy:
    chosen: dict[str, Any] = {"rounds": 5, "seed": 1, **BOUNDS[family], **more}
    return fs.Privacy(epsilon, 1e-6, 2.0, chosen.pop("rounds"), **chosen)


# How far one row can move the answers


def adversarial_rows(p: int, rng: np.random.Generator) -> BoundedRows:
    """Rows, targets, weights and offsets of ordinary and of absurd sizes, in all combinations."""
    n = 400
    A = rng.standard_normal((n, p)) * rng.choice([1e-3, 1.0, 1e8, 1e200], (n, 1))
    A[::7, 0] = rng.choice(HUGE, len(A[::7]))
    b = np.abs(rng.choice([*HUGE, 0.5, 2.0], n)) + 1e-308
    w = np.abs(rng.choice([*HUGE, 1.0, 1.0], n)) + 1e-308
    o = rng.choice([*HUGE, 0.0, 0.0, 30.0, -30.0], n)
    return BoundedRows(shortened(A, 2.0), b, w, o)


@pytest.mark.parametrize("family", NOISY)
def test_no_row_moves_all_answers_together_by_more_than_one(family: str) -> None:
    rng = np.random.default_rng(7)
    rows = adversarial_rows(3, rng)
    chosen = privacy(family, rounds=4)
    bounds = bounds_of(FAMILIES[family], chosen)
    squares = np.zeros(len(rows.b))
    for number in range(1, 5):
        x = rng.standard_normal(3) * 10.0 ** rng.integers(-3, 200)
        vectors = RowVectors(FAMILIES[family], chosen, bounds, number, x).of(rows)
        assert np.isfinite(vectors).all()
        squares += np.square(vectors).sum(axis=1)
    assert squares.max() <= MARGIN**2
    assert squares.max() > 0.6  # the bound is not far away


@pytest.mark.parametrize("family", NOISY)
def test_with_and_without_a_row_the_sums_on_the_grid_differ_by_its_vector(family: str) -> None:
    rng = np.random.default_rng(8)
    rows = adversarial_rows(2, rng)
    chosen = privacy(family, rounds=1)
    noise = Noise.of(chosen, 1)
    vectors = RowVectors(
        FAMILIES[family], chosen, bounds_of(FAMILIES[family], chosen), 1, np.array([0.3, -2.0])
    )
    everything = vectors.total(rows, noise.step)
    for i in range(0, len(rows.b), 23):
        others = BoundedRows(*(np.delete(each, i, axis=0) for each in rows))
        less = vectors.total(others, noise.step)
        moved = [a - b for a, b in zip(everything, less, strict=True)]
        # whole numbers: no rounding anywhere
        assert sum(step * step for step in moved) <= (MARGIN / noise.step) ** 2


def test_a_whole_client_moves_the_answers_by_its_number_of_rows_at_most() -> None:
    rng = np.random.default_rng(9)
    A = shortened(np.ones((300, 2)), 2.0)
    rows = BoundedRows(A, np.ones(300), np.ones(300), np.full(300, -50.0))
    chosen = privacy(rounds=1, site_rows=100)
    noise = Noise.of(chosen, 1)
    bounds = bounds_of(FAMILIES["logistic"], chosen)
    vectors = RowVectors(FAMILIES["logistic"], chosen, bounds, 1, rng.standard_normal(2))
    length = math.sqrt(sum(step * step for step in vectors.total(rows, noise.step))) * noise.step
    assert 50 < length <= 100 * MARGIN
    assert noise.scale >= 100 * noise_multiplier(2.0, 1e-6)


def test_rows_are_scaled_to_the_clip_and_shorter_ones_stay() -> None:
    A = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e308, 1e308]])
    found = shortened(A, 1.0)
    assert np.allclose(found[:3], np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    assert np.linalg.norm(found, axis=1).max() <= 1.0 + 1e-15


def test_declared_ranges_centre_columns_and_coefficients_come_back_in_the_datas_units() -> None:
    rng = np.random.default_rng(0)
    A = np.column_stack([np.ones(50), rng.uniform(20, 80, 50), rng.uniform(-3, 1, 50)])
    for intercept in (True, False):
        names = ["Intercept", "age", "z"] if intercept else ["one", "age", "z"]
        columns = DeclaredColumns.of(names, {"age": (20.0, 80.0)}, intercept)
        scaled = columns.scaled(A)
        assert np.abs(scaled[:, 1]).max() <= 1.0
        x = rng.standard_normal(3)
        assert np.allclose(A @ columns.back @ x, scaled @ x)


# The noise


def analytic_delta(epsilon: float, multiplier: float) -> float:
    """δ of a Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""
    mu = 1.0 / multiplier
    minus = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(ndtr(mu / 2 - epsilon / mu) - np.exp(minus))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.001, 1e-12), (0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9), (30.0, 1e-15)]
)
def test_the_noise_is_that_of_the_analytic_gaussian_mechanism(epsilon: float, delta: float) -> None:
    found = noise_multiplier(epsilon, delta)
    assert analytic_delta(epsilon, found) <= delta
    assert analytic_delta(epsilon, found) > 0.99 * (1 - SLACK) * delta
    # the classical bound needs more (Dwork and Roth 2014, Theorem A.1)
    if epsilon < 1:
        assert found < math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def test_all_questions_together_are_accounted_as_epsilon() -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    chosen = fs.Privacy(1.0, 1e-5, 1.0, 4)
    multiplier = noise_multiplier(chosen.epsilon, chosen.delta)
    shares = [share for number in range(1, 5) for share in chosen.shares(number, True) if share]
    assert math.isclose(sum(shares), 1.0)
    accountant = RdpAccountant()
    for share in shares:
        accountant.compose(dp_accounting.GaussianDpEvent(multiplier / math.sqrt(share)))
    one = RdpAccountant().compose(dp_accounting.GaussianDpEvent(multiplier))
    assert math.isclose(accountant.get_epsilon(1e-5), one.get_epsilon(1e-5), rel_tol=1e-9)
    assert 1.0 <= accountant.get_epsilon(1e-5) < 1.25  # Rényi's bound is a little looser


@pytest.mark.parametrize("sigma", [1, 3, 2**40])
def test_the_discrete_gaussian_has_its_distribution(sigma: int) -> None:
    source = Random(5)
    n = 4000
    drawn = np.array([discrete_gaussian(sigma, source) for _ in range(n)], dtype=float)
    edges = sigma * np.array([-np.inf, -1.5, -0.5, 0.5, 1.5, np.inf])
    counts = np.histogram(drawn, edges)[0]
    whole = (
        np.arange(-12 * sigma, 12 * sigma + 1)
        if sigma < 10
        else np.linspace(-12, 12, 48_001) * sigma
    )
    density = np.exp(-np.square(whole / sigma) / 2)
    expected = n * np.histogram(whole, edges, weights=density)[0] / density.sum()
    assert chi2.sf(np.sum(np.square(counts - expected) / expected), len(counts) - 1) > 1e-4


def test_noise_is_a_whole_number_of_steps_and_sums_of_shares_have_the_variance_of_all() -> None:
    chosen = replace(privacy(), colluding=1)
    whole, share = Noise.of(chosen, 1), Noise.of(chosen, 4)
    assert math.isclose(2.0 * share.scale, whole.scale, rel_tol=1e-9)
    assert share.sigma >= 2**40
    numbers = [3, -(2**70) - 1, 2**52 + 1]
    high, low = split(numbers, whole.step)
    steps = [int(a / whole.step) + int(b / whole.step) for a, b in zip(high, low, strict=True)]
    assert steps == numbers


def test_random_bits_come_from_the_operating_system_unless_there_is_a_seed() -> None:
    assert type(source_of(replace(privacy(), seed=None), "a", 1)).__name__ == "SystemRandom"
    same = [source_of(privacy(), "a", 1).getrandbits(64) for _ in range(2)]
    assert same[0] == same[1]
    assert source_of(privacy(), "b", 1).getrandbits(64) != same[0]
    assert source_of(privacy(), "a", 2).getrandbits(64) != same[0]


def test_the_best_distinguisher_stays_within_epsilon_and_delta() -> None:
    """The likelihood ratio test on the sums with and without the worst row."""
    chosen = replace(privacy(rounds=1), epsilon=1.0, delta=0.01, seed=None)
    bounds = bounds_of(FAMILIES["logistic"], chosen)
    rows = BoundedRows(np.full((5, 1), 2.0), np.ones(5), np.ones(5), np.full(5, -40.0))
    less = BoundedRows(*(each[1:] for each in rows))
    noise = Noise.of(chosen, 1)
    vectors = RowVectors(FAMILIES["logistic"], chosen, bounds, 1, np.zeros(1))
    with_row, without = (vectors.total(each, noise.step) for each in (rows, less))
    towards = np.array([a - b for a, b in zip(with_row, without, strict=True)], dtype=float)
    assert np.linalg.norm(towards) * noise.step > 0.8
    length = float(np.linalg.norm(towards))
    n = 2000

    def excess(sigma: int) -> float:
        """The most by which P(with) exceeds e^ε P(without) + δ, beyond four standard errors."""
        source = Random(11)
        drawn = [
            [replace(noise, sigma=sigma).draw(len(towards), source) for _ in range(n)]
            for _ in range(2)
        ]
        without_row, with_row = (np.array(each, dtype=float) @ towards / length for each in drawn)
        with_row = with_row + length
        found = []
        for threshold in np.quantile(without_row, np.linspace(0.02, 0.98, 25)):
            power, false = (float(np.mean(each > threshold)) for each in (with_row, without_row))
            for likely, unlikely in ((power, false), (1 - false, 1 - power)):
                variance = likely * (1 - likely) + math.e**2 * unlikely * (1 - unlikely)
                error = 4.0 * math.sqrt(variance / n)
                found.append(likely - math.e * unlikely - chosen.delta - error)
        return max(found)

    assert excess(noise.sigma) <= 0
    assert excess(noise.sigma // 2) > 0.01  # the same test sees that this is half the noise


# Fits


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("family", NOISY)
def test_with_a_large_epsilon_the_fit_is_the_pooled_one(family: str, secure: bool) -> None:
    data = simulated(family, 300)
    chosen = privacy(family, 1e8, rounds=10, **dict.fromkeys(BOUNDS[family], 20.0))
    pooled = fs.fit(data, FORMULA, family=family)
    # with noise δ is in the unit of the target
    delta: dict[str, Any] = {} if pooled.delta is None else {"delta": pooled.delta}
    noisy = fs.fit(data, FORMULA, **declared(family), secure=secure, dp=chosen, **delta)
    assert isinstance(noisy, fs.NoisyModel)
    noise = np.array(noisy.noise.noise_se)
    assert noise.max() < 0.01 * pooled.estimates.errors.min()
    assert np.abs(noisy.params - pooled.params).max() < 5 * noise.max()
    if pooled.bse is not None:
        assert np.allclose(np.sqrt(np.diag(noisy.cov_params())), pooled.bse, rtol=0.02)
    assert not noisy.warnings
    assert fs.Model not in type(noisy).mro()
    assert not hasattr(noisy, "deviance")
    assert noisy.to_dict().keys() == pooled.to_dict().keys()
    assert noisy.to_dict()["dispersion"] == pytest.approx(noisy.dispersion)
    assert noisy.to_dict()["clients"] is None


def test_the_table_says_that_it_is_noisy_and_never_that_it_is_the_pooled_fit(
    tmp_path: Path,
) -> None:
    model = fs.fit(simulated("logistic", 400), FORMULA, **declared("logistic"), dp=privacy())
    text = str(model.summary())
    assert "NOISY for privacy: (ε, δ) = (2, 1e-06) for one row, not the pooled fit" in text
    assert "SIMULATED: the noise follows from a seed, and gives NO PRIVACY" in text
    assert "standard errors include the noise" in text
    assert "certificate" not in text
    assert "converged" not in text
    record = model.to_dict()
    assert record["privacy"]["epsilon"] == 2.0
    assert record["privacy"]["simulated"]
    assert record["certificate"]["gap"] is None
    assert not record["converged"]
    assert record["log_likelihood"] is None
    assert record["deviance"] is None
    json.dumps(record, allow_nan=False)
    model.write(tmp_path)
    again = fs.load(tmp_path)
    assert str(again.summary()) == text
    assert again.settings.dp == model.settings.dp
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "not the pooled fit" in page
    assert "dp epsilon" in page
    assert "y: number; x: number; g: text" in page
    assert np.isclose(again.predict(pd.DataFrame({"x": [0.1], "g": ["b"]})).iloc[0], 0.5, atol=0.3)


def test_without_a_seed_every_fit_has_other_noise_and_with_one_the_same() -> None:
    data = simulated("logistic", 60)
    seeded = [fs.fit(data, FORMULA, **declared("logistic"), dp=privacy()).params for _ in range(2)]
    assert np.array_equal(seeded[0], seeded[1])
    chosen = replace(privacy(), seed=None)
    fresh = [fs.fit(data, FORMULA, **declared("logistic"), dp=chosen) for _ in range(2)]
    assert not np.array_equal(fresh[0].params, fresh[1].params)
    assert "SIMULATED" not in str(fresh[0].summary())


def test_secure_sums_have_the_noise_of_one_client_and_open_answers_that_of_all() -> None:
    data = simulated("logistic", 300)
    settings = declared("logistic")
    alone = fs.fit(data, FORMULA, **settings, dp=privacy())
    shared = fs.fit(data, FORMULA, **settings, dp=privacy(), secure=True)
    careful = fs.fit(data, FORMULA, **settings, dp=privacy(colluding=1), secure=True)
    found = [
        model.noise.rows_error
        for model in (alone, shared, careful)
        if isinstance(model, fs.NoisyModel)
    ]
    assert np.allclose(np.array(found) / found[1], [3**0.5, 1.0, 1.5**0.5], rtol=1e-6)


def test_rows_that_do_not_fit_the_declaration_are_left_out_and_not_mentioned() -> None:
    data = simulated("poisson", 80)
    settings = declared("poisson")
    expected = fs.fit(data, FORMULA, **settings, dp=privacy("poisson"))
    odd = pd.DataFrame(
        {
            "y": [-1.0, 2.0, np.nan, 1.0],
            "x": [0.0, np.nan, 0.0, 0.3],
            "g": ["a", "b", "a", "never declared"],
        }
    )
    more = {**data, "c0": pd.concat([data["c0"], odd], ignore_index=True)}
    found = fs.fit(more, FORMULA, **settings, dp=privacy("poisson"))
    assert np.array_equal(found.params, expected.params)
    assert found.warnings == expected.warnings


def test_a_run_that_is_resumed_asks_no_question_twice(tmp_path: Path) -> None:
    data = simulated("logistic", 60)
    chosen = replace(privacy(ranges={"x": (-1.0, 1.0)}), seed=None)
    kept = tmp_path / "kept"
    options: dict[str, Any] = {**declared("logistic"), "dp": chosen}
    first = fs.fit(data, FORMULA, **options, checkpoint=fs.Checkpoint(kept))
    again = fs.fit(data, FORMULA, **options, checkpoint=fs.Checkpoint(kept, resume=True))
    assert np.array_equal(first.params, again.params)


def test_a_client_without_any_row_that_fits_adds_noise_alone() -> None:
    data = simulated("logistic", 200)
    empty = pd.DataFrame({"y": [1], "x": [np.nan], "g": ["a"]})
    model = fs.fit({**data, "c9": empty}, FORMULA, **declared("logistic"), dp=privacy())
    assert isinstance(model, fs.NoisyModel)
    assert abs(model.noise.rows - 600) < 5 * model.noise.rows_error


def test_a_dispersion_that_the_noise_hides_is_replaced_by_an_upper_bound() -> None:
    data = simulated("gaussian", 200)
    model = fs.fit(
        data, FORMULA, **declared("gaussian"), dp=privacy("gaussian", 8.0, score=60.0, rounds=2)
    )
    assert any("an upper bound of it is used" in text for text in model.warnings)
    assert model.dispersion is not None
    assert model.dispersion > 0.25
    assert model.bse is not None


def test_a_level_that_no_row_has_leaves_no_standard_errors() -> None:
    levels = {**DECLARED["levels"], "g": ["a", "b", "c"]}
    model = fs.fit(
        simulated("logistic", 500),
        FORMULA,
        family="logistic",
        types=NUMBERS,
        levels=levels,
        dp=privacy(),
    )
    assert list(model.estimates.names) == ["Intercept", "x", "C(g)[T.b]", "C(g)[T.c]"]
    assert any("not determined" in text for text in model.warnings)
    assert model.bse is None


WRONG: Sequence[tuple[dict[str, Any], str]] = [
    (
        {"types": None},
        "dp: the study must declare the types of column y, x, g, by the option types",
    ),
    ({"levels": None}, "dp: the study must declare the levels of column"),
    ({"family": "multinomial"}, "dp is for families with one predictor"),
    ({"family": "poisson"}, "poisson has no bound on the residual of a row"),
    ({"ridge": 1.0}, "dp: leave out a ridge"),
    ({"firth": True}, "dp: leave out firth"),
    ({"strict": True}, "leave out strict"),
    ({"missing": "fail"}, "missing=fail would tell of rows"),
    ({"method": "newton"}, "dp has its own method"),
    ({"tol": 1e-6}, "dp: tol has no effect on a fit with noise: leave it out"),
    ({"separation": "refuse"}, "dp: separation has no effect"),
    ({"rounds": 20}, "dp: rounds has no effect"),
    ({"formula": "y ~ ."}, "dp: name the columns in the formula"),
    ({"formula": "y ~ scale(x)", "types": {"y": "number", "x": "number"}}, "depends on all rows"),
    ({"dp": fs.Privacy(1, 1e-6, 2, 3, colluding=1)}, "colluding is for secure sums"),
    ({"dp": fs.Privacy(1, 1e-6, 2, 3, ranges={"z": (0, 1)})}, "there is no column z"),
    ({"dp": "1"}, "dp must be a Privacy"),
    ({"group": "g"}, "a group column tells which clients there are"),
]


@pytest.mark.parametrize(("changed", "text"), WRONG)
def test_what_noise_cannot_be_combined_with_is_refused_in_one_line(
    changed: dict[str, Any], text: str
) -> None:
    options: dict[str, Any] = {"formula": FORMULA, **declared("logistic"), "dp": privacy()}
    with pytest.raises(InputError, match=re.escape(text)) as caught:
        fs.fit(simulated("logistic", 20), **{**options, **changed})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.0, 1e-6, 1.0, 3), "epsilon"),
        ((math.nan, 1e-6, 1.0, 3), "epsilon"),
        ((1.0, 0.0, 1.0, 3), "delta"),
        ((1.0, 1.0, 1.0, 3), "delta"),
        ((1.0, 1e-6, -1.0, 3), "clip"),
        ((1.0, 1e-6, 1e300, 3), "clip must be from 1e-50 to"),
        ((1.0, 1e-6, 1.0, 0), "rounds"),
    ],
)
def test_a_privacy_that_is_none_is_refused(values: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        fs.Privacy(*values)


def test_paths_have_no_noise() -> None:
    with pytest.raises(TypeError, match="dp"):
        fs.path(simulated("gaussian", 20), FORMULA, dp=privacy("gaussian"))  # type: ignore[call-arg]


def test_the_command_line_has_the_same_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, frame in simulated("poisson", 80).items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["fit", str(tmp_path), "--formula", FORMULA, "--family", "poisson", "--json"]
    words += ["--types", "y=number,x=number,g=text", "--levels", "g=a|b"]
    pairs = ["epsilon=3", "rounds=4", "score=5", "weight=4", "seed=7", "clip=2"]
    words += [word for pair in pairs for word in ("--set", f"dp.{pair}")]
    assert run(words) == 2
    assert "dp needs delta too" in capsys.readouterr().err
    words += ["--set", "dp.delta=1e-6", "--set"]
    assert run([*words, "dp.ranges=x=-1:1"]) == 0
    found = json.loads(capsys.readouterr().out)
    here = fs.fit(
        str(tmp_path),
        FORMULA,
        **declared("poisson"),
        dp=privacy("poisson", 3.0, rounds=4, ranges={"x": (-1, 1)}, seed=7),
    )
    assert found["coef"] == here.to_dict()["coef"]
    assert found["privacy"]["protects"] == "one row"
    assert run([*words, "dp.ranges=x=3"]) == 2
    assert "dp ranges: x needs two numbers, not [3.0]" in capsys.readouterr().err
    assert run([*words, "dp.ranges=x=0:1,x=0:2"]) == 2
    assert "x is twice" in capsys.readouterr().err
    assert run([*words, "dp.score=0"]) == 2
    assert "--set dp.score is given twice" in capsys.readouterr().err


# Intervals


def covered(family: str, n: int, sets: int, chosen: fs.Privacy) -> Array:
    """In how many of some data sets each coefficient's 95 % interval has the truth in it."""
    truth = np.array([-0.4, 0.8, 0.5])
    hits = np.zeros(3)
    for seed in range(sets):
        data = simulated(family, n, seed=seed)
        model = fs.fit(data, FORMULA, **declared(family), dp=replace(chosen, seed=seed))
        interval = model.conf_int().to_numpy()
        hits += (interval[:, 0] <= truth) & (truth <= interval[:, 1])
    return hits / sets


@pytest.mark.slow
@pytest.mark.parametrize(("family", "epsilon"), [("logistic", 2.0), ("gaussian", 6.0)])
def test_intervals_have_their_coverage(family: str, epsilon: float) -> None:
    share = covered(family, 700, 400, privacy(family, epsilon=epsilon)).mean()
    assert 0.93 <= share <= 0.97


# What the ranges imply, and functions of which everything is written


def declared_formula(formula: str, chosen: fs.Privacy) -> dict[str, Any]:
    types = {name: kind for name, kind in NUMBERS.items() if name in formula}
    levels = {name: ["a", "b"] for name in types if name == "g"} | {"y": ["0", "1"]}
    return {
        "formula": formula, "family": "logistic", "types": types, "levels": levels, "dp": chosen,
    }  # fmt: skip


LONG = [
    ("y ~ x", {"x": (0, 3)}, 2.0),  # 1 and x
    ("y ~ x - 1", {"x": (0, 3)}, 1.0),
    ("y ~ x + C(g)", {"x": (0, 3)}, 3.0),
    ("y ~ x + cut(x, c(-9, 0, 1, 9))", {"x": (0, 3)}, 3.0),
    ("y ~ ns(x, knots=0, Boundary.knots=c(-1, 1))", {}, None),
]


@pytest.mark.parametrize(("formula", "ranges", "square"), LONG)
def test_a_clip_below_the_length_that_ranges_imply_is_said_before_anything_is_asked(
    formula: str, ranges: dict[str, tuple[float, float]], square: float | None
) -> None:
    for factor in (0.99, 1.0):
        chosen = fs.Privacy(2.0, 1e-6, factor * math.sqrt(square or 4.0), 3, ranges=ranges)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ShortClip)
            frames = simulated("logistic", 20)
            fs.fit(frames, **declared_formula(formula, replace(chosen, seed=1)))
        told = [str(each.message) for each in caught if each.category is ShortClip]
        if square is None or factor == 1.0:
            assert not told
        else:
            [text] = told
            assert f"can be {math.sqrt(square):.4g} long" in text


WRITTEN = [
    "y ~ cut(x, c(-9, -0.5, 0.5, 9)) + C(g)",
    "y ~ bs(x, knots=c(0), Boundary.knots=c(-1, 1))",
    "y ~ ns(x, knots=c(-0.3, 0.3), Boundary.knots=c(-1, 1))",
]


@pytest.mark.parametrize("formula", WRITTEN)
def test_functions_with_everything_written_have_noise_and_are_the_pooled_fit_with_little_of_it(
    formula: str,
) -> None:
    frames = simulated("logistic", 4000)
    chosen = privacy(epsilon=1e6, rounds=12)
    noisy = fs.fit(frames, **declared_formula(formula, chosen))
    plain = fs.fit(frames, formula, family="logistic")
    np.testing.assert_allclose(noisy.params, plain.params, rtol=1e-3, atol=1e-3)


def test_a_row_outside_the_breaks_of_cut_counts_nothing() -> None:
    frames = simulated("logistic", 300)
    chosen = privacy(epsilon=1e6, rounds=3)
    formula = "y ~ cut(x, c(-9, 0, 0.5))"
    inside = {name: frame[frame.x <= 0.5] for name, frame in frames.items()}
    outside, without = (
        fs.fit(each, **declared_formula(formula, chosen)) for each in (frames, inside)
    )
    np.testing.assert_allclose(outside.params, without.params, rtol=1e-9)


def test_what_a_spline_makes_of_a_row_does_not_depend_on_the_other_rows() -> None:
    [call] = Formula("y ~ ns(x, knots=c(-0.3, 0.3), Boundary.knots=c(-1, 1))").pooled
    x = np.random.default_rng(0).uniform(-2, 2, 257)
    together = call.function.values(x, {})
    alone = np.concatenate([call.function.values(x[i : i + 1], {}) for i in range(len(x))])
    assert np.array_equal(together, alone)
