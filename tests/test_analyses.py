"""Analyses of one file each: wherever the clients are, however the answers come."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.special import expit

import analyses
from analyses import ANALYSES
from analyses.cox import cox, printed
from analyses.describe import describe, suppressed
from analyses.negative_binomial import negative_binomial
from analyses.robust import robust
from analyses.weighted import weighted
from fedsplit.channels import codec
from fedsplit.channels.channel import Reply, Request
from fedsplit.data.sources import sources
from fedsplit.dialogue import replay
from fedsplit.errors import InputError
from fedsplit.federation.questions import (
    decode_answer,
    decode_request,
    encode_request,
)
from fedsplit.regression.analysis import analyse, analyse_over
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.options import Settings

EVERY = pytest.mark.parametrize("name", ANALYSES)


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    with analyses.entered():
        yield


def trials() -> dict[str, pd.DataFrame]:
    """Four sites with a treatment that depends on two covariates, and survival times with ties."""
    tables = {}
    for j in range(4):
        rng = np.random.default_rng([0, j])
        n = 200 + 50 * j
        a, b = rng.normal(size=(2, n))
        t = (rng.random(n) < expit(0.5 * a - 0.3 * b + 0.1 * j)).astype(int)
        event = np.ceil(10 * rng.exponential(np.exp(-0.5 * a + 0.7 * t - 0.2 * j)))
        censored = np.ceil(10 * rng.exponential(2, n))
        tables[f"site{j}"] = pd.DataFrame(
            {
                "a": a,
                "b": b,
                "t": t,
                "y": 1 + 2 * t + a + b + rng.normal(size=n) * (1 + (a > 0)),
                "sex": rng.choice(["f", "m"], n),
                "time": np.minimum(event, censored),
                "died": (event <= censored).astype(int),
                "visits": rng.poisson(rng.gamma(2.0, np.exp(0.3 * a + 0.4 * t) / 2.0)),
                "altitude": 100.0 * j,
            }
        )
    return tables


def pooled() -> pd.DataFrame:
    return pd.concat(
        [frame.assign(site=name) for name, frame in trials().items()], ignore_index=True
    )


def assert_close(ours: pd.DataFrame, expected: Any, rtol: float = 1e-9) -> None:
    assert list(ours.index) == list(getattr(expected, "index", ours.index))
    np.testing.assert_allclose(ours, expected, rtol=rtol, atol=1e-12)


class WireChannel:
    """Clients that are reached by messages alone: all is encoded, decoded and checked."""

    free = False
    recorded = True

    def __init__(self, data: Mapping[str, pd.DataFrame]) -> None:
        self._cohorts = [DatasetCohort([Dataset(each)]) for each in sources(data)]
        self.names = [[name] for name in data]
        self.messages = 0

    def now(self) -> float:
        return float(self.messages)

    def wait(self, seconds: float) -> None:
        raise AssertionError("a client in this process answers at once")

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        return {at: self._asked(self._cohorts[at], each) for at, each in requests.items()}

    def _asked(self, cohort: DatasetCohort, request: Request) -> Reply:
        received = decode_request(encode_request(request))
        message = codec.encode(cohort.answer(received))
        self.messages += 1
        return Reply("answer", decode_answer(request, message))


@EVERY
def test_an_analysis_through_messages_is_that_of_this_process(name: str) -> None:
    channel = WireChannel(trials())
    analysis = ANALYSES[name].analysis
    here = analyse(analysis, trials())
    pd.testing.assert_frame_equal(analyse_over(channel, analysis, Settings()), here)
    assert channel.messages >= 2 * len(channel.names)


@EVERY
def test_an_analysis_by_secure_sums_is_the_open_one(name: str) -> None:
    analysis = ANALYSES[name].analysis
    assert_close(analyse(analysis, trials(), secure=True), analyse(analysis, trials()))


@EVERY
def test_an_analysis_is_a_function_of_the_answers(name: str) -> None:
    analysis = ANALYSES[name].analysis
    recorded: list[Any] = []
    here = analyse(analysis, trials(), watch=lambda question, answer: recorded.append(answer))
    again = replay(analysis(Settings()), recorded)
    assert again.ended
    pd.testing.assert_frame_equal(again.result, here, check_exact=True)
    assert not replay(analysis(Settings()), recorded[:-1]).ended


@EVERY
def test_under_strict_rules_an_analysis_is_answered_if_it_is_of_sums(name: str) -> None:
    toy = ANALYSES[name]
    if toy.sums:
        # sums are rounded under rules
        assert_close(
            analyse(toy.analysis, trials(), strict=True), analyse(toy.analysis, trials()), 1e-4
        )
    else:
        with pytest.raises(InputError, match="its cost is no sum over its rows"):
            analyse(toy.analysis, trials(), strict=True)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_every_analysis_on_ray_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsplit.channels.ray.cluster import connect
    from fedsplit.channels.ray.workers import RayChannel

    own = sources(trials())
    halves = [own[:2], own[2:]]
    ray.shutdown()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where workers find the analyses
    connect(None)
    names = [[source.name for source in half] for half in halves]
    channel = RayChannel([partial(analyses.cohort_of, half) for half in halves], names)
    try:
        for toy in ANALYSES.values():
            there = analyse_over(channel, toy.analysis, Settings())
            assert_close(there, analyse(toy.analysis, trials()), rtol=1e-12)
    finally:
        channel.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            ray.shutdown()


def _asks_a_number(settings: Settings) -> Iterator[int]:
    yield 3


@pytest.mark.parametrize(
    ("analysis", "options", "message"),
    [
        (lambda settings: 3, {}, "an analysis must be a function .*, not one that makes 3"),
        (3, {}, "an analysis must be a function .*, not one that makes 3"),
        (_asks_a_number, {}, "a dialogue about rows yields questions, not 3"),
        (_asks_a_number, {"engine": "spark"}, "engine 'spark' is not known: use one of local, ray"),
        (_asks_a_number, {"famly": "poisson"}, "setting 'famly' is not known: use one of .*family"),
    ],
)
def test_an_analysis_that_is_no_dialogue_or_has_another_setting_is_refused_in_one_line(
    analysis: Any, options: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        analyse(analysis, trials(), **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("correction", ["HC0", "HC1", "HC2", "HC3"])
@pytest.mark.parametrize(
    ("formula", "family"), [("y ~ a + b + t", "gaussian"), ("t ~ a + b", "logistic")]
)
def test_robust_errors_are_those_of_the_pooled_rows(
    formula: str, family: str, correction: str
) -> None:
    ours = analyse(robust(formula, family, correction), trials())
    if family == "gaussian":
        fit = smf.ols(formula, pooled()).fit(cov_type=correction)
        expected = np.column_stack([fit.params, fit.bse])
    else:
        fit = smf.logit(formula, pooled()).fit(disp=0, tol=1e-14)
        expected = np.column_stack([fit.params, _logistic_errors(fit, correction)])
    assert_close(ours, expected, rtol=1e-8)


def _logistic_errors(fit: Any, correction: str) -> Any:
    """The definition, on pooled rows."""
    A, b, p = fit.model.exog, fit.model.endog, fit.predict()
    inverse = np.linalg.inv((A * (p * (1 - p))[:, None]).T @ A)
    h = p * (1 - p) * np.einsum("ij,jk,ik->i", A, inverse, A)
    factor = {"HC0": 1.0, "HC1": len(b) / (len(b) - A.shape[1])}.get(correction, 1.0)
    power = {"HC2": 0.5, "HC3": 1.0}.get(correction, 0.0)
    scores = A * ((b - p) / (1 - h) ** power)[:, None]
    return np.sqrt(factor * np.diag(inverse @ scores.T @ scores @ inverse))


def test_a_description_is_that_of_the_pooled_rows() -> None:
    ours = analyse(describe(["a", "sex"], "t"), trials())
    rows = pooled()
    by = rows.groupby("t")
    counts = pd.crosstab(rows.sex, rows.t)
    expected = np.vstack([by.a.count(), by.a.mean(), by.a.std(), counts])
    assert list(ours.index) == ["a: n", "a: mean", "a: sd", "sex = f", "sex = m"]
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_description_takes_two_exchanges_for_all_columns() -> None:
    asked: list[Any] = []
    analyse(
        describe(["a", "b", "sex"], "t"),
        trials(),
        watch=lambda question, answer: asked.append(question),
    )
    assert len(asked) == 2


def test_small_cells_are_suppressed_and_do_not_follow_from_totals() -> None:
    counts = np.array([[20.0, 3.0, 30.0], [12.0, 14.0, 16.0], [0.0, 9.0, 9.0]])
    table = suppressed(counts, 5)
    hidden = np.isnan(table)
    assert hidden[0, 1]
    for lines in (hidden, hidden.T):
        assert not (lines.sum(axis=1) == 1).any()
    np.testing.assert_array_equal(table[~hidden], counts[~hidden])
    assert not np.isnan(suppressed(np.array([[20.0, 5.0], [0.0, 7.0]]), 5)).any()


def test_a_rare_level_is_suppressed_in_a_description_and_refused_under_strict_rules() -> None:
    frames = trials()
    frames["site2"].loc[5, "sex"] = "x"
    ours = analyse(describe(["sex"], "t"), frames)
    assert ours.loc["sex = x"].isna().any()
    with pytest.raises(InputError, match="fewer than 3 rows of a kind: sex = x in 1"):
        analyse(describe(["sex"], "t"), frames, strict=True)


def test_an_analysis_reads_files_and_frames_with_groups(tmp_path: Any) -> None:
    for name, frame in trials().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    analysis = describe(["a", "sex"], "t")
    here = analyse(analysis, trials())
    pd.testing.assert_frame_equal(analyse(analysis, str(tmp_path / "*.csv")), here)
    assert_close(analyse(analysis, pooled(), group="site"), here, rtol=1e-14)


def test_errors_of_a_weighted_effect_know_of_the_first_model() -> None:
    rows = pooled()
    ours = analyse(weighted("t ~ a + b", "y ~ t"), trials())
    first = smf.logit("t ~ a + b", rows).fit(disp=0, tol=1e-14)
    t, e, y = rows.t.to_numpy(), first.predict().copy(), rows.y.to_numpy()
    w = t / e + (1 - t) / (1 - e)
    A, B = first.model.exog, np.column_stack([np.ones(len(t)), t])
    x = np.linalg.solve((B * w[:, None]).T @ B, (B * w[:, None]).T @ y)

    # the stacked estimating equations; their derivatives are taken numerically
    def scores(both: Any) -> Any:
        p = expit(A @ both[:3])
        weights = t / p + (1 - t) / (1 - p)
        return np.hstack([(p - t)[:, None] * A, (weights * (B @ both[3:] - y))[:, None] * B])

    both = np.concatenate([first.params, x])
    steps = 1e-5 * np.eye(len(both))
    J = np.column_stack([(scores(both + h).sum(0) - scores(both - h).sum(0)) / 2e-5 for h in steps])
    s = scores(both)
    inverse = np.linalg.inv(J)
    errors = np.sqrt(np.diag(inverse @ s.T @ s @ inverse.T))[3:]
    np.testing.assert_allclose(ours["coef"], x, rtol=1e-8)
    np.testing.assert_allclose(ours["se"], errors, rtol=1e-6)
    # weights that count as known have other errors
    known = smf.wls("y ~ t", rows, weights=w).fit(cov_type="HC0").bse
    assert abs(ours["se"]["t"] / known["t"] - 1) > 0.05


def _stratified(columns: list[str]) -> Any:
    rows = pooled()
    model = sm.PHReg(rows["time"], rows[columns], rows["died"], strata=rows["site"], ties="breslow")
    return model.fit(tol=1e-13)


def test_hazard_ratios_are_those_of_the_pooled_rows_with_a_baseline_for_every_site() -> None:
    expected = _stratified(["a", "t"])
    ours = analyse(cox("Surv(time, died) ~ a + t"), trials())
    assert list(ours.index) == ["a", "t"]  # the constant cancels
    assert_close(ours[["coef", "se"]], np.column_stack([expected.params, expected.bse]), rtol=1e-6)
    np.testing.assert_allclose(ours["hazard ratio"], np.exp(expected.params), rtol=1e-6)
    np.testing.assert_allclose(ours[["lower", "upper"]], np.exp(expected.conf_int()), rtol=1e-6)
    assert ours.attrs["events"] == pooled().died.sum()
    open_ = analyse(cox("Surv(time, died) ~ a + t"), trials(), secure=True)
    assert open_.attrs == ours.attrs


def test_a_covariate_of_sites_is_not_identified_by_baselines_of_sites() -> None:
    for way in ({}, {"secure": True}):
        options: dict[str, Any] = way
        ours = analyse(cox("Surv(time, died) ~ a + altitude + t"), trials(), **options)
        assert ours.attrs["aliased"] == ["altitude"]
        without = analyse(cox("Surv(time, died) ~ a + t"), trials())
        np.testing.assert_allclose(ours.loc[["a", "t"]], without, rtol=1e-9)
        assert np.isnan(ours.loc["altitude", "coef"])
    # nor is what differs from another covariate by a number of each site
    frames = {name: frame.assign(c=frame.a + frame.altitude) for name, frame in trials().items()}
    assert analyse(cox("Surv(time, died) ~ a + c"), frames).attrs["aliased"] == ["c"]
    with pytest.raises(InputError, match="altitude is the same in all rows of a client"):
        analyse(cox("Surv(time, died) ~ a + altitude"), trials(), aliased="refuse")


def test_a_group_without_events_has_a_monotone_likelihood_and_no_hazard_ratio() -> None:
    spared = {
        name: frame.assign(g=((frame.died == 0) & (frame.index % 3 == 0)).astype(float))
        for name, frame in trials().items()
    }
    # far out the rows of the group are no longer at risk
    without = {name: frame[frame.g == 0] for name, frame in spared.items()}
    expected = analyse(cox("Surv(time, died) ~ a + t"), without)
    for way in ({}, {"secure": True}):
        options: dict[str, Any] = way
        ours = analyse(cox("Surv(time, died) ~ a + g + t"), spared, **options)
        assert ours.attrs["not_estimable"] == {"g": "-inf"}
        assert ours.loc["g"].isna().all()
        np.testing.assert_allclose(ours.loc[["a", "t"]], expected, rtol=1e-6)
    text = printed(ours)
    assert text.startswith("1,100 rows, 746 events\n")
    assert text.endswith("not estimable: g (-inf)")
    # nor is there one if nothing else is in the model, or every event is of who is first
    assert analyse(cox("Surv(time, died) ~ g"), spared).attrs["not_estimable"] == {"g": "-inf"}
    first = {name: frame.assign(early=-frame.time) for name, frame in spared.items()}
    ours = analyse(cox("Surv(time, died) ~ early + a"), first)
    assert ours.attrs["not_estimable"] == {"early": "+inf"}


def test_categories_beside_baselines_have_a_reference_level() -> None:
    ours = analyse(cox("Surv(time, died) ~ sex"), trials())
    assert list(ours.index) == ["sex[T.m]"]


def test_a_target_of_two_columns_is_for_the_family_that_it_is_of() -> None:
    with pytest.raises(InputError, match="it is a target of survival, not of gaussian"):
        analyse(robust("Surv(time, died) ~ a"), trials())
    with pytest.raises(InputError, match="it is a target of logistic, not of cox"):
        analyse(cox("cbind(visits, died) ~ a"), trials())


def test_counts_of_a_given_dispersion_are_fitted_as_by_the_pooled_rows() -> None:
    family = sm.families.NegativeBinomial(alpha=0.5)
    expected = smf.glm("visits ~ a + t", pooled(), family=family).fit(tol=1e-14)
    ours = analyse(negative_binomial("visits ~ a + t", theta=2.0), trials())
    assert_close(ours, np.column_stack([expected.params, expected.bse]), rtol=1e-8)
    assert ours.attrs["llf"] == pytest.approx(expected.llf, rel=1e-10)


def test_the_dispersion_of_counts_is_that_of_the_pooled_likelihood() -> None:
    expected = smf.negativebinomial("visits ~ a + t", pooled()).fit(disp=0, maxiter=500, gtol=1e-9)
    ours = analyse(negative_binomial("visits ~ a + t"), trials())
    assert 1 / ours.attrs["theta"] == pytest.approx(expected.params["alpha"], rel=1e-5)
    np.testing.assert_allclose(ours["coef"], expected.params.iloc[:3], rtol=1e-4, atol=1e-6)
    assert ours.attrs["llf"] >= expected.llf - 1e-8
