"""Remote clients that are slow, die, come back, answer badly or stay away."""

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from faulty import (
    FAULTS,
    PATIENCE,
    Fault,
    FaultyChannel,
    Moment,
    Script,
    channel_of,
    channel_to,
    died,
    faulty,
    fit,
    silent,
    together,
    well,
)
from fedsplit.arrays import Array
from fedsplit.channels.channel import Reply
from fedsplit.methods.method import Method
from fedsplit.regression.server import minimise
from hospitals import people
from problems import clients, loss, problem

SIZES, D = [30, 25, 40, 35], 4
FORMULA = "visits ~ age + ward"


@pytest.fixture
def p() -> fs.Problem:
    return problem("logistic", SIZES, D, ridge=1.0)


def others(gone: set[int], name: str = "logistic", ridge: float = 1.0) -> fs.Problem:
    """The same problem of all but these clients."""
    return fs.Problem(
        loss(name, D), [c for j, c in enumerate(clients(name, SIZES, D)) if j not in gone], ridge
    )


@cache
def undisturbed() -> fs.Model:
    return fs.fit(people(), FORMULA, family="poisson")


def at_times(fault: Fault, client: str) -> Script:
    """Wrong whenever a client is asked something for the first time, and in six rounds on end."""
    seen: dict[str, int] = {}

    def script(moment: Moment) -> Fault | None:
        if moment.client != client:
            return None
        seen[moment.question] = times = seen.get(moment.question, 0) + 1
        return fault if times == 1 or (moment.question == "trials" and 4 <= times < 10) else None

    return script


def from_then_on(client: str, number: int, fault: Fault = silent) -> Script:
    return lambda moment: fault if moment.client == client and moment.number >= number else None


def since_asked(question: str, client: str) -> Script:
    """Silent from the first time that this is asked."""
    seen: set[str] = set()

    def script(moment: Moment) -> Fault | None:
        seen.add(moment.question)
        return silent if moment.client == client and question in seen else None

    return script


def enough(clients: int) -> fs.Patience:
    return fs.Patience(min_clients=clients)


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_goes_on_without_a_bad_answer_and_ends_at_the_same_optimum(
    p: fs.Problem, name: str
) -> None:
    fault, text = FAULTS[name]
    method = fs.FedSplit() if name.endswith("error") else None  # a prox has one
    result = fs.solve(faulty(p, at_times(fault, "1")), method, rounds=2000, tol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-6)
    assert {each.client for each in result.incidents} == {"1"}
    assert all(text in each.what and len(each.what) < 400 for each in result.incidents)
    assert min(result.trace.answered) == p.m - 1
    assert result.removed == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fit_goes_on_without_a_bad_answer_and_ends_at_the_same_table(name: str) -> None:
    fault, text = FAULTS[name]
    # only a prox has a proved error
    method = "fedsplit" if name.endswith("error") else "information"
    script = at_times(fault, "hospital1")
    model = fit(people(), FORMULA, script, family="poisson", method=method)
    clean = undisturbed()
    assert model.converged
    np.testing.assert_allclose(model.params, clean.params, rtol=1e-9)
    assert model.llf == pytest.approx(clean.llf, rel=1e-12)
    assert {each.client for each in model.run.incidents} == {"hospital1"}
    assert all(text in each.what for each in model.run.incidents)
    [line] = [line for line in model.summary().splitlines() if line.startswith("incident")]
    assert line.startswith("incident: hospital1: ")
    assert text in line


def test_a_row_of_z_without_an_answer_does_not_move(p: fs.Problem) -> None:
    states: list[Any] = []
    method = fs.FedSplit(0.1)
    script = at_times(FAULTS["NaN"][0], "1")
    trace = fs.solve(
        faulty(p, script), method, callbacks=[lambda row, state: states.append(state)]
    ).trace
    rows = [row for row in trace.rows if row.kind == "round"]
    moves = [np.abs(after.z - before.z).max(axis=1) > 0 for before, after in pairwise(states)]
    for row, moved in zip(rows[1:30], moves, strict=False):
        assert list(moved) == [True, row.answered == p.m, True, True]
    assert {row.answered for row in rows} == {p.m - 1, p.m}


