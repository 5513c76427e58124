"""Methods and clients of one's own, and what the driver does about asking, once for all of them."""

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import StochasticDescend
from fedsplit.dialogue import Dialogue, Removal, Several, converse, together
from fedsplit.loop.conversation import Conversation, streams_of
from fedsplit.loop.trace import Row
from fedsplit.methods import METHODS, parse
from fedsplit.methods.method import Method
from problems import clients, problem

Q = fs.questions
D = 3


# A method of one's own


class BallState(NamedTuple):
    x: Array
    before: Array


@dataclass(frozen=True)
class HeavyBall(fs.Method[BallState]):
    """Gradient descent with momentum: ``start`` and ``update``, and nothing else."""

    step: float = 0.01
    momentum: float = 0.3

    def start(self, x0: Array, m: int) -> Dialogue[BallState]:
        yield from ()
        return BallState(x0, x0)

    def update(self, state: BallState) -> Dialogue[BallState]:
        x, before = state
        answer: fs.Answer = yield Q.Gradient(x)
        g = answer.rows[answer.present].sum(axis=0) * len(answer.present) / answer.present.sum()
        return BallState(x - self.step * g + self.momentum * (x - before), x)


@pytest.fixture
def p() -> fs.Problem:
    return problem("logistic", [30, 12, 25, 9], D, seed=1, ridge=1.0)


def test_a_method_with_start_and_update_alone_runs_until_it_is_proved(p: fs.Problem) -> None:
    result = fs.solve(p, HeavyBall())
    assert result.stopped_by == "certificate"
    assert result.certificate.within(1e-9)
    assert result.method == "HeavyBall"
    assert result.notes == ("method: HeavyBall",)
    assert np.isnan(result.step)
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-4)


def test_a_method_of_ones_own_spends_its_budget_without_a_tolerance(p: fs.Problem) -> None:
    result = fs.solve(p, HeavyBall(), rounds=40, tol=0)
    assert (result.rounds, result.stopped_by, result.converged) == (40, "rounds", False)
    assert list(result.trace.kind) == ["round"] * 40
    assert (result.trace.floats_up == p.m * D).all()
    x = before = np.zeros(D)
    for _ in range(40):
        x, before = x - 0.01 * p.gradient(x) + 0.3 * (x - before), x
    np.testing.assert_allclose(result.x, x, rtol=1e-12)


def test_a_method_of_ones_own_that_stands_still_ends_by_itself() -> None:
    """Its residual is 0 to the bit, and nothing can be proved."""

    @dataclass(frozen=True)
    class Stay(HeavyBall):
        step: float = 0.0
        momentum: float = 0.0

    flat = fs.CustomLoss(lambda x, data: 1.0, lambda x, data: 0.0 * x, d=2)
    result = fs.solve(fs.Problem(flat, [0, 1]), Stay(), x0=np.ones(2))
    assert result.stopped_by in ("certificate", "residual")
    assert result.rounds < 10


def test_a_method_of_ones_own_takes_partial_participation(p: fs.Problem) -> None:
    result = fs.solve(p, HeavyBall(), participation=0.5, rounds=30, tol=0)
    assert (result.trace.answered == 2).all()
    assert p.objective(result.x) < p.objective(np.zeros(D))


def test_a_method_of_ones_own_goes_on_from_a_state_to_the_bit(p: fs.Problem) -> None:
    run = partial(fs.solve, p, HeavyBall(), tol=0, participation=0.5, seed=2)
    half = run(rounds=7)
    assert isinstance(half.state.inner, BallState)
    rest = run(rounds=6, state=pickle.loads(pickle.dumps(half.state)))
    np.testing.assert_array_equal(rest.x, run(rounds=13).x)


def test_callbacks_see_the_states_of_a_method_of_ones_own(p: fs.Problem) -> None:
    seen: list[BallState] = []

    def look(row: Row, state: BallState) -> bool:
        seen.append(state)
        return len(seen) == 4

    result = fs.solve(p, HeavyBall(), callbacks=[look])
    assert (result.rounds, result.stopped_by) == (4, "callback")
    assert seen[-1] is result.state.inner
    assert seen[-1].before is seen[-2].x


