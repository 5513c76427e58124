"""Firth's logistic regression across clients: the figures of R, and what is proved of them.

``tests/data/firth.R`` made those that are stored.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.linalg import slogdet
from numpy.testing import assert_allclose

import fedsplit as fs
from faulty import FAULTS, Fault, Moment, fit
from fedsplit.arrays import length, packed, unpacked
from fedsplit.channels.channel import LocalChannel
from fedsplit.clients.local_models import ModifiedScore, jeffreys
from fedsplit.clients.questions import Information
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.guards.requests import check_question
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.server.firth import FirthSearch
from hospitals import people
from problems import problem

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "firth.json").read_text(encoding="utf-8"))
FORMULA = "ill ~ age + ward"

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "separable": ("efficient ~ wt + hp", {}),
    "overlapping": ("strong ~ wt + mpg", {}),
    "weights": ("strong ~ wt + mpg", {"weights": "times"}),
    "offset": ("strong ~ wt", {"offset": "shift"}),
    "no intercept": ("strong ~ 0 + wt + mpg", {}),
}


def cars() -> pd.DataFrame:
    table = pd.read_csv(DATA / "mtcars.csv")
    return table.assign(
        efficient=(table["mpg"] > 20).astype(int),
        strong=(table["hp"] > 150).astype(int),
        times=1 + np.arange(len(table)) % 3,
        shift=0.1 * table["qsec"] - 1,
    )


def firth(data: object, formula: str, **settings: Any) -> fs.Model:
    return fs.fit(data, formula, family="logistic", firth=True, **settings)


# The urinary tract infections of Heinze and Schemper's papers: a row per combination, its columns
# case, age, oc, vic, vicl, vis, dia, and how many women.
INFECTIONS = """
0000010 1, 0001000 2, 0001010 1, 0001100 8, 0001110 18, 0010000 42, 0010010 1, 0011000 1, 0011100 5,
0011110 6, 0101100 2, 0101110 4, 0110000 14, 0110010 1, 0111000 1, 0111110 2, 1000010 1, 1001000 14,
1001010 3, 1001100 10, 1001110 12, 1001111 1, 1010000 44, 1010001 3, 1011000 15, 1011001 1,
1011010 2, 1011100 7, 1011110 3, 1101000 2, 1101010 1, 1101011 1, 1101100 1, 1101111 1, 1110000 5,
1111000 3
"""

LOGISTF = {
    "Intercept": (0.12025405, 0.4763429),
    "age": (-1.10598131, 0.4149021),
    "oc": (-0.06881673, 0.4344026),
    "vic": (2.26887464, 0.5384872),
    "vicl": (-2.11140817, 0.5320395),
    "vis": (-0.78831694, 0.4089620),
    "dia": (3.09601166, 1.5052197),
}
"""What R's logistf (1.24.1 and later) prints of ``data(sex2)``: coefficients, standard errors."""


def infections() -> pd.DataFrame:
    cells = [cell.split() for cell in INFECTIONS.split(",")]
    rows = [[*map(int, bits), int(count)] for bits, count in cells]
    columns = ["case", "age", "oc", "vic", "vicl", "vis", "dia", "count"]
    return pd.DataFrame(rows, columns=columns).assign(site=np.arange(len(rows)) % 4)


@pytest.mark.parametrize("name", CASES)
def test_the_figures_are_those_of_r(name: str) -> None:
    formula, settings = CASES[name]
    expected = EXPECTED[name]
    model = firth(cars(), formula, group="cyl", **settings)
    assert model.converged
    assert model.bse is not None
    assert model.fit.penalised is not None
    assert_allclose(
        model.params[list(expected["coef"])], list(expected["coef"].values()), rtol=1e-8
    )
    assert_allclose(model.bse, list(expected["se"].values()), rtol=1e-8)
    assert_allclose(model.estimates.errors, list(expected["information_se"].values()), rtol=1e-8)
    assert model.llf == pytest.approx(expected["log_likelihood"], abs=1e-9)
    assert model.fit.penalised.value == pytest.approx(expected["penalised"], abs=1e-9)
    null = None if name == "offset" else pytest.approx(expected["null"], abs=1e-8)
    assert model.fit.penalised.null == null


