"""The estimators pass scikit-learn's checks, have its numbers, and work with its tools."""

import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import huber
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight as balance
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedsplit as fs
from fedsplit import estimators
from fedsplit.arrays import Array
from fedsplit.penalties.class_elastic_net import ClassElasticNet

EXACT: dict[str, Any] = {"tol": 1e-13, "max_iter": 1000, "solver": "newton-cholesky"}
PAIRS: dict[str, tuple[Any, Any]] = {
    "linear": (fs.FedLinearRegression(), LinearRegression()),
    "linear, no intercept": (
        fs.FedLinearRegression(fit_intercept=False),
        LinearRegression(fit_intercept=False),
    ),
    "logistic": (fs.FedLogisticRegression(C=0.3), LogisticRegression(C=0.3, **EXACT)),
    "logistic, no penalty": (
        fs.FedLogisticRegression(C=np.inf),
        LogisticRegression(C=np.inf, **EXACT),
    ),
    "logistic, no intercept": (
        fs.FedLogisticRegression(fit_intercept=False),
        LogisticRegression(fit_intercept=False, **EXACT),
    ),
    "three classes": (fs.FedLogisticRegression(C=0.3), LogisticRegression(C=0.3, **EXACT)),
    "poisson": (fs.FedPoissonRegressor(alpha=0.1), PoissonRegressor(alpha=0.1, **EXACT)),
    "poisson, no penalty": (fs.FedPoissonRegressor(alpha=0), PoissonRegressor(alpha=0, **EXACT)),
    "gamma": (fs.FedGammaRegressor(alpha=0.1), GammaRegressor(alpha=0.1, **EXACT)),
    "logistic, balanced": (
        fs.FedLogisticRegression(class_weight="balanced"),
        LogisticRegression(class_weight="balanced", **EXACT),
    ),
    "three classes, weighted": (
        fs.FedLogisticRegression(class_weight={"low": 2.0, "top": 0.5}),
        LogisticRegression(class_weight={"low": 2.0, "top": 0.5}, **EXACT),
    ),
    "ridge": (fs.FedRidge(alpha=3.0), Ridge(alpha=3.0, solver="cholesky")),
    "lasso": (fs.FedLasso(alpha=0.1), Lasso(alpha=0.1, tol=1e-15, max_iter=10**6)),
    "elastic net": (
        fs.FedElasticNet(0.2, l1_ratio=0.3),
        ElasticNet(0.2, l1_ratio=0.3, tol=1e-15, max_iter=10**6),
    ),
}
EVERY = [getattr(estimators, name)() for name in estimators.__all__]


def data(kind: str, n: int = 150) -> tuple[Array, Array, Array]:
    """X with columns of several units, a target for the model, groups of several sizes."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, 5)) * [1.0, 10.0, 0.1, 1.0, 1.0] + [0.0, 5.0, 0.0, 30.0, 0.0]
    eta = (X - X.mean(axis=0)) @ [1.0, 0.1, 5.0, 0.0, 0.5]
    noisy = eta + rng.logistic(size=n)
    groups = np.array(["a", "b", "c"])[np.digitize(rng.uniform(size=n), [0.6, 0.9])]
    if "logistic" in kind:
        return X, np.where(noisy > 0.3, "yes", "no"), groups
    if "classes" in kind:
        return X, np.array(["low", "middle", "top"])[np.digitize(noisy, [-1.0, 1.0])], groups
    if "poisson" in kind:
        return X, rng.poisson(np.exp(0.4 * eta)).astype(float), groups
    if "gamma" in kind:
        return X, rng.gamma(2.0, 0.5 * np.exp(0.4 * eta)), groups
    return X, noisy + 3.0, groups


KINDS = {"FedLogisticRegression": "logistic", "FedGammaRegressor": "gamma"}


def fitting(estimator: Any, n: int = 150) -> tuple[Array, Array, Array]:
    """Data with a target that the estimator takes."""
    return data(KINDS.get(type(estimator).__name__, "poisson"), n)


def saga(C: float, l1_ratio: float) -> Any:
    """scikit-learn's elastic net for classes, in the words of its version."""
    options: dict[str, Any] = {"C": C, "l1_ratio": l1_ratio, "tol": 1e-13, "max_iter": 10**5}
    if signature(LogisticRegression).parameters["penalty"].default == "l2":  # before 1.8
        options["penalty"] = "elasticnet"
    return LogisticRegression(solver="saga", random_state=0, **options)


