"""FedSplit with information: few questions, each with its own proof."""

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array, packed, unpacked
from fedsplit.clients.local_models import WAY, LastModels, LocalModel, own_metric
from fedsplit.clients.question import NOT_FINITE
from fedsplit.clients.questions import Gradient, Line, Value
from fedsplit.methods.information import InformationState
from problems import begun, clients, problem, updated

LOSSES = ("least-squares", "logistic", "poisson", "gamma", "multinomial", "huber")


@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_proved_in_no_more_questions_than_newtons_method_takes(loss: str) -> None:
    p = problem(loss, [40, 12, 25, 60], 4, seed=3)
    ours = fs.solve(p, fs.FedSplitInformation(), tol=1e-12)
    newton = fs.solve(p, fs.Newton(), tol=1e-12)
    assert ours.stopped_by == "certificate"
    assert ours.rounds <= min(newton.rounds, 8)
    np.testing.assert_allclose(ours.x, p.solution(), rtol=1e-6, atol=1e-6)


def test_a_quadratic_takes_one_question_and_one_for_the_proof() -> None:
    p = problem("least-squares", [40, 12, 25], 5, seed=1)
    assert fs.solve(p, fs.FedSplitInformation(), tol=1e-12).rounds == 2


@pytest.mark.parametrize(
    "penalty", [fs.L1(2.0), fs.NonNegative(), fs.Box(-0.1, 0.1), fs.L2Ball(0.3)], ids=str
)
def test_a_penalty_is_part_of_the_servers_problem(penalty: fs.Penalty) -> None:
    p = problem("logistic", [60, 25, 80], 5, seed=2)
    ours = fs.solve(p, fs.FedSplitInformation(), tol=1e-12, penalty=penalty)
    vectors = fs.solve(p, fs.QuasiNewton(), tol=1e-12, penalty=penalty)
    assert ours.stopped_by == "certificate"
    assert ours.rounds <= 8
    np.testing.assert_allclose(ours.x, vectors.x, atol=1e-5)


@pytest.mark.parametrize(("loss", "size"), [("poisson", 6.0), ("gamma", 5.0), ("logistic", 50.0)])
def test_a_start_far_away_ends_at_the_optimum(loss: str, size: float) -> None:
    for seed in range(5):
        p = problem(loss, [30, 20, 25], 3, seed=seed, ridge=1e-3)
        x0 = size * np.random.default_rng(seed).standard_normal(3)
        result = fs.solve(p, fs.FedSplitInformation(), x0=x0, rounds=60)
        assert result.converged, (loss, seed)


def test_absent_clients_keep_their_models() -> None:
    p = problem("logistic", [60, 25, 80, 40], 5, seed=4)
    result = fs.solve(p, fs.FedSplitInformation(), participation=0.5, rounds=100)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-6)


def test_a_step_that_raises_the_objective_is_refused() -> None:
    p = problem("poisson", [30, 20], 2, seed=1)
    method = fs.FedSplitInformation()
    state = begun(method, p.clients, np.zeros(2))
    state = updated(method, p.clients, state)
    far = updated(method, p.clients, state._replace(ahead=state.x + 50.0))
    np.testing.assert_array_equal(far.x, state.x)
    assert far.still
    assert np.linalg.norm(far.ahead - far.x) < 50.0
    after = updated(method, p.clients, far)
    assert p.objective(after.x) <= p.objective(far.x)


def test_the_evidence_bounds_the_hessian_from_below() -> None:
    p = problem("logistic", [60, 25, 80], 4, seed=5)
    method = fs.FedSplitInformation()
    state = begun(method, p.clients, np.zeros(4))
    for _ in range(4):
        state = updated(method, p.clients, state)
        assert state.evidence is not None
        H: Array = p.clients.pooled_information(state.x)
        assert np.linalg.eigvalsh(H - state.evidence.least_hessian)[0] >= -1e-9 * H[0, 0]


