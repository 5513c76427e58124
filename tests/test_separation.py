"""Coefficients that would grow without bound, and the others, against R.

R's figures are those of ``glm(..., subset = <rows at rest>, control = list(epsilon = 1e-12,
maxit = 50))`` on ``rows()`` written as CSV with 17 digits; R 4.2.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from typer.testing import CliRunner

import fedsplit as fs
import test_aliased
from faulty import fit as fit_by
from fedsplit.channels.channel import LocalChannel
from fedsplit.commands.app import app
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.statistics import RowsAlong
from fedsplit.regression.server import minimise


def rows() -> pd.DataFrame:
    """Counts and classes of which some levels, and a sign of a number, have one outcome only."""
    frame = test_aliased.rows()
    i = np.arange(len(frame))
    level = np.array(list("abcd"))[(13 * i % 7) % 4]
    half = np.round(2 * frame.x) / 2
    return frame.assign(
        level=level,
        few=frame["count"] * (level != "c"),
        none=frame["count"] * (level != "a"),
        always=np.where(level == "b", 1.0, frame.event),
        above=(frame.x > 0).astype(int),
        half=half,
        ties=np.where(half > 0, 1.0, np.where(half < 0, 0.0, frame.event)),
    )


def fit(formula: str, family: str, **options: Any) -> fs.Model:
    return fs.fit(rows(), formula, family=family, group="site", **options)


NA = np.nan


@pytest.mark.parametrize(
    ("formula", "family", "lost", "coef", "errors", "fitted"),
    [
        (
            "few ~ x + u + level",
            "poisson",
            {"level[T.c]": "-inf"},
            [
                *(1.4549386303284975, 0.4637289132109910, 0.0212447558031862),
                *(0.0271530361553927, NA, 0.0294516491877211),
            ],
            [
                *(0.0581233081529930, 0.0636756539256800, 0.0622830886961417),
                *(0.0809086943979897, 0.0990819838713593),
            ],
            (171, 166, 207.182923318271, 750.171823324674),
        ),
        (  # the reference level: of the others only differences are determined
            "none ~ x + u + level",
            "poisson",
            {
                "Intercept": "-inf",
                "level[T.b]": "+inf",
                "level[T.c]": "+inf",
                "level[T.d]": "+inf",
            },
            [NA, 0.47371462149958499, 0.02496680019530009, NA, NA, NA],
            [0.0627704803953878, 0.0620152829375769],
            (171, 166, 192.96995695216, 744.023210562895),
        ),
        (
            "always ~ x + u + level",
            "logistic",
            {"level[T.b]": "+inf"},
            [
                *(-0.05336618029714871, 0.99804221009376459, -0.00451609529156463, NA),
                *(0.17118983767684670, 0.07814058277804292),
            ],
            [
                *(0.251151009249054, 0.282496339888741, 0.273074823118362),
                *(0.355333235042323, 0.436594939464779),
            ],
            (172, 167, 224.429214046176, 234.429214046176),
        ),
        (
            "ties ~ half + u + level",
            "logistic",
            {"half": "+inf"},
            [
                *(-0.0169834374636685, NA, -0.1738467872084422),
                *(0.2508791703797475, -0.4030464436150160, 0.2789585916814678),
            ],
            [
                *(0.502779732614708, 0.471561043371119, 0.710715314767659),
                *(0.708414112055361, 0.851618793223460),
            ],
            (59, 54, 80.3968494494145, 90.3968494494145),
        ),
    ],
)
def test_what_does_not_recede_is_as_in_r_without_the_rows_that_do(
    formula: str,
    family: str,
    lost: dict[str, str],
    coef: list[float],
    errors: list[float],
    fitted: tuple[float, ...],
) -> None:
    model = fit(formula, family)
    assert model.converged
    assert model.not_estimable == lost
    assert list(model.aliased) == []
    known = np.isfinite(coef)
    np.testing.assert_array_equal(np.isfinite(model.params), known)
    np.testing.assert_allclose(model.params.to_numpy()[known], np.array(coef)[known], rtol=1e-8)
    np.testing.assert_allclose(model.estimates.errors[known], errors, rtol=1e-5)
    assert np.isnan(model.estimates.errors[~known]).all()
    n, df, deviance, aic = fitted
    assert (model.nobs, model.df_resid) == (n, df)
    assert model.deviance == pytest.approx(deviance, rel=1e-9)
    assert model.aic == pytest.approx(aic, rel=1e-9)
    assert model.rounds < 60
    assert any("would grow without bound" in text for text in model.warnings)


def test_what_few_events_determine_beside_many_has_its_coefficient_in_the_limit() -> None:
    rng = np.random.default_rng(5)
    big = np.arange(240) < 120
    frame = pd.DataFrame({"site": np.arange(240) % 3, "x": rng.normal(size=240), "big": 1.0 * big})
    frame["z"] = np.where(big, 0.0, rng.normal(size=240))  # information 1e-4 of that of big
    frame["level"] = np.array(list("abc"))[np.arange(240) // 3 % 3]
    mean = np.exp(np.where(big, 9.0, -0.3) + 0.1 * frame.x + 0.4 * frame.z)
    frame["y"] = rng.poisson(mean) * (frame.level != "c")
    formula = "y ~ x + big + z + level"
    model = fs.fit(frame, formula, family="poisson", group="site")
    rest = fs.fit(frame[frame.level != "c"], formula, family="poisson", group="site")
    assert model.not_estimable == {"level[T.c]": "-inf"}
    np.testing.assert_allclose(model.params[:5], rest.params, rtol=1e-8)
    assert model.bse is not None
    np.testing.assert_allclose(model.bse[:5], np.asarray(rest.bse), rtol=1e-6)


def test_predictions_are_the_limits_of_predictions() -> None:
    frame = rows()
    model = fit("none ~ x + u + level", "poisson")
    rest = frame[frame.level != "a"]
    small = fs.fit(rest, "none ~ x + u + level", family="poisson", group="site")
    predicted = model.predict(frame)
    assert model.estimates.limit is not None
    assert (
        np.abs(model.estimates.limit).max() < 20.0
    )  # how far out the limit was computed does not show
    assert (predicted[frame.level == "a"] == 0.0).all()
    np.testing.assert_allclose(predicted[frame.level != "a"], small.predict(rest), rtol=1e-9)
    ties = fit("ties ~ half + u", "logistic").predict(frame)
    assert (ties[frame.half > 0] == 1.0).all()
    assert (ties[frame.half < 0] == 0.0).all()


def test_a_constraint_a_ridge_or_an_l1_penalty_leaves_nothing_to_report() -> None:
    for penalty in ({"ridge": 0.1}, {"l1": 0.1}):
        model = fit("few ~ x + level", "poisson", **penalty)
        assert model.converged
        assert model.not_estimable == {}
        assert np.isfinite(model.params).all()


@pytest.mark.parametrize(
    ("formula", "family", "column"),
    [("few ~ x + level", "poisson", r"level\[T.c\]"), ("ties ~ half + u", "logistic", "half")],
)
def test_separation_is_refused_on_demand(formula: str, family: str, column: str) -> None:
    with pytest.raises(fs.InputError, match=rf"quasi-separable: the coefficient of {column} would"):
        fit(formula, family, separation="refuse")


def test_separable_classes_are_always_refused() -> None:
    frame = rows().assign(sign=lambda each: (each.x > 0.1).astype(float))
    with pytest.raises(fs.InputError, match="the classes are separable"):
        fs.fit(frame, "sign ~ x + u", family="logistic", group="site")


def _lacking() -> pd.DataFrame:
    """Rows of level b are never of class m, while k and l are told apart there too."""
    return rows().assign(
        kind=lambda each: np.where((each.level == "b") & (each.kind == "m"), "k", each.kind)
    )


def _limit_without_class_m_in_level_b(frame: pd.DataFrame) -> tuple[np.ndarray, float]:
    """The coefficients of l and m, and the deviance, where class m is left out in level b."""
    A = np.column_stack([np.ones(len(frame)), frame.x, *(frame.level == k for k in "bcd")])
    own = np.column_stack([frame.kind == k for k in "klm"])
    out = np.zeros(own.shape)
    out[(frame.level == "b").to_numpy(), 2] = -np.inf

    def loss(coef: np.ndarray) -> tuple[float, np.ndarray]:
        eta = out + np.column_stack([np.zeros(len(A)), A @ coef.reshape(2, -1).T])
        slope = (softmax(eta, axis=1) - own)[:, 1:].T @ A
        return float(np.sum(logsumexp(eta, axis=1) - np.sum(eta, axis=1, where=own))), slope.ravel()

    found = minimize(loss, np.zeros(10), jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.x, 2.0 * found.fun


@pytest.mark.parametrize("split", ["site", "one", "rows"])
def test_a_class_that_a_level_lacks_is_reported_however_rows_are_split(split: str) -> None:
    frame = _lacking().assign(one=0, rows=lambda each: np.arange(len(each)) % 40)
    model = fs.fit(frame, "kind ~ x + level", family="multinomial", group=split)
    coef, deviance = _limit_without_class_m_in_level_b(frame)
    assert model.converged
    assert model.not_estimable == {"m:level[T.b]": "-inf"}
    known = np.arange(10) != 7
    np.testing.assert_allclose(model.params[known], coef[known], rtol=1e-5)
    assert model.deviance == pytest.approx(deviance, rel=1e-9)
    assert (model.nobs, model.estimates.rank) == (
        len(frame),
        9,
    )  # level b still tells k and l apart
    assert model.exchanges <= 30
    predicted = model.predict(frame)
    assert (predicted["m"][frame.level == "b"] == 0.0).all()
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0)


def _decided(seed: int) -> pd.DataFrame:
    """Classes of which some levels have one alone, or lack one, in tables of random sizes."""
    rng = np.random.default_rng(seed)
    n, classes, levels = (int(rng.integers(*each)) for each in ((60, 600), (3, 5), (2, 6)))
    g, h, x = rng.integers(0, levels, n), rng.integers(0, 3, n), rng.normal(size=n)
    eta = rng.normal(size=(levels, classes))[g] + rng.normal(size=(3, classes))[h]
    eta += np.outer(x, rng.normal(size=classes))
    c = (eta + rng.gumbel(size=(n, classes))).argmax(axis=1)
    for _ in range(int(rng.integers(1, 3))):
        level, lost = rng.integers(0, levels), rng.integers(0, classes)
        c[(g == level) & (c == lost)] = (lost + 1) % classes
        if rng.random() < 0.3:
            c[g == level] = lost
    names = {"g": np.char.add("g", g.astype(str)), "h": np.char.add("h", h.astype(str))}
    kind = np.char.add("c", c.astype(str))
    return pd.DataFrame({**names, "x": x, "kind": kind, "one": 0, "rows": np.arange(n) % 20})


@pytest.mark.parametrize("seed", [4, 20, 21, 28, 37, 49])
def test_what_several_levels_decide_does_not_depend_on_how_rows_are_split(seed: int) -> None:
    frame = _decided(seed)
    fit = partial(fs.fit, frame, "kind ~ g + h + x", family="multinomial")
    # a penalty this small leaves coefficients finite, and the likelihood next to its limit
    nearly = fit(group="one", ridge=1e-6)
    assert nearly.llf is not None
    fits = [fit(group=split) for split in ("one", "rows", "g", "kind")]
    for model in fits:
        assert model.converged
        assert model.not_estimable.keys() == fits[0].not_estimable.keys() != set()
        assert model.exchanges <= 45
        assert model.llf == pytest.approx(nearly.llf, abs=1e-3)
        known = model.params.notna()
        np.testing.assert_allclose(model.params[known], fits[0].params[known], rtol=1e-6)
        away = (model.params - nearly.params)[known] / model.estimates.errors[known]
        assert np.abs(away).max() < 1e-2


def test_a_class_that_a_level_lacks_is_refused_on_demand() -> None:
    with pytest.raises(fs.InputError, match=r"quasi-separable: the coefficient of m:level\[T.b\]"):
        fs.fit(
            _lacking(),
            "kind ~ x + level",
            family="multinomial",
            group="site",
            separation="refuse",
        )
    assert fs.fit(rows(), "kind ~ x + level", family="multinomial", group="site").converged


def test_rows_recede_after_others_have_receded() -> None:
    # beside level b, which always has events, half tells the classes of the others apart
    frame = rows()
    frame["both"] = np.where(frame.level == "b", 1.0, frame.ties)
    frame["low"] = (frame.level == "b") * 1.0
    model = fs.fit(frame, "both ~ low + half + u", family="logistic", group="site")
    rest = frame[(frame.level != "b") & (frame.half == 0)]
    small = fs.fit(rest, "both ~ u", family="logistic", group="site")
    assert model.not_estimable == {"low": "+inf", "half": "+inf"}
    np.testing.assert_allclose(model.params[["Intercept", "u"]], small.params, rtol=1e-8)
    assert model.nobs == len(rest)


def test_aliased_columns_and_those_that_recede_are_told_apart() -> None:
    model = fit("few ~ x + u + sum + level", "poisson")
    assert list(model.aliased) == ["sum"]
    assert model.not_estimable == {"level[T.c]": "-inf"}
    assert model.estimates.rank == 5


def test_a_client_whose_rows_all_recede_takes_no_part() -> None:
    frame = rows()
    frame.loc[frame.site == 2, "level"] = "c"
    frame["few"] = frame["count"] * (frame.level != "c")
    model = fs.fit(frame, "few ~ x + level", family="poisson", group="site")
    rest = frame[frame.level != "c"]
    small = fs.fit(rest, "few ~ x + level", family="poisson", group="site")
    assert model.not_estimable == {"level[T.c]": "-inf"}
    np.testing.assert_allclose(model.params[small.params.index], small.params, rtol=1e-8)
    assert model.clients["n"].to_dict()["2"] == 0


def test_what_recedes_is_null_in_the_json_and_the_exit_status_is_1(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", str(tmp_path / "rows.csv"), "--group", "site", "--family", "poisson"]
    command += ["--formula", "few ~ x + level"]
    told = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "model")])
    assert told.exit_code == 1
    assert "not estimable: level[T.c] (-inf)" in told.output
    assert "nan" not in told.output
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert found["not_estimable"] == {"level[T.c]": "-inf"}
    assert found["coef"]["level[T.c]"] is None
    assert found["se"]["level[T.c]"] is None
    assert found["converged"]
    loaded = fs.load(tmp_path / "model")
    assert loaded.not_estimable == {"level[T.c]": "-inf"}
    assert (loaded.predict(rows())[rows().level == "c"] == 0.0).all()


def test_an_ordinary_fit_is_not_asked_whether_rows_recede(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    original = RowsAlong.sums

    def sums(statistic: RowsAlong, rows: Any) -> Any:
        asked.append(1)
        return original(statistic, rows)

    monkeypatch.setattr(RowsAlong, "sums", sums)
    assert fit("count ~ x + u + level", "poisson").converged
    assert fit("event ~ x + u + level", "logistic").converged
    assert not asked


def test_fewer_than_three_receding_rows_are_warned_of() -> None:
    frame = rows()
    frame["rare"] = 0.0
    frame.loc[[5, 9, 14, 18, 22, 26, 3], "rare"] = 1.0  # one of them at client 3
    frame["few"] = frame["count"] * (1.0 - frame.rare)
    model = fs.fit(frame, "few ~ x + rare", family="poisson", group="site")
    assert model.not_estimable == {"rare": "-inf"}
    assert any("have fewer than 3 rows that recede" in text for text in model.warnings)


@pytest.mark.parametrize(("formula", "family"), [("few", "poisson"), ("few_events", "logistic")])
def test_a_level_without_events_is_found_without_a_constant(formula: str, family: str) -> None:
    # Rows of other levels are exactly zero in its column, so that only rounding is left of the
    # other terms: once these rows seemed to move, and the coefficient was -117 after 150 rounds.
    frame = rows()
    frame = frame.assign(few_events=frame.event * (frame.level != "c"))
    model = fs.fit(frame, f"{formula} ~ 0 + level + x + u", family=family, group="site")
    others = frame[frame.level != "c"]
    rest = fs.fit(others, f"{formula} ~ 0 + level + x + u", family=family, group="site")
    assert model.not_estimable == {"level[c]": "-inf"}
    assert model.converged
    np.testing.assert_allclose(np.delete(model.params.to_numpy(), 2), rest.params, rtol=1e-9)
    assert model.bse is not None
    assert rest.bse is not None
    np.testing.assert_allclose(model.bse.dropna(), rest.bse, rtol=1e-9)


def test_rows_that_have_receded_before_they_are_looked_for_are_found() -> None:
    # Cells of their own coefficients recede so quickly that no curvature is left after fifteen
    # rounds: what was looked at was how far x went from there, and it went nowhere.
    rng = np.random.default_rng(1)
    cells = rng.choice(list("abcdefghijkl"), 64)
    frame = pd.DataFrame({"cell": cells, "site": rng.integers(0, 3, 64), "y": rng.poisson(1.0, 64)})
    frame["y"] = frame.y * (frame.cell != "c")
    model = fs.fit(frame, "y ~ 0 + cell", family="poisson", group="site")
    assert model.not_estimable == {"cell[c]": "-inf"}
    assert model.converged
    means = frame.groupby("cell").y.mean().drop("c")
    np.testing.assert_allclose(np.exp(np.delete(model.params.to_numpy(), 2)), means, rtol=1e-9)


def _signs(seed: int) -> list[pd.DataFrame]:
    rng = np.random.default_rng(seed)
    frames = [pd.DataFrame(rng.normal(size=(20, 3)), columns=["x", "z", "u"]) for _ in range(4)]
    return [frame.assign(y=(frame.x - 0.5 * frame.z + 0.3 * frame.u > 0) * 1.0) for frame in frames]


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_at_rest_of_one_class_are_no_reason_to_say_that_all_are(seed: int) -> None:
    # One row next to the border changes sides: the classes are still separable, but only just.
    sites = _signs(seed)
    border = (sites[2].x - 0.5 * sites[2].z + 0.3 * sites[2].u).abs().idxmin()
    sites[2].loc[border, "y"] = 1.0 - sites[2].y[border]
    with pytest.raises(fs.InputError, match="separable"):
        fs.fit(sites, "y ~ x + z + u", family="logistic")


def test_a_long_way_to_the_minimum_is_not_searched_for_a_recession() -> None:
    rng = np.random.default_rng(0)
    sites = [pd.DataFrame(rng.normal(size=(2, 3)), columns=["x", "z", "u"]) for _ in range(60)]
    sites = [s.assign(y=rng.poisson(np.exp(1.2 * s.x - 0.6 * s.z + 0.3 * s.u))) for s in sites]
    ours = fs.fit(sites, "y ~ x + z + u", family="poisson")
    newton = fs.fit(sites, "y ~ x + z + u", family="poisson", method="newton")
    assert ours.converged
    assert ours.exchanges <= newton.exchanges


def test_a_search_for_a_recession_in_vain_is_not_soon_repeated() -> None:
    # As before, but the classes overlap by a hair; R's coefficient of x is 53.066233.
    sites = _signs(10)
    border = (sites[2].x - 0.5 * sites[2].z + 0.3 * sites[2].u).abs().idxmin()
    sites[2].loc[border, "y"] = 1.0 - sites[2].y[border]
    model = fs.fit(sites, "y ~ x + z + u", family="logistic")
    assert model.converged
    assert model.params.to_numpy()[1] == pytest.approx(53.066233, abs=1e-6)
    assert model.exchanges <= 45


def test_a_direction_along_which_some_row_loses_is_none_of_recession(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the search is made to suspect the first column whenever it looks
    def suspects(self: Any, x: Any, first: Any, tries: int) -> Any:
        yield from ()
        return [np.eye(len(x))[1]], 0

    def always(self: Any, state: Any, number: int, allowed: int) -> Any:
        self._first = state.x
        yield from self.search(state.x, allowed)

    search = "fedsplit.regression.server.separation.SeparationSearch."
    plain = fit("event ~ x + u + level", "logistic")
    monkeypatch.setattr(search + "_recession", suspects)
    monkeypatch.setattr(search + "look", always)
    model = fit("event ~ x + u + level", "logistic")
    assert model.not_estimable == {}
    np.testing.assert_allclose(model.params, plain.params, rtol=1e-9)


@pytest.mark.parametrize("method", ["lbfgs", "quasi-newton", "newton"])
def test_what_recedes_is_found_by_whatever_method_moves_along_it(method: str) -> None:
    usual = fit("few ~ x + u + level", "poisson")
    model = fit("few ~ x + u + level", "poisson", method=method)
    assert model.not_estimable == usual.not_estimable == {"level[T.c]": "-inf"}
    np.testing.assert_allclose(model.params, usual.params, rtol=1e-7)
    with pytest.raises(fs.InputError, match="the classes are separable"):
        fit("above ~ x + u", "logistic", method=method)


@pytest.mark.parametrize(
    ("formula", "family", "column"),
    [("few ~ x + u + level", "poisson", "level"), ("ties ~ half + u", "logistic", "half")],
)
def test_where_clients_allow_vectors_alone_what_recedes_is_refused_in_words(
    formula: str, family: str, column: str
) -> None:
    parts = {f"site{name}": part for name, part in rows().groupby("site")}
    datasets = [Dataset(each) for each in sources(parts)]
    channel = LocalChannel(DatasetCohort(datasets, Rules(matrices=False)))
    message = rf"quasi-separable: the coefficient of {column}.* would grow without bound"
    with pytest.raises(fs.InputError, match=message):
        fit_by(channel, formula, family=family)


def test_newtons_method_does_not_take_over_where_clients_allow_vectors_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience = partial(minimise.minimise, patience=1)  # where they allow matrices, at once
    monkeypatch.setattr("fedsplit.regression.server.glm.minimise", patience)
    steep = rows().assign(many=lambda each: np.round(np.exp(5 + 4 * each.x)))
    parts = {f"site{name}": part for name, part in steep.groupby("site")}
    datasets = [Dataset(each) for each in sources(parts)]
    channel = LocalChannel(DatasetCohort(datasets, Rules(matrices=False)))
    model = fit_by(channel, "many ~ x + u", family="poisson", method="quasi-newton")
    assert model.converged
