"""Kernels on a GPU against the plain path; run by make test-gpu, and skipped without CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.clients.questions import Descend, Prox
from fedsplit.device.answers import DeviceAnswer
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
    "newton": fs.NewtonProx(),
    "from the iterate": fs.GradientProx(3, start="iterate", step=0.05),
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


def clients_of(loss: Any, n: int, d: int, weighted: bool, seed: int = 0) -> DeviceClients:
    """Seventeen clients, or another number that three does not divide."""
    m = 17
    rng = np.random.default_rng([seed, n, d])
    A = rng.standard_normal((m, n, d)) / np.sqrt(d)
    eta = A @ rng.standard_normal(d)
    b = loss.sample(eta, rng)
    weights = rng.integers(0, 3, size=(m, n)) + (np.arange(n) == 0) if weighted else None
    offset = 0.3 * rng.standard_normal((m, n)) if weighted else None
    rows = place(loss, StackedRows(A, b, weights, offset), np.array(0.1), "cuda", "float32")
    return DeviceClients(rows, np.full(d, 0.1 / m))


def plain(clients: DeviceClients) -> DeviceClients:
    """The same clients in float64, which have no kernels."""
    rows = clients.rows
    arrays = [None if a is None else a.astype(cp.float64) for a in (rows.A, rows.b, rows.w, rows.o)]
    wide = place(rows.phi, StackedRows(*arrays), np.array(0.1), None, None)
    assert DeviceClients(wide, clients.ridge).local.kernels is None
    return DeviceClients(wide, clients.ridge)


def points(clients: DeviceClients, solver: Any, rounds: int = 3) -> tuple[list[Any], Any]:
    """The answers of some rounds of plain FedSplit, and what the host reads of the last."""
    x = clients.vector(np.linspace(-0.5, 0.5, clients.d))
    z = clients.repeated(x)
    found = []
    for _ in range(rounds):
        v = -z + 2.0 * x
        start = {"broadcast": x, "iterate": z, "argument": v}[solver.start]
        answer = clients.ask(Prox(v, 0.8, start, solver))
        p: Any = answer.rows
        found.append(cp.asnumpy(p.dense()))
        moved = p - x
        z = z + 2.0 * moved
        x = z.mean()
    assert isinstance(answer, DeviceAnswer)
    assert answer.told.value is not None
    numbers = answer.told.value(), answer.largest_error(), answer.margin, moved.norm()
    return found, (*numbers, cp.asnumpy(x))


@pytest.mark.parametrize(
    ("loss", "solver", "n", "d", "weighted"), sorted({*EVERY_SHAPE, *EVERY_LOSS})
)
def test_a_kernel_answers_as_the_plain_path(
    loss: str, solver: str, n: int, d: int, weighted: bool
) -> None:
    clients = clients_of(LOSSES[loss], n, d, weighted)
    fused, told = points(clients, SOLVERS[solver])
    reference, expected = points(plain(clients), SOLVERS[solver])
    for ours, theirs in zip(fused, reference, strict=True):
        assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)
    value, error, margin, moved, x = told
    assert value == pytest.approx(expected[0], rel=1e-5)
    assert error == pytest.approx(expected[1], rel=1e-2, abs=3e-4 * np.abs(reference[-1]).max())
    assert margin == pytest.approx(expected[2], nan_ok=True)
    assert moved == pytest.approx(expected[3], rel=1e-4)
    assert np.linalg.norm(x - expected[4]) <= 1e-5 * np.linalg.norm(expected[4])


@pytest.mark.parametrize("loss", LOSSES)
def test_local_gradient_steps_by_a_kernel_are_those_of_the_plain_path(loss: str) -> None:
    clients = clients_of(LOSSES[loss], 9, 99, weighted=True)
    x = np.linspace(-0.5, 0.5, clients.d)
    question = [c.ask(Descend(c.vector(x), 0.1, 5)).rows for c in (clients, plain(clients))]
    ours, theirs = (cp.asnumpy(rows.dense()) for rows in question)  # type: ignore[attr-defined]
    assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)


def test_answers_of_kernels_keep_the_form_of_n_numbers_per_client() -> None:
    clients = clients_of(fs.Logistic(), 9, 99, weighted=False)
    x = clients.vector(np.zeros(99))
    z: Any = clients.repeated(x)
    answer: Any = clients.ask(Prox(z, 0.5, x, fs.ExactProx())).rows
    _, displacement = answer.displacement
    assert displacement.c.shape == (17, 9)


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
