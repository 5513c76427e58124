"""Sparse rows: the answers of dense ones, by products alone, at any size."""

import gzip
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import bsr_array, coo_array, csc_matrix, csr_array, csr_matrix, lil_array
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_svmlight_file
from sklearn.linear_model import LogisticRegression

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import (
    Curvature,
    Decrement,
    Information,
    ProofScalars,
    Prox,
)
from fedsplit.data.splitting import SPLITS, split_rows
from fedsplit.dialogue import converse
from fedsplit.local import SOLVERS, ProxSolver
from fedsplit.loop.certificate import prove
from fedsplit.methods import METHODS, parse
from fedsplit.methods.lbfgs import LBFGSState
from open.stochastic import StochasticProx
from open.subsampled_newton import SubsampledNewtonProx
from penalty_examples import PENALTIES
from problems import LOSSES, clients, loss

SIZES = [30, 9, 5]

ESTIMATED = {"bounds", "smallest", "largest", "q", "mu", "ell", "leverage", "spread", "error"}
"""What is a bound or an estimate where matrices are too large: it is not compared there."""


@contextmanager
def by_products() -> Iterator[None]:
    """No matrix of a client is held, there are only products with its rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsplit.losses.designs.SMALL", 0)
        yield


def both(name: str, d: int = 6, ridge: float | Array = 0.7) -> tuple[fs.Problem, fs.Problem]:
    """The same rows, dense and sparse: about half of the entries are zero."""
    rng = np.random.default_rng(3)
    data = [
        (np.where(rng.uniform(size=A.shape) < 0.5, A, 0.0), b, w)
        for A, b, w in clients(name, SIZES, d)
    ]
    sparse = [(csr_array(A), b, w) for A, b, w in data]
    model: Any = loss(name, d)
    if name == "least-squares":
        model = fs.LeastSquares(rows=True)  # batches are drawn from rows
    return fs.Problem(model, data, ridge), fs.Problem(model, sparse, ridge)


class Recording(Clients):
    """Clients that keep the first and the last question of each kind."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        self.hessians = clients.hessians
        self.count = 0
        self.first: dict[type, CostQuestion] = {}
        self.last: dict[type, CostQuestion] = {}

    def ask(self, question: CostQuestion) -> Answer:
        self.count += 1
        self.first.setdefault(type(question), question)
        self.last[type(question)] = question
        return super().ask(question)


def assert_alike(question: CostQuestion, dense: fs.Problem, sparse: fs.Problem) -> None:
    """Sparse rows answer a question as dense ones do, to 1e-10, with matrices and by products."""
    expected = dense.clients.ask(question).parts
    small = sparse.clients.ask(question).parts
    assert_close(small, {part: expected[part] for part in expected if part != "error"})
    anew = sparse.with_ridge(sparse.ridge)  # without bounds that were kept
    with by_products():
        large = anew.clients.ask(question).parts
    assert_close(large, {part: expected[part] for part in expected if part not in ESTIMATED})


