"""Every loss: its derivatives, its curvature, its values at the edge of float64."""

import warnings
from collections.abc import Callable
from fractions import Fraction

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array

import fedsplit as fs
from faulty import faulty
from fedsplit.arrays import Array
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import (
    BatchCurvature,
    Curvature,
    Decrement,
    Gradient,
    Information,
    Overview,
    ProofScalars,
    Prox,
    Value,
)
from fedsplit.losses.costs import Costs
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.terms import Loss
from problems import (
    LOSSES,
    clients,
    dimensions,
    loss,
    names,
    predictor,
    problem,
    ridges,
    seeds,
    sizes,
)


def differences(f: Callable[[Array], Array], x: Array, h: float = 1e-6) -> Array:
    """Central differences of a function of x, one row a coordinate."""
    return np.stack([(f(x + e) - f(x - e)) / (2 * h) for e in h * np.eye(x.size)])


@given(names, sizes, dimensions, seeds, ridges)
def test_gradient_is_the_derivative_of_the_value(
    name: str, n: list[int], d: int, seed: int, ridge: float
) -> None:
    p = problem(name, n, d, seed, ridge)
    x = 0.5 * np.random.default_rng(seed).standard_normal(d)
    numeric = differences(lambda y: p.clients.ask(Value(y)).rows, x)
    np.testing.assert_allclose(
        p.clients.ask(Gradient(x)).rows, numeric.T, rtol=1e-5, atol=1e-5 * (1 + abs(numeric).max())
    )


@given(names, sizes, dimensions, seeds, ridges)
def test_hessian_is_the_derivative_of_the_gradient(
    name: str, n: list[int], d: int, seed: int, ridge: float
) -> None:
    p = problem(name, n, d, seed, ridge)
    x = 0.5 * np.random.default_rng(seed).standard_normal(d)
    if name == "huber":  # away from the kinks of the slope, where there is no second derivative
        kinks = [abs(abs(A @ x - b) - 0.7).min() for A, b, _ in clients(name, n, d, seed)]
        if min(kinks) < 1e-4:
            return
    numeric = np.moveaxis(differences(lambda y: p.clients.ask(Gradient(y)).rows, x), 0, 2)
    np.testing.assert_allclose(
        p.clients.ask(Information(x)).rows, numeric, rtol=1e-5, atol=1e-5 * (1 + abs(numeric).max())
    )


@given(names, sizes, dimensions, seeds, ridges)
def test_global_curvature_bounds_the_local_one(
    name: str, n: list[int], d: int, seed: int, ridge: float
) -> None:
    p = problem(name, n, d, seed, ridge)
    bounds = p.clients.ask(Curvature()).rows
    for x in np.random.default_rng(seed).standard_normal((5, d)):
        local = p.clients.ask(Curvature(x)).rows
        assert (bounds[:, 0] <= local[:, 0] * (1 + 1e-9) + 1e-12).all()
        assert (bounds[:, 1] >= local[:, 1] * (1 - 1e-9) - 1e-12).all()
        H = p.clients.ask(Information(x)).rows
        np.testing.assert_allclose(local[:, 1], np.linalg.eigvalsh(H)[:, -1], rtol=1e-9)


def test_least_squares_curvature_is_the_spectrum_of_the_gram_matrix() -> None:
    p = problem("least-squares", [30, 4], 6, ridge=2.0)
    H = p.clients.ask(Information(np.zeros(6))).rows
    spectrum = np.linalg.eigvalsh(H)
    np.testing.assert_allclose(p.clients.ask(Curvature()).rows, spectrum[:, [0, -1]], rtol=1e-10)