def assert_same(one: Any, other: Any, rtol: float = 1e-7) -> None:
    """Coefficients equal relative to the largest of them, and those at zero at zero."""
    for name in ("coef_", "intercept_"):
        ours, theirs = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(
            ours, theirs, rtol=0, atol=rtol * max(1e-300, np.max(np.abs(theirs)))
        )
    np.testing.assert_array_equal(np.asarray(one.coef_)[np.asarray(other.coef_) == 0], 0)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)  # Huber through as many rows as columns
@parametrize_with_checks(EVERY)  # type: ignore[untyped-decorator]  # scikit-learn has no types
def test_every_estimator_is_one_to_scikit_learn(
    estimator: Any, check: Callable[[Any], None]
) -> None:
    check(estimator)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_the_coefficients_are_those_of_scikit_learn_on_the_pool(name: str, weighted: bool) -> None:
    ours, theirs = PAIRS[name]
    if weighted and "balanced" in name and "sample_weight" not in signature(balance).parameters:
        pytest.skip("this scikit-learn counts rows, whatever they weigh")
    X, y, groups = data(name)
    w = (
        np.where(np.arange(len(y)) % 7 == 0, 0.0, np.linspace(0.5, 2.0, len(y)))
        if weighted
        else None
    )
    one = clone(ours).fit(X, y, groups=groups, sample_weight=w)
    with warnings.catch_warnings():  # a tolerance below rounding ends in a warning, at the optimum
        warnings.simplefilter("ignore")
        other = clone(theirs).fit(X, y, w)
    assert one.converged_
    assert_same(one, other)
    np.testing.assert_allclose(one.score(X, y, w), other.score(X, y, w), rtol=1e-7)
    assert one.certificate_.standard_errors < 1e-7
    assert set(one.clients_) == {"a", "b", "c"}


@pytest.mark.parametrize("name", PAIRS)
def test_sparse_rows_are_fitted_and_predicted_as_dense_ones(name: str) -> None:
    X, y, groups = data(name)
    X = np.where(np.random.default_rng(0).uniform(size=X.shape) < 0.3, 0.0, X)
    sparse = csr_array(X)
    ours, _ = PAIRS[name]
    dense = clone(ours).fit(X, y, groups=groups)
    fitted = clone(ours).fit(sparse, y, groups=groups)
    assert fitted.converged_
    np.testing.assert_allclose(fitted.coef_, dense.coef_, atol=1e-6)
    np.testing.assert_allclose(fitted.intercept_, dense.intercept_, atol=1e-6)
    assert fitted.score(sparse, y) == pytest.approx(dense.score(X, y), rel=1e-6)
    assert set(fitted.clients_) == {"a", "b", "c"}


@pytest.mark.parametrize("kind", ["logistic", "three classes"])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_a_sparse_logistic_fit_is_that_of_scikit_learn(kind: str, l1_ratio: float) -> None:
    X, y, groups = data(kind)
    X = (X - X.mean(axis=0)) / X.std(axis=0)  # saga needs it
    ours = fs.FedLogisticRegression(C=0.05, l1_ratio=l1_ratio).fit(X, y, groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = saga(0.05, l1_ratio).fit(X, y)
    assert ours.converged_
    assert 0 < np.sum(ours.coef_ == 0) < ours.coef_.size
    assert_same(ours, theirs, rtol=1e-6)


def test_the_ends_of_the_elastic_net_have_names() -> None:
    X, y, groups = data("logistic")
    for name, same in (
        ("l1", fs.FedLogisticRegression(l1_ratio=1.0)),
        ("l2", fs.FedLogisticRegression(l1_ratio=0.0)),
        (None, fs.FedLogisticRegression(C=np.inf)),
    ):
        by_penalty = fs.FedLogisticRegression(name).fit(X, y, groups=groups)
        by_number = same.fit(X, y, groups=groups)
        np.testing.assert_array_equal(by_penalty.coef_, by_number.coef_)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.3])
def test_the_penalty_on_all_classes_has_its_prox_by_scipy(l1_ratio: float) -> None:
    rng = np.random.default_rng(3)
    weights = np.array([0.0, 0.7, 1.5, 0.2])
    net = ClassElasticNet(l1_ratio * weights, (1 - l1_ratio) * weights, 3)
    for step in (0.1, 10.0):
        v = 2 * rng.standard_normal(8)
        u = net.prox(v, step)

        def cost(x: Array, v: Array = v, step: float = step) -> float:
            return net.value(x) + float(np.sum(np.square(x - v))) / (2 * step)

        for _ in range(50):
            assert cost(u) <= cost(u + 1e-3 * rng.standard_normal(8))
        found = minimize(cost, v, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14})
        assert cost(u) <= found.fun + 1e-12


