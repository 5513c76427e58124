"""The formula's language: what it takes, what it refuses, and that nothing else is evaluated."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix

import fedsplit as fs
from fedsplit.silos.formula import Formula, Level

FRAME = pd.DataFrame(
    {
        "y": [1.0, 2.0, 3.0, 4.0, 5.0],
        "x": [1.0, 2.0, 3.0, 5.0, 8.0],
        "g": ["a", "b", "a", "c", "b"],
        "h": [1.0, 2.0, 1.0, 2.0, 3.0],
        "my col": [0.5, 1.5, 2.5, 3.5, 4.5],
    }
)
LEVELS: dict[str, list[Level]] = {"g": ["a", "b", "c"], "h": [1, 2, 3]}


@pytest.mark.parametrize(
    "terms",
    [
        "x",
        "x - 1",
        "g",
        "C(g)",
        "x + C(h)",
        "x * C(h)",
        "(x + g) ** 2",
        "g:x",
        "log(x) + np.sqrt(x)",
        "I(x**2) + {x + 1}",
        "`my col` + np.log(`my col`)",
        "C(g, contr.treatment('b'))",
        "C(g, contr.sum)",
        "{x > 2}",
    ],
)
def test_terms_are_coded_and_named_as_formulaic_does_on_the_pool(terms: str) -> None:
    formula = Formula(f"y ~ {terms}")
    names, A = formula.design(FRAME, {column: LEVELS[column] for column in LEVELS if column in formula.columns})
    pooled = model_matrix(terms, FRAME.assign(h=FRAME.h.astype(int)))
    assert names == list(pooled.columns)
    np.testing.assert_array_equal(A, pooled.to_numpy(float))


@pytest.mark.parametrize("terms", ["x + C(g)*C(h)", "g + x:g", "C(g, contr.treatment('c')) + h"])
def test_a_client_that_lacks_levels_has_the_columns_of_all(terms: str) -> None:
    formula = Formula(f"y ~ {terms}")
    levels = {column: LEVELS[column] for column in formula.categories | ({"g"} & set(formula.columns))}
    names, A = formula.design(FRAME, levels)
    for rows in ([0], [0, 2], [1, 3]):
        of_part, part = formula.design(FRAME.iloc[rows], levels)
        assert of_part == names
        np.testing.assert_array_equal(part, A[rows])


def test_numbers_stay_numbers_beside_their_categories() -> None:
    names, A = Formula("y ~ h + C(h)").design(FRAME, {"h": [1, 2, 3]})
    assert names == ["Intercept", "h", "C(h)[T.2]", "C(h)[T.3]"]
    np.testing.assert_array_equal(A[:, 1], FRAME.h)


def test_columns_are_listed_in_the_order_of_the_formula() -> None:
    formula = Formula("np.log(y) ~ x + C(g) + `my col`:h")
    assert formula.columns == ["y", "x", "g", "my col", "h"]
    assert formula.categories == {"g"}
    assert formula.target_column is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("y ~ x +", "Operator"),
        ("y ~ (x", "matching"),
        ("~ x", "target"),
        ("x", "target"),
        ("", "target"),
        ("y ~ x | h", "one set of terms"),
        ("y + x ~ h", "one target"),
        ("y ~ .", "name the columns"),
        ("y ~ x + y", "both sides"),
        ("y ~ poly(x, 2)", "depends on the other rows"),
        ("y ~ scale(x)", "the option standardize"),
        ("y ~ bs(x, 3)", "depends on the other rows"),
        ("y ~ C(x + 1)", "C(column)"),
        ("y ~ log(x, out=x)", "one column"),
        ("y ~ np.load('f')", "load is not known"),
    ],
)
def test_a_formula_that_cannot_be_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(fs.InputError, match="formula") as caught:
        Formula(text)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch owned')",
        "open('owned', 'w')",
        "x.__class__.__bases__",
        "(lambda: 1)()",
        "[z for z in x]",
        "x if x else y2",
        "np.log.__class__(x)",
        "getattr(x, 'sum')()",
        "f'{x}'",
        "x[0]",
        "9**9**9**9",
        "x**9**9**9",
        "'a' * 10000000000",
        "x @ x",
        "x := 1",
        "contr.treatment.__globals__",
        "C.__globals__",
        "np",
        "eval('1')",
        "...",
        "b'x'",
    ],
)
def test_no_code_but_arithmetic_gets_through(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (f"y ~ {{{code}}}", f"{{{code}}} ~ x", f"y ~ I({code})", f"y ~ C({code})"):
        with pytest.raises(fs.InputError):
            fs.fit(FRAME, text)
    assert not list(tmp_path.iterdir())