def test_an_answer_that_comes_twice_or_unasked_is_not_heard(p: fs.Problem) -> None:
    class Repeating(FaultyChannel):
        last: dict[int, Reply] = {}  # noqa: RUF012  # of this test alone

        def ask(self, questions: Any, timeout: float) -> dict[int, Reply]:
            replies = super().ask(questions, timeout)
            self.last, stale = self.last | replies, self.last
            return stale | replies

    makes = channel_of(p)._makes
    result = fs.solve(faulty(Repeating(makes, at_times(died, "1")), d=D), fs.LBFGS())
    clean = fs.solve(p, fs.LBFGS())
    np.testing.assert_array_equal(result.x, clean.x)


@pytest.mark.parametrize(
    "method", [fs.LBFGS(), fs.GD(), fs.Newton(), fs.GIANT(), fs.AGD()], ids=repr
)
def test_methods_that_need_every_client_wait_for_it_and_lose_no_bit(
    p: fs.Problem, method: Method[Any]
) -> None:
    result = fs.solve(faulty(p, at_times(died, "1")), method, rounds=300)
    np.testing.assert_array_equal(result.x, fs.solve(p, method, rounds=300).x)
    assert set(result.trace.answered) == {p.m}


def test_newton_takes_over_in_a_fit_also_where_a_client_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient = partial(minimise.minimise, patience=4)
    monkeypatch.setattr("fedsplit.regression.server.glm.minimise", patient)
    monkeypatch.setattr(minimise, "ProvedDistance", partial(minimise.ProvedDistance, caution=1e9))
    model = fit(people(), FORMULA, at_times(died, "hospital1"), family="poisson")
    assert model.converged
    assert any(each.what == "its process died" for each in model.run.incidents)
    np.testing.assert_allclose(model.params, undisturbed().params, rtol=1e-9)


def test_a_round_closes_in_time_and_a_slow_client_is_heard_when_it_is_quick_again(
    p: fs.Problem,
) -> None:
    channel = channel_of(p, at_times(FAULTS["slow"][0], "2"))
    fs.solve(faulty(channel, d=D))
    times = [time for time, question, _ in channel.log if question == "trials"]
    spans = np.diff(times)
    assert spans.max() <= PATIENCE.round_timeout + 2.0
    assert np.sum(spans > 2.0) == 7  # the first round and six others


@pytest.mark.parametrize(
    "method", [fs.QuasiNewton(), fs.FedSplit(), fs.FedGD(), fs.SCAFFOLD()], ids=repr
)
def test_nothing_is_called_converged_while_a_client_is_absent(
    p: fs.Problem, method: Method[Any]
) -> None:
    patient = fs.Patience(give_up=1e9)
    result = fs.solve(faulty(p, from_then_on("1", 6), patient), method, rounds=60)
    assert (result.converged, result.stopped_by) == (False, "rounds")
    assert 59 <= result.rounds <= 60  # the second question of a proof is not asked in vain
    assert len(result.incidents) >= 50


def test_clients_of_whom_one_is_absent_in_every_round_still_come_to_an_end(p: fs.Problem) -> None:
    def by_turns(moment: Moment) -> Fault | None:
        gone = (
            moment.question == "trials"
            and moment.number > 3
            and moment.number % 4 == int(moment.client)
        )
        return died if gone else None

    result = fs.solve(faulty(p, by_turns), rounds=500)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-4)
    assert max(result.trace.answered[result.trace.kind == "round"][2:]) < p.m
    frames = {str(j): frame for j, frame in enumerate(people(sizes=(60, 45, 30, 40)).values())}
    model = fit(frames, FORMULA, by_turns, family="poisson")
    assert model.converged
    assert model.rounds < 60
    np.testing.assert_allclose(
        model.params,
        fs.fit(frames, FORMULA, family="poisson").params,
        rtol=1e-8,
    )


def test_where_nothing_can_be_proved_an_absent_client_keeps_a_run_from_its_end_too() -> None:
    p = problem("huber", [30, 25, 40], 3, seed=1)
    patient = fs.Patience(give_up=1e9)
    clean = fs.solve(p, fs.FedSplit(), rounds=400)
    away = fs.solve(faulty(p, from_then_on("1", 30), patient), fs.FedSplit(), rounds=400)
    assert clean.converged
    assert not away.converged


