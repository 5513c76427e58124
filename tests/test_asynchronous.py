"""Asynchronous runs by a simulated clock: exact, proved, and the same for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import faulty
from fedsplit.clients.clock import Clock
from fedsplit.clients.oracle import TraceEntry
from fedsplit.clients.questions import Gradient
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.trace import Row
from fedsplit.methods.information import InformationState
from open.asynchronous import problems, synchronous_time
from open.relaxed import RelaxedFedSplit
from problems import problem

LATENCIES = {
    "constant": fs.Latency("constant"),
    "exponential": fs.Latency(),
    "heavy-tailed": fs.Latency("pareto"),
    "one slow": fs.Latency("constant", slow={0: 100.0}),
    "one slow, exponential": fs.Latency("exponential", slow={0: 100.0}),
}


def spiked(m: int = 6, kappa: float = 100.0) -> fs.Problem:
    return fs.Problem(fs.LeastSquares(), fs.ensembles.spiked(m, 8, 20, kappa).rows)


@pytest.mark.parametrize(
    "seeds",
    [range(1), pytest.param(range(1, 50), marks=pytest.mark.slow)],
    ids=["one seed", "49 seeds"],
)
@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("name", ["least-squares", "logistic"])
def test_the_optimum_is_the_pooled_one_whatever_the_delays(
    name: str, latency: str, seeds: range
) -> None:
    for seed in seeds:
        p = problem(name, [60, 40, 50, 80], 3, seed=seed, ridge=1.0)
        # a tolerance below the digits of F: the run ends where these say no more of x
        result = fs.solve(p, asynchronous=LATENCIES[latency], seed=seed, tol=1e-18, rounds=2000)
        np.testing.assert_allclose(result.x, p.solution(), rtol=0, atol=2e-7)


@pytest.mark.parametrize("latency", ["exponential", "heavy-tailed", "one slow"])
@pytest.mark.parametrize("name", ["least-squares", "logistic", "poisson", "multinomial"])
def test_what_an_asynchronous_run_proves_is_true_after_every_arrival(
    name: str, latency: str
) -> None:
    p = problem(name, [60, 40, 50, 80], 3, ridge=1.0)
    best = p.objective(p.solution())
    seen: list[float] = []

    def look(row: Row, state: object) -> None:
        assert isinstance(state, InformationState)
        assert state.arrivals is not None
        evidence = state.evidence
        if evidence is None:
            return
        true = p.clients.ask(Gradient(state.x)).rows.sum(axis=0)
        H = evidence.least_hessian
        off = true - evidence.gradients.sum(axis=0)
        rounding = 1e-9
        assert np.sqrt(off @ np.linalg.solve(H, off)) <= evidence.drift + rounding
        assert np.linalg.eigvalsh(p.clients.pooled_information(state.x) - H)[0] > -rounding
        assert evidence.scalars.value.sum() <= p.objective(state.x) + rounding
        seen.append(row.objective - best)

    result = fs.solve(p, asynchronous=LATENCIES[latency], rounds=500, callbacks=[look])
    assert seen
    assert result.stopped_by == "certificate"
    assert result.certificate.gap is not None
    assert p.objective(result.x) - best <= result.certificate.gap + 1e-12


def test_with_equal_delays_everybody_arrives_together() -> None:
    p = problem("logistic", [60, 40, 50], 3, ridge=1.0)
    result = fs.solve(p, asynchronous=fs.Latency("constant"))
    assert (result.trace.answered == 3).all()
    np.testing.assert_array_equal(result.trace.clock, np.arange(1.0, len(result.trace) + 1))


def test_the_server_does_not_wait_for_a_slow_client() -> None:
    p = spiked()
    trace = fs.solve(p, asynchronous=fs.Latency("constant", slow={2: 100.0})).trace
    # Quadratics are known after one answer, so the slow client's first one ends the run.
    np.testing.assert_array_equal(trace.clock, [1.0, 100.0])
    np.testing.assert_array_equal(trace.answered, [5, 1])


def test_a_client_whose_answer_would_hardly_matter_is_not_asked() -> None:
    p = problem("logistic", [60, 40, 50, 80], 3, ridge=1.0)
    trace = fs.solve(p, asynchronous=fs.Latency("constant", slow={2: 100.0})).trace
    quick = (trace.clock % 100 != 0) & (trace.clock < 200)
    early = trace.answered[quick & (trace.clock < 100)].sum()
    late = trace.answered[quick & (trace.clock > 100)].sum()
    assert 6 <= early <= 15  # three clients at work: the server does not wait for the slow one
    assert 3 <= late <= 6  # what x lacks after that is the slow one's answer


@pytest.mark.slow
@pytest.mark.parametrize("latency", ["exponential", "heavy-tailed"])
def test_not_waiting_is_seldom_later_than_waiting(latency: str) -> None:
    settings = {"m": 4, "d": 10, "n": 60, "kappa": 10.0}
    ratios = []
    for seed in range(20):
        p = problems(settings, seed)["logistic"]
        together = fs.solve(p, tol=1e-6).rounds
        trace = fs.solve(p, asynchronous=LATENCIES[latency], tol=1e-6, seed=seed).trace
        ratios.append(trace.clock[-1] / synchronous_time(LATENCIES[latency], 4, seed, together))
    assert np.median(ratios) < 1.0
    assert np.quantile(ratios, 0.8) < 1.2


def test_the_same_seed_gives_the_same_run() -> None:
    p = problem("logistic", [60, 40, 50], 3, ridge=1.0)
    a, b, c = (fs.solve(p, asynchronous=fs.Latency(), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.trace.clock, b.trace.clock)
    assert a.trace.clock[0] != c.trace.clock[0]


FAR = {
    "few rows": ("logistic", [4, 4, 4, 4, 4], 5, 5.0, 0),
    "flat costs": ("huber", [8, 8, 8, 8], 5, 0.0, 5),
    "steep costs": ("poisson", [60, 40, 50], 3, 6.0, 0),
    "beyond float64": ("poisson", [60, 40, 50], 3, 400.0, 0),
}


@pytest.mark.parametrize(
    ("case", "real"),
    [*((case, False) for case in FAR), ("few rows", True)],
    ids=[*FAR, "few rows, in real time"],
)
def test_where_old_models_lead_astray_clients_are_asked_together(case: str, real: bool) -> None:
    name, sizes, d, start, seed = FAR[case]
    p = problem(name, sizes, d, ridge=1e-3 if name == "logistic" else 1.0, seed=seed)
    settings: dict[str, Any] = {"x0": np.full(d, start), "seed": seed, "tol": 1e-8, "rounds": 300}
    method = fs.FedSplitInformation()
    if real:
        result = fs.solve(faulty(p), method, asynchronous=True, **settings)
    else:
        result = fs.solve(p, method, asynchronous=fs.Latency(), **settings)
    assert result.converged
    assert result.state.inner.arrivals is None
    F = p.objective(p.solution())
    assert p.objective(result.x) - F <= 1e-8 * max(1.0, abs(F))


def test_from_a_good_start_clients_are_never_asked_together() -> None:
    p = problem("logistic", [60, 40, 50], 3, ridge=1.0)
    result = fs.solve(p, x0=np.full(3, 5.0), asynchronous=fs.Latency())
    assert result.converged
    assert result.state.inner.arrivals is not None


def test_answers_to_old_questions_are_no_standstill() -> None:
    # The costs are quadratic in pieces, so an answer about another x may not change the model.
    rng = np.random.default_rng(1)
    truth = rng.normal(size=5)
    data = []
    for _ in range(4):
        A = rng.normal(size=(8, 5))
        rng.normal(size=5)
        data.append((A, A @ truth + rng.standard_t(1.5, size=8)))
    p = fs.Problem(fs.Huber(1.0), data, ridge=1.0)
    result = fs.solve(p, asynchronous=fs.Latency("pareto"), seed=1, tol=1e-8)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-6)


@pytest.mark.parametrize(
    "latency", ["heavy-tailed", pytest.param("one slow, exponential", marks=pytest.mark.slow)]
)
def test_the_step_of_dave_is_safe_for_every_delay(latency: str) -> None:
    p = spiked(kappa=10.0)
    result = fs.solve(
        p, fs.DAvePG(), asynchronous=LATENCIES[latency], rounds=20000, tol=1e-6, seed=3
    )
    best = p.objective(p.solution())
    assert result.converged
    assert p.objective(result.x) - best <= 1e-6 * max(1.0, best)


@pytest.mark.parametrize(
    "latency", ["exponential", pytest.param("heavy-tailed", marks=pytest.mark.slow)]
)
def test_fedsplit_relaxed_as_arock_says_converges(latency: str) -> None:
    p = spiked()
    result = fs.solve(p, RelaxedFedSplit(), asynchronous=LATENCIES[latency], rounds=2000, tol=1e-4)
    best = p.objective(p.solution())
    assert result.converged
    start = p.objective(np.zeros(8))
    assert p.objective(result.x) - best <= 1e-4 * max(best, start - best)


def test_a_penalty_is_added_at_the_server() -> None:
    p = problem("logistic", [60, 40, 50], 3, ridge=1.0)
    penalty = fs.L1(3.0)
    result = fs.solve(p, asynchronous=fs.Latency(), penalty=penalty)
    together = fs.solve(p, penalty=penalty, tol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.x, together.x, atol=1e-4)


def test_a_run_that_is_kept_goes_on_from_its_arrivals(tmp_path: Path) -> None:
    p = problem("logistic", [60, 40, 50], 3, ridge=1.0)
    whole = fs.solve(p, asynchronous=fs.Latency(), seed=5)

    def stop(row: Row, state: object) -> bool:
        return row.clock > 0.5

    kept = fs.Checkpoint(tmp_path / "run")
    fs.solve(p, asynchronous=fs.Latency(), seed=5, callbacks=[kept, stop])
    resumed = [fs.Checkpoint(tmp_path / "run", resume=True)]
    result = fs.solve(p, asynchronous=fs.Latency(), seed=5, callbacks=resumed)
    np.testing.assert_array_equal(result.x, whole.x)
    np.testing.assert_array_equal(result.trace.clock, whole.trace.clock)


def test_an_answer_that_has_been_waiting_does_not_turn_the_clock_back() -> None:
    p = problem("logistic", [20, 30], 3)
    clock = Clock(p.clients, fs.Latency("constant", slow={1: 3.0}), seed=0)
    everyone = np.ones(2, dtype=bool)
    question = Gradient(np.zeros(3))
    clock.post(question, everyone)  # answered at 1 and 3
    _, first = clock.collect()
    assert (first.present.tolist(), clock.now) == ([True, False], 1.0)
    clock.ask_some(question, everyone)  # by both, one after the other: at 2 and 6
    assert clock.now == 6.0
    _, late = clock.collect()  # the answer of 3
    assert (late.present.tolist(), clock.now) == ([False, True], 6.0)


def test_questions_of_a_synchronous_run_take_as_long_as_the_slowest_client() -> None:
    p = spiked()
    latency = fs.Latency("exponential", slow={1: 10.0})
    driver = Conversation(p.clients, seed=4, asynchronous=latency)
    for _ in range(2):
        driver.ask(Gradient(np.zeros(8)))
    driver.ask(TraceEntry("round"))
    times = [max(latency.draw(4, j, k) for j in range(6)) for k in (0, 1)]
    assert driver.trace.rows[-1].clock == pytest.approx(sum(times))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"asynchronous": fs.Latency(), "participation": 0.5}, "leave out participation"),
        ({"asynchronous": fs.Latency(slow={9: 2.0})}, "slow names client 9"),
        ({"asynchronous": fs.Latency(), "method": fs.CG()}, "CG needs the answers of all"),
        (
            {"asynchronous": fs.Latency(), "method": fs.FedSplit()},
            r"waits for everybody: use FedSplitInformation\(\) or DAvePG\(\), or .*examples/open",
        ),
        ({"method": fs.DAvePG()}, "DAvePG takes answers one by one: pass asynchronous"),
        ({"asynchronous": "yes"}, "must be a Latency or a bool, not str"),
        ({"asynchronous": True}, "cannot be asked asynchronously in real time"),
    ],
)
def test_what_cannot_run_asynchronously_is_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(fs.InputError, match=text):
        fs.solve(spiked(), **settings)  # type: ignore[arg-type]  # wrong on purpose


def test_a_latency_that_is_none_is_refused() -> None:
    with pytest.raises(fs.InputError, match="distribution 'normal' is not known"):
        fs.Latency("normal")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(fs.InputError, match="slow"):
        fs.Latency(slow={0: 0.0})


@pytest.mark.parametrize("m", [1, 4])
def test_the_objective_of_an_asynchronous_certificate_is_that_of_x(m: int) -> None:
    p = problem("least-squares", [60, 40, 50, 80][:m], 3, ridge=1.0)
    result = fs.solve(p, asynchronous=fs.Latency())
    np.testing.assert_allclose(result.certificate.objective, p.objective(result.x), rtol=1e-12)


def test_a_late_answer_of_dave_is_a_step_from_the_point_it_is_about() -> None:
    p = spiked()
    states: list[Any] = []
    fs.solve(
        p,
        fs.DAvePG(1e-3),
        asynchronous=fs.Latency(slow={0: 3.0}),
        rounds=8,
        tol=0,
        callbacks=[lambda row, state: states.append(state)],
    )
    points = [np.zeros(p.d), *(state.x for state in states)]
    steps = [x - 1e-3 * p.clients.ask(Gradient(x)).rows for x in points]
    last = states[-1].z
    for j in range(p.m):
        nearest = min(float(np.abs(step[j] - last[j]).max()) for step in steps)
        assert nearest <= 1e-12 * np.abs(last).max()


@pytest.mark.parametrize("distribution", ["constant", "exponential", "pareto"])
def test_a_client_takes_a_time_of_1_on_average(distribution: Any) -> None:
    latency = fs.Latency(distribution, slow={1: 4.0}, tail=4.0)
    times = np.array([[latency.draw(0, j, k) for j in (0, 1)] for k in range(4000)])
    np.testing.assert_allclose(times.mean(axis=0), [1.0, 4.0], rtol=0.06)
