"""The pooled solution, and FedSplit's, against scikit-learn, statsmodels and scipy."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import huber
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge

import fedsplit as fs
from fedsplit.arrays import Array
from problems import LOSSES, clients, loss, problem

SIZES, D = [60, 3, 200, 41], 5


def pool(name: str) -> tuple[Array, Array, Array]:
    A, b, w = zip(*clients(name, SIZES, D, seed=11), strict=True)
    return np.concatenate(A), np.concatenate(b), np.concatenate(w)


def statsmodels_glm(name: str, family: "sm.families.Family") -> Array:
    A, b, w = pool(name)
    response = np.where(b > 0, 1, 0) if name == "logistic" else b
    fit = sm.GLM(response, A, family=family, freq_weights=w).fit(tol=1e-14, maxiter=200)
    return np.asarray(fit.params)


def sklearn_ridge(name: str, ridge: float) -> Array:
    A, b, w = pool(name)
    if name == "least-squares":
        model = (
            Ridge(alpha=ridge, fit_intercept=False)
            if ridge
            else LinearRegression(fit_intercept=False)
        )
    elif name == "logistic":
        model = LogisticRegression(
            C=1 / ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-14, max_iter=500
        )
    else:  # scikit-learn's Poisson loss is averaged over the weights
        model = PoissonRegressor(
            alpha=ridge / w.sum(),
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-14,
            max_iter=500,
        )
    with warnings.catch_warnings():  # a tolerance below rounding ends in a warning, at the optimum
        warnings.simplefilter("ignore")
        return np.asarray(model.fit(A, b, sample_weight=w).coef_).ravel()


def scipy_huber(ridge: float) -> Array:
    A, b, w = pool("huber")
    delta = 0.7

    def cost(x: Array) -> tuple[float, Array]:
        r = A @ x - b
        value = float(np.sum(w * huber(delta, r)) + 0.5 * ridge * x @ x)
        return value, A.T @ (w * np.sign(r) * np.minimum(np.abs(r), delta)) + ridge * x

    fit = minimize(cost, np.zeros(D), jac=True, method="BFGS", options={"gtol": 1e-11})
    # one Newton step takes BFGS's 1e-8 to rounding: Huber is piecewise quadratic
    H = (A * (w * (np.abs(A @ fit.x - b) < delta))[:, None]).T @ A + ridge * np.eye(D)
    return np.asarray(fit.x - np.linalg.solve(H, cost(fit.x)[1]))


REFERENCES: dict[str, tuple[str, float, Callable[[], Array]]] = {
    "statsmodels OLS": (
        "least-squares",
        0.0,
        lambda: statsmodels_glm("least-squares", sm.families.Gaussian()),
    ),
    "statsmodels logit": (
        "logistic",
        0.0,
        lambda: statsmodels_glm("logistic", sm.families.Binomial()),
    ),
    "statsmodels Poisson": (
        "poisson",
        0.0,
        lambda: statsmodels_glm("poisson", sm.families.Poisson()),
    ),
    "statsmodels gamma": (
        "gamma",
        0.0,
        lambda: statsmodels_glm("gamma", sm.families.Gamma(sm.families.links.Log())),
    ),
    "scikit-learn OLS": ("least-squares", 0.0, lambda: sklearn_ridge("least-squares", 0.0)),
    "scikit-learn ridge": ("least-squares", 3.0, lambda: sklearn_ridge("least-squares", 3.0)),
    "scikit-learn logit": ("logistic", 3.0, lambda: sklearn_ridge("logistic", 3.0)),
    "scikit-learn Poisson": ("poisson", 3.0, lambda: sklearn_ridge("poisson", 3.0)),
    "scipy Huber": ("huber", 0.0, lambda: scipy_huber(0.0)),
    "scipy Huber, ridge": ("huber", 3.0, lambda: scipy_huber(3.0)),
}


@pytest.mark.parametrize("reference", sorted(REFERENCES))
def test_the_pooled_solution_is_theirs(reference: str) -> None:
    name, ridge, solve = REFERENCES[reference]
    ours = problem(name, SIZES, D, seed=11, ridge=ridge).solution()
    np.testing.assert_allclose(ours, solve(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("least-squares", sm.families.Gaussian()),
        ("logistic", sm.families.Binomial()),
        ("poisson", sm.families.Poisson()),
        ("gamma", sm.families.Gamma(sm.families.links.Log())),
    ],
)
def test_the_solution_with_an_offset_and_weights_is_theirs(
    name: str, family: "sm.families.Family"
) -> None:
    rng = np.random.default_rng(5)
    data = [
        (A, b, w, 0.5 * rng.standard_normal(len(b))) for A, b, w in clients(name, SIZES, D, seed=11)
    ]
    A, b, w, o = (np.concatenate(part) for part in zip(*data, strict=True))
    b = np.where(b > 0, 1, 0) if name == "logistic" else b
    theirs = (
        sm.GLM(b, A, family=family, freq_weights=w, offset=o).fit(tol=1e-14, maxiter=200).params
    )
    p = fs.Problem(loss(name, D), data)
    np.testing.assert_allclose(p.solution(), theirs, rtol=1e-8, atol=1e-9)
    result = fs.solve(p, tol=1e-13)
    assert result.converged
    np.testing.assert_allclose(result.x, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("d", [3, 6])
def test_the_multinomial_solution_is_theirs(d: int) -> None:
    data = [(A, b, np.ceil(w)) for A, b, w in clients("multinomial", SIZES, d, seed=11)]
    A, b, w = (np.concatenate(part) for part in zip(*data, strict=True))
    times = w.astype(int)  # statsmodels takes no weights, but repeated rows
    model = sm.MNLogit(b.repeat(times), A.repeat(times, axis=0))
    theirs = np.asarray(
        model.fit(method="newton", tol=1e-14, maxiter=100, disp=False).params
    ).T.ravel()
    p = fs.Problem(loss("multinomial", d), data)
    np.testing.assert_allclose(p.solution(), theirs, rtol=1e-8, atol=1e-9)
    assert p.objective(theirs) == pytest.approx(
        -model.loglike(theirs.reshape(-1, A.shape[1]).T), rel=1e-12
    )
    result = fs.solve(p, tol=1e-13)
    assert result.converged
    np.testing.assert_allclose(result.x, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_fedsplit_reaches_the_pooled_solution(name: str) -> None:
    p = problem(name, SIZES, D, seed=11, ridge=3.0)
    result = fs.solve(p, rounds=3000, tol=1e-13)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), rtol=1e-6, atol=1e-6)