@pytest.mark.parametrize("coding", [(-1, 1), (0, 1), (False, True)])
def test_logistic_is_exact_at_huge_margins_in_every_coding(coding: tuple[int, int]) -> None:
    A = np.array([[1.0], [1.0]])
    p = fs.Problem(fs.Logistic(), [(A, np.array([coding[1], coding[0]]))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (1e4, -1e4):
            assert p.objective(np.array([x])) == 1e4
            assert p.gradient(np.array([x])) == np.sign(x)
    assert p.objective(np.zeros(1)) == pytest.approx(2 * np.log(2), rel=1e-15)


def test_logistic_keeps_the_digits_of_a_tiny_loss() -> None:
    p = fs.Problem(fs.Logistic(), [(np.ones((1, 1)), [1])])
    assert p.objective(np.array([40.0])) == pytest.approx(np.exp(-40.0), rel=1e-14)
    assert p.gradient(np.array([40.0]))[0] == pytest.approx(-np.exp(-40.0), rel=1e-14)


def test_poisson_is_infinite_where_the_truth_exceeds_float64() -> None:
    A = np.array([[1.0, 0.0, 2.0], [-1.0, 0.5, 0.0], [0.0, 1.0, 1.0]])
    p = fs.Problem(fs.Poisson(), [(A, [1, 2, 0])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.array([800.0, 1.0, 0.0])
        assert p.objective(x) == np.inf
        g = p.gradient(x)
    # e^800 stands in the first and third coordinates only; the second is e^1 - 0 + (e^-799.5 - 2)/2
    assert g[0] == np.inf
    assert g[2] == np.inf
    assert g[1] == pytest.approx(np.e - 1.0, rel=1e-14)


def test_poisson_gradient_has_the_sign_of_the_larger_of_two_overflows() -> None:
    p = fs.Problem(fs.Poisson(), [(np.array([[1.0, 1.0], [1.0, -1.0]]), [1, 1])])
    assert list(p.gradient(np.array([800.0, 5.0]))) == [np.inf, np.inf]
    assert list(p.gradient(np.array([800.0, -5.0]))) == [np.inf, -np.inf]


def test_huber_is_quadratic_inside_and_linear_outside() -> None:
    p = fs.Problem(fs.Huber(2.0), [(np.ones((1, 1)), [0.0])])
    assert p.objective(np.array([1.5])) == pytest.approx(1.125, rel=1e-15)
    assert p.objective(np.array([-5.0])) == pytest.approx(2 * 5 - 2, rel=1e-15)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_objective_sums_over_all_observations_and_adds_the_ridge_once(name: str) -> None:
    data = clients(name, [17, 33, 2], 3, 7)
    x = np.array([0.3, -0.2, 0.1])
    model = loss(name, 3)
    pooled = sum(np.sum(w * model.value(predictor(name, A, x), b)) for A, b, w in data)
    whole = fs.Problem(model, data, ridge=5.0)
    assert whole.objective(x) == pytest.approx(pooled + 2.5 * x @ x, rel=1e-13)


def test_a_ridge_may_differ_by_coordinate() -> None:
    p, plain = (problem("logistic", [20, 9], 3, ridge=r) for r in (np.array([0.0, 1.0, 2.0]), 0.0))
    x = np.array([0.3, -0.2, 0.1])
    assert p.objective(x) == pytest.approx(plain.objective(x) + 0.5 * (0.04 + 2 * 0.01), rel=1e-14)


def test_float32_and_integers_are_computed_in_float64() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.integers(-3, 4, size=(30, 3)), rng.integers(0, 9, size=30)
    answers = [
        fs.Problem(fs.LeastSquares(), [(A.astype(t), b.astype(t))]).solution()
        for t in (np.int8, np.int64, np.float32, np.float64)
    ]
    for x in answers:
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, answers[-1])


def test_least_squares_value_keeps_its_digits_near_the_optimum() -> None:
    data = fs.ensembles.isotropic(m=5, d=20, n=300, seed=3).rows
    p = fs.Problem(fs.LeastSquares(), data)
    x = p.solution()
    residuals = np.concatenate([A @ x - b for A, b in data])
    assert p.objective(x) == pytest.approx(0.5 * float(residuals @ residuals), rel=1e-14)


def test_curvature_constants_are_those_of_the_gram_matrix() -> None:
    for name, factor in (("logistic", 0.25), ("multinomial", 0.5), ("huber", 1.0)):
        ridge = np.array([0.0, 3.0, 9.0])
        data = clients(name, [30, 2], 3)
        top = [np.linalg.eigvalsh((A * w[:, None]).T @ A)[-1] for A, _, w in data]
        bounds = fs.Problem(loss(name, 3), data, ridge).clients.ask(Curvature()).rows
        np.testing.assert_allclose(bounds[:, 1], factor * np.array(top) + 4.5, rtol=1e-12)  # 9/m
        np.testing.assert_array_equal(bounds[:, 0], [0.0, 0.0])  # the smallest ridge is 0


def test_poisson_sums_of_huge_slopes_neither_warn_nor_become_nan() -> None:
    cases = [
        (
            [[10.0, 1.0], [-10.0, 1.0]],
            [0.0, 709.5],
            [0.0, np.inf],
        ),  # each slope is finite, their sum is not
        ([[-10.0, 0.0], [1.0, 1.0]], [-70.95, 2000.0], [np.inf, np.inf]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for A, x, truth in cases:
            p = fs.Problem(fs.Poisson(), [(np.array(A), [1, 1])])
            np.testing.assert_array_equal(p.gradient(np.array(x)), truth)
            assert p.objective(np.array(x)) == np.inf
        assert fs.Problem(fs.Poisson(), [([[10.0]], [1])]).objective(np.array([1e308])) == np.inf


@pytest.mark.parametrize(
    "name", [name for name in sorted(LOSSES) if isinstance(loss(name, 4), LinearLoss)]
)
@pytest.mark.parametrize("n", [[17, 33, 2], [2, 3]])
def test_an_offset_is_a_column_whose_coefficient_is_one(name: str, n: list[int]) -> None:
    rng = np.random.default_rng(1)
    data = [(A, b, w, rng.standard_normal(len(b))) for A, b, w in clients(name, n, 4, seed=7)]
    offset = fs.Problem(loss(name, 4), data).clients
    column = fs.Problem(
        loss(name, 5), [(np.column_stack([A, o]), b, w) for A, b, w, o in data]
    ).clients
    x = np.array([0.3, -0.2, 0.1, 0.5])
    y = np.append(x, 1.0)
    np.testing.assert_allclose(offset.ask(Value(x)).rows, column.ask(Value(y)).rows, rtol=1e-12)
    np.testing.assert_allclose(
        offset.ask(Gradient(x)).rows, column.ask(Gradient(y)).rows[:, :4], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        offset.ask(Information(x)).rows,
        column.ask(Information(y)).rows[:, :4, :4],
        rtol=1e-9,
        atol=1e-12,
    )
    u = offset.ask(Prox(x, 0.3, x, fs.ExactProx())).rows
    np.testing.assert_allclose(
        u + 0.3 * offset.ask(Gradient(u)).rows, np.tile(x, (len(n), 1)), rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(offset.ask(Prox(x, 0.3, x, fs.CvxpyProx())).rows, u, atol=1e-3)


def test_weights_or_an_offset_of_none_are_none() -> None:
    A, b = np.arange(1.0, 9.0).reshape(4, 2), np.array([1.0, 2.0, 0.0, 3.0])
    forms = [(A, b), (A, b, None), (A, b, None, None), (A, b, np.ones(4), np.zeros(4))]
    assert (
        len({fs.Problem(fs.Poisson(), [form]).objective(np.array([0.1, -0.2])) for form in forms})
        == 1
    )


def test_an_offset_of_a_row_without_weight_goes_with_its_row() -> None:
    A, b, o = (
        np.arange(1.0, 9.0).reshape(4, 2),
        np.array([1.0, 2.0, 0.0, 3.0]),
        np.array([9.0, 1.0, 2.0, 3.0]),
    )
    whole, kept = (
        fs.Problem(fs.Huber(), [c]) for c in ((A, b, [0, 1, 1, 1], o), (A[1:], b[1:], None, o[1:]))
    )
    assert whole.objective(np.ones(2)) == kept.objective(np.ones(2))


def test_gamma_is_infinite_where_the_truth_exceeds_float64() -> None:
    A = np.array([[-1.0, 0.0, -2.0], [1.0, 0.5, 0.0], [0.0, 1.0, 1.0]])
    p = fs.Problem(fs.Gamma(), [(A, [3.0, 2.0, 0.5])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.array([800.0, 1.0, 0.0])
        assert p.objective(x) == np.inf
        g = p.gradient(x)
        assert fs.Problem(fs.Gamma(), [([[10.0]], [1.0])]).objective(np.array([-1e308])) == np.inf
        huge = fs.Problem(fs.Gamma(), [(np.array([[1.0, 1.0], [1.0, -1.0]]), [1e-3, 1e3])])
        # 1e-3 e^805 is below 1e3 e^795, and 1e-3 e^810 is above 1e3 e^790
        assert list(huge.gradient(np.array([-800.0, -5.0]))) == [-np.inf, np.inf]
        assert list(huge.gradient(np.array([-800.0, -10.0]))) == [-np.inf, -np.inf]
    # -3e^800 is in the first and third coordinates only; the second is
    # (1 - 2e^-800.5)/2 + 1 - e^-1/2
    assert g[0] == np.inf
    assert g[2] == np.inf
    assert g[1] == pytest.approx(1.5 - 0.5 / np.e, rel=1e-14)


def test_twice_what_gamma_costs_above_its_floor_is_the_deviance() -> None:
    p = problem("gamma", [17, 33, 2], 3, seed=7)
    told = ProofScalars(**p.clients.ask(Decrement(np.array([0.3, -0.2, 0.1]), np.ones(3))).parts)
    deviances = [
        2 * np.sum(w * (b / np.exp(eta) - 1 - np.log(b / np.exp(eta))))
        for A, b, w in clients("gamma", [17, 33, 2], 3, seed=7)
        for eta in [A @ np.array([0.3, -0.2, 0.1])]
    ]
    np.testing.assert_allclose(2 * (told.value - told.floor), deviances, rtol=1e-12)


def test_a_multinomial_of_two_classes_is_logistic() -> None:
    data = clients("logistic", [40, 3, 17], 4, seed=3)
    two = fs.Problem(fs.Multinomial(2), [(A, (b + 1) / 2, w) for A, b, w in data], 0.1).clients
    one = fs.Problem(fs.Logistic(), data, 0.1).clients
    rng = np.random.default_rng(0)
    for x in (np.zeros(4), rng.standard_normal(4), 40 * rng.standard_normal(4)):
        questions: list[CostQuestion] = [
            Value(x),
            Gradient(x),
            Information(x),
            Overview(x),
            Curvature(),
            Curvature(x),
            Prox(x, 0.7, x, fs.ExactProx()),
            Decrement(x, np.ones(4)),
        ]
        for question in questions:
            a, b = (clients.ask(question).rows for clients in (two, one))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=question.name())


def test_a_multinomial_is_exact_at_huge_predictors_and_keeps_the_digits_of_a_tiny_loss() -> None:
    p = fs.Problem(fs.Multinomial(3), [(np.ones((1, 1)), [1])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert p.objective(np.array([-1e4, 1e4])) == 2e4
        assert list(p.gradient(np.array([-1e4, 1e4]))) == [-1.0, 1.0]
        assert p.objective(np.array([1e308, -1e308])) == 0.0
    tiny = np.exp(-40.0) + np.exp(-42.0)
    assert p.objective(np.array([40.0, -2.0])) == pytest.approx(tiny, rel=1e-14)
    np.testing.assert_allclose(
        p.gradient(np.array([40.0, -2.0])), [-tiny, np.exp(-42.0)], rtol=1e-14
    )


@given(names, dimensions, seeds)
def test_the_third_derivative_is_at_most_the_concordance_times_the_second(
    name: str, d: int, seed: int
) -> None:
    if np.isinf(getattr(loss(name, d), "concordance", 1.0)):  # it has none
        return
    (_, costs), *_ = problem(name, [20], d, seed, ridge=0.1).clients._blocks
    rng = np.random.default_rng(seed)
    x, h, t = rng.standard_normal((1, d)), rng.standard_normal((1, d)), 1e-5
    W = np.linalg.inv(np.linalg.cholesky(costs.hessian(x))).swapaxes(1, 2)  # of ∇²f⁻¹ = WWᵀ
    norm, leverage = costs.terms.concordance(W)
    plain = Costs(costs.terms, np.zeros(d))
    third = (plain.hessian(x + t * h) - plain.hessian(x - t * h))[0] / (2 * t)
    second = plain.hessian(x)[0]
    for c in (norm * np.linalg.norm(h), leverage * np.linalg.norm(np.linalg.solve(W[0], h[0]))):
        bound = float(c[0])
        slack = 1e-6 * (1 + bound) * np.linalg.eigvalsh(second)[-1]
        assert np.linalg.eigvalsh(bound * second - third)[0] >= -slack
        assert np.linalg.eigvalsh(bound * second + third)[0] >= -slack


def test_the_concordance_of_a_multinomial_is_reached_between_two_classes() -> None:
    ((_, costs),) = fs.Problem(fs.Multinomial(3), [(np.ones((1, 1)), [0])]).clients._blocks
    x, h, t = (
        np.array([[20.0, 10.0]]),
        np.array([[1.0, -1.0]]) / np.sqrt(2),
        1e-4,
    )  # p is (e^-20, 1, e^-10), nearly
    third = (costs.hessian(x + t * h) - costs.hessian(x - t * h))[0, 1, 1] / (2 * t)
    reached = abs(third) / costs.hessian(x)[0, 1, 1]
    norm, leverage = costs.terms.concordance(np.eye(2)[None])
    np.testing.assert_allclose([norm[0], leverage[0]], [np.sqrt(2), np.sqrt(2)], rtol=1e-14)
    assert reached == pytest.approx(np.sqrt(2), rel=1e-3)


def margins(p: fs.Problem, x: Array) -> list[float]:
    """Every client's margin at x, sorted."""
    return sorted(
        m
        for _, costs in p.clients._blocks
        for m in costs.at(np.tile(x, (costs.terms.k, 1))).margin().tolist()
    )


def test_a_margin_is_that_of_the_worst_observation() -> None:
    A = np.array([[1.0], [2.0], [-1.0]])
    data = [(A, [1, 1, 0], None, [0.0, 0.5, 0.25]), (A, [1, 0, 0]), (A, [1, 0, 0], [1, 0, 1])]
    found = margins(fs.Problem(fs.Logistic(), data), np.array([3.0]))
    assert found == pytest.approx(
        [-6.0, 3.0, 3.0], rel=1e-15
    )  # min(3, -6, 3), min(3, 6, 3) whatever the offsets, min(3, 3)
    padded = np.vstack([np.ones((17, 1)), -np.ones((2, 1))])  # stacked as 20 rows
    assert margins(fs.Problem(fs.Logistic(), [(padded, [1] * 17 + [0] * 2)]), np.array([3.0])) == [
        3.0
    ]


def test_a_multinomial_margin_is_to_the_next_best_class() -> None:
    A = np.array([[1.0], [2.0], [-1.0]])
    p = fs.Problem(fs.Multinomial(3), [(A, [1, 1, 0])])
    assert margins(p, np.array([3.0, 1.0])) == [1.0]  # min(3 - 1, 6 - 2, 0 + 1)
    assert margins(p, np.array([3.0, 4.0])) == [-2.0]  # min(3 - 4, 6 - 8, 0 + 3)
    assert margins(p, np.array([3.0, -2.0])) == [-2.0]  # min(3 - 0, 6 - 0, 0 - 2)
    padded = np.vstack([np.ones((17, 1)), -np.ones((2, 1))])  # stacked as 20 rows
    assert margins(
        fs.Problem(fs.Multinomial(3), [(padded, [1] * 17 + [0] * 2)]), np.array([3.0, 1.0])
    ) == [1.0]


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_where_every_margin_is_positive_the_objective_falls_to_zero(name: str) -> None:
    x = 5.0 * np.random.default_rng(0).standard_normal(4)
    noisy, designs = clients(name, [20, 30], 4), [A for A, *_ in clients(name, [20, 30], 4)]
    scores = [predictor(name, A, x) for A in designs]
    labels = [
        np.sign(s) if name == "logistic" else np.argmax(np.insert(s, 0, 0.0, axis=1), axis=1)
        for s in scores
    ]
    clean = fs.Problem(loss(name, 4), list(zip(designs, labels, strict=True)))
    assert min(margins(clean, x)) > 0
    assert clean.objective(1e6 * x) == 0.0
    assert min(margins(fs.Problem(loss(name, 4), noisy), x)) < 0


@pytest.mark.parametrize("name", ["least-squares", "poisson", "gamma", "huber"])
def test_a_loss_without_classes_has_no_margin(name: str) -> None:
    assert np.isnan(margins(problem(name, [6, 2], 4), np.ones(4))).all()


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_hessian_is_constant_within_the_steady_radius(name: str) -> None:
    rng = np.random.default_rng(3)
    crossed = 0
    for seed in range(30):
        p = problem(name, [17, 3], 4, seed)
        x, h = rng.standard_normal(4), rng.standard_normal(4)
        H = p.clients.ask(Information(x)).rows
        steady = ProofScalars(**p.clients.ask(Decrement(x, np.ones(4))).parts).steady
        if name != "huber":
            assert (steady == (np.inf if name == "least-squares" else 0.0)).all()
            continue
        assert (steady > 0).all()
        for j, radius in enumerate(steady):
            for r in (0.5, 1.0, -0.5, -1.0):
                near = p.clients.ask(Information(x + r * radius * h / np.linalg.norm(h))).rows
                np.testing.assert_array_equal(near[j], H[j])
        A, b, _ = clients(name, [17, 3], 4, seed)[0]
        nearest = np.argmin(np.abs(np.abs(A @ x - b) - 0.7) / np.linalg.norm(A, axis=1))
        along = 2.002 * steady[0] * A[nearest] / np.linalg.norm(A[nearest])
        crossed += any(
            (p.clients.ask(Information(x + s * along)).rows[0] != H[0]).any() for s in (1, -1)
        )
    assert crossed == (30 if name == "huber" else 0)  # the largest power of two


@pytest.mark.parametrize("K", [2, 3, 5])
def test_a_symmetric_multinomial_is_the_plain_one_in_coordinates_with_the_norm_of_all_classes(
    K: int,
) -> None:
    """The second client has fewer rows than columns."""
    rng = np.random.default_rng(K)
    data = [
        (rng.standard_normal((n, 4)), rng.integers(0, K, n), rng.uniform(0.5, 2.0, n))
        for n in (30, 3)
    ]
    loss = fs.Multinomial(K, symmetric=True)
    ours, plain = (
        fs.Problem(loss, data, 0.0).clients,
        fs.Problem(fs.Multinomial(K), data, 0.0).clients,
    )
    T = np.kron(loss.mix, np.eye(4))
    x = rng.standard_normal(4 * (K - 1))
    np.testing.assert_allclose(ours.ask(Value(x)).rows, plain.ask(Value(T @ x)).rows, rtol=1e-12)
    np.testing.assert_allclose(
        ours.ask(Gradient(x)).rows, plain.ask(Gradient(T @ x)).rows @ T, rtol=1e-9, atol=1e-12
    )
    H = T @ plain.ask(Information(T @ x)).rows @ T
    np.testing.assert_allclose(ours.ask(Information(x)).rows, H, rtol=1e-9, atol=1e-12)
    diagonal = ours.ask(Overview(x)).parts["diagonal"]
    np.testing.assert_allclose(diagonal, np.einsum("kii->ki", H), rtol=1e-9)
    largest = ours.ask(Curvature(x)).rows[:, 1]
    np.testing.assert_allclose(largest, np.linalg.eigvalsh(H)[:, -1], rtol=1e-9)
    assert np.all(ours.ask(Curvature()).rows[:, 1] >= largest)
    for at, costs in ours._blocks:
        X, G = np.tile(x, (costs.terms.k, 1)), rng.standard_normal((costs.terms.k, len(x)))
        shifted = H[at] + 0.3 * np.eye(len(x))
        np.testing.assert_allclose(
            costs.at(X).solve(np.full(len(x), 0.3), G),
            np.linalg.solve(shifted, G[:, :, None])[:, :, 0],
            rtol=1e-9,
        )
    centred = np.vstack([np.zeros(4), (T @ x).reshape(K - 1, 4)])
    centred = centred - centred.mean(axis=0)
    assert np.sum(np.square(centred)) == pytest.approx(x @ x, rel=1e-12)


@pytest.mark.parametrize("n", [30, 31, 33, 60])
def test_least_squares_keeps_its_digits_with_hardly_more_rows_than_columns(n: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        A, b = rng.standard_normal((n, 30)), rng.standard_normal(n)
        A[:, 0] = A[:, 1] + 1e-4 * A[:, 0]  # a client's own minimiser is far away
        p = fs.Problem(fs.LeastSquares(), [(A, b)])
        x = rng.standard_normal(30)
        terms = 0.5 * np.square(A.astype(np.longdouble) @ x - b)
        assert abs(p.objective(x) - float(terms.sum())) <= 1e-14 * float(terms.sum())


def test_the_steady_radius_ends_where_the_first_residual_reaches_delta() -> None:
    data = [(np.array([[1.0], [0.5]]), np.array([0.25, 0.0]))]
    [(_, costs)] = fs.Problem(fs.Huber(1.0), data).clients._blocks
    [radius] = costs.at(np.zeros((1, 1))).steady()
    assert 0.75 * (1 - 1e-12) <= radius <= 0.75


def test_hessians_of_poisson_change_by_as_much_as_their_spread_allows() -> None:
    """Of one row the bound is reached: φ'' is e^η."""
    p = fs.Problem(fs.Poisson(), [(np.array([[1.5, -2.0]]), np.array([2.0]))], ridge=1e-9)
    [(_, costs)] = p.clients._blocks
    x, h = np.array([[0.2, 0.1]]), np.array([[-0.3, 0.4]])
    ratio = costs.terms.hessian(costs.terms.eta(x)) / costs.terms.hessian(costs.terms.eta(x + h))
    np.testing.assert_allclose(np.log(ratio), costs.terms.spread(h)[0])
    assert costs.terms.spread(h) <= costs.norm * np.linalg.norm(h)


def test_hessians_of_a_multinomial_change_by_no_more_than_their_spread() -> None:
    """Also where the predictors of all classes but the reference move together."""
    p = fs.Problem(fs.Multinomial(3), [(np.array([[1.0]]), np.array([1.0]))], ridge=1e-9)
    [(_, costs)] = p.clients._blocks
    terms = costs.terms
    rng = np.random.default_rng(0)
    for h in (np.array([2.0, 2.0]), np.array([-2.0, -2.0]), *rng.standard_normal((20, 2))):
        x = rng.standard_normal((1, 2))
        here, there = terms.hessian(terms.eta(x)), terms.hessian(terms.eta(x + h))
        least = np.linalg.eigvalsh(here - np.exp(-terms.spread(h[None])) * there)
        assert least.min() >= -1e-12


WITH_ROWS = [
    *(fs.LeastSquares(rows=True), fs.Logistic(), fs.Poisson(), fs.Gamma(), fs.Huber()),
    *(fs.Multinomial(2), fs.Multinomial(4), fs.Multinomial(4, symmetric=True)),
]


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("model", WITH_ROWS, ids=repr)
def test_rows_of_a_root_make_the_hessian(model: Loss, form: Callable[[Array], object]) -> None:
    rng = np.random.default_rng(0)
    b = np.arange(9) % 2 + float(isinstance(model, fs.Gamma))
    data = [(form(rng.standard_normal((n, 4))), b[:n], rng.uniform(1, 2, n)) for n in (9, 3)]
    p = fs.Problem(model, data, ridge=0.1)
    for _, costs in p.clients._blocks:
        eta = costs.terms.eta(0.3 * rng.standard_normal((costs.terms.k, p.d)))
        root = costs.terms.root(eta)
        np.testing.assert_allclose(root.gram(), costs.terms.hessian(eta), atol=1e-12)
        np.testing.assert_allclose(root.squares(), costs.terms.diagonal(eta), atol=1e-12)


def test_as_many_rows_as_columns_have_a_least_curvature() -> None:
    A = np.random.default_rng(0).standard_normal((4, 4))
    spectrum = np.linalg.eigvalsh(A.T @ A)
    p = fs.Problem(fs.LeastSquares(rows=True), [(A, np.ones(4))])
    np.testing.assert_allclose(p.clients.ask(Curvature()).rows, [spectrum[[0, -1]]])


def test_a_client_is_underdetermined_below_as_many_rows_as_columns() -> None:
    for rows, few in ((3, True), (4, False), (5, False)):
        for _, costs in problem("logistic", [rows], 4).clients._blocks:
            assert costs.terms.underdetermined().tolist() == [few]


@pytest.mark.parametrize("rows", [16, 17, 40])
def test_the_smoothness_of_batches_is_a_number_without_a_bound_on_the_curvature(rows: int) -> None:
    """A client of 17 rows is padded to 18."""
    p = problem("poisson", [rows, 40], 3)
    everywhere = p.clients.ask(BatchCurvature(5)).rows
    np.testing.assert_array_equal(everywhere, [[0.0, np.inf]] * 2)
    np.testing.assert_array_equal(p.clients.ask(BatchCurvature(1)).rows[:, 1], [np.inf] * 2)
    here = p.clients.ask(BatchCurvature(5, np.zeros(3))).rows
    assert np.isfinite(here).all()
    empty = fs.Problem(fs.Poisson(), [(np.vstack([np.eye(3), np.zeros((9, 3))]), np.ones(12))])
    np.testing.assert_array_equal(empty.clients.ask(BatchCurvature(5)).rows, [[0.0, np.inf]])


def test_a_run_by_minibatches_with_a_padded_client_is_answered_elsewhere_too() -> None:
    p = problem("poisson", [17, 40], 3)
    method = fs.FedAvg(batch=5)
    here, there = (fs.solve(each, method, rounds=3, tol=0).x for each in (p, faulty(p)))
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_losses_of_one_predictor_run_on_any_array_library(name: str) -> None:
    model = loss(name, 3)
    if not isinstance(model, LinearLoss):
        return
    rng = np.random.default_rng(0)
    eta = 2.0 * rng.standard_normal(50)
    b = model.sample(np.clip(eta, -2, 2), rng)
    strict = array_api_strict.asarray(eta), array_api_strict.asarray(b)
    for phi in (model.value, model.slope, model.curvature, model.room):
        there = phi(*strict)
        assert type(there) is type(strict[0])
        np.testing.assert_array_equal(np.asarray(there), phi(eta, b))


def test_rounding_of_a_gradient_is_within_its_bound() -> None:
    for name in ("least-squares", "logistic", "poisson", "huber"):
        model = loss(name, 4)
        assert isinstance(model, LinearLoss)
        (A, b, w), *_ = clients(name, [50], 4)
        A = A * 10.0 ** np.linspace(-4, 4, 4)
        x = np.random.default_rng(1).standard_normal(4) / 10.0 ** np.linspace(-4, 4, 4)
        p = fs.Problem(model, [(A, b, w)])
        ((_, costs),) = p.clients._blocks
        at = costs.at(x[None])
        B = A.astype(np.longdouble)
        slopes = w * model.slope(B @ x, b.astype(np.longdouble))
        error = np.linalg.norm(np.asarray(at.gradient[0] - B.T @ slopes, dtype=np.float64))
        assert error <= at.gradient_error()[0]
        size = np.linalg.norm(A, axis=1)
        most = np.sum(size * (np.abs(slopes) + w * size * np.linalg.norm(x) * 30.0))
        assert at.gradient_error()[0] <= 1e-13 * float(most)


def test_the_rounding_of_a_predictor_that_cancels_is_within_the_bound_of_the_gradient() -> None:
    rng = np.random.default_rng(0)
    for a, x in rng.standard_normal((50, 2)):
        exact = Fraction(a) * Fraction(x)
        b = a * x + 1e-9  # all that is left of the residual is rounding and 1e-9
        p = fs.Problem(fs.LeastSquares(rows=True), [([[a]], [b])])
        ((_, costs),) = p.clients._blocks
        at = costs.at(np.array([[x]]))
        error = abs(Fraction(float(at.gradient[0, 0])) - (exact - Fraction(b)) * Fraction(a))
        assert error <= Fraction(float(at.gradient_error()[0]))