@pytest.mark.parametrize("kind", ["logistic", "three classes"])
def test_probabilities_are_those_of_scikit_learn(kind: str) -> None:
    ours, theirs = PAIRS[kind]
    X, y, groups = data(kind)
    one = clone(ours).fit(X, y, groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = clone(theirs).fit(X, y)
    for method in ("decision_function", "predict_proba", "predict_log_proba"):
        np.testing.assert_allclose(
            getattr(one, method)(X), getattr(other, method)(X), rtol=1e-6, atol=1e-9
        )
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    np.testing.assert_array_equal(one.classes_, other.classes_)


@pytest.mark.parametrize(("delta", "ridge"), [(1.345, 0.0), (0.5, 3.0)])
def test_huber_is_the_minimiser_of_its_function_by_scipy(delta: float, ridge: float) -> None:
    X, y, groups = data("huber")
    w = np.linspace(0.5, 2.0, len(y))
    model = fs.FedHuberRegressor(delta, ridge=ridge).fit(X, y, groups=groups, sample_weight=w)
    centre, size = X.mean(axis=0), X.std(axis=0)
    A = np.column_stack([np.ones(len(X)), (X - centre) / size])
    lam = np.array([0.0, *(ridge / size**2)])

    def cost(x: Array) -> tuple[float, Array]:
        r = A @ x - y
        return float(w @ huber(delta, r) + 0.5 * lam @ x**2), A.T @ (
            w * np.clip(r, -delta, delta)
        ) + lam * x

    x = minimize(cost, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-4}).x
    for _ in range(5):  # Newton's method ends exactly: Huber is piecewise quadratic
        H = (A * (w * (np.abs(A @ x - y) < delta))[:, None]).T @ A + np.diag(lam)
        x = x - np.linalg.solve(H, cost(x)[1])
    assert np.max(np.abs(cost(x)[1])) < 1e-9
    np.testing.assert_allclose(model.coef_, x[1:] / size, rtol=1e-7)
    np.testing.assert_allclose(model.intercept_, x[0] - centre @ (x[1:] / size), rtol=1e-7)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 12))
@pytest.mark.parametrize("name", [*PAIRS, "huber"])
def test_the_answer_does_not_depend_on_whose_rows_they_are(
    name: str, seed: int, clients: int
) -> None:
    """Beside clients of random sizes, one has a single row, and one has rows of one class only."""
    estimator = PAIRS[name][0] if name in PAIRS else fs.FedHuberRegressor()
    X, y, _ = data(name)
    groups = np.random.default_rng(seed).integers(0, clients, len(y))
    groups[np.flatnonzero(y == y[0])[:5]] = clients
    groups[1] = clients + 1
    assert_same(clone(estimator).fit(X, y, groups=groups), clone(estimator).fit(X, y))


@pytest.mark.parametrize("estimator", EVERY, ids=lambda each: type(each).__name__)
def test_clients_of_one_row_each_are_enough(estimator: Any) -> None:
    X, y, _ = fitting(estimator, 40)
    apart = clone(estimator).fit(X, y, groups=range(40))
    assert len(apart.clients_) == 40
    assert_same(apart, clone(estimator).fit(X, y))


@pytest.mark.parametrize("intercept", [True, False])
def test_dependent_columns_get_the_shortest_coefficients(intercept: bool) -> None:
    X, y, groups = data("linear")
    X = np.column_stack(
        [X, X[:, 0] - 2 * X[:, 1] + 4 * intercept, np.full(len(X), 3.0 * intercept), X[:, 2]]
    )
    theirs = LinearRegression(fit_intercept=intercept)
    assert_same(
        fs.FedLinearRegression(fit_intercept=intercept).fit(X, y, groups=groups), theirs.fit(X, y)
    )
    assert_same(
        fs.FedLinearRegression(fit_intercept=intercept).fit(X[:6], y[:6]), theirs.fit(X[:6], y[:6])
    )


