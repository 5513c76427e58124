"""Asynchronous runs in real time: over a channel whose clock is a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import FAULTS, Fault, Moment, Script, channel_of, faulty, together
from fedsplit.channels.channel import Reply
from fedsplit.channels.clients import RemoteClients
from fedsplit.clients.questions import Gradient
from fedsplit.loop.trace import Row
from problems import problem

BRIEF = fs.Patience(round_timeout=60, give_up=300, min_clients=2)


@pytest.fixture
def p() -> fs.Problem:
    return problem("logistic", [60, 40, 50], 3, ridge=1.0)


def run(asked: RemoteClients, **settings: Any) -> fs.Result:
    method = settings.pop("method", fs.FedSplitInformation())
    return fs.solve(asked, method, asynchronous=True, **settings)


def lag(client: str, seconds: float) -> Script:
    """One client takes so long for each question."""

    def late(reply: Reply) -> Reply:
        return reply._replace(seconds=seconds)

    def script(moment: Moment) -> Fault | None:
        return late if moment.client == client else None

    return script


def test_over_a_channel_the_optimum_is_the_pooled_one(p: fs.Problem) -> None:
    result = run(faulty(p, lag("1", 7.5)))
    assert result.stopped_by == "certificate"
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)
    result = run(faulty(p, lag("1", 7.5)), tol=1e-18)
    # a gap that is the rounding of F, about 1e-15, leaves some 1e-8 of x
    np.testing.assert_allclose(result.x, p.solution(), rtol=0, atol=3e-8)


def test_cohorts_of_several_clients_answer_together(p: fs.Problem) -> None:
    asked = faulty(together(p, [range(2), range(2, 3)], lag("2", 2.5)), d=p.d)
    result = run(asked)
    assert set(result.trace.answered) == {1, 2}
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


def test_the_others_are_asked_again_while_one_is_at_work(p: fs.Problem) -> None:
    channel = channel_of(p, lag("1", 50.0))
    run(faulty(channel, d=p.d))
    asked = [(time, names) for time, name, names in channel.log if name == "local_model"]
    first = asked[0][0]
    early = [names for time, names in asked if time < first + 50.0]
    assert early.count(["1"]) == 1
    assert early.count(["0"]) > 2


def test_a_method_that_asks_for_its_proof_waits_for_what_is_under_way(p: fs.Problem) -> None:
    result = run(faulty(p, lag("1", 2.5)), method=fs.DAvePG(), rounds=3000, tol=1e-6)
    assert result.stopped_by == "certificate"
    assert result.certificate.gap is not None
    best = p.objective(p.solution())
    assert p.objective(result.x) - best <= result.certificate.gap


@pytest.mark.parametrize("name", FAULTS)
def test_a_client_with_a_fault_is_asked_again(p: fs.Problem, name: str) -> None:
    fault, text = FAULTS[name]
    struck: list[Moment] = []

    def script(moment: Moment) -> Fault | None:
        if moment.client == "1" and moment.question == "local_model" and not struck:
            struck.append(moment)
            return fault
        return None

    result = run(faulty(p, script))
    assert struck
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)
    said = [incident.what for incident in result.incidents]
    if name not in ("slow", "lost", "negative error", "infinite error"):  # late is no fault here
        assert any(text in what for what in said)


def test_a_client_that_is_gone_for_good_is_removed(p: fs.Problem) -> None:
    def script(moment: Moment) -> Fault | None:
        dead = moment.client == "1" and moment.number > 8
        return (lambda reply: reply._replace(seconds=np.inf)) if dead else None

    result = run(faulty(p, script, BRIEF), tol=1e-15)
    assert result.removed == ("1",)
    others = p.part(range(0, 1)).among(2), p.part(range(2, 3)).among(2)
    gradient = sum(each.ask(Gradient(result.x)).rows[0] for each in others)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


def test_a_run_that_diverges_blames_no_client(p: fs.Problem) -> None:
    nothing, _ = FAULTS["NaN"]
    asked = faulty(p, lambda moment: nothing if moment.question == "local_model" else None)
    with pytest.raises(fs.Diverged):
        run(asked)


def test_a_finished_run_is_replayed_arrival_by_arrival(p: fs.Problem, tmp_path: Path) -> None:
    whole = run(faulty(p, lag("1", 7.5)), callbacks=[fs.Checkpoint(tmp_path / "run")])
    channel = channel_of(p, lag("0", 7.5))  # in another order, if anybody were asked
    again = run(faulty(channel, d=p.d), callbacks=[fs.Checkpoint(tmp_path / "run", resume=True)])
    assert not channel.log
    np.testing.assert_array_equal(again.x, whole.x)
    np.testing.assert_array_equal(again.trace.residual, whole.trace.residual)


@pytest.mark.parametrize("arrivals", [1, 4, 7])
def test_a_run_that_was_stopped_goes_on_from_its_arrivals(
    p: fs.Problem, tmp_path: Path, arrivals: int
) -> None:
    rows: list[Row] = []

    def stop(row: Row, state: Any) -> bool:
        rows.append(row)
        return len(rows) == arrivals

    run(faulty(p, lag("1", 7.5)), callbacks=[fs.Checkpoint(tmp_path / "run"), stop], tol=1e-14)
    kept = fs.Checkpoint(tmp_path / "run", resume=True)
    result = run(faulty(p, lag("0", 7.5)), callbacks=[kept], tol=1e-14)
    # the set-up is no question
    np.testing.assert_array_equal(result.trace.residual[:arrivals], [row.residual for row in rows])
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-7)


def test_a_resumed_run_notices_other_data(p: fs.Problem, tmp_path: Path) -> None:
    calls = iter(range(100))
    run(
        faulty(p, lag("1", 7.5)),
        callbacks=[fs.Checkpoint(tmp_path / "run"), lambda row, state: next(calls) == 3],
    )
    other = problem("logistic", [60, 40, 50], 3, ridge=1.0, seed=9)
    with pytest.raises(fs.InputError, match="its data changed since the run began"):
        run(faulty(other), callbacks=[fs.Checkpoint(tmp_path / "run", resume=True)])


def test_without_hessians_the_default_is_dave(p: fs.Problem) -> None:
    result = fs.solve(faulty(p), asynchronous=True, tol=1e-4, rounds=2000)
    assert result.notes[0] == "method: DAvePG (the clients cannot compute their Hessians)"
    assert result.converged


def test_clients_whose_answers_are_added_up_are_refused(p: fs.Problem) -> None:
    asked = faulty(p)
    asked.stands_for = 3
    with pytest.raises(fs.InputError, match="asynchronous: in secure sums") as refused:
        run(asked)
    assert "\n" not in str(refused.value)


def test_clients_in_this_process_are_refused_before_a_folder_is_made(
    p: fs.Problem, tmp_path: Path
) -> None:
    kept = fs.Checkpoint(tmp_path / "run")
    with pytest.raises(fs.InputError, match="cannot be asked asynchronously in real time"):
        fs.solve(p, asynchronous=True, callbacks=[kept])
    assert not (tmp_path / "run").exists()
