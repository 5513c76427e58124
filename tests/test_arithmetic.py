"""What rounding can have moved, against solutions in rational or 60-digit arithmetic."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.commands.app import app
from fedsplit.regression.client.design import combine


def solved(M: list[list[Fraction]]) -> list[Fraction]:
    """The solution of p equations with their right-hand sides in column p."""
    p = len(M)
    for i in range(p):
        for k in range(i + 1, p):
            factor = M[k][i] / M[i][i]
            M[k] = [a - factor * b for a, b in zip(M[k], M[i], strict=True)]
    x = [Fraction(0)] * p
    for i in reversed(range(p)):
        rest = sum((M[i][j] * x[j] for j in range(i + 1, p)), Fraction(0))
        x[i] = (M[i][p] - rest) / M[i][i]
    return x


def least_squares(A: Array, b: Array) -> list[Fraction]:
    """The exact solution for the float64 numbers as they are."""
    columns = []
    for column in [*A.T, b]:
        exact = [Fraction(value) for value in column.tolist()]
        power = max(value.denominator for value in exact)
        columns.append(([int(value * power) for value in exact], power))
    products = [
        [Fraction(sum(map(int.__mul__, a, c)), q * r) for c, r in columns] for a, q in columns[:-1]
    ]
    return solved(products)


def away(model: fs.Model, exact: list[Fraction]) -> float:
    """How far coefficients are from exact ones, in the standard errors of a certificate."""
    errors = model.estimates.errors * model.certificate.inflation
    triples = zip(model.params.to_numpy().tolist(), exact, errors, strict=True)
    return max(abs(float(Fraction(coef) - each)) / float(error) for coef, each, error in triples)


def nearly(kind: str, n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(len(kind))
    x = rng.standard_normal(n)
    u = rng.standard_normal(n)
    z = rng.standard_normal(n)
    noise = rng.standard_normal(n)
    frames = {
        "ordinary": (x, z, x - z + noise),
        "units": (1e9 * x, 1e-9 * z + 1e-5, x - z + noise),
        "good fit": (x, z, x - z + 1e-3 * noise),
        "nearly perfect": (x, z, x - z + 1e-8 * noise),
        "4e-6": (x, x + 4e-6 * u, 300 * u + noise),
        "1e-3": (x + 3, x + 3 + 1e-3 * u, 300 * u + noise),
        "1e-7": (x + 3, x + 3 + 1e-7 * u, 300 * u + noise),
        "1e-10": (x, x + 1e-10 * u, u + noise),
        "far away": (x + 1e6, 1e4 * z + 1e6, x + 1e7 + noise),
        "year": (2000 + np.floor(9 * z), (2000 + np.floor(9 * z)) ** 2, 1000 * z + noise),
    }
    x, z, y = frames[kind]
    return pd.DataFrame({"x": x, "z": z, "y": y, "c": np.arange(n) % 4})


@pytest.mark.parametrize(
    "kind",
    [
        "ordinary",
        "units",
        "good fit",
        "4e-6",
        "1e-3",
        "1e-7",
        "1e-10",
        "far away",
        "year",
        "nearly perfect",
    ],
)
def test_the_exact_least_squares_solution_is_as_near_as_the_certificate_says(kind: str) -> None:
    frame = nearly(kind)
    model = fs.fit(frame, "y ~ x + z", group="c")
    A = np.column_stack([np.ones(len(frame)), frame.x, frame.z])
    exact = least_squares(A, frame.y.to_numpy())
    certificate = model.certificate
    assert certificate.arithmetic is not None
    assert certificate.standard_errors is not None
    assert model.converged
    measured = away(model, exact)
    assert measured <= certificate.arithmetic + certificate.standard_errors
    assert certificate.arithmetic < 1e-7


def test_a_nearly_perfect_fit_says_in_which_standard_errors_it_is_proved() -> None:
    ordinary = fs.fit(nearly("ordinary"), "y ~ x + z", group="c").certificate
    assert ordinary.inflation == 1.0
    assert "those of the table" not in str(ordinary)
    frame = nearly("nearly perfect")
    model = fs.fit(frame, "y ~ x + z", group="c")
    assert model.dispersion is not None
    share = model.dispersion / float(np.var(frame.y))
    np.testing.assert_allclose(model.certificate.inflation, np.sqrt(1e-6 / share), rtol=1e-6)
    assert "times those of the table: the fit is nearly perfect" in str(model.certificate)


def test_a_fit_that_was_false_by_4e_8_standard_errors_is_right() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000)
    z = x + 4e-6 * rng.standard_normal(2000)
    y = 300 * (z - x) / 4e-6 + rng.standard_normal(2000)
    frame = pd.DataFrame({"x": x, "z": z, "y": y})
    model = fs.fit([frame[i::4] for i in range(4)], "y ~ x + z")
    exact = least_squares(np.column_stack([np.ones(2000), x, z]), y)
    assert model.certificate.arithmetic is not None
    assert away(model, exact) <= model.certificate.arithmetic < 1e-9


@pytest.mark.slow
def test_the_bound_holds_on_many_random_problems() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        n = int(rng.integers(12, 80))
        p = int(rng.integers(1, 5))
        A = rng.standard_normal((n, p)) @ (np.eye(p) + rng.standard_normal((p, p)))
        A[:, -1] = A[:, 0] + 10.0 ** rng.uniform(-9, 0) * A[:, -1]
        A = A * 10.0 ** rng.uniform(-5, 5, p) + 10.0 ** rng.uniform(-3, 4, p)
        b = A / A.std(axis=0) @ rng.standard_normal(p) + 10.0 ** rng.uniform(
            -2, 1
        ) * rng.standard_normal(n)
        names = [f"x{k}" for k in range(p)]
        frame = pd.DataFrame(A, columns=names).assign(y=b, c=np.arange(n) % 3)
        model = fs.fit(frame, f"y ~ {' + '.join(names)}", group="c")
        if model.aliased:
            continue
        exact = least_squares(np.column_stack([np.ones(n), A]), b)
        assert model.certificate.arithmetic is not None
        assert away(model, exact) <= model.certificate.arithmetic + 1e-9


def exactly(a: list[Fraction]) -> dict[str, list[Fraction]]:
    """A column, and what functions over all rows make of it, to 60 digits at least."""
    mean = sum(a, Fraction(0)) / len(a)
    variance = sum(((each - mean) ** 2 for each in a), Fraction(0)) / (len(a) - 1)
    with localcontext() as context:
        context.prec = 80
        root = (Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt()
    centred = [each - mean for each in a]
    return {"a": a, "center(a)": centred, "scale(a)": [each / Fraction(root) for each in centred]}


def far_away(mean: float, seed: int, n: int = 48) -> pd.DataFrame:
    """Columns of deviation 1 about a mean, whose product matters."""
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((2, n))
    frame = pd.DataFrame({"a": mean + u, "b": mean + v, "c": np.arange(n) % 3})
    return frame.assign(y=u - v + u * v + rng.standard_normal(n))


def exact_fit(frame: pd.DataFrame, terms: list[str]) -> list[Fraction]:
    """The coefficients of a constant and of products of columns, such as a:a:b."""
    columns = exactly([Fraction(each) for each in frame.a.tolist()])
    columns["b"] = [Fraction(each) for each in frame.b.tolist()]
    rows = [[Fraction(1)] * len(frame)]
    for term in terms:
        factors = [columns[each] for each in term.split(":")]
        rows.append([math.prod(each, start=Fraction(1)) for each in zip(*factors, strict=True)])
    rows.append([Fraction(each) for each in frame.y.tolist()])
    products = [
        [sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0)) for b in rows]
        for a in rows[:-1]
    ]
    return solved(products)


FAR = [
    ("y ~ a*b", ["a", "b", "a:b"]),
    ("y ~ a + {a^2}", ["a", "a:a"]),
    ("y ~ a + I(a^2)", ["a", "a:a"]),
    ("y ~ scale(a)", ["scale(a)"]),
    ("y ~ scale(a)*b", ["scale(a)", "b", "scale(a):b"]),
    ("y ~ center(a)*b", ["center(a)", "b", "center(a):b"]),
]
"""Formulas, and the products that their columns are."""


def test_sixty_fits_far_from_zero_are_as_near_to_the_exact_ones_as_they_say() -> None:
    wide = 0
    for formula, terms in FAR:
        for seed in range(10):
            frame = far_away(1e4, seed)
            model = fs.fit(frame, formula, group="c")
            certificate = model.certificate
            assert certificate.arithmetic is not None
            assert certificate.standard_errors is not None
            bound = certificate.arithmetic + certificate.standard_errors
            measured = away(model, exact_fit(frame, terms))
            assert measured <= bound
            assert model.converged
            # products of two columns are as if their factors had been centred exactly
            assert certificate.arithmetic <= (1e-9 if "(" in formula else 1e-12)
            wide += certificate.arithmetic > 1000 * measured
    assert wide <= 12


def test_rounding_of_the_entries_themselves_counts_in_whether_a_fit_converged() -> None:
    far = fs.fit(far_away(3e5, 0), "y ~ a + b + {a^2*b}", group="c")
    assert far.certificate.standard_errors is not None
    assert far.certificate.standard_errors <= 1e-9
    assert far.certificate.arithmetic is None or far.certificate.arithmetic > 1e-6
    assert not far.converged
    assert any("rounding can have moved coefficients" in text for text in far.warnings)
    assert fs.fit(far_away(300.0, 0), "y ~ a + b + {a^2*b}", group="c").converged


@pytest.mark.parametrize("mean", [3.0, 300.0, 1e4, 3e5])
@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        *FAR,
        ("y ~ a + {a^2} + {a^3}", ["a", "a:a", "a:a:a"]),
        ("y ~ a + b + {a^2*b}", ["a", "b", "a:a:b"]),
        ("y ~ a + a:b", ["a", "a:b"]),
        ("y ~ scale(a):b", ["scale(a):b"]),
    ],
)
def test_the_rounding_of_products_powers_and_scale_is_part_of_the_bound(
    formula: str, terms: list[str], mean: float
) -> None:
    for seed in range(3):
        frame = far_away(mean, seed)
        model = fs.fit(frame, formula, group="c")
        if model.aliased:  # what rounding leaves of a³ beside the others
            continue
        certificate = model.certificate
        assert certificate.arithmetic is not None
        assert certificate.standard_errors is not None
        bound = certificate.arithmetic + certificate.standard_errors
        assert away(model, exact_fit(frame, terms)) <= bound
        # a bound that is true of anything would say nothing
        assert certificate.arithmetic <= 1e-11 * max(1.0, mean) ** len(terms)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
@pytest.mark.parametrize("difference", [1.0, 1e-3, 1e-6])
def test_a_maximum_of_the_likelihood_to_50_digits_is_as_near_as_the_certificate_says(
    family: str, difference: float
) -> None:
    rng = np.random.default_rng(5)
    n = 60
    x = rng.standard_normal(n) + 2.0
    z = x + difference * rng.standard_normal(n)
    y = (rng.random(n) < 0.4).astype(float)
    if family == "poisson":
        y = rng.poisson(2.0, n).astype(float)
    frame = pd.DataFrame({"x": x, "z": z, "y": y, "c": np.arange(n) % 2})
    model = fs.fit(frame, "y ~ x + z", family=family, group="c")
    with localcontext() as context:
        context.prec = 60
        exact = newton(np.column_stack([np.ones(n), x, z]), y, model.params, family)
    certificate = model.certificate
    assert certificate.arithmetic is not None
    assert certificate.standard_errors is not None
    assert model.converged
    measured = away(model, exact)
    assert measured <= certificate.arithmetic + certificate.standard_errors
    assert certificate.arithmetic < 1e-9


def newton(A: Array, b: Array, start: Array, family: str) -> list[Fraction]:
    """Newton's method in the decimals of the context, from a start next to the maximum."""
    rows = [[Decimal(value) for value in row] for row in A.tolist()]
    x = [Decimal(value) for value in start.tolist()]
    p = len(x)
    for _ in range(3):
        M = [[Decimal(0)] * (p + 1) for _ in range(p)]
        for row, y in zip(rows, b.tolist(), strict=True):
            e = sum((a * c for a, c in zip(row, x, strict=True)), Decimal(0)).exp()
            mean, curvature = e, e
            if family == "logistic":
                mean, curvature = e / (1 + e), e / (1 + e) ** 2
            for i in range(p):
                for j in range(p):
                    M[i][j] += curvature * row[i] * row[j]
                M[i][p] += (Decimal(y) - mean) * row[i]
        step = solved([[Fraction(value) for value in row] for row in M])
        x = [
            value + Decimal(each.numerator) / Decimal(each.denominator)
            for value, each in zip(x, step, strict=True)
        ]
    return [Fraction(value) for value in x]