def assert_close(told: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for part, numbers in expected.items():
        size = np.max(np.abs(numbers), initial=1.0, where=np.isfinite(numbers))
        np.testing.assert_allclose(told[part], numbers, rtol=0, atol=1e-10 * size, err_msg=part)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_question_of_every_method_has_the_same_answer(name: str, method: str) -> None:
    if method == "cg" and name != "least-squares":
        pytest.skip("for quadratic costs")
    settings = {
        "fedsplit": ":step=0.1",
        "fedgd": ":step=0.01",
        "fedavg": ":step=0.001,batch=4",
    }
    dense, sparse = both(name)
    asked = Recording(dense.clients)
    fs.solve(asked, parse(method + settings.get(method, "")), rounds=5, tol=0)
    assert asked.count >= 5
    for question in (*asked.first.values(), *asked.last.values()):
        assert_alike(question, dense, sparse)


DRAWING_TOO: list[ProxSolver] = [
    *(SOLVERS[each]() for each in SOLVERS if each != "gradient"),
    fs.GradientProx(step=0.1),
    StochasticProx(step=0.01, batch=4),
    SubsampledNewtonProx(rows=6),
    SubsampledNewtonProx(rows=6, sketch="count"),
]
"""Those of the package, and those that draw rows."""


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("solver", DRAWING_TOO, ids=repr)
def test_every_local_solver_has_the_same_answer(name: str, solver: ProxSolver) -> None:
    dense, sparse = both(name)
    rng = np.random.default_rng(1)
    v = rng.standard_normal((3, 6))
    streams = rng.integers(2**63, size=3)
    question = Prox(v, 0.3, np.zeros(6), solver)
    assert_alike(question.seeded(streams) if question.draws else question, dense, sparse)


@pytest.mark.parametrize("penalty", sorted(PENALTIES))
def test_a_run_with_every_penalty_goes_the_same_way(penalty: str) -> None:
    method = fs.QuasiNewton()

    def end(problem: fs.Problem) -> Array:
        return fs.solve(problem, method, penalty=PENALTIES[penalty](6), rounds=6, tol=0).x

    dense, sparse = both("logistic")
    expected = end(dense)
    np.testing.assert_allclose(end(sparse), expected, atol=1e-10)
    with by_products():
        np.testing.assert_allclose(end(sparse), expected, atol=1e-10)


@pytest.mark.parametrize("free", [[], [0], [0, 3]])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_bounds_by_products_alone_are_true_ones(
    name: str, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsplit.losses.designs.SMALL", 0)
    ridge = np.full(6, 0.7)
    ridge[free] = 0.0  # as an intercept has none
    dense, sparse = (problem.clients for problem in both(name, ridge=ridge))
    x = 0.2 * np.random.default_rng(0).standard_normal(6)
    g = np.random.default_rng(1).standard_normal(6)
    for at in (None, x):
        true, bound = (each.ask(Curvature(at)).rows for each in (dense, sparse))
        assert (bound[:, 0] <= true[:, 0] * (1 + 1e-12)).all()
        assert (bound[:, 1] >= true[:, 1] * (1 - 1e-12)).all()
    proved = ProofScalars(**sparse.ask(Decrement(x, g)).parts)
    for H, q, mu in zip(dense.ask(Information(x)).rows, proved.q, proved.mu, strict=True):
        smallest = np.linalg.eigvalsh(H)[0]
        if smallest < 1e-9:  # Huber's loss, where no row curves along the free coordinates
            assert (q, mu) == (np.inf, 0.0)
        else:
            exact = g @ np.linalg.solve(H, g)
            assert exact * (1 - 1e-9) <= q <= 1.2 * exact
            assert 0.0 < mu <= smallest * (1 + 1e-9)


def test_a_run_by_products_alone_is_proved_and_ends_at_the_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense, sparse = both("logistic", 24)
    best = dense.objective(dense.solution())
    monkeypatch.setattr("fedsplit.losses.designs.SMALL", 0)
    for method in (
        None,
        fs.QuasiNewton(),
        fs.LBFGS(),
    ):
        result = fs.solve(sparse, method, tol=1e-9)
        assert result.converged
        assert result.certificate.gap is not None
        gap = sparse.objective(result.x) - best
        assert gap <= result.certificate.gap <= 1e-9 * max(1.0, best)


def test_without_a_ridge_nothing_is_proved_by_products_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsplit.losses.designs.SMALL", 0)
    _, sparse = both("logistic", 24, ridge=0.0)
    without_matrices = prove(np.zeros(24), largest=0.0)
    proof = converse(without_matrices, sparse.clients)
    assert proof.gap is None
    assert "add a ridge" in proof.reason


@pytest.mark.parametrize(
    "make", [csr_array, csr_matrix, csc_matrix, coo_array, bsr_array, lil_array]
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8"])
def test_sparse_rows_come_in_any_format_and_stay_as_they_are(make: Any, dtype: str) -> None:
    A = make(np.array([[1, 0, 2], [0, 0, 3]], dtype=dtype))
    before = A.toarray()
    problem = fs.Problem(fs.LeastSquares(), [(A, [1.0, 2.0])], ridge=1.0)
    assert problem.objective(np.ones(3)) == 0.5 * (2.0**2 + 1.0) + 1.5
    np.testing.assert_array_equal(A.toarray(), before)
    assert A.dtype == dtype


def test_entries_that_are_given_twice_are_added_without_a_change_to_the_callers_rows() -> None:
    A = csr_array((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    problem = fs.Problem(fs.LeastSquares(), [(A, [0.0])], ridge=1.0)
    assert problem.objective(np.array([1.0, 0.0])) == 0.5 * 9.0 + 0.5
    assert A.nnz == 2


def test_a_client_with_sparse_rows_and_one_with_dense_ones_solve_one_problem() -> None:
    data = clients("logistic", SIZES, 6)
    mixed = [(csr_array(A) if j else A, b, w) for j, (A, b, w) in enumerate(data)]
    problem = fs.Problem(fs.Logistic(), mixed, 0.7)
    plain = fs.Problem(fs.Logistic(), data, 0.7)
    np.testing.assert_allclose(problem.solution(), plain.solution(), atol=1e-9)


def beyond() -> csr_array:
    """A row with an entry in a column that it does not have."""
    A = csr_array(np.array([[1.0, 2.0]]))
    A.indices = np.array([0, 7])
    return A


def wrong() -> Iterator[tuple[Any, str]]:
    yield beyond(), "client 0: A is not a valid sparse matrix"
    yield csr_array((0, 2)), "client 0 is empty"
    yield csr_array(np.array([[0.0, np.nan]])), "client 0, row 0, column 1: A is nan"
    yield csr_array(np.array([[1j, 0.0]])), "client 0: A is not a matrix of real numbers"
    yield csr_array(np.array([[1.0, 0.0]])), "column 1 is zero at every client"


@pytest.mark.parametrize(("A", "message"), list(wrong()))
def test_sparse_rows_that_cannot_be_used_are_refused_in_one_line(A: Any, message: str) -> None:
    with pytest.raises(fs.InputError, match=message) as refused:
        fs.Problem(fs.LeastSquares(), [(A, [1.0])])
    assert "\n" not in str(refused.value)


def wide(d: int = 20_000) -> fs.Problem:
    """Two clients with few rows of many columns."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(2):
        places = rng.integers(d, size=20 * 15)
        A = csr_array((rng.standard_normal(300), places, np.arange(0, 301, 15)), shape=(20, d))
        parts.append((A, np.where(rng.uniform(size=20) < 0.5, 1.0, -1.0)))
    return fs.Problem(fs.Logistic(), parts, ridge=0.04)


@pytest.mark.parametrize("method", ["newton", "information"])
def test_a_method_whose_matrices_are_too_large_is_refused_with_the_name_of_one_that_can(
    method: str,
) -> None:
    with pytest.raises(
        fs.InputError, match=r"20000 × 20000 .* use QuasiNewton\(\) or LBFGS\(\)"
    ) as no:
        fs.solve(wide(), parse(method))
    assert "\n" not in str(no.value)


def test_a_hessian_that_is_too_large_is_refused_with_the_name_of_a_method_that_needs_none() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(fs.InputError, match=r"20000 × 20000 .* use QuasiNewton\(\)"):
        wide().clients.ask(Information(np.zeros(20_000)))
    # refused before its 6 GB are filled
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


def test_wide_rows_are_solved_and_proved_without_a_matrix_of_their_columns() -> None:
    problem = wide()
    best = problem.objective(problem.solution())
    result = fs.solve(problem, tol=1e-9)
    assert result.converged
    assert result.certificate.gap is not None
    assert problem.objective(result.x) - best <= result.certificate.gap
    assert isinstance(result.state.inner, LBFGSState)


@pytest.mark.parametrize("limit", ["losses.designs.SMALL", "problem.MOST_COORDINATES"])
def test_the_pooled_solution_by_products_is_that_by_matrices(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense, sparse = both("poisson", 24)
    monkeypatch.setattr(f"fedsplit.{limit}", 0)
    np.testing.assert_allclose(sparse.solution(), dense.solution(), atol=1e-8)


@pytest.mark.parametrize("split", sorted(SPLITS))
@pytest.mark.parametrize("m", [1, 7, 40])
def test_every_split_deals_out_every_row_once_and_leaves_nobody_without(split: str, m: int) -> None:
    labels = np.repeat([0.0, 1.0], [25, 15])
    parts = split_rows(labels, m, split, seed=3)
    assert len(parts) == m
    assert min(map(len, parts)) >= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(40))
    again = split_rows(labels, m, split, seed=3)
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


def test_splits_differ_in_what_their_names_say() -> None:
    labels = np.random.default_rng(0).integers(2, size=1000).astype(float)
    classes = {
        split: np.mean([len(set(labels[rows])) for rows in split_rows(labels, 10, split)])
        for split in ("iid", "label")
    }
    assert classes["iid"] == 2.0
    assert classes["label"] <= 1.2
    sizes = [len(rows) for rows in split_rows(labels, 10, "zipf")]
    assert sizes[0] > 5 * sizes[-1]
    shares = [labels[rows].mean() for rows in split_rows(labels, 10, "dirichlet")]
    assert np.std(shares) > 0.1


def test_more_clients_than_rows_are_refused() -> None:
    with pytest.raises(fs.InputError, match="3 rows cannot be split over 4 clients"):
        split_rows(np.zeros(3), 4)


def libsvm(path: Path) -> Path:
    """A small file: the larger of its two labels goes with the first column."""
    rng = np.random.default_rng(0)
    A = np.where(rng.uniform(size=(40, 6)) < 0.4, rng.standard_normal((40, 6)), 0.0)
    b = np.where(A[:, 0] + rng.standard_normal(40) > 0, 2, 1)
    dump_svmlight_file(A, b, str(path))
    return path


def test_a_libsvm_file_is_a_sparse_problem_with_the_ridge_of_any_problem(tmp_path: Path) -> None:
    path = libsvm(tmp_path / "rows.svm")
    problem = fs.Problem.from_libsvm(path, clients=5, split="zipf", ridge=4.0)
    assert (problem.m, problem.d) == (5, 6)
    A, b = load_svmlight_file(str(path))
    direct = fs.Problem(fs.Logistic(), [(A[:25], b[:25] == 2), (A[25:], b[25:] == 2)], ridge=4.0)
    np.testing.assert_allclose(problem.solution(), direct.solution(), rtol=1e-9)
    model = LogisticRegression(C=0.25, fit_intercept=False, tol=1e-10, max_iter=1000).fit(A, b)
    np.testing.assert_allclose(fs.solve(problem, tol=1e-13).x, model.coef_[0], atol=1e-5)
    least_squares = fs.Problem.from_libsvm(path, fs.LeastSquares(), ridge=0.1)
    assert least_squares.objective(np.zeros(6)) == pytest.approx(0.5 * np.sum(b**2))


def test_a_file_that_is_no_problem_is_refused_in_one_line(tmp_path: Path) -> None:
    none = tmp_path / "none.svm"
    with pytest.raises(fs.InputError, match="cannot be read"):
        fs.Problem.from_libsvm(none)
    whole = gzip.compress(b"1 1:2\n0 1:3\n" * 100)
    contents = {
        "words.svm": (b"yes 1:2\nno 1:3\n", "not a LIBSVM"),
        "many.svm": (b"1 1:2\n2 1:3\n3 1:1\n", "3 different values, .* pass loss="),
        "binary.svm": (bytes(range(128, 256)) * 100, "not a LIBSVM"),
        "cut.svm.gz": (whole[:-12], "the archive is damaged"),
        "wrong.svm.gz": (whole[:12] + b"\xff" + whole[13:], "cannot be read"),
        "twice.svm": (b"1 1:2 1:3\n0 1:3\n", "sorted and unique"),
        "huge.svm": (b"1 99999999999:1\n0 1:3\n", "not a LIBSVM"),
        "wide.svm": (b"1 2000000000:1\n0 1:3\n", "columns are too many"),
        "nan.svm": (b"1 1:1\nnan 1:3\n", "target of row 2 is nan"),
        "inf.svm": (b"1 1:1\n0 1:inf\n", "row 2 has an entry that is inf"),
        "empty.svm": (b"# nothing\n\n", "no rows"),
    }
    for name, (content, message) in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(fs.InputError, match=message) as refused:
            fs.Problem.from_libsvm(path)
        assert len(str(refused.value)) < 200 + len(str(path))
        assert "\n" not in str(refused.value)
        assert path.name in str(refused.value)


PLAIN = "1 1:0.5 3:2\n0 2:1\n1 1:1 2:1 3:1\n0 3:-1\n"


@pytest.mark.parametrize(
    "text",
    [
        "# by hand\n" + PLAIN.replace("2\n", "2 # a row\n\n"),
        PLAIN.replace(" ", " qid:7 ", 1),
        PLAIN.replace("1:", "0:").replace("2:", "1:").replace("3:", "2:"),
        PLAIN.replace("\n0", "\n-1"),
        PLAIN.replace("\n1", "\n2.5").replace("1 1", "2.5 1", 1).replace("\n0", "\n-1e1"),
    ],
    ids=["comments", "qid", "from zero", "-1 and 1", "floats"],
)
def test_spellings_of_one_file_are_one_problem(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text(text)
    (tmp_path / "plain.svm").write_text(PLAIN)
    plain = fs.Problem.from_libsvm(tmp_path / "plain.svm", ridge=0.1)
    problem = fs.Problem.from_libsvm(path, clients=3, split="label", ridge=0.1)
    np.testing.assert_allclose(problem.solution(), plain.solution(), atol=1e-9)


@pytest.mark.parametrize("split", sorted(SPLITS))
def test_a_table_of_others_is_fitted_as_scikit_learn_does_whatever_the_split(split: str) -> None:
    table = load_breast_cancer()
    A = csr_array(np.where(table.data > np.median(table.data, axis=0), 1.0, 0.0))
    b = 2.0 * table.target - 1.0
    parts = split_rows(b, 9, split)
    problem = fs.Problem(fs.Logistic(), [(A[rows], b[rows]) for rows in parts], ridge=1.0)
    found = fs.solve(problem, tol=1e-14)
    assert found.converged
    model = LogisticRegression(
        C=1.0, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=100
    ).fit(A.toarray(), b)
    np.testing.assert_allclose(found.x, model.coef_[0], atol=1e-6)
    np.testing.assert_allclose(problem.solution(), model.coef_[0], atol=1e-8)
