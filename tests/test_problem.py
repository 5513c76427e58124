"""What a Problem accepts, what it refuses and with which words, and its pooled solution."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import csr_array

import fedsplit as fs
from fedsplit.clients.questions import Gradient, Value
from problems import LOSSES, loss

A = np.arange(1.0, 9.0).reshape(4, 2)
B = np.array([1.0, 0.0, 1.0, 1.0])
HOLE = A.copy()
HOLE[2, 1] = np.nan

BAD_CLIENTS: list[tuple[str, object, str]] = [
    ("no client", [], "there is no client"),
    ("not a list", 5, "one .* per client, not int"),
    ("an empty client", [(A, B), (A[:0], B[:0])], "client 1 is empty"),
    ("no columns", [(A[:, :0], B)], "client 0: A has no columns"),
    ("NaN in A", [(A, B), (HOLE, B)], "client 1, row 2, column 1: A is nan"),
    ("infinity in b", [(A, [0, np.inf, 1, 1])], "client 0, row 1: b is inf"),
    ("NaN weight", [(A, B, [1, 1, np.nan, 1])], "client 0, row 2: weights is nan"),
    (
        "A not two-dimensional",
        [(B, B)],
        r"client 0: A must have 2 dimension\(s\), its shape is \(4,\)",
    ),
    ("b not one-dimensional", [(A, B[:, None])], r"client 0: b must have 1 dimension\(s\)"),
    ("rows do not match", [(A, B), (A, B[:3])], "client 1: b has 3 entries, but A has 4 rows"),
    ("weights do not match", [(A, B, [1.0])], "client 0: weights has 1 entries, but A has 4 rows"),
    ("columns differ", [(A, B), (A[:, :1], B)], "client 1: A has 1 columns, but client 0 has 2"),
    (
        "infinity in the offset",
        [(A, B, None, [0, 0, -np.inf, 0])],
        "client 0, row 2: offset is -inf",
    ),
    (
        "offsets do not match",
        [(A, B), (A, B, None, [1.0])],
        "client 1: offset has 1 entries, but A has 4 rows",
    ),
    ("too many parts", [(A, B, B, B, B)], r"client 0: expected .* or \(A, b, weights, offset\)"),
    ("weight below zero", [(A, B, [1, 1, 1, -2])], "client 0, row 3: weight -2 is below zero"),
    ("all weights zero", [(A, B), (A, B, np.zeros(4))], "client 1 is empty: every weight is zero"),
    ("not a pair", [A], "client 0: expected"),
    ("words", [([["a", "b"]], [1])], "client 0: A is not an array of real numbers"),
    ("complex numbers", [(A + 1j, B)], "client 0: A is not an array of real numbers"),
    ("a column of zeros", [(A * [1, 0], B), (A * [2, 0], B)], "column 1 is zero at every client"),
]


@pytest.mark.parametrize(
    ("clients", "message"), [case[1:] for case in BAD_CLIENTS], ids=[c[0] for c in BAD_CLIENTS]
)
@pytest.mark.parametrize(
    "name",
    sorted(LOSSES),
)
def test_bad_clients_are_refused_by_name(name: str, clients: object, message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.Problem(loss(name, 2), clients)  # type: ignore[arg-type]  # wrong types are the point


def test_sparse_targets_are_told_what_to_do() -> None:
    with pytest.raises(fs.InputError, match=r"client 0: b is sparse, pass b.toarray\(\)"):
        fs.Problem(fs.LeastSquares(), [(np.eye(2), csr_array([[1.0, 2.0]]))])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 0, 1, 1], [1, -1, 1, 1]], r"client 0, row 1: label 0; .*client 1 uses -1 and 1"),
        ([[1, 0, 1, 1], [1, 2, 1, 1]], "client 1, row 1: label 2"),
        ([[0.5, 0, 1, 1], [1, 0, 1, 1]], "client 0, row 0: label 0.5"),
    ],
)
def test_labels_outside_the_set_are_refused(labels: list[list[float]], message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.Problem(fs.Logistic(), [(A, b) for b in labels])


def test_a_client_may_have_one_class_only() -> None:
    p, q = (
        fs.Problem(fs.Logistic(), [(A, np.array(one)), (A, np.array(both))])
        for one, both in (([0, 0, 0, 0], [0, 1, 1, 0]), ([-1, -1, -1, -1], [-1, 1, 1, -1]))
    )
    assert p.objective(np.ones(2)) == q.objective(np.ones(2))


def test_counts_below_zero_are_refused() -> None:
    with pytest.raises(
        fs.InputError, match="client 0, row 1: b is -1, it must be a count of at least zero"
    ):
        fs.Problem(fs.Poisson(), [(A, [0, -1, 2, 3])])


def test_amounts_that_are_not_above_zero_are_refused() -> None:
    with pytest.raises(fs.InputError, match="client 1, row 2: b is 0, it must be above zero"):
        fs.Problem(fs.Gamma(), [(A, [1, 2, 3, 4]), (A, [1, 2, 0, 4])])


@pytest.mark.parametrize("label", [-1, 3, 0.5])
def test_labels_that_are_no_class_are_refused(label: float) -> None:
    with pytest.raises(
        fs.InputError, match=f"client 1, row 3: b is {label:g}, it must be a label 0, 1, ..., 2"
    ):
        fs.Problem(fs.Multinomial(3), [(A, [0, 1, 2, 0]), (A, [0, 1, 2, label])])


def test_a_multinomial_takes_two_classes_or_more_and_no_offset() -> None:
    for classes in (1, 2.5, "3"):
        with pytest.raises(fs.InputError, match="classes must be a whole number of at least 2"):
            fs.Multinomial(classes)  # type: ignore[arg-type]  # wrong types are the point
    with pytest.raises(fs.InputError, match="client 1: Multinomial takes no offset"):
        fs.Problem(fs.Multinomial(2), [(A, B, None, np.zeros(4)), (A, B, None, np.ones(4))])


def test_a_multinomial_has_a_ridge_for_every_class_and_column() -> None:
    labels, x = [0, 1, 2, 2], np.arange(4.0)
    plain, ridged = (
        fs.Problem(fs.Multinomial(3), [(A, labels)], ridge) for ridge in (0.0, [1.0, 2.0, 3.0, 4.0])
    )
    assert ridged.objective(x) == pytest.approx(plain.objective(x) + 0.5 * (2 + 3 * 4 + 4 * 9))
    with pytest.raises(fs.InputError, match="ridge must be a number or have 4 entries"):
        fs.Problem(fs.Multinomial(3), [(A, labels)], ridge=[1.0, 2.0])
    with pytest.raises(fs.InputError, match="column 1 is zero at every client"):
        fs.Problem(fs.Multinomial(3), [(A * [1, 0], labels)], ridge=[1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("ridge", [-1.0, np.nan, np.inf, [1.0, -1.0], "much"])
def test_a_bad_ridge_is_refused(ridge: float) -> None:
    with pytest.raises(fs.InputError, match="ridge must be"):
        fs.Problem(fs.LeastSquares(), [(A, B)], ridge=ridge)


def test_a_ridge_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(fs.InputError, match="ridge must be a number or have 2 entries"):
        fs.Problem(fs.LeastSquares(), [(A, B)], ridge=[1.0, 2.0, 3.0])


def test_a_ridge_allows_a_column_of_zeros() -> None:
    zero = A * [1, 0]
    for ridge in (1.0, [0.0, 1.0]):
        x = fs.Problem(fs.LeastSquares(), [(zero, B)], ridge=ridge).solution()
        assert x[1] == 0.0
    with pytest.raises(fs.InputError, match="column 1"):
        fs.Problem(fs.LeastSquares(), [(zero, B)], ridge=[1.0, 0.0])


def test_delta_must_be_positive() -> None:
    for delta in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(fs.InputError, match="delta"):
            fs.Huber(delta)


def test_a_point_of_the_wrong_shape_is_refused() -> None:
    p = fs.Problem(fs.LeastSquares(), [(A, B)])
    with pytest.raises(fs.InputError, match=r"shape \(2,\)"):
        p.objective(np.zeros(3))


def test_the_callers_arrays_are_not_changed() -> None:
    design, response = A.copy(), B.copy()
    p = fs.Problem(fs.Logistic(), [(design, response), (design, response)], ridge=1.0)
    fs.solve(p, rounds=5)
    np.testing.assert_array_equal(design, A)
    np.testing.assert_array_equal(response, B)


def test_ensembles_are_drawn_from_what_they_say() -> None:
    wide = fs.ensembles.logistic(2, 5, 3, scale=4.0, seed=1).x_true
    np.testing.assert_allclose(wide, 2.0 * fs.ensembles.logistic(2, 5, 3, seed=1).x_true)
    columns = fs.ensembles.badly_scaled(1, 6, 50, decades=4.0).rows[0][0]
    plain = fs.ensembles.isotropic(1, 6, 50).rows[0][0]
    units = columns / plain  # the same numbers in other units
    np.testing.assert_allclose(units, np.tile(units[0], (50, 1)))
    assert (np.abs(np.log10(units[0])) <= 2.0).all()
    assert np.ptp(np.log10(units[0])) > 1.0
    # uniform over the orthogonal matrices only if R of Gaussian = QR has a positive diagonal
    Q = fs.ensembles.haar(7, 4, np.random.default_rng(0))
    R = Q.T @ np.random.default_rng(0).standard_normal((7, 4))
    assert (np.diag(R) > 0).all()


@pytest.mark.parametrize("seed", range(8))
def test_the_pooled_solution_is_exact_to_rounding(seed: int) -> None:
    p = fs.ensembles.logistic(3, 4, 9, seed=seed).with_ridge(0.5)
    x = p.solution()
    step = np.linalg.solve(p.clients.pooled_information(x), p.gradient(x))
    assert np.linalg.norm(step) <= 1e-14 * np.linalg.norm(x)


def test_separable_classes_have_no_minimiser_without_a_ridge() -> None:
    x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
    data = [(x, np.array([0, 0, 1, 1]))]
    with pytest.raises(fs.NoMinimiser, match="add a ridge"):
        fs.Problem(fs.Logistic(), data).solution()
    assert np.isfinite(fs.Problem(fs.Logistic(), data, ridge=0.1).solution()).all()


def test_a_singular_pool_has_some_minimiser() -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((30, 3))
    p = fs.Problem(fs.LeastSquares(), [(np.hstack([half, half]), rng.standard_normal(30))])
    assert np.linalg.norm(p.gradient(p.solution())) < 1e-12


def test_badly_scaled_columns_are_not_mistaken_for_a_singular_pool() -> None:
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.array([-6, -3, 0, 3, 6])
    design, truth = rng.standard_normal((200, 5)), np.arange(1.0, 6.0)
    p = fs.Problem(fs.LeastSquares(), [(design * scales, design @ truth)])
    np.testing.assert_allclose(p.solution() * scales, truth, rtol=1e-10)


def test_the_pooled_solution_is_found_where_the_cost_is_flat_at_zero() -> None:
    rng = np.random.default_rng(0)
    for offset in (5.0, 100.0, 1e4):  # every residual at x = 0 is beyond delta: no curvature there
        data = [
            (
                np.column_stack([np.ones(40), rng.standard_normal(40)]),
                offset + rng.standard_normal(40),
            )
            for _ in "ab"
        ]
        p = fs.Problem(fs.Huber(), data)
        assert np.linalg.norm(p.gradient(p.solution())) < 1e-12 * offset


def test_the_pooled_solution_is_found_where_a_full_newton_step_overshoots() -> None:
    p = fs.Problem(fs.Poisson(), [(np.ones((3, 1)), [90_000, 100_000, 110_000])])
    np.testing.assert_allclose(p.solution(), np.log(100_000), rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_the_pooled_solution_has_no_units(scale: float) -> None:
    rng = np.random.default_rng(3)
    design = rng.standard_normal((60, 3))
    labels = rng.logistic(size=60) < design.sum(axis=1)
    x = [fs.Problem(fs.Logistic(), [(design * s, labels)]).solution() * s for s in (scale, 1.0)]
    np.testing.assert_allclose(x[0], x[1], rtol=1e-9)


def test_one_column_and_an_exact_answer_are_no_trouble() -> None:
    assert fs.Problem(
        fs.LeastSquares(), [([[1.0], [1.0]], [1.0, 3.0])]
    ).solution() == pytest.approx(2.0, rel=1e-15)
    assert not fs.Problem(fs.LeastSquares(), [(A, 0 * B)]).solution().any()


def test_an_ill_conditioned_pool_is_solved_as_far_as_rounding_allows() -> None:
    design, b = np.vander(np.linspace(0, 1, 50), 9), np.sin(np.arange(50.0))
    x = fs.Problem(fs.LeastSquares(), [(design, b)]).solution()
    np.testing.assert_allclose(x, np.linalg.lstsq(design, b)[0], rtol=1e-4)


def test_a_class_in_the_place_of_an_object_is_named() -> None:
    with pytest.raises(fs.InputError, match=r"LeastSquares\(...\), not the class"):
        fs.Problem(fs.LeastSquares, [(A, B)])  # type: ignore[arg-type]  # a class is the point
    with pytest.raises(fs.InputError, match=r"FedSplit\(...\), not the class"):
        fs.solve(fs.Problem(fs.LeastSquares(), [(A, B)]), fs.FedSplit)  # type: ignore[arg-type]  # the same
    with pytest.raises(fs.InputError, match=r"ExactProx\(...\), not the class"):
        fs.FedSplit(prox=fs.ExactProx)  # type: ignore[arg-type]  # the same


# Random problems


ENSEMBLES: dict[str, Callable[..., fs.ensembles.Ensemble]] = {
    "isotropic": fs.ensembles.isotropic,
    "spiked": fs.ensembles.spiked,
    "log_uniform": fs.ensembles.log_uniform,
    "badly_scaled": fs.ensembles.badly_scaled,
    "logistic": fs.ensembles.logistic,
    "label_sorted": fs.ensembles.label_sorted,
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_an_ensemble_is_a_problem_that_solve_takes(name: str) -> None:
    p = ENSEMBLES[name](m=3, d=4, n=40, seed=1)
    assert (p.m, p.d, len(p.rows), p.x_true.shape) == (3, 4, 3, (4,))
    np.testing.assert_array_equal(p.clients.ask(Value(p.x_true)).rows.sum(), p.objective(p.x_true))
    again = fs.Problem(p.loss, p.rows)
    x = p.with_ridge(1.0).solution()
    result = fs.solve(p.with_ridge(1.0))
    assert result.converged
    np.testing.assert_allclose(result.x, x, atol=1e-4 * float(np.linalg.norm(x)))
    assert again.objective(x) == p.objective(x)
    # the ridge is that of the whole objective, however many clients share it
    ridged = p.objective(x) + 0.5 * float(x @ x)
    assert p.with_ridge(1.0).objective(x) == pytest.approx(ridged, rel=1e-12)
    assert fs.Problem(p.loss, p.rows, 1.0).objective(x) == pytest.approx(ridged, rel=1e-12)


def test_a_part_of_an_ensemble_has_the_rows_of_its_clients_alone() -> None:
    whole = fs.ensembles.spiked(m=4, d=3, n=6)
    part = whole.part(range(1, 3))
    assert len(part.rows) == part.m == 2
    assert part.rows[0] is whole.rows[1]
    x = np.ones(3)
    value = sum(0.5 * np.square(A @ x - b).sum() for A, b in part.rows)
    assert part.objective(x) == pytest.approx(value, rel=1e-12)


def test_a_client_of_an_ensemble_is_the_same_among_however_many() -> None:
    few, many = (fs.ensembles.isotropic(m=m, d=3, n=6) for m in (2, 5))
    for one, other in zip(few.rows, many.rows[:2], strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_spectra_of_ensembles_are_what_they_say() -> None:
    spiked = fs.ensembles.spiked(m=2, d=4, n=9, kappa=50.0).rows
    graded = fs.ensembles.log_uniform(m=2, d=4, n=9, kappa=1e3).rows
    own = fs.ensembles.log_uniform(m=2, d=4, n=9, kappa=1e3, shared=False).rows
    for rows, eigenvalues in (
        (spiked, [1.0, 1.0, 1.0, 50.0]),
        (graded, [1.0, 10.0, 100.0, 1e3]),
        (own, [1.0, 10.0, 100.0, 1e3]),
    ):
        for design, _ in rows:
            np.testing.assert_allclose(np.linalg.eigvalsh(design.T @ design), eigenvalues)
    commute = [(X.T @ X) @ (Y.T @ Y) for (X, _), (Y, _) in (graded, own)]
    np.testing.assert_allclose(commute[0], commute[0].T, atol=1e-6)
    assert np.abs(commute[1] - commute[1].T).max() > 1.0


def test_without_noise_the_clients_of_an_ensemble_share_their_minimiser() -> None:
    p = fs.ensembles.isotropic(m=3, d=4, n=12, noise=0.0)
    assert np.abs(p.clients.ask(Gradient(p.x_true)).rows).max() < 1e-12
    [(design, b)] = fs.ensembles.isotropic(m=1, d=2, n=20_000, noise=9.0).rows
    x = fs.ensembles.isotropic(m=1, d=2, n=1).x_true
    assert np.var(b - design @ x) == pytest.approx(9.0, rel=0.05)


def test_labels_of_an_ensemble_follow_its_parameter() -> None:
    p = fs.ensembles.logistic(m=2, d=3, n=4000, scale=2.0)
    np.testing.assert_allclose(p.solution(), p.x_true, atol=0.2)
    labels = [b for _, b in fs.ensembles.label_sorted(m=4, d=3, n=20).rows]
    assert sum(len(np.unique(b)) == 2 for b in labels) <= 1


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: fs.ensembles.spiked(d=5, n=4), "the spiked ensemble needs n >= d .* n=4, d=5"),
        (lambda: fs.ensembles.log_uniform(kappa=0.5), "the log-uniform ensemble .* kappa=0.5"),
        (lambda: fs.ensembles.isotropic(m=0), "at least one client, column and row, not m=0"),
        (lambda: fs.ensembles.logistic(n=0), "at least one client, column and row"),
    ],
)
def test_ensembles_that_do_not_exist_are_refused(
    draw: Callable[[], fs.Problem], message: str
) -> None:
    with pytest.raises(fs.InputError, match=message):
        draw()