REMOVALS: dict[str, Method[Any]] = {
    "information": fs.FedSplitInformation(),
    "quasi-newton": fs.QuasiNewton(),
    "fedsplit": fs.FedSplit(),
    "fedgd": fs.FedGD(),
    "scaffold": fs.SCAFFOLD(),
    "admm": fs.ADMM(),
    "lbfgs": fs.LBFGS(),
    "newton": fs.Newton(),
}


@pytest.mark.parametrize("ridge", [0.0, 3.0])
@pytest.mark.parametrize("method", REMOVALS)
def test_a_client_that_stays_away_is_removed_and_the_others_problem_is_solved(
    method: str, ridge: float
) -> None:
    p = problem("logistic", SIZES, D, ridge=ridge)
    result = fs.solve(
        faulty(p, from_then_on("2", 4), enough(3)), REMOVALS[method], rounds=2000, tol=1e-11
    )
    assert result.converged
    assert result.removed == ("2",)
    np.testing.assert_allclose(result.x, others({2}, ridge=ridge).solution(), atol=1e-5)
    assert np.abs(result.x - p.solution()).max() > 1e-3
    assert {each.client for each in result.incidents} == {"2"}
    assert REMOVALS[method].iterate(result.state.inner).shape in ((3, D), (D,))


def test_a_row_that_stays_frozen_would_end_at_nobodys_optimum(p: fs.Problem) -> None:
    patient = fs.Patience(give_up=1e9)
    frozen = fs.solve(faulty(p, from_then_on("2", 4), patient), fs.FedSplit(), rounds=300)
    assert frozen.trace.residual[frozen.trace.kind == "round"][-1] < 1e-9
    assert np.abs(frozen.x - p.solution()).max() > 1e-3
    assert np.abs(frozen.x - others({2}).solution()).max() > 1e-3


@pytest.mark.parametrize("name", ["information", "quasi-newton"])
def test_a_removal_at_any_question_ends_in_the_right_answer(p: fs.Problem, name: str) -> None:
    channel, method = channel_of(p), REMOVALS[name]
    fs.solve(faulty(channel, d=D), method, tol=1e-12)
    asked = len(channel.log)  # in set-up, rounds and proof; the last runs end before
    whole, rest = p.solution(), others({2}).solution()
    for number in range(1, asked + 3):
        result = fs.solve(faulty(p, from_then_on("2", number), enough(3)), method, tol=1e-12)
        assert result.converged
        assert result.removed == ("2",) * (number <= asked)
        np.testing.assert_allclose(result.x, rest if result.removed else whole, atol=1e-5)
        assert len(result.trace) == result.rounds


def test_the_trace_goes_on_through_a_removal(p: fs.Problem) -> None:
    for question in ("overview", "trials", "gradient", "decrement"):
        clients = faulty(p, since_asked(question, "2"), enough(3))
        clients.free = True  # so that the objective is measured
        trace = (result := fs.solve(clients)).trace
        assert result.removed == ("2",)
        assert trace.objective[-1] == pytest.approx(others({2}).objective(result.x))
        assert set(trace.kind[: list(trace.kind).index("round")]) == {"setup"}
        assert list(trace.kind[-2:]) == ["certificate", "certificate"]
        if question in ("gradient", "decrement"):
            assert not np.isnan(trace.residual[trace.kind == "round"]).any()
            assert not np.isnan(trace.objective).any()
        assert set(trace.answered) == ({p.m - 1} if question == "overview" else {p.m, p.m - 1})


def test_clients_are_counted_by_their_own_numbers_after_a_removal(p: fs.Problem) -> None:
    def script(moment: Moment) -> Fault | None:
        return silent if moment.time >= {"0": 0.0, "3": 1600.0}.get(moment.client, np.inf) else None

    result = fs.solve(faulty(p, script, enough(2)), rounds=14, tol=0)
    assert result.removed == ("0",)
    assert result.absent == (3,)
    assert not result.converged


def test_a_second_client_that_stayed_away_is_removed_after_its_own_time(p: fs.Problem) -> None:
    def script(moment: Moment) -> Fault | None:
        return silent if moment.number > {"0": 4, "3": 6}.get(moment.client, 10**6) else None

    channel = channel_of(p, script)
    result = fs.solve(faulty(channel, patience=enough(2), d=D), tol=1e-12)
    assert result.removed == ("0", "3")
    np.testing.assert_allclose(result.x, others({0, 3}).solution(), atol=1e-6)
    asked = {name: [time for time, _, names in channel.log if name in names] for name in "03"}
    assert asked["3"][-1] - asked["0"][-1] < 3 * PATIENCE.round_timeout