def test_the_figures_are_those_that_logistf_prints() -> None:
    table = infections()
    model = firth(table, "case ~ age + oc + vic + vicl + vis + dia", weights="count", group="site")
    assert model.bse is not None
    assert model.fit.penalised is not None
    for name, (coef, se) in LOGISTF.items():
        assert model.params[name] == pytest.approx(coef, abs=5e-7)  # it stops at 1e-5
        assert model.bse[name] == pytest.approx(se, abs=5e-6)
    assert model.fit.penalised.value == pytest.approx(-132.5394, abs=5e-5)
    assert model.fit.penalised.ratio == pytest.approx(49.09064, abs=5e-6)
    assert model.fit.penalised.p == pytest.approx(7.15089e-09, rel=1e-6)
    assert "likelihood ratio 49.0906 on 6 degrees of freedom, p < 0.001" in model.summary()


def test_separable_classes_are_refused_without_it() -> None:
    formula, _ = CASES["separable"]
    with pytest.raises(
        fs.InputError, match=r"the classes are separable.*fit with firth, add a ridge"
    ):
        fs.fit(cars(), formula, family="logistic", group="cyl")
    model = firth(cars(), formula, group="cyl")
    assert model.converged
    assert not model.not_estimable


def test_many_sites_give_what_one_gives() -> None:
    table = pd.concat(people(), ignore_index=True)
    whole = firth([table], FORMULA)
    assert whole.bse is not None
    for split in (
        table.groupby(np.arange(len(table)) % 7),
        table.groupby("ill"),  # every client has one class
        table.groupby(pd.qcut(table["age"], 30, labels=False)),  # fewer rows than coefficients
    ):
        parts = firth([part for _, part in split], FORMULA)
        assert parts.bse is not None
        assert_allclose((parts.params - whole.params) / whole.bse, 0, atol=1e-9)
        assert_allclose(parts.bse, whole.bse, rtol=1e-9)
        assert parts.fit.penalised == pytest.approx(whole.fit.penalised, abs=1e-9)


