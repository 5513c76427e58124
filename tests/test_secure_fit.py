"""Secure sums: the server sees answers added up over all clients, and the table is the same."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit import fixed_point
from fedsplit.arrays import packed, unpacked
from fedsplit.channels.channel import LocalChannel, Reply, Request
from fedsplit.clients.local_models import LastModels, LocalModel
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import QUESTIONS, Overview
from fedsplit.commands.app import run
from fedsplit.data.sources import sources
from fedsplit.data.types import Reading
from fedsplit.errors import InputError, RequestError, RowError
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.questions import SumQuestion
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.sums import Total

LEVELS = {"g": ["a", "b", "c"], "event": ["no", "yes"]}
TYPES = {"g": "text", "event": "text", "x": "number", "z": "number"}


def frames(m: int = 4, n: int = 60) -> dict[str, pd.DataFrame]:
    """Clients that differ, with a target for every family."""
    rng = np.random.default_rng(5)
    found = {}
    for j in range(m):
        x = rng.normal(size=n) + 0.3 * j
        z = rng.normal(size=n)
        g = rng.choice(["a", "b", "c"], size=n, p=[0.5, 0.3, 0.2])
        eta = 0.3 + 0.5 * x - 0.4 * z + 0.3 * (g == "b")
        time = rng.uniform(0.5, 2, size=n)
        table = pd.DataFrame(
            {
                "x": x,
                "z": np.where(rng.random(n) < 0.03, np.nan, z),
                "g": g,
                "time": time,
                "w": rng.integers(1, 4, size=n),
                "year": rng.integers(1990, 2010, size=n),
                "y": eta + rng.normal(size=n),
                "count": rng.poisson(time * np.exp(eta)),
                "event": np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no"),
                "cost": rng.gamma(2, np.exp(eta) / 2),
                "heavy": eta + rng.standard_t(2, size=n),
            }
        )
        scores = rng.gumbel(size=(n, 3)) + np.outer(eta, [0, 0.5, -0.5])
        found[f"s{j}"] = table.assign(kind=np.array(["u", "v", "w"])[np.argmax(scores, axis=1)])
    return found


MODELS: Mapping[str, Mapping[str, Any]] = {
    "gaussian": {"formula": "y ~ x + z + g", "weights": "w"},
    "columns that nearly cancel": {"formula": "y ~ x + year + I(year^2)"},
    "poisson, exposure": {"formula": "count ~ x + g", "family": "poisson", "exposure": "time"},
    "logistic, interaction": {"formula": "event ~ x*g", "family": "logistic"},
    "firth": {"formula": "event ~ x + g", "family": "logistic", "firth": True},
    "gamma": {"formula": "cost ~ x + z", "family": "gamma"},
    "multinomial": {"formula": "kind ~ x + z", "family": "multinomial"},
    "huber": {"formula": "heavy ~ x + g", "family": "huber"},
    "ridge": {"formula": "kind ~ x + g", "family": "multinomial", "ridge": 2.0},
    "l1": {"formula": "count ~ x + z + g", "family": "poisson", "l1": 10.0},
    "elastic net": {"formula": "y ~ x + g", "elastic_net": (5.0, 5.0), "standardize": True},
    "nonnegative": {"formula": "event ~ x + z", "family": "logistic", "nonnegative": ["z"]},
    "poly, offset": {"formula": "count ~ poly(x, 2) + offset(log(time))", "family": "poisson"},
    "ns": {"formula": "y ~ ns(x, df=3) + z"},
    "cut": {"formula": "event ~ cut(x, 3)", "family": "logistic"},
    "a column that depends on others": {"formula": "y ~ 0 + x + I(2*x) + g"},
    "target and columns": {"target": "y", "columns": ["x", "g"], "reference": {"g": "c"}},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_table_by_secure_sums_is_that_of_the_open_fit(name: str) -> None:
    clients = frames()
    open_fit = fs.fit(clients, **MODELS[name])
    secure = fs.fit(clients, secure=True, **MODELS[name])
    assert list(secure.estimates.names) == list(open_fit.estimates.names)
    assert secure.converged
    assert secure.certificate.bound is not None
    assert secure.certificate.bound <= 1e-9
    apart = np.abs(secure.params - open_fit.params) / open_fit.estimates.errors
    assert np.nanmax(apart) <= 1e-9
    for number in ("llf", "deviance", "null_deviance", "dispersion", "nobs", "aic"):
        told, expected = getattr(secure, number), getattr(open_fit, number)
        assert told == expected or told == pytest.approx(expected, rel=1e-12), number
    if secure.estimates.covariance is not None and open_fit.estimates.covariance is not None:
        np.testing.assert_allclose(
            secure.estimates.covariance, open_fit.estimates.covariance, rtol=1e-8, atol=1e-14
        )
    assert secure.exchanges <= 1.5 * open_fit.exchanges
    assert set(secure.run.of_rounds.answered) == {4}
    assert secure.clients.index.tolist() == ["all clients"]
    assert secure.n_clients == 4


class Spy(LocalChannel):
    """Keeps what was asked and answered."""

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        datasets = [Dataset(source) for source in sources(dict(tables), None, Reading())]
        super().__init__(DatasetCohort(datasets))
        self.seen: list[tuple[Request, Reply]] = []

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        replies = super().ask(requests, timeout)
        self.seen += [(requests[at], reply) for at, reply in replies.items()]
        return replies


class Places:
    """Clients in several places, of which one may be late."""

    free = False
    recorded = True

    def __init__(self, tables: list[dict[str, pd.DataFrame]]) -> None:
        self.places = [Spy(own) for own in tables]
        self.names = [list(own) for own in tables]

    def now(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> None:
        pass

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        return {at: self.places[at].ask({0: each}, timeout)[0] for at, each in requests.items()}


def declared(**options: Any) -> FitOptions:
    """Options of a study that declares everything."""
    chosen = {"formula": "event ~ x + g", "family": "logistic", "types": TYPES, "levels": LEVELS}
    return FitOptions(data=None, secure=True, **(chosen | options))


def test_only_sums_are_asked_for_and_told_if_the_study_declares_everything() -> None:
    spy = Spy(frames())
    model = fit_over(spy, declared())
    assert model.converged
    assert len(spy.seen) == model.exchanges
    for request, reply in spy.seen:
        assert request.sums
        assert request.m == 4
        assert reply.value.dtype == np.uint64
        assert reply.value.shape[1] == 4


def test_a_level_that_the_study_does_not_declare_is_refused_and_its_owner_sees_which() -> None:
    with pytest.raises(RowError, match=r"s0: column g has the level c, .* declares a, b") as caught:
        fit_over(Spy(frames()), declared(levels=LEVELS | {"g": ["a", "b"]}))
    assert caught.value.public == (
        "client s0: column g has levels that the study does not declare (its own log says which)"
    )


def test_a_declared_level_that_no_row_has_is_left_out_and_the_order_is_the_declared_one() -> None:
    model = fit_over(Spy(frames()), declared(levels=LEVELS | {"g": ["c", "none", "b", "a"]}))
    assert list(model.estimates.names) == ["Intercept", "x", "g[T.b]", "g[T.a]"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"types": None},
            "the study must declare the types of column event, x, g, by the option types",
        ),
        ({"levels": {"event": ["no", "yes"]}}, "must declare the levels of column g"),
        ({"formula": "event ~ ."}, "name the columns in the formula"),
    ],
)
def test_what_the_study_leaves_open_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_over(Spy(frames()), declared(**options))


def test_levels_can_be_declared_in_an_open_fit_too() -> None:
    model = fs.fit(frames(), "y ~ g", levels={"g": ["b", "a", "c"]})
    assert list(model.estimates.names) == ["Intercept", "g[T.a]", "g[T.c]"]
    with pytest.raises(InputError, match=r"client s0: column g has the level c, .*: a, b"):
        fs.fit(frames(), "y ~ g", levels={"g": ["a", "b"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fedsplit"}, "information or newton: fedsplit needs the answers of single"),
        ({"method": "lbfgs"}, "information or newton: lbfgs needs the answers of single"),
        ({"levels": {"x": ["1", "1"]}}, "levels of x must be one or more levels that differ"),
        ({"levels": {"x": "abc"}}, "levels of x must be a list of texts"),
    ],
)
def test_what_secure_sums_cannot_do_is_refused_in_one_line(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fs.fit(frames(), "y ~ x", secure=True, **options)


def test_two_clients_are_too_few() -> None:
    with pytest.raises(InputError, match="secure sums are for 3 to 512 clients, not 2"):
        fs.fit(frames(2), "y ~ x", secure=True)


def test_a_client_without_a_complete_row_is_named() -> None:
    clients = frames()
    clients["s2"]["x"] = np.nan
    with pytest.raises(InputError, match="client s2 has no complete row: with secure sums every"):
        fs.fit(clients, "y ~ x", secure=True)


def test_clients_without_a_complete_row_are_named_in_their_order() -> None:
    clients = frames(12)
    for name in ("s3", "s4", "s5", "s6", "s8", "s9"):
        clients[name]["x"] = np.nan
    with pytest.raises(InputError, match="client s3, s4, s5, s6, s8, s9 has no complete row"):
        fs.fit(clients, "y ~ x", secure=True)


def test_too_many_coefficients_for_matrices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsplit.methods.MOST_COORDINATES", 3)
    with pytest.raises(InputError, match="and 4 coefficients are too many for matrices"):
        fs.fit(frames(), "y ~ x + g", secure=True)


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_columns_may_have_any_usual_unit(factor: float) -> None:
    tables = frames().items()
    clients = {
        name: each.assign(x=factor * each["x"], y=each["y"] / factor) for name, each in tables
    }
    open_fit = fs.fit(clients, "y ~ poly(x, 2) + z")
    secure = fs.fit(clients, "y ~ poly(x, 2) + z", secure=True)
    assert secure.converged
    assert np.max(np.abs(secure.params - open_fit.params) / open_fit.estimates.errors) <= 1e-9
    assert secure.deviance == pytest.approx(open_fit.deviance, rel=1e-12)


@pytest.mark.parametrize("factor", [1e45, 1e-45])
def test_a_unit_that_does_not_fit_is_refused(factor: float) -> None:
    clients = {name: table.assign(x=factor * table["x"]) for name, table in frames().items()}
    with pytest.raises(InputError, match="4 of 4 clients have numbers that secure sums cannot"):
        fs.fit(clients, "y ~ x", secure=True)


def test_nothing_is_told_of_single_clients() -> None:
    model = fs.fit(frames(), "y ~ x", secure=True)
    with pytest.raises(InputError, match="averaging needs the answers of single clients"):
        model.bias_of("fedgd")
    with pytest.raises(InputError, match="needs ten clients or more with secure sums"):
        model.cov_params(robust=True)
    assert model.clients["coefficient"].tolist() == [""]


@pytest.mark.parametrize("family", ["gaussian", "huber", "gamma"])
def test_from_ten_clients_on_the_covariance_is_clustered_by_client(family: str) -> None:
    clients = frames(10)
    open_fit = fs.fit(clients, "cost ~ x + z", family=family)
    secure = fs.fit(clients, "cost ~ x + z", family=family, secure=True)
    delta = secure.delta or 0.0  # of Huber's loss
    meat, H = np.zeros((3, 3)), np.zeros((3, 3))
    for each in clients.values():
        table = each[["cost", "x", "z"]].dropna()
        A = np.column_stack([np.ones(len(table)), table["x"], table["z"]])
        eta, b = A @ secure.params, table["cost"].to_numpy()
        slope, curvature = {
            "gaussian": (eta - b, np.ones_like(b)),
            "huber": (np.clip(eta - b, -delta, delta), np.abs(eta - b) < delta),
            "gamma": (1.0 - b / np.exp(eta), b / np.exp(eta)),
        }[family]
        meat += np.outer(A.T @ slope, A.T @ slope)
        H += A.T @ (curvature[:, None] * A)
    n = secure.nobs
    expected = 10 / 9 * (n - 1) / (n - 3) * np.linalg.inv(H) @ meat @ np.linalg.inv(H)
    np.testing.assert_allclose(secure.cov_params(robust=True), expected, rtol=1e-7, atol=1e-12)
    assert secure.robust_df is not None
    assert secure.robust_df.tolist() == [9.0] * 3
    assert secure.exchanges <= 1.5 * open_fit.exchanges


def test_clusters_are_the_clients_that_have_rows_at_rest() -> None:
    clients = {name: table.assign(site=name) for name, table in frames(11, 40).items()}
    clients["s3"]["event"] = "no"  # so that its own coefficient is -inf
    secure = fs.fit(clients, "event ~ x + site", family="logistic", secure=True)
    assert secure.not_estimable == {"site[T.s3]": "-inf"}
    assert secure.robust_bse is not None
    assert secure.robust_df is not None
    # the coefficients of sites have none, as each is determined by one of them
    assert secure.robust_bse.index[secure.robust_bse.notna()].tolist() == ["x"]
    assert secure.robust_df["x"] == 9.0


def test_the_table_tells_how_many_clients_have_warnings_and_their_owners_see_which() -> None:
    clients = frames()
    for name in ("s1", "s2"):
        clients[name].loc[0, "g"] = "d"
    spy = Spy(clients)
    model = fit_over(spy, declared(levels=LEVELS | {"g": ["a", "b", "c", "d"]}))
    [warning] = model.warnings
    assert warning.startswith("2 of 4 clients have warnings about their rows, which with secure")
    assert isinstance(spy.cohort, DatasetCohort)
    seen = {name: each.private for name, each in spy.cohort.datasets.items()}
    assert [bool(each) for each in seen.values()] == [False, True, True, False]
    assert "client s1" in seen["s1"][0]
    assert "d" in seen["s1"][0]


def test_a_path_runs_by_secure_sums_unless_it_holds_out_clients() -> None:
    options: dict[str, Any] = {"family": "logistic", "n_lambdas": 3}
    open_path = fs.path(frames(), "event ~ x + g", **options)
    secure = fs.path(frames(), "event ~ x + g", secure=True, **options)
    np.testing.assert_allclose(secure.params, open_path.params, rtol=1e-6, atol=1e-9)
    assert secure.n_clients == 4
    with pytest.raises(InputError, match="secure sums tell nothing of single clients"):
        fs.path(frames(), "event ~ x + g", secure=True, folds="clients", **options)


def test_quasi_separable_data_have_the_same_limit() -> None:
    clients = {
        name: table.assign(event=np.where(table["g"] == "c", "no", table["event"]))
        for name, table in frames().items()
    }
    open_fit = fs.fit(clients, "event ~ x + g", family="logistic")
    secure = fs.fit(clients, "event ~ x + g", family="logistic", secure=True)
    assert secure.not_estimable == open_fit.not_estimable == {"g[T.c]": "-inf"}
    np.testing.assert_allclose(secure.params, open_fit.params, rtol=1e-9)
    assert secure.exchanges <= 1.5 * open_fit.exchanges


@pytest.mark.parametrize("places", [1, 5])
def test_a_client_whose_rows_all_recede_adds_nothing(places: int) -> None:
    clients = {name: table.assign(site=name) for name, table in frames(5, 80).items()}
    clients["s3"]["event"] = "no"  # so that its own coefficient is -inf
    options: dict[str, Any] = {"formula": "event ~ x + site", "family": "logistic"}
    open_fit = fs.fit(clients, **options)
    levels = LEVELS | {"site": list(clients)}
    chosen = declared(formula="event ~ x + site", types=TYPES | {"site": "text"}, levels=levels)
    names = np.array_split(list(clients), places)
    secure = fit_over(Places([{name: clients[name] for name in own} for own in names]), chosen)
    assert secure.not_estimable == open_fit.not_estimable == {"site[T.s3]": "-inf"}
    np.testing.assert_allclose(secure.params, open_fit.params, rtol=1e-8)
    assert secure.nobs == open_fit.nobs == 320
    assert secure.llf == pytest.approx(open_fit.llf, rel=1e-12)
    assert secure.null_deviance == pytest.approx(open_fit.null_deviance, rel=1e-12)


def test_clients_that_lose_their_last_models_stay_at_x_and_the_fit_is_the_same() -> None:
    class Forgetful(Spy):
        def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
            assert isinstance(self.cohort, DatasetCohort)
            self.cohort.memory = self.cohort.memory._replace(last=None)
            return super().ask(requests, timeout)

    remembering = fit_over(Spy(frames()), declared())
    model = fit_over(Forgetful(frames()), declared())
    assert model.converged
    np.testing.assert_allclose(model.params, remembering.params, rtol=1e-9)


def summed_answer(question: CostQuestion, answer: Answer) -> Answer:
    vectors = [each.vector for each in question.summands(answer)]
    return question.of_total(Total(fixed_point.total(vectors, len(vectors[0])), len(vectors)))


def test_the_model_of_the_sum_has_the_sums_of_the_models() -> None:
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], size=20)) for _ in range(4)]
    clients: Clients = fs.Problem(fs.Logistic(), data).clients
    x, before = rng.normal(size=(2, 3))
    question = LocalModel(x, None, None, 256.0, before, both=True)
    answer = clients.ask(question)
    summed = summed_answer(question, answer)
    parts = answer.parts
    moved = np.einsum("jik,jk->ji", unpacked(parts["hessian"]), x - parts["point"])
    own = np.einsum("jik,jk->ji", unpacked(summed.parts["hessian"]), x - summed.parts["point"])
    np.testing.assert_allclose(
        (summed.parts["gradient"] + own)[0], (parts["gradient"] + moved).sum(axis=0), rtol=1e-12
    )
    for name in ("hessian", "hessian_at_x", "slope", "values", "ell", "floor"):
        np.testing.assert_allclose(summed.parts[name][0], parts[name].sum(axis=0), rtol=1e-12)
    for name in ("spread", "norm"):
        assert summed.parts[name][0] >= parts[name].max()
    assert summed.parts["steady"][0] <= parts["steady"].min()
    assert not question.check(summed, 1, 3)


def test_every_question_says_whether_its_answers_may_be_added() -> None:
    alone = [
        name
        for name, question in QUESTIONS.items()
        if any(part.together is None for part in question.parts.values())
    ]
    assert alone == [
        "prox",
        "descend",
        "stochastic_descend",
        "curvature",
        "batch_curvature",
        "overview",
        "trials",
        "decrement",
        "direction",
    ]


def test_a_checkpoint_of_a_secure_fit_resumes_without_asking_again(tmp_path: Path) -> None:
    first = fit_over(Spy(frames()), declared(checkpoint=fs.Checkpoint(tmp_path)))
    spy = Spy(frames())
    again = fit_over(spy, declared(checkpoint=fs.Checkpoint(tmp_path, resume=True)))
    np.testing.assert_array_equal(again.params, first.params)
    assert not spy.seen
    assert again.n_clients == 4


def test_the_command_says_that_the_server_saw_sums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, table in frames(3, 30).items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    arguments = ["fit", str(tmp_path), "--formula", "y ~ x + g", "--secure"]
    assert run([*arguments, "--levels", "g=c|b|a"]) == 0
    printed = capsys.readouterr().out
    assert "gaussian regression over 3 clients by secure sums" in printed
    assert "g[T.b]" in printed
    assert "every coefficient within" in printed
    assert run([*arguments, "--method", "fedprox"]) == 2
    assert "fedprox needs the answers of single clients" in capsys.readouterr().err


def test_a_saved_model_knows_whose_answers_were_added(tmp_path: Path) -> None:
    model = fs.fit(frames(), "y ~ x", secure=True)
    model.save(tmp_path)
    loaded = fs.load(tmp_path)
    assert list(loaded.run.summed) == ["s0", "s1", "s2", "s3"]
    assert str(loaded.summary()) == str(model.summary())
    model.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "s0, s1, s2, s3. The server saw sums over all of them" in page


def test_a_client_adds_its_answers_to_no_sum_of_two_and_products_of_gradients_to_one_of_ten() -> (
    None
):
    spy = Spy(frames(10))
    fit_over(spy, declared())
    fitted, _ = spy.seen[-1]
    assert isinstance(fitted.question, SumQuestion)
    assert "scores" in fitted.question.statistics
    with pytest.raises(RequestError, match="products of gradients are for 10 clients on"):
        spy.cohort.answer(fitted._replace(m=9))
    with pytest.raises(RequestError, match="a sum of 2 clients, where 3 are the fewest"):
        spy.cohort.answer(fitted._replace(m=2))


def test_a_question_about_single_clients_is_refused_by_the_client_too() -> None:
    spy = Spy(frames())
    with pytest.raises(RequestError, match="the question overview is about single clients"):
        spy.cohort.answer(Request(Overview(np.zeros(2)), m=4, sums=True))


def test_centres_are_those_that_the_server_would_send() -> None:
    rng = np.random.default_rng(1)
    p, y, x = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=3)
    B = np.stack([np.diag([1.0, 2.0, 3.0]), np.eye(3)])
    M = np.diag([2.0, 1.0, 4.0])
    question = LocalModel(x, None, packed(M), 0.5, None)
    v = question.centred(LastModels(p, y, B)).v
    assert v is not None
    for j in range(2):
        expected = x + 0.5 * np.linalg.solve(M, y[j] + B[j] @ (x - p[j]))
        np.testing.assert_allclose(v[j], expected, rtol=1e-13)
    singular = replace(question, metric=packed(np.zeros((3, 3))))
    for still in (question.centred(None), singular.centred(LastModels(p, y, B))):
        assert (still.metric, still.reach, still.v) == (None, 0.0, None)


def test_a_refusal_elsewhere_names_the_client_that_refuses() -> None:
    class Elsewhere(Spy):
        free = False

        def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
            return {at: Reply("refused", text="client s0: not today") for at in requests}

    with pytest.raises(InputError, match=r"^client s0: not today$"):
        fit_over(Elsewhere(frames()), declared())


def test_a_client_that_is_late_is_asked_again_and_the_others_are_not() -> None:
    asked: list[int] = []

    class Late(Places):
        def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
            asked.append(len(requests))
            late = {1} if len(asked) == 2 else set()
            here = {at: each for at, each in requests.items() if at not in late}
            return super().ask(here, timeout)

    tables = frames()
    halves = [{name: tables[name] for name in own} for own in (("s0", "s1"), ("s2", "s3"))]
    model = fit_over(Late(halves), declared())
    assert asked == [2, 2, 1, *[2] * (model.exchanges - 2)]
    np.testing.assert_array_equal(model.params, fit_over(Spy(frames()), declared()).params)