def test_participation_goes_on_after_a_removal(p: fs.Problem) -> None:
    clients = faulty(p, from_then_on("2", 5), enough(3))
    result = fs.solve(clients, rounds=1000, participation=0.5)
    assert result.converged
    assert result.removed == ("2",)
    np.testing.assert_allclose(result.x, others({2}).solution(), atol=1e-5)


def test_a_cohort_of_several_clients_is_removed_as_one(p: fs.Problem) -> None:
    channel = together(p, [range(2), range(2, 4)], from_then_on("2", 5))
    result = fs.solve(faulty(channel, patience=enough(2), d=D))
    assert result.removed == ("2", "3")
    np.testing.assert_allclose(result.x, others({2, 3}).solution(), atol=1e-5)


def test_a_client_that_settles_again_and_again_and_never_answers_is_given_up(p: fs.Problem) -> None:
    lost, _ = FAULTS["lost"]

    def script(moment: Moment) -> Fault | None:
        return (
            lost
            if moment.client == "2" and moment.number > 6 and moment.question != "settle"
            else None
        )

    result = fs.solve(faulty(p, script, enough(3)), tol=1e-12)
    assert result.removed == ("2",)
    np.testing.assert_allclose(result.x, others({2}).solution(), atol=1e-5)


@pytest.mark.parametrize("least", [None, 4])
def test_too_few_clients_end_a_run_with_a_line_that_says_who_and_what_to_do(
    p: fs.Problem, least: int | None
) -> None:
    patience = fs.Patience(min_clients=least)
    with pytest.raises(fs.TooFewClients) as caught:
        fs.solve(faulty(p, from_then_on("1", 5, died), patience))
    message = str(caught.value)
    assert "client 1 (its process died): absent for 600 seconds" in message
    assert "3 clients are left and 4 are needed" in message
    assert "lower min_clients" in message
    assert "\n" not in message


def test_of_two_that_are_gone_none_is_removed_where_only_one_may_be(p: fs.Problem) -> None:
    with pytest.raises(
        fs.TooFewClients, match=r"client 1 \(no answer in time\), 2 \(no answer in time\)"
    ):
        fs.solve(faulty(p, lambda moment: silent if moment.client in "12" else None, enough(3)))


@pytest.mark.parametrize("method", [fs.QuasiNewton(), fs.FedGD(), fs.LBFGS()], ids=repr)
@pytest.mark.parametrize("since", [1, 7])
def test_a_run_of_which_all_clients_are_absent_waits_for_them(
    p: fs.Problem, method: Method[Any], since: int
) -> None:
    def away(moment: Moment) -> Fault | None:
        return died if since <= moment.number < since + 20 else None

    result = fs.solve(faulty(p, away), method, rounds=300)
    clean = fs.solve(p, method, rounds=300)
    assert (result.converged, result.rounds) == (clean.converged, clean.rounds)
    np.testing.assert_array_equal(result.x, clean.x)
    with pytest.raises(fs.TooFewClients, match="0 clients are left and 1 are needed"):
        fs.solve(
            faulty(p, lambda moment: died if moment.number >= since else None, enough(1)), method
        )


@pytest.mark.parametrize("parts", [[range(1), range(1, 4)], [range(4)]])
def test_where_every_answer_is_not_a_number_the_run_diverges(
    p: fs.Problem, parts: list[range]
) -> None:
    nan, _ = FAULTS["NaN"]
    channel = together(p, parts, lambda moment: nan if moment.number > 4 else None)
    with pytest.raises(fs.Diverged, match="not finite"):
        fs.solve(faulty(channel, d=D))
    with pytest.raises(fs.Diverged, match="likely cause: the step is above"):
        fs.solve(faulty(together(problem("poisson", SIZES, D), parts), d=D), fs.FedGD(step=100.0))


def test_incidents_are_those_of_the_run(p: fs.Problem) -> None:
    clients = faulty(
        p, lambda moment: died if moment.client == "1" and moment.number == 5 else None
    )
    first, second = fs.solve(clients), fs.solve(clients)
    assert [each.client for each in first.incidents] == ["1"]
    assert second.incidents == ()