def test_the_values_on_the_way_are_those_of_the_cost() -> None:
    p = problem("logistic", [60, 25], 3, seed=6)
    x = np.array([0.3, -1.0, 2.0])
    before = np.array([1.0, 0.0, -1.0])
    answer = p.clients.ask(LocalModel(x, None, None, 1.0, before))
    expected = [p.clients.ask(Value(before + t * (x - before))).rows for t in WAY]
    np.testing.assert_allclose(answer.parts["values"].T, expected, rtol=1e-12)


def test_symmetric_matrices_are_packed_and_unpacked() -> None:
    A = np.random.default_rng(0).standard_normal((3, 5, 5))
    M = A + np.swapaxes(A, 1, 2)
    assert packed(M).shape == (3, 15)
    np.testing.assert_array_equal(unpacked(packed(M)), M)


def test_without_a_method_solve_chooses_one_and_says_so() -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((30, 3)), rng.standard_normal(30)) for _ in range(4)]
    chosen = fs.solve(fs.Problem(fs.LeastSquares(), rows))
    assert isinstance(chosen.state.inner, InformationState)
    assert chosen.method == fs.FedSplitInformation().described()
    assert chosen.notes == (
        "method: FedSplit with information: every client sends its Hessian "
        "(Hessians of 4 clients × 3 coordinates are affordable)",
    )
    assert fs.solve(fs.Problem(fs.LeastSquares(), rows), state=chosen.state).converged
    vectors = fs.solve(fs.Problem(fs.LeastSquares(), rows), fs.QuasiNewton())
    continued = fs.solve(fs.Problem(fs.LeastSquares(), rows), state=vectors.state)
    assert continued.method == fs.QuasiNewton().described()
    assert continued.notes == (f"method: {continued.method} (it continues from its state)",)


def test_hessians_that_are_too_large_or_not_known_are_not_asked_for() -> None:
    wide = fs.Problem(fs.LeastSquares(), [(np.eye(501), np.ones(501))] * 2)
    first = fs.solve(wide, rounds=3)
    assert first.method == fs.QuasiNewton().described()
    assert first.notes[1].endswith("(Hessians of 2 clients × 501 coordinates are too large)")
    loss = fs.CustomLoss(lambda x, a: 0.5 * (x - a) @ (x - a), lambda x, a: x - a, d=2)
    result = fs.solve(fs.Problem(loss, [np.ones(2), np.zeros(2)]))
    assert result.method == fs.QuasiNewton().described()
    assert result.notes[0].endswith("(the clients cannot compute their Hessians)")
    np.testing.assert_allclose(result.x, 0.5, atol=1e-6)


def test_a_start_at_the_minimiser_without_the_penalty_is_not_taken_for_the_one_with_it() -> None:
    federated = problem("least-squares", [30, 20, 50], d=6)
    free = federated.solution()
    penalty = fs.L1(5.0)
    result = fs.solve(federated, fs.FedSplitInformation(), x0=free, penalty=penalty)
    assert result.converged
    np.testing.assert_allclose(result.x, fs.solve(federated, penalty=penalty).x, atol=1e-9)
    assert np.linalg.norm(result.x - free) > 1e-3


@pytest.mark.parametrize("loss", ["logistic", "poisson", "multinomial", "least-squares", "huber"])
def test_costs_between_two_points_are_those_of_the_terms(loss: str) -> None:
    federated = problem(loss, [30, 20, 50], d=6)
    d = federated.d
    rng = np.random.default_rng(0)
    shares = [1.0, 0.5, 0.25, 0.0]
    for size, rtol in ((1e-2, 1e-6), (4.0, 1e-12)):
        before, x = size * rng.standard_normal((2, d))
        asked = federated.clients.ask(LocalModel(x, None, None, 0.0, before, False))
        line = federated.clients.ask(Line(before, x - before, np.array(shares[::-1])))
        found = asked.parts["values"][:, [0, 1, 2, -1]]
        np.testing.assert_allclose(found, line.rows[:, ::-1], rtol=rtol)
        ends = [federated.clients.ask(Value(u)).rows for u in (x, before)]
        np.testing.assert_allclose(found[:, [0, -1]], np.stack(ends, axis=1), rtol=1e-13)


