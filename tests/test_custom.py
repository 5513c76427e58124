"""Losses of the user's own: a function, a scalar function of the predictor, a CVXPY expression."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.questions import Curvature, Gradient, Information, Overview, Prox, Value
from fedsplit.loop.trace import Row
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.terms import Loss
from problems import Client, clients

DATA = clients("logistic", [30, 8, 3], 3, seed=2)


def value(x: Array, data: Client) -> float:
    A, b, w = data
    return float(np.sum(w * np.logaddexp(0, -b * (A @ x))))


def gradient(x: Array, data: Client) -> Array:
    A, b, w = data
    return np.asarray(A.T @ (-w * b / (1 + np.exp(b * (A @ x)))))


def hessian(x: Array, data: Client) -> Array:
    A, _, w = data
    p = 1 / (1 + np.exp(-(A @ x)))
    return np.asarray((A * (w * p * (1 - p))[:, None]).T @ A)


def curvature(data: Client) -> tuple[float, float]:
    A, _, w = data
    return 0.0, float(np.linalg.eigvalsh((A * w[:, None]).T @ A)[-1]) / 4


def expression(x: Any, data: Client) -> Any:
    A, b, w = data
    return cp.sum(cp.multiply(w, cp.logistic(-cp.multiply(b, A @ x))))


OWN: dict[str, Loss] = {
    "with a Hessian": fs.CustomLoss(value, gradient, 3, hessian, curvature),
    "without a Hessian": fs.CustomLoss(value, gradient, 3),
    "a CVXPY expression": fs.CvxpyLoss(expression, 3),
}


@pytest.mark.parametrize("kind", OWN)
def test_the_users_own_logistic_loss_is_ours(kind: str) -> None:
    own, ours = fs.Problem(OWN[kind], DATA, ridge=0.5), fs.Problem(fs.Logistic(), DATA, ridge=0.5)
    x = np.array([0.3, -1.0, 0.2])
    assert own.objective(x) == pytest.approx(ours.objective(x), rel=1e-12)
    np.testing.assert_allclose(own.gradient(x), ours.gradient(x), rtol=1e-9)
    np.testing.assert_allclose(
        own.clients.ask(Information(x)).rows,
        ours.clients.ask(Information(x)).rows,
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(own.solution(), ours.solution(), rtol=1e-9)
    V = np.random.default_rng(0).standard_normal((3, 3))
    a, b = (p.clients.ask(Prox(V, 0.7, np.zeros(3), fs.ExactProx())) for p in (own, ours))
    np.testing.assert_allclose(a.rows, b.rows, rtol=1e-11)
    result = fs.solve(own, fs.QuasiNewton(), tol=1e-13)
    np.testing.assert_allclose(result.x, ours.solution(), rtol=1e-6)


def test_given_curvature_sets_the_step() -> None:
    own, ours = fs.Problem(OWN["with a Hessian"], DATA, 0.5), fs.Problem(fs.Logistic(), DATA, 0.5)
    assert fs.solve(own, rounds=2).step == pytest.approx(fs.solve(ours, rounds=2).step, rel=1e-12)


def test_unknown_curvature_takes_the_local_one_and_a_line_search() -> None:
    own = fs.Problem(OWN["without a Hessian"], DATA, 0.5)
    result = fs.solve(own, fs.FedSplit(prox=fs.GradientProx(10)), rounds=2000, tol=1e-11)
    np.testing.assert_allclose(result.x, own.solution(), rtol=1e-6)


def test_a_cvxpy_expression_can_be_solved_by_cvxpy() -> None:
    own = fs.Problem(OWN["a CVXPY expression"], DATA, ridge=0.5)
    result = fs.solve(own, fs.FedSplit(step=0.3, prox=fs.CvxpyProx()), rounds=30, tol=0)
    np.testing.assert_allclose(result.x, own.solution(), atol=1e-3)


def test_an_expression_that_is_not_convex_is_refused() -> None:
    with pytest.raises(fs.InputError, match="client 0: the expression must be scalar and convex"):
        fs.Problem(fs.CvxpyLoss(lambda x, data: -cp.sum_squares(x), 2), [None])
    with pytest.raises(fs.InputError, match="client 0: the expression must be scalar and convex"):
        fs.Problem(fs.CvxpyLoss(lambda x, data: x, 2), [None])


def test_wrong_shapes_of_the_users_functions_are_named() -> None:
    with pytest.raises(fs.InputError, match=r"client 0: gradient must return shape \(2,\)"):
        fs.Problem(fs.CustomLoss(lambda x, data: 0.0, lambda x, data: np.zeros(3), 2), [None])
    with pytest.raises(fs.InputError, match="client 0: gradient must return"):
        fs.Problem(fs.CustomLoss(lambda x, data: 0.0, lambda x, data: data, 2), [["a", "b"]])
    bad = fs.CustomLoss(
        lambda x, data: 0.0, lambda x, data: np.zeros(2), 2, lambda x, data: np.eye(3)
    )
    with pytest.raises(fs.InputError, match=r"client 0: hessian must return shape \(2, 2\)"):
        fs.Problem(bad, [None]).solution()


def test_bad_custom_problems_are_refused() -> None:
    own = OWN["with a Hessian"]
    with pytest.raises(fs.InputError, match="there is no client"):
        fs.Problem(own, [])
    with pytest.raises(fs.InputError, match="d must be a whole number of at least 1"):
        fs.Problem(fs.CustomLoss(value, gradient, 0), DATA)
    infinite = fs.CustomLoss(lambda x, data: 0.0, lambda x, data: np.full(2, np.nan), 2)
    with pytest.raises(
        fs.InputError, match="client 0: the value or the gradient at x = 0 is not a number"
    ):
        fs.Problem(infinite, [None])


@pytest.mark.parametrize(
    "data",
    [
        clients("least-squares", [30, 8, 20], 3, seed=4),
        fs.ensembles.spiked(m=4, d=20, n=40, kappa=1e3).rows,
    ],
    ids=["small", "spiked"],
)
def test_rounds_are_the_same_whoever_wrote_the_quadratic(data: list[Any]) -> None:
    ours = fs.Problem(fs.LeastSquares(), data)
    m, d = ours.m, ours.d
    H, c = (
        ours.clients.ask(Information(np.zeros(d))).rows,
        -ours.clients.ask(Gradient(np.zeros(d))).rows,
    )
    own = fs.Problem(
        fs.CustomLoss(
            lambda x, j: float(0.5 * x @ H[j] @ x - c[j] @ x),
            lambda x, j: H[j] @ x - c[j],
            d,
            lambda x, j: H[j],
        ),
        range(m),
    )
    best = ours.solution()
    for method in (fs.QuasiNewton(), fs.FedSplit(0.05)):
        counts = []
        for p in (own, ours):

            def near(row: Row, state: Any) -> bool:
                return bool(np.linalg.norm(state.x - best) <= 1e-8)

            counts.append(fs.solve(p, method, rounds=1000, tol=0, callbacks=[near]).rounds)
        assert abs(counts[0] - counts[1]) <= 2
        assert max(counts) < 1000


def scalar(loss: LinearLoss) -> fs.ScalarLoss:
    """A built-in loss as the user would give it, with all that it states."""
    return fs.ScalarLoss(
        loss.value,
        loss.slope,
        loss.curvature,
        curvature_range=loss.curvature_range,
        concordance=loss.concordance,
        floor=loss.floor,
    )


@pytest.mark.parametrize("name", ["logistic", "huber"])
@pytest.mark.parametrize("n", [[30, 8, 17], [2, 1]])
def test_the_users_own_scalar_function_gives_the_bits_of_the_loss_that_has_it(
    name: str, n: list[int]
) -> None:
    ours = fs.Huber(0.7) if name == "huber" else fs.Logistic()
    data = clients(name, n, 3, seed=2)
    a, b = (fs.Problem(loss, data, ridge=0.3) for loss in (ours, scalar(ours)))
    x = np.array([0.3, -1.0, 0.2])
    for ask in (
        lambda p: p.clients.ask(Value(x)).rows,
        lambda p: p.clients.ask(Gradient(x)).rows,
        lambda p: p.clients.ask(Information(x)).rows,
        lambda p: p.clients.ask(Curvature()).rows,
        lambda p: p.clients.ask(Overview(x)).rows,
        lambda p: p.clients.ask(Prox(x, 0.7, x, fs.ExactProx())).rows,
        lambda p: p.clients.ask(Prox(x, 0.7, x, fs.GradientProx(3))).rows,
        lambda p: p.solution(),
        lambda p: fs.solve(p, rounds=30, tol=0).x,
    ):
        np.testing.assert_array_equal(ask(a), ask(b))
    if name == "logistic":  # Huber states more: within which ball its Hessian is constant
        assert fs.certify(a.clients, x) == fs.certify(b.clients, x)


def log_cosh(**stated: Any) -> fs.ScalarLoss:
    """φ(r) = log cosh r of the residual r: φ'' = 1 - tanh² r and φ''' = -2 tanh(r) φ''."""
    return fs.ScalarLoss(
        lambda eta, b: np.logaddexp(eta - b, b - eta) - np.log(2),
        lambda eta, b: np.tanh(eta - b),
        lambda eta, b: 1 - np.tanh(eta - b) ** 2,
        **stated,
    )


STATED = {"curvature_range": (0.0, 1.0), "concordance": 2.0, "floor": 0.0}


def test_a_log_cosh_regression_is_scipys_with_a_certificate() -> None:
    data = clients("huber", [30, 12, 25], 4, seed=3)
    p = fs.Problem(log_cosh(**STATED), data)

    def pooled(x: Array) -> tuple[float, Array]:
        value = 0.0
        gradient = np.zeros(4)
        for A, b, w in data:
            r = A @ x - b
            value += float(w @ (np.logaddexp(r, -r) - np.log(2)))
            gradient += A.T @ (w * np.tanh(r))
        return value, gradient

    theirs = minimize(pooled, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-10})
    result = fs.solve(p, rounds=500, tol=1e-13)
    assert result.converged
    assert result.x == pytest.approx(theirs.x, abs=1e-6)
    assert result.certificate.reason == "self-concordance"
    for scale in (1e-4, 1e-2):
        x = theirs.x + scale
        certificate = fs.certify(p.clients, x)
        truth = pooled(x)[0] - pooled(p.solution())[0]
        assert certificate.gap is not None
        assert certificate.distance is not None
        assert truth <= certificate.gap <= 10 * truth
        assert np.linalg.norm(x - p.solution()) <= certificate.distance


def test_without_a_concordance_there_is_no_certificate() -> None:
    data = clients("huber", [30, 12, 25], 4, seed=3)
    p = fs.Problem(log_cosh(curvature_range=(0.0, 1.0)), data)
    certificate = fs.certify(p.clients, p.solution())
    assert certificate.gap is None
    assert "how fast its Hessian changes is not known" in certificate.reason


def test_a_scalar_function_is_only_evaluated_at_targets_of_the_data() -> None:
    """17 observations are stacked as 18 rows; -log b would be infinite at a padding of b = 0."""
    data = [(A, b, w) for A, b, w in clients("gamma", [17], 3, seed=1)]
    own = fs.ScalarLoss(
        lambda eta, b: eta - np.log(b) + b * np.exp(-eta),
        lambda eta, b: 1 - b * np.exp(-eta),
        lambda eta, b: b * np.exp(-eta),
        concordance=1.0,
        floor=1.0,
    )
    p = fs.Problem(own, data)
    assert np.isfinite(p.objective(np.zeros(3)))
    np.testing.assert_allclose(p.solution(), fs.Problem(fs.Gamma(), data).solution(), rtol=1e-9)
    assert fs.certify(p.clients, p.solution()).gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"curvature_range": (1.0, 0.5)}, "curvature_range must be 0 <= low <= high"),
        ({"curvature_range": (-1.0, 0.5)}, "curvature_range must be 0 <= low <= high"),
        ({"concordance": -1.0}, "concordance must be at least 0"),
        ({"concordance": np.nan}, "concordance must be at least 0"),
        ({"floor": 1e3}, "client 0, row 0: .* at least its floor"),
        ({"floor": lambda b: 0.0}, r"client 0: floor must return shape \(30,\)"),
    ],
)
def test_a_false_statement_about_a_scalar_function_is_refused(
    stated: dict[str, Any], message: str
) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.Problem(log_cosh(**stated), clients("huber", [30], 4))


def test_a_scalar_function_that_is_not_elementwise_or_not_convex_is_refused() -> None:
    def zero(eta: Array, b: Array) -> Array:
        return np.zeros_like(b)

    data = clients("huber", [30], 4)
    with pytest.raises(fs.InputError, match=r"client 0: slope must return shape \(30,\)"):
        fs.Problem(fs.ScalarLoss(zero, lambda eta, b: np.sum(eta, keepdims=True), zero), data)
    with pytest.raises(fs.InputError, match=r"client 0, row 0: φ .* curvature -1"):
        fs.Problem(fs.ScalarLoss(zero, zero, lambda eta, b: -np.ones_like(b)), data)
    with pytest.raises(fs.InputError, match=r"client 0, row 0: φ .* value nan"):
        fs.Problem(fs.ScalarLoss(lambda eta, b: np.nan * b, zero, zero), data)


def longest(data: Client) -> float:
    """max ‖a_i‖, how fast the logistic Hessian changes."""
    return float(np.linalg.norm(data[0], axis=1).max())


def test_a_custom_loss_that_states_its_concordance_and_floor_gets_the_certificate_of_ours() -> None:
    ours = fs.Problem(fs.Logistic(), DATA)
    own = fs.Problem(
        fs.CustomLoss(value, gradient, 3, hessian, curvature, concordance=longest, floor=0.0), DATA
    )
    silent = fs.Problem(OWN["with a Hessian"], DATA)
    x = ours.solution() + 1e-3
    proved = fs.certify(own.clients, x)
    truth = ours.objective(x) - ours.objective(ours.solution())
    assert fs.certify(silent.clients, x).gap is None
    assert proved.reason == "self-concordance"
    assert proved.gap is not None
    assert truth <= proved.gap <= 2 * truth
    # The bound of an L1 penalty is by curvature, of which ours knows leverages too.
    for g, rel in ((fs.L1(0.1), 1e-2), (fs.L2Ball(5.0), 1e-9)):
        a, b = (fs.certify(p.clients, x, g) for p in (own, ours))
        assert a.gap == pytest.approx(b.gap, rel=rel)


def test_a_quadratic_of_the_users_own_may_say_that_it_is_one() -> None:
    H = np.diag([1.0, 30.0])
    loss = fs.CustomLoss(
        lambda x, c: float(0.5 * x @ H @ x - c @ x),
        lambda x, c: H @ x - c,
        2,
        lambda x, c: H,
        concordance=0,
    )
    p = fs.Problem(loss, [np.array([1.0, 2.0]), np.array([-3.0, 1.0])])
    x = p.solution() + np.array([0.1, -0.2])
    certificate = fs.certify(p.clients, x)
    assert certificate.reason == "a quadratic bound"
    assert certificate.gap == pytest.approx(p.objective(x) - p.objective(p.solution()), rel=1e-6)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"concordance": -1.0}, "client 0: concordance must be at least 0"),
        ({"concordance": lambda data: np.nan}, "client 0: concordance is not a number"),
        ({"concordance": "small"}, "concordance must be a number, or a function of the data"),
        ({"floor": lambda data: None}, "floor must be a number, or a function of the data"),
        ({"floor": 1e9}, "client 0: floor is 1e\\+09, but the value at x = 0 is"),
    ],
)
def test_a_false_statement_about_a_custom_loss_is_refused(
    stated: dict[str, Any], message: str
) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.Problem(fs.CustomLoss(value, gradient, 3, hessian, **stated), DATA)