def test_the_estimate_maximises_the_penalised_likelihood() -> None:
    table = pd.concat(people(), ignore_index=True)
    model = firth(table.assign(site=np.arange(len(table)) % 3), "ill ~ age + hours", group="site")
    A = np.column_stack([np.ones(len(table)), table["age"], table["hours"]])

    def penalised(coef: np.ndarray) -> float:
        eta = A @ coef
        curvature = 0.25 / np.cosh(0.5 * eta) ** 2
        likelihood = np.sum(table["ill"] * eta - np.logaddexp(0.0, eta))
        return float(likelihood + 0.5 * slogdet(A.T @ (curvature[:, None] * A))[1])

    assert model.fit.penalised is not None
    assert model.fit.penalised.value == pytest.approx(penalised(model.params), abs=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(20):
        elsewhere = model.params + 1e-3 * rng.standard_normal(3) * model.estimates.errors
        assert penalised(elsewhere) < penalised(model.params)


def test_rows_that_stand_for_trials_give_what_single_trials_give() -> None:
    columns = ["age", "oc", "vic"]
    table = infections()
    counts = table.assign(
        cases=table["count"] * table["case"], others=table["count"] * (1 - table["case"])
    )
    groups = counts.groupby(columns)[["cases", "others"]].sum().reset_index()
    groups = groups.assign(site=np.arange(len(groups)) % 2)
    grouped = firth(groups, "cbind(cases, others) ~ age + oc + vic", group="site")
    single = firth(table, "case ~ age + oc + vic", weights="count", group="site")
    assert grouped.bse is not None
    assert single.bse is not None
    assert grouped.fit.penalised is not None
    assert single.fit.penalised is not None
    assert_allclose(grouped.params, single.params, atol=1e-10)
    assert_allclose(grouped.bse, single.bse, atol=1e-10)
    assert grouped.fit.penalised.ratio == pytest.approx(single.fit.penalised.ratio, abs=1e-9)


def test_aliased_columns_are_left_out_as_ever() -> None:
    table = cars().assign(twice=lambda each: 2 * each["wt"] + 1)
    model = firth(table, "strong ~ wt + twice + mpg", group="cyl")
    assert model.aliased == ["twice"]
    plain = firth(table, "strong ~ wt + mpg", group="cyl")
    assert_allclose(model.params[plain.estimates.names], plain.params, rtol=1e-9)
    assert model.fit.penalised == pytest.approx(plain.fit.penalised, abs=1e-9)


def test_the_certificate_claims_a_stationary_point_alone(tmp_path: Path) -> None:
    model = firth(cars(), "strong ~ wt", group="cyl")
    told = json.loads(json.dumps(model.to_dict(), allow_nan=False))
    certificate = told["certificate"]
    assert certificate["gap"] is None
    assert certificate["standard_errors"] is None
    assert 0 < certificate["stationary"] <= 1e-9
    assert certificate["arithmetic"] < 1e-10
    assert "a stationary point is all that is proved" in certificate["reason"]
    assert "Firth's logistic regression over 3 clients" in model.summary()
    assert "certificate: a stationary point of the penalised likelihood" in model.summary()
    assert "That it is the maximum is not proved" in model.summary()
    assert told["aic"] is None
    assert told["r_squared"] is None
    assert told["penalised"]["df"] == 1
    model.write(tmp_path)
    again = fs.load(tmp_path)
    assert again.to_dict() == model.to_dict()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Firth&#39;s logistic regression" in page
    assert "stationary point" in page


def test_too_few_rounds_are_said_not_to_be_enough() -> None:
    model = firth(cars(), "efficient ~ wt + hp", group="cyl", rounds=10)
    assert not model.converged
    assert model.rounds == 10
    assert model.certificate.stationary is not None
    assert model.certificate.stationary > 1e-9
    assert any("allow more rounds" in text for text in model.warnings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "poisson"}, "firth is for the family logistic, not poisson"),
        ({"family": "multinomial"}, "firth is for the family logistic, not multinomial"),
        ({"ridge": 1.0}, "firth is a penalty of its own: leave out a ridge, or firth"),
        ({"l1": 1.0}, "firth is a penalty of its own: leave out an l1 penalty, or firth"),
        ({"elastic_net": (1, 1)}, "firth is a penalty of its own: leave out a ridge, or firth"),
        ({"nonnegative": ["wt"]}, "firth is a penalty of its own: leave out a constraint"),
        ({"method": "lbfgs"}, "firth has its own method: leave out lbfgs, or firth"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_it_cannot_be_combined_with_is_refused(settings: dict[str, Any], message: str) -> None:
    chosen: dict[str, Any] = {"family": "logistic"} | settings
    with pytest.raises(fs.InputError, match=message):
        fs.fit(cars(), "strong ~ wt", group="cyl", firth=True, **chosen)


def test_there_are_no_robust_errors_and_no_bias_of_averaging() -> None:
    model = firth(cars(), "strong ~ wt", group="cyl")
    assert model.robust_bse is None
    with pytest.raises(fs.InputError, match="firth has the standard errors of R's logistf alone"):
        model.conf_int(robust=True)
    with pytest.raises(fs.InputError, match="averaging methods have no Firth correction"):
        model.bias_of("fedgd")


@pytest.mark.parametrize("name", ["silent", "NaN", "short", "lost", "died"])
def test_a_client_that_fails_once_changes_nothing(name: str) -> None:
    fault, _ = FAULTS[name]
    failed: list[Moment] = []

    def script(moment: Moment) -> Fault | None:
        if moment.client == "hospital1" and moment.question == "modified_score" and not failed:
            failed.append(moment)
            return fault
        return None

    settings: dict[str, Any] = {"family": "logistic", "firth": True}
    disturbed = fit(people(), FORMULA, script, **settings)
    assert failed
    assert np.array_equal(disturbed.params, fit(people(), FORMULA, **settings).params)
    assert np.array_equal(disturbed.params, firth(people(), FORMULA).params)


def test_the_others_go_on_without_a_client_that_stays_away() -> None:
    frames = people()

    def script(moment: Moment) -> Fault | None:
        gone = moment.client == "hospital1" and moment.number >= 8
        return FAULTS["silent"][0] if gone else None

    patience = fs.Patience(min_clients=2)
    model = fit(frames, FORMULA, script, patience, family="logistic", firth=True)
    assert list(model.removed) == ["hospital1"]
    assert model.converged
    rest = firth({name: frames[name] for name in ("hospital0", "hospital2")}, FORMULA)
    assert_allclose(
        (model.params - rest.params) / rest.estimates.errors,
        0,
        atol=2e-9,
    )


def test_clients_whose_owner_allows_vectors_only_refuse_it_in_words() -> None:
    datasets = [Dataset(each) for each in sources(people())]
    channel = LocalChannel(DatasetCohort(datasets, Rules(matrices=False)))
    with pytest.raises(fs.InputError, match=r"allows matrices for proofs only.*leave out firth"):
        fit(channel, FORMULA, family="logistic", firth=True)


def test_a_step_takes_one_matrix_of_a_clients_rows_and_the_end_another() -> None:
    model = firth(people(), FORMULA)
    d, m = len(model.estimates.names), len(model.clients)
    matrix = m * d * (d + 1) // 2
    vectors = m * (2 * d + 4)
    sent = model.run.of_rounds.floats_up
    assert set(sent) <= {vectors, vectors + matrix}
    assert (sent > vectors).sum() <= len(sent) // 2 + 2


def test_a_resumed_fit_ends_in_the_same_table(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def run(checkpoint: fs.Checkpoint | None, most: float = np.inf) -> fs.Model:
        def progress(now: Any) -> None:
            if now.round >= most:
                raise Killed

        return firth(people(), FORMULA, checkpoint=checkpoint, progress=progress)

    whole = run(None)
    for most in (2, 5):
        with pytest.raises(Killed):
            run(fs.Checkpoint(tmp_path / "kept", every=2, resume=most > 2), most)
    assert run(fs.Checkpoint(tmp_path / "kept", resume=True)).to_dict() == whole.to_dict()


def test_the_slope_of_jeffreys_penalty_is_that_of_half_the_log_determinant() -> None:
    p = problem("logistic", [12, 7], 3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(3)

    def penalty(x: np.ndarray) -> float:
        return 0.5 * float(slogdet(p.clients.ask(Information(x)).rows.sum(axis=0))[1])

    V = np.linalg.inv(p.clients.ask(Information(x)).rows.sum(axis=0))
    answer = p.clients.ask(ModifiedScore(x, packed(V), x, True, True)).parts
    slope = p.gradient(x) - answer["gradient"].sum(axis=0)
    steps = 1e-6 * np.eye(3)
    differences = [(penalty(x + step) - penalty(x - step)) / 2e-6 for step in steps]
    assert_allclose(slope, differences, rtol=1e-7)
    assert_allclose(unpacked(answer["hessian"]), p.clients.ask(Information(x)).rows, rtol=1e-12)


def test_the_bound_on_leverages_of_another_point_holds() -> None:
    p = problem("logistic", [12, 7], 3)
    block = p.clients._blocks[0]
    terms = block[1].terms
    rng = np.random.default_rng(1)
    for _ in range(50):
        X = np.tile(rng.standard_normal(3), (terms.k, 1))
        H = terms.hessian(terms.eta(X)).sum(axis=0)
        V = np.linalg.inv(H)
        root = np.linalg.cholesky(V)
        Q, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        shares = 1.0 + rng.uniform(-0.5, 0.5, 3)
        other = root @ (Q * shares) @ Q.T @ root.T
        told = jeffreys(terms, X, other)
        error = (told.slope - jeffreys(terms, X, V).slope).sum(axis=0)
        delta = np.max(np.abs(1.0 / shares - 1.0))
        length = np.sqrt(error @ V @ error)
        assert length <= delta * np.sqrt(told.bend.sum()) * (1 + 1e-12)


def test_losses_without_a_third_derivative_refuse_the_question() -> None:
    for name in ("poisson", "multinomial"):
        p = problem(name, [12, 7], 2)
        question = ModifiedScore(np.zeros(p.d), packed(np.eye(p.d)), np.zeros(p.d), True, False)
        with pytest.raises(fs.InputError):
            p.clients.ask(question)


@pytest.mark.parametrize(
    "metric",
    [
        np.zeros(4),
        np.array([1.0, np.nan, 1.0]),
        np.array([1.0, 2.0, 1.0]),
        np.array([-1.0, 0.0, -1.0]),
    ],
    ids=["another size", "not finite", "indefinite", "negative"],
)
def test_a_metric_that_is_none_is_refused(metric: np.ndarray) -> None:
    x = np.zeros(2)
    check_question(ModifiedScore(x, packed(np.eye(2)), x, True, True), 2)
    with pytest.raises(fs.InputError, match="the server sent a metric that is not"):
        check_question(ModifiedScore(x, metric, x, True, True), 2)


def test_it_converges_whatever_the_classes_look_like() -> None:
    rng = np.random.default_rng(7)
    for n, d, size in ((8, 2, 50.0), (20, 4, 5.0), (60, 8, 1.0), (300, 5, 10.0)):
        A = rng.standard_normal((n, d))
        chances = 1 / (1 + np.exp(-size * A @ rng.standard_normal(d)))
        y = (rng.random(n) < chances).astype(int)
        y[:2] = 0, 1
        frame = pd.DataFrame(A, columns=[f"x{k}" for k in range(d)])
        frame = frame.assign(y=y, site=np.arange(n) % 3)
        model = firth(frame, "y ~ " + " + ".join(frame.columns[:d]), group="site")
        assert model.converged
        assert model.rounds <= 80


def rough(seed: int, n: int = 60, d: int = 8) -> pd.DataFrame:
    """Rows of unlike sizes, on which a full step is too long at times."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) * np.exp(rng.standard_normal((n, 1)))
    chances = 1 / (1 + np.exp(-A @ rng.standard_normal(d)))
    frame = pd.DataFrame(A, columns=[f"x{k}" for k in range(d)])
    return frame.assign(y=(rng.random(n) < chances).astype(int), site=np.arange(n) % 3)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_step_at_which_the_objective_rises_is_refused_and_a_shorter_one_is_taken(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[Any, Any]] = []
    ask = FirthSearch.ask

    def recorded(self: FirthSearch, x: Any, V: Any, before: Any) -> Any:
        now = self.now
        point = yield from ask(self, x, V, before)
        if now is not None:
            assert np.array_equal(before, now.x)  # what was refused is never a start
            tried.append((now, point))
        return point

    monkeypatch.setattr(FirthSearch, "ask", recorded)
    model = firth(rough(seed), "y ~ " + " + ".join(f"x{k}" for k in range(8)), group="site")
    assert model.converged
    refused = 0
    for (now, point), (later, shorter) in pairwise(tried):
        if point.objective > now.objective + now.rounding:
            refused += 1
            assert later.x is now.x or np.array_equal(later.x, now.x)
            assert length(shorter.x - now.x) <= 0.51 * length(point.x - now.x)
        else:
            assert np.array_equal(later.x, point.x)
    assert refused
