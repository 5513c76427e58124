"""Additions as CONTRIBUTING describes them: one class each, and one line of a table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize

import fedsplit as fs
from faulty import faulty
from fedsplit import clients, fixed_point, local, losses, methods
from fedsplit.arrays import Array, Mask
from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.clients.question import CostQuestion, Part
from fedsplit.clients.questions import Gradient, Information
from fedsplit.commands.app import run
from fedsplit.data.formula.pooled_functions import POOLED, PooledSignature
from fedsplit.data.pooled.column_statistics import ColumnMoments
from fedsplit.data.pooled.function import PooledFunction, State
from fedsplit.dialogue import Dialogue
from fedsplit.federation.questions import ALLOWED, decode_request, encode_request
from fedsplit.local.newton import LocalNewton
from fedsplit.local.solver import Proximal, Start, bounded
from fedsplit.loop.conversation import Conversation
from fedsplit.losses.batches import Streams, unseeded
from fedsplit.losses.costs import Costs
from fedsplit.losses.linear import LinearLoss
from fedsplit.methods.fedgd import AverageState
from fedsplit.regression.analysis import analyse
from fedsplit.regression.client.statistics import FitRows
from fedsplit.regression.engines import ENGINES, Engine
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import agree
from fedsplit.regression.server.federation import sums_of
from fedsplit.statistic import STATISTICS, RowSum, Shape, Statistic, Sums
from fedsplit.sums import SUM, VALUES, Total
from hospitals import people
from probit import PROBIT
from problems import problem

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class LogCosh(LinearLoss):
    """φ(η, b) = log cosh(η - b)."""

    curvature_range = (0.0, 1.0)
    concordance = 2.0  # φ''' = -2 tanh(η - b) φ''

    def value(self, eta: Array, b: Array) -> Array:
        r = np.abs(eta - b)
        return np.asarray(r + np.log1p(np.exp(-2 * r)) - np.log(2))

    def slope(self, eta: Array, b: Array) -> Array:
        return np.tanh(eta - b)

    def curvature(self, eta: Array, b: Array) -> Array:
        return np.asarray(1 - np.tanh(eta - b) ** 2)

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return eta + rng.logistic(size=eta.shape)


def test_a_loss_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(losses.LOSSES, "log-cosh", LogCosh)
    p = problem("log-cosh", [40, 25, 30], 4)
    best = minimize(p.objective, np.zeros(4), jac=p.gradient, tol=1e-12).x
    result = fs.solve(p, tol=1e-13)
    assert result.converged
    assert result.certificate.reason == "self-concordance"
    np.testing.assert_allclose(result.x, best, atol=1e-5)


@dataclass(frozen=True)
class CarefulNewton:
    """A prox that stops well before rounding."""

    start: ClassVar[Start] = "broadcast"

    def solve(self, costs: Costs, V: Array, s: float, start: Array) -> Proximal:
        at = costs.at(np.broadcast_to(start, V.shape))
        return bounded(V, s, LocalNewton(tolerance=1e-9).solve(at, V, 1.0 / s))


def test_a_local_solver_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(local.SOLVERS, "careful", CarefulNewton)
    p = problem("logistic", [30, 40], 3, ridge=1.0)
    result = fs.solve(p, fs.FedSplit(prox=CarefulNewton()), rounds=1000)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)
    for compiled in (codec._decoder, codec._schema, codec._members):
        compiled.cache_clear()  # of a process that has read messages before the solver was added
    question = clients.questions.Prox(np.ones(3), 0.5, None, CarefulNewton())
    sent = decode_request(encode_request(Request(question, "key", 2)))
    assert sent.question.solver == CarefulNewton()  # type: ignore[attr-defined]  # a Prox


@dataclass(frozen=True)
class DrawnStart:
    """Gradient steps from a start that is drawn."""

    start: ClassVar[Start] = "broadcast"
    draws: ClassVar[bool] = True

    def solve(
        self,
        costs: Costs,
        V: Array,
        s: float,
        start: Array,
        streams: Streams | None = None,
    ) -> Proximal:
        seeds = unseeded(len(V)) if streams is None else streams
        drawn = [np.random.default_rng(int(seed)).standard_normal(V.shape[1]) for seed in seeds]
        return fs.GradientProx(20).solve(costs, V, s, start + 0.01 * np.array(drawn))


def test_a_local_solver_that_draws_gets_its_seeds_with_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(local.SOLVERS, "drawn", DrawnStart)
    p = problem("logistic", [30, 40], 3, ridge=1.0)
    method = fs.FedSplit(0.1, DrawnStart())
    here, there, other = (
        fs.solve(each, method, rounds=5, tol=0, seed=seed).x
        for each, seed in ((p, 1), (faulty(p), 1), (p, 2))
    )
    np.testing.assert_array_equal(here, there)
    assert not np.array_equal(here, other)


class LatestState(NamedTuple):
    """The server's x, every client's latest gradient as rows of y, and who has nothing to do."""

    x: Array
    y: Array
    idle: Mask


@dataclass(frozen=True)
class LatestGradients(fs.Method[LatestState]):
    """x ← x - sΣ_j y_j on each arrival, with the latest gradient y_j of every client."""

    step: float

    arrivals = True

    def start(self, x0: Array, m: int) -> Dialogue[LatestState]:
        yield from ()
        return LatestState(x0, np.zeros((m, len(x0))), np.ones(m, dtype=bool))

    def update(self, state: LatestState) -> Dialogue[LatestState]:
        arrival: fs.Arrival = yield fs.Post(Gradient(state.x), state.idle)
        present = arrival.answer.present[:, None]
        y = np.where(present, arrival.answer.rows, state.y)
        return LatestState(state.x - self.step * y.sum(axis=0), y, arrival.idle)


def test_an_asynchronous_method_is_one_class() -> None:
    p = problem("logistic", [30, 40], 3, ridge=1.0)
    for clients_of, clock in ((p, fs.Latency()), (faulty(p), True)):
        result = fs.solve(clients_of, LatestGradients(0.01), asynchronous=clock, rounds=2000)
        np.testing.assert_allclose(result.x, p.solution(), atol=1e-3)


@dataclass(frozen=True)
class SignDescent(fs.Method[AverageState]):
    """Move every coordinate against the sign of its derivative by a step that shrinks."""

    step: float = 0.5

    def start(self, x0: Array, m: int) -> Dialogue[AverageState]:
        yield from ()
        return AverageState(x0, self.step)

    def update(self, state: AverageState) -> Dialogue[AverageState]:
        answer: fs.Answer = yield Gradient(state.x)
        slope = np.sign(answer.rows.sum(axis=0))
        return AverageState(state.x - state.s * slope, 0.9 * state.s)


def test_a_method_is_one_class_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(methods.METHODS, "sign", SignDescent)
    p = problem("logistic", [30, 40], 3, ridge=1.0)
    result = fs.solve(p, SignDescent(), rounds=300)
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-2)
    small = ["-m", "3", "-d", "2", "-n", "5", "--rounds", "5"]
    assert run(["compare", "--method", "sign:step=0.1", *small]) == 0
    assert "sign:step=0.1" in capsys.readouterr().out


@dataclass(frozen=True)
class SumToZero:
    """0 where Σ x_i = 0, else +inf."""

    def value(self, x: Array) -> float:
        return 0.0 if abs(x.sum()) < 1e-9 else np.inf

    def prox(self, v: Array, t: float | Array) -> Array:
        return np.asarray(v - v.mean())


def test_a_penalty_is_one_class() -> None:
    p = problem("least-squares", [30, 40], 3)
    result = fs.solve(p, penalty=SumToZero(), rounds=500)
    on_the_plane = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])
    best = minimize(lambda u: p.objective(on_the_plane @ u), np.zeros(2), tol=1e-12).x
    np.testing.assert_allclose(result.x, on_the_plane @ best, atol=1e-5)


def test_a_family_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "probit", PROBIT)
    frames = people()
    model = fs.fit(frames, "{visits > 2} ~ age + hours", family="probit", tol=1e-6)
    pooled = np.concatenate([frame[["age", "hours"]].to_numpy() for frame in frames.values()])
    events = np.concatenate([frame["visits"].to_numpy() > 2 for frame in frames.values()])
    binomial = sm.families.Binomial(sm.families.links.Probit())
    reference = sm.GLM(events.astype(float), sm.add_constant(pooled), binomial).fit(tol=1e-12)
    np.testing.assert_allclose(model.params, reference.params, rtol=1e-5)
    assert model.bse is not None
    np.testing.assert_allclose(model.bse, reference.bse, rtol=1e-5)


def test_an_engine_is_one_entry_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    @contextmanager
    def watched(sources: Sequence[Any], workers: int | None, address: str | None) -> Iterator[Any]:
        opened.append(len(sources))
        with ENGINES["local"].of_sources(sources, None, None) as channel:
            yield channel

    engine = Engine(watched, ENGINES["local"].of_problem)
    monkeypatch.setitem(ENGINES, "watched", engine)
    frames = people()
    model = fs.fit(frames, "score ~ age", engine="watched")
    assert opened == [len(frames)]
    np.testing.assert_array_equal(model.params, fs.fit(frames, "score ~ age").params)


@dataclass(frozen=True)
class Everything(CostQuestion):
    """Value, gradient, Hessian and two scalars at once."""

    x: Array

    parts: ClassVar = {
        "value": Part(together=VALUES),
        "gradient": Part(("d",), together=SUM),
        "hessian": Part(("d", "d"), together=SUM),
        "smallest": Part(together=SUM),
        "largest": Part(together=SUM),
    }

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        at = costs.at(x)
        smallest, largest = at.bounds()
        return {
            "value": at.value,
            "gradient": at.gradient,
            "hessian": at.hessian,
            "smallest": smallest,
            "largest": largest,
        }


def test_a_question_of_many_parts_is_one_class_and_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(ALLOWED, "everything", Everything)
    p = problem("logistic", [30, 12, 40], 3, ridge=1.0)
    x = np.ones(3)
    with fs.Checkpoint(tmp_path / "kept").keeping(p.clients, {}) as kept:
        conversation = Conversation(kept, participation=0.7)
        answer = conversation.ask(Everything(x))
    there = answer.present
    assert there.sum() == 2
    np.testing.assert_array_equal(
        answer.parts["gradient"][there], p.clients.ask(Gradient(x)).rows[there]
    )
    np.testing.assert_array_equal(
        answer.parts["hessian"][there], p.clients.ask(Information(x)).rows[there]
    )
    assert np.isnan(answer.parts["hessian"][~there]).all()
    [exchange] = conversation.take()
    assert exchange.floats_up == 2 * (1 + 3 + 9 + 2)
    # one Hessian serves its eigenvalues too
    assert (exchange.gradients, exchange.hessians, exchange.factorisations) == (2, 2, 2)
    sent = decode_request(encode_request(Request(Everything(x), "key", 3)))
    np.testing.assert_array_equal(sent.question.x, x)  # type: ignore[attr-defined]  # the same
    # its answers can be added up, so that the server sees one client
    told = p.clients.ask(Everything(x))
    vectors = [each.vector for each in Everything(x).summands(told)]
    total = Everything(x).of_total(Total(fixed_point.total(vectors, len(vectors[0])), 3))
    for name, part in told.parts.items():
        np.testing.assert_allclose(total.parts[name][0], part.sum(axis=0), rtol=1e-14)


class Relative(PooledFunction):
    """``relative(x)``: a column over its mean over all clients."""

    def agreement(self) -> Dialogue[State]:
        _, mean, _ = yield ColumnMoments()
        return {"mean": [float(mean)]}

    def values(self, x: Array, state: State) -> Array:
        return np.asarray(x / state["mean"][0])[:, None]


def test_a_function_of_all_rows_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POOLED, "relative", PooledSignature((), lambda given: Relative()))
    rows = people(3)
    model = fs.fit(rows, "visits ~ relative(age)")
    pooled = fs.fit(rows, "visits ~ age")
    mean = np.concatenate([each["age"] for each in rows.values()]).mean()
    np.testing.assert_allclose(
        model.params.to_numpy()[1], pooled.params.to_numpy()[1] * mean, rtol=1e-9
    )


@dataclass(frozen=True)
class RowsAbove(Statistic):
    """How many rows have a target above a level: ``rows``."""

    level: float

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {"rows": Sums(nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, RowSum]:
        above = (rows.design.b > self.level)[:, None]
        return {"rows": RowSum(above.astype(np.float64), np.ones(above.shape))}


def share_above_the_mean(settings: Settings) -> Dialogue[float]:
    """The share of visits above their mean over all clients."""
    agreement = yield from agree("visits ~ 1", settings)
    n = sum(each.n for each in agreement.moments)
    mean = sum(each.n * each.target_mean for each in agreement.moments) / n
    sums = yield from sums_of(agreement.rows, {"above": RowsAbove(mean)})
    return float(sums["above"]["rows"][0, 0]) / n


@pytest.mark.parametrize("way", [{}, {"secure": True}, {"strict": True}])
def test_a_sum_over_rows_is_one_class_and_one_line_and_an_analysis_is_one_dialogue(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, Any]
) -> None:
    monkeypatch.setitem(STATISTICS, "RowsAbove", RowsAbove)
    visits = np.concatenate([frame["visits"] for frame in people().values()])
    share = analyse(share_above_the_mean, people(), **way)
    assert share == pytest.approx(np.mean(visits > visits.mean()), rel=1e-12)


def test_the_guide_names_files_and_tables_that_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in set(re.findall(r"`((?:[\w]+/)+[\w]+\.py)`", guide)):
        assert any((ROOT / place / path).is_file() for place in (".", "src/fedsplit")), path
    for module, name in re.findall(r"`([A-Z_]+)` in `([\w/]+\.py)`", guide):
        text = (ROOT / "src/fedsplit" / name).read_text(encoding="utf-8")
        assert re.search(rf"^{module}\b", text, re.MULTILINE), (module, name)