@pytest.mark.parametrize("estimator", EVERY, ids=lambda each: type(each).__name__)
def test_constant_columns_change_nothing_but_their_own_zero(estimator: Any) -> None:
    X, y, groups = fitting(estimator)
    more = clone(estimator).fit(np.column_stack([X, np.full(len(X), 7.0)]), y, groups=groups)
    np.testing.assert_array_equal(np.atleast_2d(more.coef_)[:, -1], 0)
    less = clone(estimator).fit(X, y)
    np.testing.assert_allclose(
        np.atleast_2d(more.coef_)[:, :-1], np.atleast_2d(less.coef_), rtol=1e-7
    )
    np.testing.assert_allclose(more.intercept_, less.intercept_, rtol=1e-7)


@pytest.mark.parametrize(
    "name",
    [
        "FedLinearRegression",
        "FedLasso",
        "FedElasticNet",
        "FedRidge",
        "FedHuberRegressor",
        "FedGammaRegressor",
    ],
)
def test_a_constant_target_is_its_own_prediction(name: str) -> None:
    X, _, groups = data("linear")
    model = getattr(fs, name)().fit(X, np.full(len(X), 2.5), groups=groups)
    np.testing.assert_allclose(model.predict(X), 2.5, rtol=1e-15)
    assert model.converged_
    if name == "FedGammaRegressor":
        return  # its mean is never zero
    assert (
        not getattr(fs, name)(fit_intercept=False)
        .fit(X, np.zeros(len(X)), groups=groups)
        .coef_.any()
    )
    assert (
        not getattr(fs, name)(fit_intercept=False)
        .fit(0 * X, np.ones(len(X)), groups=groups)
        .coef_.any()
    )
    slope = fs.FedLinearRegression(fit_intercept=False).fit(X, np.full(len(X), 2.5), groups=groups)
    assert_same(slope, LinearRegression(fit_intercept=False).fit(X, np.full(len(X), 2.5)))


def test_rows_of_weight_zero_bring_neither_a_client_nor_a_class() -> None:
    X, y, groups = data("three classes")
    w = ((groups != "b") & (y != "top")).astype(float)
    model = fs.FedLogisticRegression().fit(X, y, groups=groups, sample_weight=w)
    assert set(model.clients_) == {"a", "c"}
    assert list(model.classes_) == ["low", "middle"]
    assert_same(model, fs.FedLogisticRegression().fit(X[w > 0], y[w > 0]))


def test_groups_may_be_a_column() -> None:
    X, y, groups = data("linear")
    flat = fs.FedRidge().fit(X, y, groups=groups)
    for column in (groups[:, None], pd.DataFrame({"site": groups})):
        again = fs.FedRidge().fit(X, y, groups=column)
        assert list(again.clients_) == list(flat.clients_)
        np.testing.assert_array_equal(again.coef_, flat.coef_)