def test_combinations_that_cancel_have_all_their_digits() -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal(50) + 5.0
    A = np.column_stack([x, x + 1e-9 * rng.standard_normal(50)])
    W = np.array([[-1e9, 0.1], [1.1e9, 0.3]])
    centre = np.array([5.0, 4.9])
    scale = np.array([0.7, 0.77])
    found = combine(A, centre, scale, W)
    for i, k in np.ndindex(found.shape):
        terms = [
            (Fraction(float(A[i, j])) - Fraction(float(centre[j])))
            / Fraction(float(scale[j]))
            * Fraction(float(W[j, k]))
            for j in range(2)
        ]
        exact = sum(terms, Fraction(0))
        assert abs(Fraction(float(found[i, k])) - exact) <= 1.2e-16 * abs(exact) + Fraction(1e-20)


def test_both_statements_are_printed_and_in_the_json(tmp_path: Path) -> None:
    nearly("1e-7").to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", str(tmp_path / "rows.csv"), "--group", "c", "--formula", "y ~ x + z"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0
    assert "moved by rounding by at most" in told.output
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert 0 < found["certificate"]["arithmetic"] < 1e-6
    assert 0 < found["certificate"]["standard_errors"] < 1e-9


def test_a_fit_that_rounding_can_have_moved_too_far_has_not_converged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedsplit.regression.server.problem.CANCELLING", np.inf)
    model = fs.fit(nearly("1e-7"), "y ~ x + z", group="c")
    assert model.certificate.standard_errors is not None
    assert model.certificate.arithmetic is not None
    assert model.certificate.standard_errors < 1e-9 < 1e-6 < model.certificate.arithmetic
    assert not model.converged
    assert any("rounding can have moved coefficients" in text for text in model.warnings)


def test_a_tolerance_that_is_not_proved_has_a_line_that_says_what_to_do() -> None:
    frame = nearly("ordinary").assign(amount=lambda d: np.round(1e10 * np.exp(d.y / 3)))
    large = fs.fit(frame, "amount ~ x + z", family="poisson", group="c")
    assert not large.converged
    assert "rounding leaves no better bound; if it will do, set a larger tol" in large.warnings[-1]
    frame = frame.assign(count=np.round(np.exp(frame.y / 3)))
    settings = {"family": "poisson", "group": "c", "method": "fedsplit"}
    short = fs.fit(frame, "count ~ x + z", rounds=10, **settings)  # type: ignore[arg-type]  # fit's own
    assert not short.converged
    assert short.warnings[-1].endswith("not the tolerance of 1e-09: allow more rounds")
