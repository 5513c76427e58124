"""Kernels and methods on a GPU; run by make test-gpu, and skipped without CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array, to_host
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Descend, Gradient, Prox, Reflection
from fedsplit.device.clients import DeviceClients
from fedsplit.device.placing import StackedRows, place

pytestmark = pytest.mark.gpu
cp: Any = pytest.importorskip("cupy")

LOSSES: dict[str, Any] = {
    "least squares": fs.LeastSquares(),
    "logistic": fs.Logistic(),
    "poisson": fs.Poisson(),
    "huber": fs.Huber(0.7),
}

SOLVERS: dict[str, Any] = {
    "gradient": fs.GradientProx(10, step=0.1),
    "own steps": fs.GradientProx(4),
    "exact": fs.ExactProx(),
    "from the iterate": fs.GradientProx(3, start="iterate", step=0.05),
    "from the argument": fs.GradientProx(3, start="argument", step=0.05),
}

SHAPES = [(n, d) for n in (1, 9, 32) for d in (1, 99, 128)]

EVERY_SHAPE = [
    (loss, solver, n, d, (i + k) % 2 == 1)
    for i, (n, d) in enumerate(SHAPES)
    for k, (solver, loss) in enumerate(
        zip(SOLVERS, ("logistic", "huber", "poisson", "least squares", "logistic"), strict=True)
    )
]

EVERY_LOSS = [
    (loss, solver, 9, 99, weighted)
    for loss in LOSSES
    for solver in SOLVERS
    for weighted in (False, True)
    if (loss, solver) != ("poisson", "own steps")  # Poisson has no L_j
]


def clients_of(loss: Any, n: int, d: int, weighted: bool, ridge: float = 0.1) -> DeviceClients:
    """Seventeen clients, a number that three does not divide, with rows in float32."""
    m = 17
    rng = np.random.default_rng([n, d])
    A = rng.standard_normal((m, n, d)) / np.sqrt(d)
    b = loss.sample(A @ rng.standard_normal(d), rng)
    weights = rng.integers(0, 3, size=(m, n)) + (np.arange(n) == 0) if weighted else None
    offset = 0.3 * rng.standard_normal((m, n)) if weighted else None
    rows = place(loss, StackedRows(A, b, weights, offset), np.array(ridge), "cuda", "float32")
    return DeviceClients(rows, np.full(d, ridge / m))


def plain(clients: DeviceClients) -> DeviceClients:
    """The same clients without kernels, who compute in float64."""
    return DeviceClients(clients.rows, clients.ridge, fused=False)


def answers(clients: DeviceClients, question: CostQuestion) -> tuple[Answer, Answer]:
    """Those of kernels, and those of the plain path."""
    fused, reference = clients.ask(question), plain(clients).ask(question)
    assert fused.summary is not None  # a kernel has answered
    assert reference.summary is None
    assert str(fused.rows.dtype) == "float32"
    return fused, reference


def distance(ours: Any, theirs: Any) -> float:
    """The relative distance of two arrays."""
    return float(np.linalg.norm(to_host(ours) - to_host(theirs)) / np.linalg.norm(to_host(theirs)))


@pytest.mark.parametrize(
    ("loss", "solver", "n", "d", "weighted"), sorted({*EVERY_SHAPE, *EVERY_LOSS})
)
def test_a_round_of_algorithm_1_by_a_kernel_is_that_of_the_plain_path(
    loss: str, solver: str, n: int, d: int, weighted: bool
) -> None:
    clients = clients_of(LOSSES[loss], n, d, weighted)
    x = clients.vector(np.linspace(-0.5, 0.5, d))
    z = cp.asarray(np.random.default_rng(0).standard_normal((17, d)), dtype=cp.float32)
    fused, reference = answers(clients, Reflection(x, z, 0.8, SOLVERS[solver]))
    assert distance(fused.rows, reference.rows) <= 1e-5
    moved = float(cp.linalg.norm(reference.rows - z))
    assert distance(fused.rows - z, reference.rows - z) <= 1e-4
    summary: Any = fused.summary
    largest = float(cp.abs(reference.rows).max())
    means = to_host(reference.rows).mean(axis=0)
    np.testing.assert_allclose(to_host(summary.mean), means, rtol=0, atol=3e-6 * largest)
    assert summary.moved == pytest.approx(moved, rel=1e-4)
    # the error is what is left of the gradient of h_j, which is (1 + sλ/m)-strongly convex
    u = x + 0.5 * (reference.rows - z)
    left = 0.8 * plain(clients).ask(Gradient(u)).rows + u - (2.0 * x - z)
    error = float(cp.linalg.norm(left, axis=1).max()) / (1.0 + 0.8 * 0.1 / 17)
    assert summary.error == pytest.approx(error, rel=1e-2, abs=1e-4 * largest)
    assert fused.floats() == reference.floats()
    assert clients.objective(x) == pytest.approx(plain(clients).objective(x), rel=1e-5)


@pytest.mark.parametrize("solver", ["gradient", "own steps", "exact"])
@pytest.mark.parametrize("loss", ["least squares", "logistic", "huber"])
def test_proxes_and_local_gradient_steps_by_a_kernel_are_those_of_the_plain_path(
    loss: str, solver: str
) -> None:
    clients = clients_of(LOSSES[loss], 9, 99, weighted=True)
    x = clients.vector(np.linspace(-0.5, 0.5, 99))
    V = clients.vector(np.random.default_rng(0).standard_normal((17, 99)))
    questions = (
        Prox(V, 0.8, x, SOLVERS[solver]),
        Prox(x, 0.8, None, SOLVERS[solver]),
        Descend(x, 0.1, 5),
    )
    for question in questions:
        fused, reference = answers(clients, question)
        assert distance(fused.rows - x, reference.rows - x) <= 1e-4
        assert distance(fused.summary.mean, to_host(reference.rows).mean(axis=0)) <= 1e-5  # type: ignore[union-attr]


@pytest.mark.parametrize("separable", [True, False])
def test_a_kernel_sees_whether_classes_are_separated(separable: bool) -> None:
    clients = clients_of(fs.Logistic(), 5, 20, weighted=False, ridge=0.0)
    A, b = to_host(clients.rows.A), to_host(clients.rows.b)
    a = A.reshape(-1, 20)
    x = np.linalg.lstsq(a, np.where(np.arange(85) < 20, b.ravel(), 0.0))[0]
    signs = np.sign(A @ x)
    if not separable:
        signs[16, 4] *= -1.0
    rows = place(fs.Logistic(), StackedRows(A, signs), np.array(0.0), "cuda", "float32")
    own = DeviceClients(rows, clients.ridge)
    at = own.vector(x)
    fused, reference = answers(own, Prox(at, 0.5, None, fs.ExactProx()))
    assert fused.margin == reference.margin == (1.0 if separable else -1.0)


def test_rows_that_kernels_cannot_read_where_they_are_take_the_plain_path() -> None:
    for skipped in (0, 1):  # one number has four bytes, and sixteen are copied at once
        A = cp.ones(skipped + 17 * 3 * 8, dtype=cp.float32)[skipped:].reshape(17, 3, 8)
        data = StackedRows(A, A[:, :, 0].copy())
        rows = place(fs.LeastSquares(), data, np.array(1.0), None, None)
        clients = DeviceClients(rows, np.full(8, 0.1))
        answer = clients.ask(Descend(clients.vector(np.zeros(8)), 0.1, 2))
        assert (answer.summary is None) == bool(skipped)


METHODS: dict[str, Any] = {
    "fedsplit": fs.FedSplit(0.5),
    "fedsplit, gradient": fs.FedSplit(0.3, fs.GradientProx(10, step=0.1)),
    "fedgd": fs.FedGD(0.1, 3),
    "fedprox": fs.FedProx(0.5),
    "fedavg": fs.FedAvg(0.1, 3),
    "fedavg, batches": fs.FedAvg(0.01, 3, batch=2),
    "scaffold": fs.SCAFFOLD(0.02),
    "scaffnew": fs.Scaffnew(),
    "admm": fs.ADMM(),
    "feddyn": fs.FedDyn(),
    "giant": fs.GIANT(),
    "lbfgs": fs.LBFGS(),
    "newton": fs.Newton(),
    "fedsplit, some clients": fs.FedSplit(0.5),
}


def data(library: str, dtype: str) -> tuple[list[Any], StackedRows]:
    """The same rows for this process, and in a library."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 6, 20)).astype(dtype)
    b = np.sign(rng.standard_normal((40, 6))).astype(dtype)
    arrays: dict[str, Any] = {"cupy": cp.asarray}
    if library != "cupy":
        torch = pytest.importorskip("torch")
        arrays["torch"] = torch.asarray  # on a processor, where tensors stay
    array = arrays[library]
    return list(zip(A.astype(float), b.astype(float), strict=True)), StackedRows(array(A), array(b))


