"""``fs.path``: against scikit-learn's paths, ``fs.fit`` and a plain loop over folds."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import xlogy
from sklearn.linear_model import LogisticRegression, enet_path, lasso_path

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.regression.path import RegularisationPath
from problems import problem
from real import UNEVEN, diabetes, randhie, split

TEN = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
FORMULA = f"target ~ {' + '.join(TEN)}"
RAND = "mdvis ~ logc + xage + female + linc + disea + hlthg"


def centred() -> pd.DataFrame:
    table = pd.concat(diabetes().values(), ignore_index=True)
    table[TEN] = (table[TEN] - table[TEN].mean()) / table[TEN].std(ddof=0)
    return table


def wide(sizes: tuple[int, ...] = (30, 12, 8), d: int = 60) -> dict[str, pd.DataFrame]:
    """More columns than rows, in every client and in the pool."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((sum(sizes), d))
    b = A[:, :5] @ [3.0, -2.0, 1.5, 1.0, -1.0] + rng.standard_normal(len(A))
    return split(pd.DataFrame(A, columns=[f"x{i}" for i in range(d)]).assign(target=b), sizes)


def small() -> dict[str, pd.DataFrame]:
    return {name: rows.iloc[:150] for name, rows in randhie().items()}


def assert_path(
    path: RegularisationPath, columns: list[str], expected: Array, rtol: float = 1e-7
) -> None:
    found = path.params[columns].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
    np.testing.assert_array_equal(path.active, np.count_nonzero(expected, axis=1))


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_the_path_is_that_of_scikit_learn(l1_ratio: float) -> None:
    table = centred()
    path = fs.path(split(table, UNEVEN), FORMULA, l1_ratio=l1_ratio, n_lambdas=15)
    _, coefs, _ = enet_path(
        table[TEN].to_numpy(), (table["target"] - table["target"].mean()).to_numpy(),
        l1_ratio=l1_ratio,
        alphas=path.lambdas / len(table), tol=1e-14, max_iter=1_000_000,
    )  # fmt: skip
    assert path.converged.all()
    assert (path.distance < 1e-6).all()
    assert_path(path, TEN, coefs.T)


def test_a_path_of_least_squares_takes_one_question_per_lambda() -> None:
    path = fs.path(split(centred(), UNEVEN), FORMULA, n_lambdas=20)
    assert path.converged.all()
    assert path.rounds[1:].tolist() == [1] * 19


def test_what_was_held_out_of_least_squares_is_predicted_as_by_fits_of_the_others() -> None:
    frames = split(centred(), UNEVEN)
    path = fs.path(frames, FORMULA, n_lambdas=4, ratio=0.03, folds="clients")
    lam = path.lambdas[2]
    errors, rows = [], []
    for name, held in frames.items():
        others = {other: each for other, each in frames.items() if other != name}
        model = fs.fit(others, FORMULA, l1=lam, standardize=True)
        errors.append(np.mean(np.square(held["target"] - model.predict(held))))
        rows.append(len(held))
    assert path.cv is not None
    np.testing.assert_allclose(path.cv["mean"][lam], np.average(errors, weights=rows), rtol=1e-8)


@pytest.mark.slow
def test_with_more_columns_than_rows_the_path_is_that_of_scikit_learn_and_nothing_is_proved() -> (
    None
):
    frames = wide()
    table = pd.concat(frames.values())
    columns = [name for name in table.columns if name != "target"]
    path = fs.path(frames, target="target", n_lambdas=12, ratio=0.03, standardize=False)
    A, b = table[columns].to_numpy(), table["target"].to_numpy()
    _, coefs, _ = lasso_path(
        A - A.mean(axis=0), b - b.mean(), alphas=path.lambdas / 50, tol=1e-14, max_iter=1_000_000
    )
    assert_path(path, columns, coefs.T)
    assert not path.converged.any()
    assert np.isnan(path.distance).all()
    [text] = [text for text in path.warnings if "the tolerance is not proved" in text]
    assert text.startswith("12 values of lambda, the tolerance is not proved")
    assert path.rounds.max() < 150


def test_a_ridge_makes_more_columns_than_rows_provable() -> None:
    path = fs.path(wide(), target="target", l1_ratio=0.5, n_lambdas=6, ratio=0.05)
    assert path.converged.all()
    model = path.model(path.lambdas[3])
    assert model.converged
    np.testing.assert_allclose(
        path.params.iloc[3],
        model.params,
        atol=1e-6 * float(np.max(model.estimates.errors)),
    )