class Killed(Exception):
    """The end of a process."""


def killing(after: int) -> Callable[[Row, object], None]:
    """A callback that ends the run in its ``after``-th round."""
    left = after

    def kill(row: Row, state: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    return kill


def test_a_method_of_ones_own_is_resumed_from_a_checkpoint(p: fs.Problem, tmp_path: Path) -> None:
    whole = fs.solve(p, HeavyBall())
    with pytest.raises(Killed):
        fs.solve(p, HeavyBall(), callbacks=[fs.Checkpoint(tmp_path), killing(9)])
    resumed = fs.solve(p, HeavyBall(), callbacks=[fs.Checkpoint(tmp_path, resume=True)])
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.rounds == whole.rounds


def one_line(match: str) -> Any:
    return pytest.raises(fs.InputError, match=rf"^[^\n]*{match}[^\n]*$")


def test_a_penalty_that_a_method_of_ones_own_does_not_take_is_refused(p: fs.Problem) -> None:
    with one_line("penalty: HeavyBall takes none: use FedSplit"):
        fs.solve(p, HeavyBall(), penalty=fs.L1(1.0))


def test_what_does_not_derive_from_method_is_refused(p: fs.Problem) -> None:
    class Loose:
        def start(self, x0: Array, m: int) -> Dialogue[BallState]:
            yield from ()
            return BallState(x0, x0)

    with one_line("method must be a Method, not Loose: derive a method of your own from fs.Method"):
        fs.solve(p, Loose())  # type: ignore[arg-type]  # wrong on purpose
    with one_line(r"method: pass an object, HeavyBall\(...\), not the class"):
        fs.solve(p, HeavyBall)  # type: ignore[arg-type]  # the same


def test_a_state_of_another_method_is_not_taken(p: fs.Problem) -> None:
    state = fs.solve(p, HeavyBall(), rounds=2, tol=0).state
    with one_line("FedSplit continues from FedSplitState, not BallState"):
        fs.solve(p, fs.FedSplit(0.1), state=state)


# Clients of one's own


class Sites:
    """f_j(x) = ½‖A_jx - b_j‖² by NumPy: ``m`` and ``ask``, and nothing else."""

    def __init__(self, data: list[tuple[Array, Array]]) -> None:
        self.m = len(data)
        self.H = np.array([A.T @ A for A, _ in data])
        self.c = np.array([A.T @ b for A, b in data])
        self.constant = np.array([0.5 * b @ b for _, b in data])
        self.bounds = np.linalg.eigvalsh(self.H)[:, [0, -1]]
        self.asked: list[str] = []

    def ask(self, question: CostQuestion) -> fs.Answer:
        self.asked.append(question.name())
        match question:
            case Q.Curvature():
                return fs.Answer.of(bounds=self.bounds)
            case Q.Prox(v=v, s=s):
                right = (v + s * self.c)[..., None]
                return fs.Answer.of(point=np.linalg.solve(np.eye(D) + s * self.H, right)[..., 0])
            case Q.Value(x=x) | Q.Gradient(x=x) | Q.Evaluate(x=x) | Q.Decrement(x=x):
                gradient = self.H @ x - self.c
                value = self.constant + 0.5 * (gradient - self.c) @ x
                known: dict[str, Array] = {
                    "value": value,
                    "gradient": gradient,
                    "ell": self.bounds[:, 0],
                }
                told = {
                    "value": ("value",),
                    "gradient": ("gradient",),
                    "evaluate": ("value", "gradient"),
                    "decrement": ("value", "ell"),
                }[question.name()]
                return fs.Answer.of(**{name: known[name] for name in told})
        raise NotImplementedError(question.name())


def squares() -> list[tuple[Array, Array]]:
    return [(A, b) for A, b, _ in clients("least-squares", [20, 30, 15, 9], D, seed=4)]


GRADIENTS = [fs.GD(), fs.AGD(), fs.LBFGS(), HeavyBall(0.004)]


@pytest.mark.parametrize("method", [*GRADIENTS, fs.FedSplit(), fs.ADMM()], ids=repr)
def test_clients_with_m_and_ask_alone_are_solved_and_proved(method: Method[Any]) -> None:
    exact = fs.Problem(fs.LeastSquares(), squares())
    sites = Sites(squares())
    result = fs.solve(sites, method, x0=np.zeros(D))
    assert result.stopped_by == "certificate"
    assert result.certificate.reason == "strong convexity"
    gap = exact.objective(result.x) - exact.objective(exact.solution())
    assert result.certificate.gap is not None
    assert gap <= result.certificate.gap <= 2e-9 * exact.objective(np.zeros(D))
    allowed = {"gradient", "evaluate", "curvature", "value", "decrement"}
    if method not in GRADIENTS:
        allowed.add("prox")
    assert set(sites.asked) <= allowed


def test_clients_of_ones_own_give_the_rounds_of_ours() -> None:
    ours = fs.Problem(fs.LeastSquares(), squares())
    for method in (fs.FedSplit(), fs.LBFGS()):
        own = fs.solve(Sites(squares()), method, x0=np.zeros(D), rounds=12, tol=0)
        same = fs.solve(ours, method, rounds=12, tol=0)
        np.testing.assert_allclose(own.x, same.x, rtol=1e-9)
        np.testing.assert_allclose(own.trace.objective, same.trace.objective, rtol=1e-9)
        np.testing.assert_array_equal(own.trace.floats_down, same.trace.floats_down)


def test_clients_that_do_not_say_how_many_coordinates_there_are_need_a_start() -> None:
    with one_line("these clients do not say how many coordinates x has: pass x0"):
        fs.solve(Sites(squares()), fs.FedSplit())
    with one_line("problem must be a Problem, or clients with m and ask, got list"):
        fs.solve([1, 2], fs.FedSplit())  # type: ignore[arg-type]  # wrong on purpose


def test_participation_works_with_clients_of_ones_own() -> None:
    sites = Sites(squares())
    result = fs.solve(sites, fs.FedSplit(), x0=np.zeros(D), participation=0.5, rounds=300, tol=1e-8)
    assert result.converged
    exact = fs.Problem(fs.LeastSquares(), squares()).solution()
    np.testing.assert_allclose(result.x, exact, atol=1e-3)


# Dialogues


def test_a_removal_is_heard_where_the_question_was_asked() -> None:
    class Leaving:
        """The first client leaves in the second question."""

        def __init__(self) -> None:
            self.asked = 0

        def ask(self, question: str) -> str:
            self.asked += 1
            if self.asked == 2:
                raise Removal(np.array([False, True]))
            return question.upper()

    def conversation() -> Dialogue[list[str]]:
        heard = [(yield "one")]
        try:
            heard.append((yield "two"))
        except Removal as removal:
            heard.append(f"{int(removal.kept.sum())} left")
        heard.append((yield "three"))
        return heard

    assert converse(conversation(), Leaving()) == ["ONE", "1 left", "THREE"]


# What clients draw


class Drawn:
    """Clients that answer with their random seeds."""

    def __init__(self, m: int) -> None:
        self.m = m
        self.d = 1
        self.streams: list[list[int]] = []

    def ask(self, question: CostQuestion) -> fs.Answer:
        if question.streams is not None:
            self.streams.append(question.streams.tolist())
        return fs.Answer.of(point=np.zeros((self.m, 1)))


def test_seeds_are_a_function_of_the_seed_the_question_and_the_client() -> None:
    question = StochasticDescend(np.zeros(1), 0.1, 1, 1)
    drawn = Drawn(5)
    conversation = Conversation(fs.Clients(drawn), seed=7)
    conversation.ask(question)
    conversation.ask(Q.Gradient(np.zeros(1)))  # counts, though nobody draws for it
    conversation.ask(question)
    assert drawn.streams == [streams_of(7, 1, 5).tolist(), streams_of(7, 3, 5).tolist()]
    fewer = Drawn(2)
    later = Conversation(fs.Clients(fewer), seed=7, asked=2)
    later.ask(question)
    assert fewer.streams == [drawn.streams[1][:2]]


DRAWING: list[tuple[Method[Any], float]] = [
    (fs.FedAvg(batch=4, local_steps=2), 1.0),
    (fs.FedAvg(0.01, batch=4, clients=0.5, epochs=1), 1.0),
    (fs.FedAvg(0.01, batch=4), 0.4),
]


@pytest.mark.parametrize(("method", "participation"), DRAWING, ids=repr)
def test_draws_go_on_whichever_way_a_run_is_continued(
    method: Method[Any], participation: float, tmp_path: Path
) -> None:
    p = problem("logistic", [30, 40, 25, 12, 9], D, ridge=1.0)
    run = partial(fs.solve, p, method, tol=0, seed=4, participation=participation)
    whole = run(rounds=9).x
    half = run(rounds=4).state
    np.testing.assert_array_equal(run(rounds=5, state=half).x, whole)
    # an equal state that somebody has rebuilt draws the same: the count is part of it
    rebuilt = type(half)(half.inner._replace(x=half.x.copy()), half.origin, half.asked)
    np.testing.assert_array_equal(run(rounds=5, state=rebuilt).x, whole)
    with pytest.raises(Killed):
        run(rounds=9, callbacks=[fs.Checkpoint(tmp_path), killing(3)])
    resumed = run(rounds=9, callbacks=[fs.Checkpoint(tmp_path, resume=True)])
    np.testing.assert_array_equal(resumed.x, whole)


# The budget, the tolerance, and the price of a round


@pytest.mark.parametrize("tol", [0.0, 1e-9])
@pytest.mark.parametrize("which", sorted(METHODS))
def test_rounds_is_a_maximum(which: str, tol: float) -> None:
    p = problem("least-squares", [20, 30, 15], D, seed=2)
    for rounds in range(2, 7):
        result = fs.solve(p, parse(which), rounds=rounds, tol=tol)
        assert result.rounds == len(result.trace) <= rounds


class Thrice(NamedTuple):
    """The state of ``ThreeQuestions``."""

    x: Array


@dataclass(frozen=True)
class ThreeQuestions(Method[Thrice]):
    """Three gradient steps are one round."""

    step: float

    def start(self, x0: Array, m: int) -> Dialogue[Thrice]:
        yield from ()
        return Thrice(x0)

    def update(self, state: Thrice) -> Dialogue[Thrice]:
        x = state.x
        for _ in range(3):
            answer: fs.Answer = yield Q.Gradient(x)
            x = x - self.step * answer.rows.sum(axis=0)
        return Thrice(x)


@pytest.mark.parametrize("tol", [0.0, 1e-9])
@pytest.mark.parametrize("method", [ThreeQuestions(1e-3), fs.GIANT(), fs.GD()], ids=repr)
def test_a_round_of_several_questions_ends_with_the_budget(method: Method[Any], tol: float) -> None:
    p = problem("poisson", [20, 30, 15], D, seed=2, ridge=1.0)
    for rounds in range(4, 26):
        result = fs.solve(p, method, rounds=rounds, tol=tol)
        assert result.rounds == len(result.trace) <= rounds
        # a round that was broken off leaves the state of the round before, which can go on
        assert np.isfinite(p.objective(result.x))
        assert result.trace.objective[-1] == p.objective(result.x)


def test_a_round_that_the_budget_breaks_off_changes_nothing() -> None:
    p = problem("least-squares", [20, 30, 15], D, seed=2)
    whole = fs.solve(p, ThreeQuestions(1e-3), rounds=6, tol=0)
    more = fs.solve(p, ThreeQuestions(1e-3), rounds=8, tol=0)
    assert (whole.rounds, more.rounds, more.stopped_by) == (6, 8, "rounds")
    np.testing.assert_array_equal(more.x, whole.x)
    np.testing.assert_array_equal(np.isnan(more.trace.residual), [1, 1, 0, 1, 1, 0, 1, 1])


def test_a_budget_that_ends_in_the_set_up_is_refused() -> None:
    p = problem("least-squares", [20, 30, 15], D, seed=2)
    assert fs.solve(p, fs.FedSplit(), rounds=1).rounds == 1
    with one_line("rounds: the budget ended in the set-up of CG, which takes more than 1"):
        fs.solve(p, fs.CG(), rounds=1)


SCALED: dict[str, Method[Any] | None] = {
    "the default": None,
    "fedsplit": fs.FedSplit(),
    "quasi-newton": fs.QuasiNewton(),
    "newton": fs.Newton(),
    "lbfgs": fs.LBFGS(),
    "gd": fs.GD(),
}


@pytest.mark.parametrize("c", [1e-6, 1e6])
@pytest.mark.parametrize("name", ["least-squares", "logistic"])
@pytest.mark.parametrize("which", SCALED)
def test_the_units_of_the_costs_do_not_matter(which: str, name: str, c: float) -> None:
    """All costs times c², by the rows and targets of least squares, else by the weights."""
    data = clients(name, [40, 25, 60], D, seed=3)
    if name == "least-squares":
        scaled = [(c * A, c * b, w) for A, b, w in data]
        model: Any = fs.LeastSquares()
    else:
        scaled = [(A, b, c**2 * w) for A, b, w in data]
        model = fs.Logistic()
    one, other = (
        fs.solve(fs.Problem(model, each, ridge), SCALED[which], rounds=2000)
        for each, ridge in ((data, 2.0), (scaled, 2.0 * c**2))
    )
    assert one.converged
    assert other.converged
    assert one.rounds == other.rounds
    # how far clients go in the first answer depends on the noise in their data, so on the weights
    noisy = which == "the default" and name == "logistic"
    np.testing.assert_allclose(other.x, one.x, rtol=1e-4 if noisy else 1e-6)


def test_a_plain_round_is_a_few_calls_of_a_few_frames() -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((40, 20)), rng.standard_normal(40)) for _ in range(10)]
    p = fs.Problem(fs.LeastSquares(), rows)
    folder = str(Path(fs.__file__).parent)

    def walk(rounds: int) -> tuple[int, int]:
        """The calls of a run within the package, and its deepest stack of them."""
        calls = depth = deepest = 0

        def hook(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls, depth, deepest
            if not frame.f_code.co_filename.startswith(folder):
                return
            if event == "call":
                calls += 1
                depth += 1
                deepest = max(deepest, depth)
            elif event == "return":
                depth -= 1

        sys.setprofile(hook)
        try:
            fs.solve(p, fs.FedSplit(step=0.05), rounds=rounds, tol=0)
        finally:
            sys.setprofile(None)
        return calls, deepest

    walk(3)  # what is imported or made once
    few, many = walk(10)[0], walk(20)[0]
    assert (many - few) / 10 <= 75
    assert walk(1)[1] <= 12


# Dialogues in step


def summed(name: str, rounds: int) -> Dialogue[list[str]]:
    """Ask some questions, and return the answers."""
    answers = []
    for i in range(rounds):
        answers.append((yield f"{name}{i}"))
    return answers


class Echo:
    """Answers every question by itself, and notes what was asked in one exchange."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def ask(self, several: Several) -> dict[str, str]:
        self.asked.append(list(several.questions.values()))
        return {name: f"re {each}" for name, each in several.questions.items()}


def test_dialogues_in_step_share_their_exchanges_and_return_by_name() -> None:
    echo = Echo()
    results = converse(
        together({"a": summed("a", 3), "b": summed("b", 1), "c": summed("c", 0)}), echo
    )
    assert echo.asked == [["a0", "b0"], ["a1"], ["a2"]]
    assert results == {"a": ["re a0", "re a1", "re a2"], "b": ["re b0"], "c": []}
    assert converse(together({}), echo) == {}


def test_each_of_dialogues_in_step_hears_of_clients_that_left() -> None:
    def patient(name: str) -> Dialogue[str]:
        try:
            return str((yield name))
        except Removal as removal:
            return f"{name} without {int((~removal.kept).sum())}"

    class Leaving:
        def ask(self, several: Several) -> dict[str, str]:
            raise Removal(np.array([True, False]))

    results = converse(together({"a": patient("a"), "b": patient("b")}), Leaving())
    assert results == {"a": "a without 1", "b": "b without 1"}