def test_clients_that_are_alike_take_one_hessian_per_later_question() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 2000, 5))
    data = [(each, rng.logistic(size=2000) < each @ np.ones(5)) for each in A]
    result = fs.solve(fs.Problem(fs.Logistic(), data), fs.FedSplitInformation())
    hessians = [row.hessians for row in result.trace.rows]
    assert result.converged
    assert hessians[1:] == [4] * (len(hessians) - 1)


@pytest.mark.parametrize("part", ["hessian", "spread", "norm", "steady", "ell"])
def test_an_answer_that_no_convex_cost_gives_is_not_used(part: str) -> None:
    question = LocalModel(np.zeros(3), None, None, 0.0, None)
    answer = problem("logistic", [40], 3).among(1).ask(question)
    assert question.check(answer, 1, 3) == ""
    wrong = answer._replace(parts={**answer.parts, part: -1.0 - np.abs(answer.parts[part])})
    assert question.check(wrong, 1, 3) in {f"{part} is below zero", NOT_FINITE}


@pytest.mark.parametrize(
    "penalty", [fs.Box(-0.05, 0.05), fs.NonNegative(), fs.L2Ball(0.1)], ids=str
)
@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma", "huber"])
def test_an_optimum_on_the_boundary_is_proved(loss: str, penalty: fs.Penalty) -> None:
    # x is there at once, but the models' slope is not yet the penalty's subgradient.
    for seed in range(4):
        result = fs.solve(problem(loss, [5, 2, 3], 1, seed=seed), penalty=penalty)
        assert result.stopped_by == "certificate", seed


def test_a_start_that_was_refused_is_not_taken_for_the_optimum() -> None:
    # In small units every move is below the tolerance; only a proof may end the run.
    p = problem("least-squares", [8, 8], 4, seed=0)
    scaled = [(1e5 * A, b, w) for A, b, w in clients("least-squares", [8, 8], 4, seed=0)]
    small = fs.Problem(fs.LeastSquares(), scaled)
    result = fs.solve(small, x0=np.full(4, 1e-4), penalty=fs.L2Ball(1e-3), tol=1e-2)
    assert result.stopped_by == "certificate"
    np.testing.assert_allclose(1e5 * result.x, p.solution(), atol=1e-5)


def test_a_start_far_away_is_refused_by_those_who_answer() -> None:
    p = problem("gamma", [15, 20, 25], 3, seed=1, ridge=1e-3)
    method = fs.FedSplitInformation()
    result = fs.solve(p, method, x0=np.full(3, 8.0), participation=0.4, rounds=100)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


def test_a_start_without_finite_curvature_is_left_for_a_better_one() -> None:
    p = problem("poisson", [15, 20, 25], 3, seed=1, ridge=1e-3)
    result = fs.solve(p, fs.QuasiNewton(), x0=np.full(3, 500.0))
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-4)


@pytest.mark.parametrize("seed", [2, 6, 10])
def test_with_a_share_of_the_clients_in_a_round_the_default_converges(seed: int) -> None:
    p = problem("poisson", [3] * 5, 4, seed=seed, ridge=1e-2, scale=2.0)
    assert fs.solve(p, participation=0.3, seed=1).converged


@pytest.mark.parametrize("seed", range(3))
def test_a_long_proposal_is_refused_and_not_called_divergence(seed: int) -> None:
    # Hardly any residual is within delta, so that the first Hessians are singular.
    rng = np.random.default_rng(seed)
    designs = [rng.standard_normal((5, 4)) for _ in range(20)]
    data = [(A, A @ np.ones(4) + 100.0 * rng.standard_t(1.5, size=5)) for A in designs]
    result = fs.solve(fs.Problem(fs.Huber(1.0), data), rounds=300)
    assert result.stopped_by == "certificate"