def test_a_client_that_comes_back_with_other_data_is_refused(p: fs.Problem) -> None:
    other = problem("logistic", SIZES, D, seed=1, ridge=1.0)
    channel = channel_of(
        p, lambda moment: died if moment.client == "1" and moment.number == 6 else None
    )
    lost = FAULTS["lost"][0]

    def script(moment: Moment) -> Fault | None:
        first = moment.client == "1" and moment.number == 7
        return lost if first else channel.script(moment)

    swapped = FaultyChannel(
        [*channel._makes[:1], channel_of(other)._makes[1], *channel._makes[2:]], script
    )
    swapped._cohorts = channel._cohorts
    with pytest.raises(fs.InputError, match="client 1: its data changed since the run began"):
        fs.solve(faulty(swapped, d=D))


def refuses(client: str, text: str, number: int = 1) -> Script:
    """A client that refuses every question from one on, with a text of its own choice."""

    def script(moment: Moment) -> Fault | None:
        if moment.client == client and moment.number >= number:
            return lambda reply: Reply("refused", text=text)
        return None

    return script


@pytest.mark.parametrize("text", ["its owner says no", "client hospital2: its owner\nsays no"])
def test_a_refusal_is_that_of_the_client_from_which_it_came(text: str) -> None:
    with pytest.raises(fs.InputError) as caught:
        fit(people(), FORMULA, refuses("hospital1", text), family="poisson")
    assert str(caught.value) == f"client hospital1: {' '.join(text.split())}"


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_client_that_refuses_is_removed_where_enough_are_left(number: int) -> None:
    script = refuses("hospital1", "client hospital1: its owner says no", number)
    model = fit(people(), FORMULA, script, enough(2), family="poisson")
    rest = fs.fit(without(people(), "hospital1"), FORMULA, family="poisson")
    assert model.converged
    assert dict(model.removed) == {"hospital1": "refused: its owner says no"}
    np.testing.assert_allclose(model.params, rest.params, rtol=1e-8)
    with pytest.raises(fs.InputError, match="client hospital1: its owner says no"):
        fit(people(), FORMULA, script, enough(3), family="poisson")