@pytest.mark.parametrize(
    ("library", "dtype", "tolerance"),
    [("cupy", "float32", 1e-5), ("cupy", "float64", 1e-10), ("torch", "float64", 1e-10)],
)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_ends_where_it_does_in_this_process(
    method: str, library: str, dtype: str, tolerance: float
) -> None:
    host, rows = data(library, dtype)
    problems = [fs.Problem(fs.Logistic(), each, ridge=5.0) for each in (host, rows)]
    share = 0.5 if "some" in method else 1.0
    ends: list[Array] = [
        fs.solve(each, METHODS[method], rounds=8, tol=0, participation=share).x for each in problems
    ]
    assert distance(ends[1], ends[0]) <= tolerance


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("penalty", [None, fs.L1(2.0)])
@pytest.mark.parametrize("method", [None, fs.FedSplit(0.5), fs.ADMM()])
def test_a_run_proves_what_it_finds(method: Any, penalty: Any, dtype: str) -> None:
    rows = fs.ensembles.logistic(200, 20, 5, 0.05, device="cuda", dtype=dtype).rows
    problem = fs.Problem(fs.Logistic(), rows, ridge=10.0)
    result = fs.solve(problem, method, rounds=400, tol=1e-6, penalty=penalty)
    assert result.converged
    assert result.certificate.gap is not None
    A, b = (to_host(each).astype(float) for each in (rows.A, rows.b))
    host = fs.Problem(fs.Logistic(), list(zip(A, b, strict=True)), ridge=10.0)
    best = fs.solve(host, tol=1e-10, penalty=penalty).x

    def whole(x: Array) -> float:
        return host.objective(x) + (0.0 if penalty is None else penalty.value(x))

    assert whole(result.x) - whole(best) <= result.certificate.gap