def test_a_client_with_fewer_rows_than_coordinates_stays_at_x() -> None:
    p = problem("logistic", [3, 40], 6, ridge=0.1)
    parts = p.clients.ask(LocalModel(np.zeros(6), None, None, 8.0, None)).parts
    assert not parts["point"][0].any()
    assert parts["point"][1].any()


def test_a_clients_own_reach_is_what_its_data_say_beyond_noise() -> None:
    """James and Stein: length²/freedom - 1, between its limits."""
    p = problem("poisson", [60, 45], 4, ridge=0.5)
    for _, costs in p.clients._blocks:
        at = costs.at(np.zeros((costs.terms.k, 4)))
        H, g = at.hessian, at.gradient
        length2 = np.einsum("ki,kij,kj->k", g, np.linalg.inv(H), g)
        reach = np.clip(length2 / 4.0 - 1.0, 0.1, 3.0)
        np.testing.assert_allclose(own_metric(at, 3.0), H / reach[:, None, None], rtol=1e-4)
        least = own_metric(at, 1e9)
        np.testing.assert_allclose(least, H / (length2 / 4.0 - 1.0)[:, None, None], rtol=1e-4)


def test_a_refused_step_shortens_the_reach_and_is_newtons_next() -> None:
    p = problem("logistic", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    method = fs.FedSplitInformation()
    state = updated(method, p.clients, begun(method, p.clients, np.zeros(5)))
    answer = p.clients.ask(method.question(state))
    rising = np.tile(np.arange(len(WAY), 0.0, -1.0), (p.m, 1))  # least at the point before
    refused = method.after(state, answer._replace(parts=answer.parts | {"values": rising}))
    assert refused.reach == method.shorter * min(state.reach, method.reach)
    assert refused.still
    np.testing.assert_array_equal(refused.x, state.x)
    after = updated(method, p.clients, refused)
    assert after.reach == min(method.reach, refused.reach / method.shorter)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_between_two_kinds_of_models_the_server_minimises_their_mixture(share: float) -> None:
    """A client's own model, and that with its gradient at x and the mean curvature on the way."""
    p = problem("logistic", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    method = fs.FedSplitInformation()
    start = begun(method, p.clients, np.zeros(5))
    answer = p.clients.ask(method.question(start))
    models = start.updated(answer).models
    x = start.ahead
    ahead, _ = method._between(models, x, answer, share)
    way = models.p - x
    bent = np.einsum("ki,kij,kj->k", way, models.B, way)
    mean = np.sum(way * (models.y - answer.parts["slope"]), axis=1)
    about_x = answer.parts["slope"] + (mean / bent)[:, None] * (models.B @ (ahead - x))
    mixed = share * models.gradients(ahead) + (1.0 - share) * about_x
    np.testing.assert_allclose(mixed.sum(axis=0), 0.0, atol=1e-9)


def test_the_models_of_an_answer_have_the_gradients_of_quadratics_everywhere() -> None:
    p = problem("least-squares", [30, 25], 4, seed=1, ridge=0.1)
    x, elsewhere = np.full(4, 0.3), np.array([1.0, -2.0, 0.5, 3.0])
    last = LastModels.of(p.clients.ask(LocalModel(x, None, None, 0.0, None)).parts)
    np.testing.assert_allclose(
        last.gradients(elsewhere), p.clients.ask(Gradient(elsewhere)).rows, rtol=1e-10
    )


def test_a_model_says_by_how_much_its_hessian_may_have_changed_at_least() -> None:
    """By a factor of e^t with t = max_i |a_iᵀ(x - p_j)|, rounded up to a power of two."""
    data = clients("logistic", [30, 25, 40], 4, seed=1)
    p = problem("logistic", [30, 25, 40], 4, seed=1)
    x = np.zeros(4)
    parts = p.clients.ask(LocalModel(x, None, None, 256.0, None)).parts
    for (A, _, _), point, spread in zip(data, parts["point"], parts["spread"], strict=True):
        change = float(np.abs(A @ (x - point)).max())
        assert change > 0
        assert change <= spread <= 2.0 * change