def test_the_logistic_path_is_that_of_scikit_learn() -> None:
    table = centred()
    path = fs.path(
        split(table, UNEVEN),
        f"high ~ {' + '.join(TEN)}",
        family="logistic",
        n_lambdas=5,
        ratio=0.05,
    )
    expected = []
    for lam in path.lambdas[1:]:
        reference = LogisticRegression(
            l1_ratio=1, C=1 / lam, solver="saga", tol=1e-12, max_iter=100_000
        )
        expected.append(reference.fit(table[TEN], table["high"]).coef_[0])
    assert path.converged.all()
    assert path.active[0] == 0
    np.testing.assert_allclose(
        path.params[TEN].iloc[1:], expected, atol=1e-7 * np.max(np.abs(expected))
    )


@pytest.mark.parametrize("family", ["gaussian", "poisson", "huber"])
@pytest.mark.parametrize("standardize", [True, False])
def test_the_largest_lambda_is_the_smallest_without_coefficients(
    family: str, standardize: bool
) -> None:
    path = fs.path(
        small(),
        RAND,
        family=family,
        standardize=standardize,
        n_lambdas=2,
        offset="shift",
        l1_ratio=0.7,
    )
    above, below = (
        fs.path(
            small(),
            RAND,
            family=family,
            standardize=standardize,
            offset="shift",
            l1_ratio=0.7,
            lambdas=[lam],
        )
        for lam in path.lambdas[0] * np.array([1 + 1e-6, 1 - 1e-3])
    )
    assert path.active[0] == above.active[0] == 0
    assert below.active[0] == 1


@pytest.mark.parametrize(
    ("family", "l1_ratio"), [("poisson", 1.0), ("poisson", 0.5), ("gaussian", 0.0)]
)
def test_the_model_at_a_lambda_is_that_of_fit(family: str, l1_ratio: float) -> None:
    path = fs.path(small(), RAND, family=family, l1_ratio=l1_ratio, n_lambdas=6)
    lam = path.lambdas[4]
    model = path.model(lam)
    same = fs.fit(
        small(),
        RAND,
        family=family,
        l1=lam * l1_ratio,
        ridge=lam * (1 - l1_ratio),
        standardize=True,
    )
    np.testing.assert_array_equal(model.params, same.params)
    assert model.to_dict() == same.to_dict()
    assert np.max(np.abs(path.params.iloc[4] - same.params) / same.estimates.errors) < 1e-6


@pytest.mark.slow
def test_a_warm_start_saves_a_third_of_the_rounds_and_changes_nothing() -> None:
    path = fs.path(small(), RAND, family="poisson", n_lambdas=16)
    cold = [fs.path(small(), RAND, family="poisson", lambdas=[lam]) for lam in path.lambdas[1:]]
    assert 1.5 * path.rounds[1:].sum() < sum(each.rounds[0] for each in cold)
    assert path.rounds.max() <= 8
    errors = path.model(path.lambdas[-1]).estimates.errors
    away = np.abs(path.params.to_numpy()[1:] - np.vstack([each.params for each in cold])) / errors
    assert path.converged.all()
    assert away.max() < 2e-6


def test_a_state_goes_on_under_another_penalty() -> None:
    federated = problem("logistic", [30, 20, 50], d=6)
    other = fs.L1(2.0)
    first = fs.solve(federated, fs.QuasiNewton(), penalty=fs.L1(4.0))
    resumed = fs.QuasiNewton(penalty=other).resume(first.state.inner)
    warm = fs.solve(federated, fs.QuasiNewton(), penalty=other, state=resumed)
    cold = fs.solve(federated, fs.QuasiNewton(), penalty=other)
    assert warm.converged
    assert warm.rounds < cold.rounds
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-5)  # as far as the gaps prove


@pytest.mark.parametrize("folds", ["clients", 3])
def test_cross_validation_is_a_loop_over_held_out_clients(folds: str | int) -> None:
    frames = small()
    names = list(frames)
    path = fs.path(frames, RAND, family="poisson", n_lambdas=3, ratio=0.03, folds=folds, seed=1)
    groups = np.arange(6) if folds == "clients" else np.random.default_rng(1).permutation(6) % 3
    deviance, rows = [], []
    for k in np.unique(groups):
        training = {name: frames[name] for j, name in enumerate(names) if groups[j] != k}
        held = pd.concat([frames[name] for j, name in enumerate(names) if groups[j] == k]).dropna()
        models = [
            fs.fit(training, RAND, family="poisson", l1=lam, standardize=True)
            for lam in path.lambdas
        ]
        b, mu = held["mdvis"], [model.predict(held) for model in models]
        deviance.append([2 * np.mean(xlogy(b, b / each) - b + each) for each in mu])
        rows.append(len(held))
    mean = np.average(deviance, axis=0, weights=rows)
    se = np.sqrt(
        np.average((np.array(deviance) - mean) ** 2, axis=0, weights=rows) / (len(rows) - 1)
    )
    assert path.cv is not None
    np.testing.assert_allclose(path.cv["mean"], mean, rtol=1e-7)
    np.testing.assert_allclose(path.cv["se"], se, rtol=1e-6)
    least = int(np.argmin(mean))
    assert path.best == path.lambdas[least]
    assert path.best_1se == path.lambdas[mean <= mean[least] + se[least]].max()


