"""Every family of the table, and one that a contributor might add: its statistics belong together.

A family that is added to the table is tested here, and against statsmodels, without more ado.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import norm

import fedsplit as fs
from fedsplit.arrays import EPS, Array
from fedsplit.clients.questions import Information
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.multinomial import Multinomial
from fedsplit.regression.client.design import Moments
from fedsplit.regression.families import FAMILIES, family_of
from fedsplit.regression.families.family import Family, first_move, shares
from fedsplit.regression.families.response import of_counts, pearson_parts, whole
from fedsplit.regression.server.coordinates import Pool
from probit import PROBIT
from statsmodels_family import aic, is_glm, log_likelihood, statsmodels_family

CLASSES = 3
EVERY = {**FAMILIES, "probit": PROBIT}
LIKELIHOODS = [name for name, family in EVERY.items() if family.has_likelihood]
GLMS = [name for name, family in EVERY.items() if is_glm(family)]


@pytest.fixture(params=EVERY)
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Family:
    """A family that is in the table."""
    monkeypatch.setitem(FAMILIES, request.param, EVERY[request.param])
    return EVERY[request.param]


each_family = pytest.mark.parametrize("family", EVERY, indirect=True)
each_likelihood = pytest.mark.parametrize("family", LIKELIHOODS, indirect=True)
each_glm = pytest.mark.parametrize("family", GLMS, indirect=True)


def loss_of(family: Family) -> LinearLoss | Multinomial:
    loss = family.loss(CLASSES)
    assert isinstance(loss, LinearLoss | Multinomial)
    return loss


def predictors(family: Family, n: int = 7) -> Array:
    """η of n rows."""
    eta = np.linspace(-1.5, 1.5, n)
    return np.column_stack([eta, np.square(eta)]) if family.classes == "several" else eta


def drawn(family: Family, eta: Array, seed: int = 0) -> tuple[Array, Array]:
    """A target of every row: as the loss takes it, and as a design has it."""
    b = loss_of(family).sample(eta, np.random.default_rng(seed))
    return b, np.maximum(b, 0.0) if family.binary else b


@each_family
def test_the_link_its_inverse_and_its_slope_belong_together(family: Family) -> None:
    eta = predictors(family)
    mean = family.link.mean(eta)
    np.testing.assert_allclose([family.link.eta(row) for row in mean], eta, rtol=1e-10, atol=1e-12)
    slope = family.link.slope(eta).reshape(len(eta), -1)
    for c in range(slope.shape[1]):
        step = np.zeros((len(eta), slope.shape[1]))
        step[:, c] = 1e-6
        ends = [family.link.mean(eta + sign * step.reshape(eta.shape)) for sign in (1, -1)]
        moved = (ends[0] - ends[1]).reshape(len(eta), -1)[:, -slope.shape[1] :]
        np.testing.assert_allclose(moved[:, c] / 2e-6, slope[:, c], rtol=1e-7)


@each_likelihood
def test_the_log_likelihood_is_minus_the_loss_over_the_dispersion_but_for_a_constant(
    family: Family,
) -> None:
    eta = predictors(family)
    b, target = drawn(family, eta)
    w = np.linspace(0.5, 2.0, len(eta))
    phi = 0.7 if family.dispersed else 1.0
    there, here = (family.log_likelihood(target, each, w, phi) for each in (0.5 * eta, eta))
    lower = w * (loss_of(family).value(eta, b) - loss_of(family).value(0.5 * eta, b)) / phi
    np.testing.assert_allclose(there - here, lower, atol=1e-12)


@each_likelihood
def test_the_hessian_of_a_canonical_family_does_not_depend_on_the_target(family: Family) -> None:
    eta = predictors(family, 200)
    A = np.column_stack([np.ones(200), np.linspace(-1, 1, 200)])
    x = np.full(len(family.blocks(range(CLASSES))) * 2, 0.3)
    one, other = (
        fs.Problem(loss_of(family), [(A, drawn(family, eta, seed)[0])])
        .clients.ask(Information(x))
        .rows
        for seed in (0, 1)
    )
    assert np.allclose(one, other, rtol=1e-12) == (family.information == "hessian")


@each_glm
def test_expected_weights_are_the_mean_curvature_and_the_variance_of_the_score(
    family: Family,
) -> None:
    loss = loss_of(family)
    assert isinstance(loss, LinearLoss)
    levels = np.linspace(-1.0, 1.0, 3)
    eta = np.repeat(levels, 200_000)
    b, target = drawn(family, eta)
    weights = family.expected_weights(levels)
    if family.information == "moments":
        np.testing.assert_allclose(weights, 1.0, rtol=1e-12)
    mu = family.link.mean(eta)
    pearson = np.square(target - mu) / family.variance(mu)
    if family.has_pearson:
        np.testing.assert_allclose(family.pearson(target, mu), pearson, rtol=1e-9, atol=1e-12)
    phi = pearson.mean()
    if not family.dispersed:
        assert phi == pytest.approx(1.0, rel=0.02)
    curvature, slope = (part(eta, b).reshape(3, -1) for part in (loss.curvature, loss.slope))
    np.testing.assert_allclose(curvature.mean(axis=1), weights, rtol=0.01)
    np.testing.assert_allclose(slope.mean(axis=1), 0.0, atol=0.01)
    np.testing.assert_allclose(slope.var(axis=1), phi * weights, rtol=0.03)


@each_glm
def test_invalid_targets_are_those_that_cannot_be_drawn(family: Family) -> None:
    _, target = drawn(family, predictors(family, 1000))
    assert not family.invalid(target).any()


def simulated(family: Family) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "x": rng.standard_normal(300),
            "u": rng.uniform(1.0, 3.0, 300),
            "w": rng.uniform(0.5, 2.0, 300),
            "o": rng.uniform(-0.5, 0.5, 300),
            "client": rng.integers(0, 4, 300),
        }
    )
    eta = 0.3 + 0.5 * frame.x - 0.2 * frame.u + frame.o
    return frame.assign(y=drawn(family, eta.to_numpy())[1])


@each_glm
def test_a_fit_is_that_of_statsmodels(family: Family) -> None:
    frame = simulated(family)
    model = fs.fit(frame, "y ~ x + u", family=family.name, group="client", weights="w", offset="o")
    pool = sm.GLM(
        frame.y, sm.add_constant(frame[["x", "u"]]), family=statsmodels_family(family),
        var_weights=frame.w, offset=frame.o,
    ).fit(tol=1e-12, tol_criterion="params", maxiter=300)  # fmt: skip
    np.testing.assert_allclose(model.params, pool.params, rtol=1e-7)
    assert model.bse is not None
    np.testing.assert_allclose(model.bse, pool.bse, rtol=1e-8)
    np.testing.assert_allclose(model.cov_params(), pool.cov_params(), rtol=1e-7, atol=1e-12)
    assert model.llf == pytest.approx(log_likelihood(family, pool), rel=1e-9)
    assert model.deviance == pytest.approx(pool.deviance, rel=1e-9)
    assert model.dispersion == pytest.approx(pool.scale, rel=1e-9)
    assert model.aic == pytest.approx(aic(family, pool), rel=1e-9)
    np.testing.assert_allclose(model.predict(frame), pool.fittedvalues, rtol=1e-7)


@each_glm
def test_the_distance_from_the_pool_is_proved_or_said_not_to_be(family: Family) -> None:
    loss = loss_of(family)
    assert isinstance(loss, LinearLoss)
    model = fs.fit(simulated(family), "y ~ x + u", family=family.name, group="client")
    if np.isfinite(loss.concordance):
        assert model.converged
    else:
        assert not model.converged
        assert "how fast its Hessian changes is not known" in model.certificate.reason


def test_a_delta_far_below_the_residuals_is_named_where_a_run_does_not_converge() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": 1e6 * rng.standard_cauchy(60), "x": rng.standard_normal(60)})
    frame["site"] = frame.index % 3
    model = fs.fit(frame, "y ~ x", family="huber", group="site", rounds=20, delta=1e-6)
    assert not model.converged
    assert any("choose a larger delta" in each for each in model.warnings)


@pytest.mark.parametrize(
    ("name", "A", "b", "direction", "least", "most"),
    [
        # a count of zero is favoured by a falling mean, and a larger one by none
        ("poisson", [[1.0], [1.0], [-1.0]], [0.0, 2.0, 0.0], [-1.0], [1, -1, -1], [1, -1, -1]),
        # class 1 by a growing predictor
        ("logistic", [[1.0], [1.0], [0.0]], [1.0, 0.0, 1.0], [1.0], [1, -1, 0], [1, -1, 0]),
        # classes 0 and 2 against class 1, whose predictor falls
        ("multinomial", [[1.0]] * 3, [0.0, 1.0, 2.0], [-1.0, 0.0], [0, -1, 0], [1, -1, 1]),
    ],
)
def test_margins_say_whom_a_direction_favours(
    name: str,
    A: list[list[float]],
    b: list[float],
    direction: list[float],
    least: list[int],
    most: list[int],
) -> None:
    family, rows, targets = FAMILIES[name], np.array(A), np.array(b)
    found = family.margins(rows, targets, np.array([direction]))
    np.testing.assert_array_equal(np.sign(found), [least, most])
    # where an earlier direction moves a row, a later one does not matter
    both = family.margins(rows, targets, np.array([direction, [-each for each in direction]]))
    np.testing.assert_array_equal(np.sign(both), [least, most])


def test_the_share_of_a_sum_that_is_rounding_alone_is_zero() -> None:
    A = np.array([[1.0, 1.0], [1.0, 0.5], [1e8, 1e8 + 1.0], [1e-5, 1.0]])
    np.testing.assert_allclose(shares(A, np.array([1.0, -1.0])), [0, 1 / 3, 0, -1], atol=1e-4)
    # a part of a longer direction, beside which it is rounding
    np.testing.assert_array_equal(shares(A[:2], np.array([1e-12, 0.0]), 1.0), [0.0, 0.0])


def test_of_several_moves_the_first_that_is_not_zero_counts() -> None:
    moves = [np.array([0.0, 2.0, 0.0]), np.array([-1.0, 3.0, 0.0]), np.array([5.0, 5.0, 4.0])]
    np.testing.assert_array_equal(first_move(iter(moves)), [-1.0, 2.0, 4.0])


def test_targets_whose_mean_is_exactly_zero_are_fitted_unless_they_are_counts() -> None:
    x = np.array([1.0, 2.0, 3.0, 5.0, 4.0, 1.0])
    frames = [pd.DataFrame({"x": x, "y": [1.0, -1.0, 2.0, -2.0, 3.0, -3.0]})]
    coef = np.polyfit(frames[0].x, frames[0].y, 1)[::-1]
    np.testing.assert_allclose(fs.fit(frames, "y ~ x").params, coef, rtol=1e-10)
    with pytest.raises(fs.InputError, match="every count of every client is zero"):
        fs.fit([frames[0].assign(y=0)], "y ~ x", family="poisson")


def test_groups_of_trials_have_the_floor_and_the_choices_of_their_shares() -> None:
    s, f, v = np.array([2.0, 0.0, 3.0]), np.array([1.0, 0.0, 0.0]), np.array([2.0, 1.0, 0.0])
    trials = of_counts(s, f, v)
    np.testing.assert_array_equal(trials.b, [1, 0])
    np.testing.assert_array_equal(trials.w, [4, 2])
    np.testing.assert_array_equal(trials.rows, [0, 0])
    assert trials.groups is not None
    assert trials.groups.rows == 1
    assert trials.groups.floor == pytest.approx(-2 * (2 * np.log(2 / 3) + np.log(1 / 3)))
    assert trials.groups.log_choices == pytest.approx(2 * np.log(3))
    # Pearson's X² of 2 of 3 trials, twice, at a probability of one half
    parts = pearson_parts(np.array([0, 0]), trials.b, trials.w, np.array([0.5, 0.5]))
    np.testing.assert_allclose(parts, [(4 - 3) ** 2 / (6 * 0.25), 0.0])


def test_a_gamma_likelihood_of_a_perfect_fit_is_finite_and_counts_have_remarks() -> None:
    assert FAMILIES["gamma"].likelihood_dispersion(0.0, 10, 10.0) == EPS
    assert FAMILIES["gamma"].likelihood_dispersion(3.0, 10, 6.0) == 0.5
    assert FAMILIES["gaussian"].likelihood_dispersion(3.0, 10, 6.0) == pytest.approx(0.3)
    poisson = FAMILIES["poisson"]
    assert poisson.remark(np.array([0.0, 3.0]), "visits") == ""
    for rates in ([0.5], [1.0, 0.5]):
        assert "visits that are not whole" in poisson.remark(np.array(rates), "visits")
    # the exact fit of a separated count, at its limit
    np.testing.assert_array_equal(poisson.pearson(np.zeros(1), np.zeros(1)), [0.0])


def test_a_null_model_is_that_of_the_mean_per_exposure() -> None:
    # 30 events in 120 units of exposure of 100 rows
    eta = FAMILIES["poisson"].null_predictor(0.3, np.zeros(0), np.log(1.2))
    np.testing.assert_allclose(np.exp(eta), [30 / 120])
    np.testing.assert_array_equal(FAMILIES["gaussian"].null_predictor(0.3, np.zeros(0), 1.0), 0.3)


@pytest.mark.parametrize(
    ("family", "classes", "message"),
    [
        ("logistic", (30, 0), "every row of every client is of the same class: there is nothing"),
        ("multinomial", (30, 0, 5), "no client has a row of class 2 of 3: there is nothing to fit"),
    ],
)
def test_a_class_without_rows_is_named(family: str, classes: tuple[int, ...], message: str) -> None:
    one = np.zeros(1), np.ones((1, 1))
    moments = Moments(["x"], sum(classes), 35.0, *one, 0.5, 1.0, 0.0, classes)
    with pytest.raises(fs.InputError, match=message):
        FAMILIES[family].check_pool(Pool([moments], None))


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("poisson", -1e-9, "for poisson it must be a count of at least zero"),
        ("gamma", 0.0, "for gamma it must be above zero"),
    ],
)
def test_a_target_just_outside_names_its_row(name: str, bad: float, message: str) -> None:
    frame = pd.DataFrame({"y": [3.0, 1.0, bad, 2.0], "x": [1.0, 2.0, 3.0, 5.0]})
    with pytest.raises(fs.InputError, match=rf"row 3: y is {bad:g}; {message}"):
        fs.fit({"s": frame}, "y ~ x", family=name)


def test_the_ends_of_what_a_target_can_be_belong_to_it() -> None:
    x = np.arange(40) % 7 + 0.1 * np.arange(40)
    rare = pd.DataFrame({"x": x, "y": (np.arange(40) == 17) * 1.0, "n": np.arange(40) % 3 + 1.0})
    model = fs.fit({"s": rare}, "y ~ x", family="poisson")
    pooled = sm.GLM(rare.y, sm.add_constant(x), family=sm.families.Poisson()).fit(tol=1e-12)
    np.testing.assert_allclose(model.params, pooled.params, rtol=1e-6)
    # shares of 0 and 1, and nothing beyond
    assert fs.fit({"s": rare}, "y ~ x", family="logistic", weights="n").converged
    for bad in (-0.25, 1.25):
        share = rare.assign(y=np.where(rare.index == 3, bad, rare.y + 0.5 * (rare.index == 5)))
        with pytest.raises(fs.InputError, match="a share is between 0 and 1"):
            fs.fit({"s": share}, "y ~ x", family="logistic", weights="n")


def test_shares_of_none_and_of_all_of_the_trials_are_those_of_single_trials() -> None:
    rows = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "died": [0, 3, 1, 4], "n": [3, 4, 5, 4]})
    trials = [(x, k < died) for x, died, n in rows.to_numpy() for k in range(int(n))]
    single = pd.DataFrame(trials, columns=["x", "y"]).astype(float)
    shares = fs.fit([rows], "died / n ~ x", family="logistic", weights="n")
    alone = fs.fit([single], "y ~ x", family="logistic")
    np.testing.assert_allclose(shares.params, alone.params, rtol=1e-9)
    assert shares.nobs == 4


def test_two_classes_are_named_by_words_or_by_0_and_1() -> None:
    logistic = FAMILIES["logistic"]
    for levels in (["0", "1"], ["False", "True"]):
        logistic.check_classes("ill", levels, named=False)
    logistic.check_classes("ill", ["no", "yes"], named=True)
    with pytest.raises(fs.InputError, match=r"needs 0 and 1: use \{ill == 2\}"):
        logistic.check_classes("ill", ["1", "2"], named=False)
    with pytest.raises(fs.InputError, match=r"has 3 values .* needs two: use the family multinom"):
        logistic.check_classes("ill", ["a", "b", "c"], named=True)
    np.testing.assert_array_equal(logistic.invalid(np.array([0.0, 0.5, 1.0, -1.0])), [0, 1, 0, 1])


def test_counts_are_whole_by_the_tolerance_of_r() -> None:
    counts = np.array([2.0009, 2.002, -1.0, np.inf, 0.0])
    np.testing.assert_array_equal(whole(counts), [1, 0, 0, 0, 1])


def test_a_likelihood_counts_a_row_by_its_weight_and_a_delta_follows_the_unit() -> None:
    one, w = np.ones(1), np.array([3.0])
    for name in ("poisson", "gamma"):
        logs = [FAMILIES[name].log_likelihood(2 * one, 0.4 * one, each, 0.7) for each in (one, w)]
        np.testing.assert_allclose(logs[1], 3 * logs[0])
    # φ/w is the variance of a gaussian row
    gaussian = FAMILIES["gaussian"].log_likelihood(2 * one, one, w, 0.6)
    np.testing.assert_allclose(gaussian, norm.logpdf(2.0, 1.0, np.sqrt(0.2)))
    np.testing.assert_allclose(FAMILIES["gamma"].pearson(3 * one, 2 * one), 0.25)
    assert FAMILIES["huber"].in_units(10.0).loss().delta == pytest.approx(0.1345)


def test_names_of_other_packages_are_understood_and_parameters_checked() -> None:
    known = {"normal": "gaussian", "bernoulli": "logistic", "Gamma": "gamma", "mnlogit": "multin"}
    for name, family in known.items():
        assert family_of(name).name.startswith(family)
    with pytest.raises(fs.InputError, match="huber has no parameter theta: it has delta"):
        family_of("huber:theta=2")


def test_classes_of_a_multinomial_model_are_compared_with_the_first() -> None:
    family = FAMILIES["multinomial"]
    assert [each.name for each in family.blocks(["a", "b", "c"])] == ["b", "c"]
    eta = family.null_predictor(0.0, np.array([10.0, 20.0, 5.0]), 0.0)
    np.testing.assert_allclose(eta, np.log([2.0, 0.5]))
    # class 1 of three: against class 0 a gain, against class 2 none
    least, most = family.margins(np.ones((1, 1)), np.ones(1), np.array([[1.0, 1.0]]))
    np.testing.assert_array_equal(np.sign([least[0], most[0]]), [0, 1])
    least, most = family.margins(np.ones((1, 1)), np.ones(1), np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(np.sign([least[0], most[0]]), [-1, 1])