def test_a_run_without_a_client_that_refused_resumes_to_the_same_bits(tmp_path: Path) -> None:
    script = refuses("hospital1", "its owner says no", 5)
    whole = fit(people(), FORMULA, script, enough(2), family="poisson")

    def stopped(moment: Moment) -> Fault | None:
        if moment.number > 9:
            raise KeyboardInterrupt
        return script(moment)

    kept = fs.Checkpoint(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(people(), FORMULA, stopped, enough(2), kept, family="poisson")
    kept = fs.Checkpoint(tmp_path, resume=True)
    model = fit(people(), FORMULA, well, enough(2), kept, family="poisson")
    assert dict(model.removed) == {"hospital1": "refused: its owner says no"}
    np.testing.assert_array_equal(model.params, whole.params)


def without(frames: dict[str, pd.DataFrame], name: str) -> dict[str, pd.DataFrame]:
    return {each: frame for each, frame in frames.items() if each != name}


def rare(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """A ward that the last hospital alone has."""
    frames["hospital2"].loc[:9, "ward"] = "attic"
    return frames


def gaps(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    for j, frame in enumerate(frames.values()):
        frame.loc[j :: 7 - j, "age"] = np.nan
    return frames


Frames = dict[str, pd.DataFrame]
REFITS: dict[str, tuple[Callable[[Frames], Frames], str, dict[str, Any]]] = {
    "gaussian": (lambda frames: frames, "score ~ age + ward", {}),
    "poisson": (lambda frames: frames, FORMULA, {"family": "poisson"}),
    "a level that nobody else has": (rare, FORMULA, {"family": "poisson"}),
    "a class that nobody else has": (rare, "ward ~ age + hours", {"family": "multinomial"}),
    "with missing values": (gaps, FORMULA, {"family": "poisson"}),
    "a ridge on unit columns": (
        rare,
        FORMULA,
        {"family": "poisson", "ridge": 3.0, "standardize": True},
    ),
    "a lasso": (rare, "score ~ age + ward + hours", {"l1": 2.0}),
    "gamma": (lambda frames: frames, "stay ~ age + ward", {"family": "gamma"}),
}


@pytest.mark.parametrize("case", REFITS)
def test_without_a_removed_client_a_fit_is_that_of_the_others(case: str) -> None:
    change, formula, settings = REFITS[case]
    frames = change(people(sizes=(60, 45, 40)))
    clean = fs.fit(without(frames, "hospital2"), formula, **settings)
    for question in ("survey", "sums", "local_model"):  # in the handshake, and in the rounds
        model = fit(frames, formula, since_asked(question, "hospital2"), enough(2), **settings)
        assert model.converged
        assert list(model.estimates.names) == list(clean.estimates.names)
        np.testing.assert_allclose(model.params, clean.params, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(model.estimates.errors, clean.estimates.errors, rtol=1e-7)
        assert list(model.clients.index) == ["hospital0", "hospital1"]
        assert model.nobs == clean.nobs
        assert dict(model.removed) == {"hospital2": "no answer in time"}
        assert "removed: client hospital2 (no answer in time)" in model.summary()


def test_a_removal_at_any_question_of_a_fit_ends_in_the_right_table() -> None:
    frames = people()
    whole = fs.fit(frames, FORMULA, family="poisson")
    rest = fs.fit(without(frames, "hospital1"), FORMULA, family="poisson")
    channel = channel_to(frames)
    fit(channel, FORMULA, family="poisson")
    asked = [question for _, question, _ in channel.log]
    assert asked[:3] == ["survey", "sums", "local_model"]
    assert asked[-2:] == ["local_model", "sums"]
    for number in range(1, len(asked) + 2):
        model = fit(frames, FORMULA, from_then_on("hospital1", number), enough(2), family="poisson")
        assert model.converged
        gone = number <= len(asked)
        assert list(model.removed) == ["hospital1"] * gone
        np.testing.assert_allclose(model.params, (rest if gone else whole).params, rtol=1e-8)


def test_a_fit_waits_for_an_absent_client_before_it_proves_anything() -> None:
    def script(moment: Moment) -> Fault | None:
        gone = moment.client == "hospital1" and 1010.0 < moment.time < 1500.0
        return silent if gone else None

    model = fit(people(), FORMULA, script, family="poisson")
    assert model.converged
    np.testing.assert_allclose(model.params, undisturbed().params, rtol=1e-9)
    with pytest.raises(fs.TooFewClients, match="client hospital1"):
        fit(people(), FORMULA, from_then_on("hospital1", 7), family="poisson")


def test_a_fit_of_which_every_answer_is_not_a_number_diverges() -> None:
    nan, _ = FAULTS["NaN"]
    with pytest.raises(fs.Diverged, match="not finite"):
        fit(people(), FORMULA, lambda moment: nan if moment.number > 5 else None, family="poisson")


def test_a_line_search_may_leave_the_numbers_at_one_client(p: fs.Problem) -> None:
    def far(reply: Reply) -> Reply:
        values: Array = reply.value.rows.copy()
        values[:, :4] = np.nan
        return reply._replace(value=reply.value._replace(parts={"values": values}))

    def script(moment: Moment) -> Fault | None:
        return far if moment.question == "line" and moment.client == "1" else None

    result = fs.solve(faulty(p, script), fs.Newton())
    assert result.converged
    assert result.incidents == ()


def test_models_of_the_others_stay_when_a_client_leaves(p: fs.Problem) -> None:
    state: Any = fs.solve(p, fs.QuasiNewton(), rounds=9, tol=0).state.inner
    kept = np.array([True, True, False, True])
    after: Any = fs.QuasiNewton().without(state, kept)
    np.testing.assert_array_equal(after.models.B, state.models.B[kept])
    np.testing.assert_allclose(after.H, state.models.B[kept].sum(axis=0))
    assert np.isinf(after.F)  # their shares of the ridge have changed
    assert not after.trials[0].any()
    assert len(after.pairs.moves) == 0  # they are of the sum over all


@pytest.mark.parametrize(
    ("kind", "rounds"), [("logistic", 12), ("least-squares", 25), ("poisson", 25)]
)
def test_proofs_count_against_the_budget_as_soon_as_they_are_asked_for(
    kind: str, rounds: int
) -> None:
    # FedProx stands still where no proof succeeds: the last one ends where the budget does
    result = fs.solve(problem(kind, [30, 20, 50], 4, ridge=0.1), fs.FedProx(), rounds=rounds)
    assert result.rounds <= rounds