def test_held_out_deviances_of_grouped_trials_are_those_above_the_saturated_model() -> None:
    rng = np.random.default_rng(2)
    frames = {}
    for name in "abc":
        u = rng.normal(size=30)
        won = rng.binomial(5, 1.0 / (1.0 + np.exp(-0.4 - 0.8 * u)))
        frames[name] = pd.DataFrame({"u": u, "won": won, "lost": 5 - won})
    path = fs.path(
        frames, "cbind(won, lost) ~ u", lambdas=[2.0], family="logistic", folds="clients"
    )
    deviance = []
    for name, held in frames.items():
        training = {other: frame for other, frame in frames.items() if other != name}
        model = fs.fit(
            training, "cbind(won, lost) ~ u", family="logistic", l1=2.0, standardize=True
        )
        p = model.predict(held)
        both = xlogy(held.won, held.won / 5 / p) + xlogy(held.lost, held.lost / 5 / (1 - p))
        deviance.append(2.0 * both.sum() / 150)
    assert path.cv is not None
    np.testing.assert_allclose(path.cv["mean"], np.mean(deviance), rtol=1e-7)


def test_the_summary_has_a_line_for_every_lambda_and_marks_the_best() -> None:
    path = fs.path(small(), RAND, family="poisson", n_lambdas=5, folds=2)
    text = str(path.summary())
    assert (
        sum(
            line.lstrip().startswith(f"{lam:.5g}")
            for lam in path.lambdas
            for line in text.splitlines()
        )
        == 5
    )
    assert text.count("best_1se") == 1
    assert "NO" not in text
    assert fs.path(small(), RAND, lambdas=[3.0, 5.0, 3.0]).lambdas.tolist() == [5.0, 3.0]


def test_what_is_not_proved_within_the_rounds_is_said() -> None:
    path = fs.path(small(), RAND, family="poisson", lambdas=[100.0], rounds=10, tol=1e-18)
    assert not path.converged.any()
    assert "lambda 100: the tolerance is not proved" in path.warnings[-1]
    assert "NO" in path.summary() or "–" in path.summary()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"l1_ratio": 1.1}, "l1_ratio must be between 0"),
        ({"l1_ratio": -0.1}, "l1_ratio must be between 0 and 1"),
        ({"lambdas": []}, "lambdas must be one or more finite numbers above 0"),
        ({"lambdas": [1.0, 0.0]}, "lambdas must be"),
        ({"lambdas": [1.0, np.nan]}, "lambdas must be"),
        ({"lambdas": "many"}, "lambdas must be"),
        ({"lambdas": [[1.0, 2.0]]}, "lambdas must be"),
        ({"n_lambdas": 0}, "n_lambdas must be a whole number of at least 1"),
        ({"ratio": 1.0}, "ratio must be between 0 and 1"),
        ({"ratio": 0.0}, "ratio must be"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"folds": 7}, "folds: 7 groups of clients need as many clients, there are 6"),
        ({"folds": "rows"}, "folds must be 'clients' or a number"),
        ({"tol": 0.0}, "tol must be"),
    ],
)
def test_bad_input_is_refused_in_one_line(options: dict[str, object], line: str) -> None:
    with pytest.raises(fs.InputError) as error:
        fs.path(small(), RAND, **options)  # type: ignore[arg-type]  # one bad option at a time
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_folds_whose_training_clients_cannot_fit_the_model_are_refused() -> None:
    rng = np.random.default_rng(0)
    frames = {
        name: pd.DataFrame(
            {
                "x": rng.standard_normal(20),
                "u": float(j == 0) * np.arange(20),
                "y": np.arange(20) % 2,
            }
        )
        for j, name in enumerate("abc")
    }
    with pytest.raises(fs.InputError, match="folds: without a, column u does not vary"):
        fs.path(frames, "y ~ x + u", family="logistic", folds="clients")
    for name in "bc":
        frames[name]["y"] = 1
    with pytest.raises(fs.InputError, match="folds: without a, no row is of class 0"):
        fs.path(frames, "y ~ x", family="logistic", folds="clients")
    with pytest.raises(fs.InputError, match="need as many clients, there are 1"):
        fs.path(frames["a"], "y ~ x", folds="clients")
    with pytest.raises(fs.InputError, match="no λ is the best without cross-validation"):
        fs.path(frames, "y ~ x", n_lambdas=2).best  # noqa: B018  # looking at it is what fails
