"""``fs.fit`` with a penalty, several classes or Huber's loss, on real data against references."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import expit, huber
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge

import fedsplit as fs
from fedsplit.arrays import Array
from hospitals import people
from real import breast_cancer, diabetes, split, wine

TEN = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
DIABETES = " + ".join(TEN)
FOUR = [
    "alcohol",
    "malic_acid",
    "ash",
    "magnesium",
]  # of the thirteen: all of them part the cultivars


def pool(frames: dict[str, pd.DataFrame], columns: list[str], target: str) -> tuple[Array, Array]:
    table = pd.concat(frames.values())
    return table[columns].to_numpy(dtype=float), table[target].to_numpy()


def assert_same(model: "fs.Model", columns: list[str], reference: Any, rtol: float = 1e-7) -> None:
    """The reference is scikit-learn's; a coefficient that it has at 0 must be 0."""
    expected = np.ravel(reference.coef_)
    coefficients = model.params[columns].to_numpy()
    np.testing.assert_array_equal(coefficients[expected == 0], 0)
    np.testing.assert_allclose(coefficients, expected, rtol=rtol, atol=0)
    np.testing.assert_allclose(model.params["Intercept"], reference.intercept_, rtol=rtol)


def sklearn_logistic(A: Array, b: Array, ridge: float) -> LogisticRegression:
    model = LogisticRegression(C=1 / ridge, solver="newton-cholesky", tol=1e-13, max_iter=1000)
    with warnings.catch_warnings():  # a tolerance below rounding ends in a warning, at the optimum
        warnings.simplefilter("ignore")
        return model.fit(A, b)


def centred() -> dict[str, pd.DataFrame]:
    """Diabetes with columns of mean 0 and variance 1 in the pool, so that one penalty suits all."""
    table = pd.concat(diabetes().values(), ignore_index=True)
    table[TEN] = (table[TEN] - table[TEN].mean()) / table[TEN].std(ddof=0)
    return split(table, (220, 150, 40, 32))


@pytest.mark.parametrize("ridge", [1.0, 1000.0])
def test_ridge_least_squares_is_that_of_scikit_learn(ridge: float) -> None:
    frames = centred()
    model = fs.fit(frames, f"target ~ {DIABETES}", ridge=ridge)
    assert_same(model, TEN, Ridge(alpha=ridge, solver="cholesky").fit(*pool(frames, TEN, "target")))


@pytest.mark.parametrize("ridge", [0.1, 1.0, 30.0])
def test_ridge_logistic_of_breast_cancer_is_that_of_scikit_learn(ridge: float) -> None:
    frames = breast_cancer()
    columns = [name for name in frames["client 0"].columns if name != "benign"]
    model = fs.fit(frames, f"benign ~ {' + '.join(columns)}", family="logistic", ridge=ridge)
    assert_same(model, columns, sklearn_logistic(*pool(frames, columns, "benign"), ridge))


@pytest.mark.parametrize("l1", [500.0, 3000.0])
def test_lasso_is_that_of_scikit_learn(l1: float) -> None:
    frames = centred()
    model = fs.fit(frames, f"target ~ {DIABETES}", l1=l1)
    reference = Lasso(alpha=l1 / 442, tol=1e-15, max_iter=1_000_000).fit(
        *pool(frames, TEN, "target")
    )
    assert 0 < np.sum(reference.coef_ == 0) < 10
    assert_same(model, TEN, reference)


def test_elastic_net_is_that_of_scikit_learn() -> None:
    frames = centred()
    l1, l2 = 2000.0, 100.0
    model = fs.fit(frames, f"target ~ {DIABETES}", elastic_net=(l1, l2))
    reference = ElasticNet(
        alpha=(l1 + l2) / 442, l1_ratio=l1 / (l1 + l2), tol=1e-15, max_iter=1_000_000
    )
    assert_same(model, TEN, reference.fit(*pool(frames, TEN, "target")))


def test_logistic_lasso_satisfies_the_optimality_conditions_of_the_pool() -> None:
    frames = breast_cancer()
    columns = [name for name in frames["client 0"].columns if name != "benign"]
    l1 = 5.0
    model = fs.fit(frames, f"benign ~ {' + '.join(columns)}", family="logistic", l1=l1)
    A, b = pool(frames, columns, "benign")
    x = model.params[columns].to_numpy()
    residual = expit(A @ x + model.params["Intercept"]) - b
    gradient = A.T @ residual
    assert 0 < np.sum(x == 0) < len(columns)
    assert abs(residual.sum()) < 1e-8
    np.testing.assert_allclose(gradient[x != 0], -l1 * np.sign(x[x != 0]), rtol=1e-8)
    assert np.all(np.abs(gradient[x == 0]) <= l1)