@pytest.mark.parametrize(
    "estimator",
    [fs.FedLasso(0.01), fs.FedLasso(0.1), fs.FedElasticNet(0.1), fs.FedRidge()],
    ids=str,
)
def test_fewer_rows_than_columns_do_not_keep_a_penalty_from_its_minimiser(estimator: Any) -> None:
    """A lasso was given up after 24 rounds, and an elastic net stood still for 450."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 60))
    y = X[:, 0] + rng.standard_normal(30)
    model = estimator.fit(X, y, groups=np.arange(30) % 10)  # warnings are errors
    assert model.converged_
    residual = y - model.predict(X)
    gradient = X.T @ residual / 30
    penalty = model._penalty(30.0)
    gradient = gradient - penalty.get("ridge", 0.0) / 30 * model.coef_
    l1 = penalty.get("l1", 0.0) / 30
    np.testing.assert_allclose(
        gradient[model.coef_ != 0], l1 * np.sign(model.coef_[model.coef_ != 0]), atol=1e-9
    )
    assert np.all(np.abs(gradient) <= l1 + 1e-9)


def test_a_fit_that_does_not_converge_warns() -> None:
    X, _, groups = data("logistic")
    # nearly separable: each round can only add so much to the coefficients
    with pytest.warns(ConvergenceWarning, match="FedLogisticRegression did not converge in"):
        model = fs.FedLogisticRegression(C=1e12, max_rounds=10).fit(X, X[:, 0] > 0, groups=groups)
    assert not model.converged_


def test_groups_are_routed_through_a_pipeline_and_a_grid_search(routing: None) -> None:
    X, y, groups = data("logistic")
    model = fs.FedLogisticRegression().set_fit_request(groups=True)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y, groups=groups)
    assert set(pipeline[-1].clients_) == {"a", "b", "c"}
    ours = GridSearchCV(
        make_pipeline(StandardScaler(), model), {"fedlogisticregression__C": [1e-3, 1.0]}, cv=3
    )
    ours.fit(X, y, groups=groups)
    assert set(ours.best_estimator_[-1].clients_) == {"a", "b", "c"}
    theirs = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression__C": [1e-3, 1.0]},
        cv=3,
    )
    assert ours.best_score_ == theirs.fit(X, y).best_score_
    scores = cross_val_score(model, X, y, cv=GroupKFold(3), params={"groups": groups})
    plain = cross_val_score(
        LogisticRegression(solver="newton-cholesky"),
        X,
        y,
        cv=GroupKFold(3),
        params={"groups": groups},
    )
    np.testing.assert_array_equal(scores, plain)


def test_frames_bring_names_and_any_labels_name_clients() -> None:
    X, y, groups = data("linear")
    frame = pd.DataFrame(X, columns=list("pqrst"))
    labels = pd.Series([{"a": (1, "x"), "b": 7, "c": "c"}[g] for g in groups])
    model = fs.FedLinearRegression().fit(frame, pd.Series(y), groups=labels)
    assert list(model.feature_names_in_) == list("pqrst")
    assert set(model.clients_) == {(1, "x"), 7, "c"}
    np.testing.assert_allclose(
        model.predict(frame), LinearRegression().fit(frame, y).predict(frame), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda X, y, g: fs.FedLinearRegression().fit(X, y, groups=g[1:]),
            "inconsistent numbers of samples",
        ),
        (
            lambda X, y, g: fs.FedLinearRegression().fit(X, y, groups=[*g[1:], None]),
            "groups: row 149 has no label",
        ),
        (lambda X, y, g: fs.FedLinearRegression().fit(X, y, groups=g, sample_weight=0 * y), "zero"),
        (
            lambda X, y, g: fs.FedLinearRegression().fit(X, y, groups=g, sample_weight=-y),
            "[Nn]egative values",
        ),
        (
            lambda X, y, g: fs.FedLinearRegression(tol=0).fit(X, y, groups=g),
            "tol must be between 0 and 1",
        ),
        (
            lambda X, y, g: fs.FedElasticNet(l1_ratio=1.1).fit(X, y, groups=g),
            "l1_ratio must be between 0 and 1",
        ),
        (
            lambda X, y, g: fs.FedLasso(alpha=-1).fit(X, y, groups=g),
            "alpha must be a finite number of at least 0",
        ),
        (lambda X, y, g: fs.FedPoissonRegressor().fit(X, y - 100, groups=g), "at least zero"),
        (
            lambda X, y, g: fs.FedLogisticRegression().fit(X, np.ones(150), groups=g),
            "every row is of one class",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression(C=0).fit(X, y > 3, groups=g),
            "C must be a finite number above 0",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression(
                C="x"  # type: ignore[arg-type]  # on purpose
            ).fit(X, y > 3, groups=g),
            "C must be a finite number above 0, not 'x'",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression(max_rounds=3).fit(X, y > 3, groups=g),
            "max_rounds must be a whole number of at least 10, not 3",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression("l2", l1_ratio=0.5).fit(X, y > 3, groups=g),
            "l1_ratio=0.5 goes with penalty='elasticnet', not 'l2'",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression("ridge").fit(X, y > 3, groups=g),
            "penalty 'ridge' is not known",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression(class_weight={2: 1.0}).fit(X, y > 3, groups=g),
            "class_weight: no row has the class 2; there are False, True",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression(class_weight={True: 0}).fit(X, y > 3),
            r"class_weight\[True\] must be a finite number above 0",
        ),
        (
            lambda X, y, g: fs.FedGammaRegressor().fit(X, np.arange(150.0), groups=g),
            "y must be above zero for FedGammaRegressor: row 0 has 0",
        ),
        (
            lambda X, y, g: fs.FedRidge().fit(X, y, groups=np.column_stack([g, g])),
            r"groups must have one label per row, its shape is \(150, 2\)",
        ),
        (
            lambda X, y, g: fs.FedPoissonRegressor().fit(
                X,
                np.abs(y),
                np.ones(150),  # type: ignore[call-arg]  # on purpose
            ),
            "FedPoissonRegressor.fit takes X and y by position, and the rest by name: groups=",
        ),
        (
            lambda X, y, g: fs.FedLogisticRegression(C=np.inf).fit(X, X[:, 0] > 0, groups=g),
            "the classes are separable: .* without bound; lower C, or leave a column out",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused(make: Callable[..., object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(*data("linear"))