def test_a_run_by_kernels_is_refined_in_float64_where_float32_ends() -> None:
    rows = fs.ensembles.logistic(200, 20, 5, 0.05, device="cuda", dtype="float32").rows
    problem = fs.Problem(fs.Logistic(), rows, ridge=10.0)
    result = fs.solve(problem, fs.FedSplit(0.5), tol=1e-12)
    assert result.converged
    assert any("float32 ended" in note for note in result.notes)


def test_arrays_of_pytorch_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    A, b = np.random.default_rng(0).standard_normal((2, 40, 6, 20))
    b = np.sign(b[:, :, 0])
    found = []
    for array in (cp.asarray, lambda a: torch.tensor(a, device="cuda")):
        rows = StackedRows(array(A), array(b))
        problem = fs.Problem(fs.Logistic(), rows, ridge=5.0, dtype="float32")
        found.append(fs.solve(problem, fs.FedSplit(0.5), tol=1e-6).x)
    assert (found[0] == found[1]).all()
    wanted = torch.tensor(A, device="cuda")
    taken = place(fs.Logistic(), StackedRows(wanted, array(b)), np.array(1.0), None, None)
    assert taken.A.data.ptr == wanted.data_ptr()


def test_too_little_memory_is_said_with_the_bytes() -> None:
    with pytest.raises(fs.InputError, match=r"needs 4,040,000,000,000 bytes on the GPU, and"):
        fs.ensembles.logistic(10**9, 100, 10, device="cuda", dtype="float32")
    huge = np.broadcast_to(1.0, (10**8, 10, 100))
    with pytest.raises(fs.InputError, match=r"data needs 800,000,000,000 bytes on the GPU, and"):
        fs.Problem(fs.LeastSquares(), StackedRows(huge, huge[:, :, 0]), device="cuda")


def test_an_answer_that_does_not_fit_is_refused_in_a_line() -> None:
    rows = fs.ensembles.logistic(2_000_000, 100, 2, device="cuda", dtype="float32").rows
    problem = fs.Problem(fs.Logistic(), rows)
    question = fs.questions.Information(problem.clients.vector(np.zeros(100)))
    with pytest.raises(fs.InputError, match="2,000,000 clients to information does not fit"):
        problem.clients.ask(question)
    del rows, problem, question
    cp.get_default_memory_pool().free_all_blocks()