def test_nonnegative_least_squares_is_that_of_scikit_learn() -> None:
    frames = centred()
    model = fs.fit(frames, f"target ~ {DIABETES}", nonnegative=TEN)
    assert_same(model, TEN, LinearRegression(positive=True).fit(*pool(frames, TEN, "target")))


def contrasts(coefficients: pd.Series, columns: list[str]) -> Array:
    """Coefficients (class, column) less those of the first class, which the model may leave out."""
    rows = np.array([[coefficients.get(f"{c}:{column}", 0.0) for column in columns] for c in "abc"])
    return np.asarray(rows - rows[:1])


@pytest.mark.parametrize("by", ["turns", "cultivar"])
def test_multinomial_wine_is_that_of_statsmodels(by: str) -> None:
    """By cultivar each client has one class only."""
    table = wine()
    groups = table["cultivar"] if by == "cultivar" else np.arange(len(table)) % 5
    frames = {f"cellar {key}": rows for key, rows in table.groupby(groups)}
    model = fs.fit(frames, f"cultivar ~ {' + '.join(FOUR)}", family="multinomial")
    classes = table["cultivar"].map({"a": 0, "b": 1, "c": 2})
    X = sm.add_constant(table[FOUR]).rename(columns={"const": "Intercept"})
    reference = sm.MNLogit(classes, X).fit(disp=0, method="newton", tol=1e-9, maxiter=100)
    names = [f"{c}:{term}" for c in "bc" for term in X.columns]
    assert list(model.params.index) == names
    np.testing.assert_allclose(model.params, reference.params.to_numpy().T.ravel(), rtol=1e-8)
    assert model.bse is not None
    assert model.llf is not None
    np.testing.assert_allclose(model.bse, reference.bse.to_numpy().T.ravel(), rtol=1e-8)
    np.testing.assert_allclose(model.llf, reference.llf, rtol=1e-8)
    np.testing.assert_allclose(
        np.asarray(model.predict(table)), reference.predict().reshape(-1, 3), rtol=1e-8
    )


def test_ridge_multinomial_of_all_of_wine_is_that_of_scikit_learn() -> None:
    table = wine()
    columns = [name for name in table.columns if name != "cultivar"]
    table[columns] = (table[columns] - table[columns].mean()) / table[columns].std(ddof=0)
    frames = split(table, (80, 60, 30, 8))
    model = fs.fit(frames, f"cultivar ~ {' + '.join(columns)}", family="multinomial", ridge=1.0)
    reference = sklearn_logistic(*pool(frames, columns, "cultivar"), 1.0)
    expected = reference.coef_ - reference.coef_[:1]
    np.testing.assert_allclose(contrasts(model.params, columns)[1:], expected[1:], rtol=1e-7)
    intercepts = reference.intercept_ - reference.intercept_[0]
    np.testing.assert_allclose(
        contrasts(model.params, ["Intercept"])[1:, 0], intercepts[1:], rtol=1e-7
    )


@pytest.mark.parametrize("delta", [1.345, 0.3])
def test_huber_is_the_minimiser_of_the_same_function_by_scipy(delta: float) -> None:
    frames = centred()
    model = fs.fit(frames, f"score ~ {DIABETES}", family="huber", delta=delta)
    assert model.delta is not None
    delta = model.delta  # in the unit of the target
    A, b = pool(frames, TEN, "score")
    A = np.column_stack([np.ones(len(A)), A])

    def cost(x: Array) -> tuple[float, Array]:
        r = A @ x - b
        return float(np.sum(huber(delta, r))), A.T @ np.clip(r, -delta, delta)

    x = minimize(cost, np.zeros(11), jac=True, method="BFGS", options={"gtol": 1e-6}).x
    for _ in range(5):  # Newton's method ends exactly: Huber is piecewise quadratic
        H = (A * (np.abs(A @ x - b) < delta)[:, None]).T @ A
        x = x - np.linalg.solve(H, cost(x)[1])
    assert np.max(np.abs(cost(x)[1])) < 1e-10
    np.testing.assert_allclose(model.params[["Intercept", *TEN]], x, rtol=1e-7)


def test_the_shares_of_clients_in_the_information_leave_that_of_the_ridge() -> None:
    frames = people()
    plain = fs.fit(frames, "score ~ age + hours").clients.leverage.sum()
    ridged = fs.fit(frames, "score ~ age + hours", ridge=200.0).clients.leverage.sum()
    assert plain == pytest.approx(1.0)
    assert 0.3 < ridged < 0.95
