"""The formula's language: what it takes, what it refuses, and that nothing else is evaluated."""

import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsplit as fs
from designs import coded, design
from fedsplit.data.formula.constants import constant
from fedsplit.data.formula.design_columns import MOST_COLUMNS
from fedsplit.data.formula.formula import Formula, quoted
from fedsplit.data.formula.pooled_functions import Schema
from fedsplit.data.formula.syntax import parse
from fedsplit.data.texts import Level
from fedsplit.regression.client.plan import Plan

FRAME = pd.DataFrame(
    {
        "y": [1.0, 2.0, 3.0, 4.0, 5.0],
        "x": [1.0, 2.0, 3.0, 5.0, 8.0],
        "g": ["a", "b", "a", "c", "b"],
        "h": [1.0, 2.0, 1.0, 2.0, 3.0],
        "my col": [0.5, 1.5, 2.5, 3.5, 4.5],
    }
)
LEVELS: dict[str, list[Level]] = {"g": ["a", "b", "c"], "h": ["1", "2", "3"]}


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
    names, A = design(
        formula, FRAME, {column: LEVELS[column] for column in LEVELS if column in formula.columns}
    )
    pooled = model_matrix(terms, FRAME.assign(h=FRAME.h.astype(int)))
    assert names == list(pooled.columns)
    np.testing.assert_array_equal(A, pooled.to_numpy(float))


@pytest.mark.parametrize("terms", ["x + C(g)*C(h)", "g + x:g", "C(g, contr.treatment('c')) + h"])
def test_a_client_that_lacks_levels_has_the_columns_of_all(terms: str) -> None:
    formula = Formula(f"y ~ {terms}")
    levels = {
        column: LEVELS[column] for column in formula.categories | ({"g"} & set(formula.columns))
    }
    names, A = design(formula, FRAME, levels)
    for rows in ([0], [0, 2], [1, 3]):
        of_part, part = design(formula, FRAME.iloc[rows], levels)
        assert of_part == names
        np.testing.assert_array_equal(part, A[rows])


def test_numbers_stay_numbers_beside_their_categories() -> None:
    names, A = design(Formula("y ~ h + C(h)"), FRAME, {"h": ["1", "2", "3"]})
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
        ("y ~ x +", "missing after +"),
        ("y ~ (x", "matching"),
        ("~ x", "target"),
        ("x", "target"),
        ("", "target"),
        ("y ~ x | h", "one set of terms"),
        ("y ~ x + y", "both sides"),
        ("y ~ {x - mean(x)}", "depends on a client's other rows"),
        ("y ~ standardize(x)", "use scale(x) instead"),
        ("y ~ cr(x, 3)", "depends on a client's other rows"),
        ("y ~ C(x + 1)", "C(column)"),
        ("y ~ log(x, out=x)", "the arguments x, base"),
        ("y ~ np.load('f')", "np.load() is not known"),
        ("y ~ {x < h < 3}", "a condition has one"),
        ("y ~ {'a' == 'a'}", "needs a column"),
        ("y ~ I(C(g))", "a factor of its own"),
        ("y ~ C(g, contr.custom(1))", "a coding is one of"),
        ("y ~ C(g, contr.treatment(x))", "must be a constant"),
        ("C(g) ~ x", "{g == 'a'}"),
        ("{'a'} ~ x", "text can only be compared"),
        ("1 ~ x", "one target"),
        ("y ~ 0 + 2:3", "2 is not a term"),
        ("y ~ x:1", "columns on both sides"),
        ("y ~ (1 | g)", "without random effects"),
        ("y ~ x ~ h", "one target"),
        ("y ~ x:offset(h)", "columns on both sides"),
        ("y ~ x - offset(h)", "cannot be taken away"),
        ("y ~ log(.)", "as a term only"),
        ("y ~ Q(x)", 'write Q("name of a column")'),
        ("y ~ relevel(g)", "relevel(column, ref='level')"),
        ("y ~ x^h", "a power of terms"),
        ("y ~ x # now", "neither a column"),
        ("y ~ I(x, h)", "write I(expression)"),
        ("y ~ ifelse(x > 1, 2)", "needs test, yes, no"),
        ("y ~ scale(poly(x, 2))", "cannot stand inside"),
        ("y ~ {x && h}", "missing before &"),
        ("y ~ x:(h)(x)", "an operator is missing"),
        ("y ~ x + ``", "needs a name"),
        ("y ~ Intercept", "rename it"),
        ("y ~ 'a'", "neither a column"),
        ("y ~ x %or% h", "neither a column"),
        ("y ~ (x", "a matching ) is missing"),
        ("y ~ log(x", "a matching ) is missing"),
        ("y ~ {x", "a matching } is missing"),
        ("y ~ {x)", "no bracket that ) could close"),
        ("y ~ x)", "no bracket that ) could close"),
        ("y ~ (x, h)", "a comma is for the arguments"),
        ("y ~ x +", "something is missing after +"),
        ("y ~ * x", "missing before *"),
        ("y ~ log(base=2, x)", "arguments with a name come last"),
        ("y ~ " + "(" * 300 + "x" + ")" * 300, "nested too deeply"),
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
        "x.real",
        "np.log",
        "np.log(*x)",
        "log(**x)",
        "log()(x)",
        "ｅｖａｌ('1')",
        "f'{{x}}'",
        "x and x",
        "x in x",
        "1j * x",
        "x == 'a'",
        "g == 1",
        "g + 1",
        "g < 'b'",
        "x * 0x" + "f" * 400,
        "x;x",
        "x\0",
    ],
)
def test_no_code_but_arithmetic_gets_through(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (f"y ~ {{{code}}}", f"{{{code}}} ~ x", f"y ~ I({code})", f"y ~ C({code})"):
        with pytest.raises(fs.InputError):
            fs.fit(FRAME, text)
    assert not list(tmp_path.iterdir())


TOUCH = '__import__("pathlib").Path("owned").touch()'


@pytest.mark.parametrize(
    "text",
    [
        f'y ~ x + {{x > ("`" != {TOUCH} != "`")}}',
        f'{{x > ("`" != {TOUCH} != "`")}} ~ h',
        f"poly({TOUCH}) ~ x",  # formulaic evaluates this while it parses
        f"y ~ poly({TOUCH})",
        f"y ~ x %{{{TOUCH}}}% h",
        f"%{{{TOUCH}}}% y ~ x",
        f"'a'b({TOUCH}) ~ x",
        f"y ~ {{}}({TOUCH})",
        f"y ~ C(g, contr.treatment({TOUCH}))",
        f"y ~ `x`({TOUCH})",
    ],
)
def test_code_between_backticks_or_in_the_parser_never_runs(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fs.InputError):
        fs.fit(FRAME, text)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("-x + 2*h/4 - +1", -FRAME.x + FRAME.h / 2 - 1),
        ("x**h", FRAME.x**FRAME.h),
        ("2**-1", np.full(5, 0.5)),
        ("(x > 1) + (x >= 3)", [0, 1, 2, 2, 2]),
        ("g == 'a'", [1, 0, 1, 0, 0]),
        ("'a' != g", [0, 1, 0, 1, 1]),
        ("g == g", np.ones(5)),
        ("x == True", [1, 0, 0, 0, 0]),
        ("I(np.abs(-x)) * floor(1.5)", FRAME.x),
        ("9**9**9**9", np.full(5, np.inf)),
    ],
)
def test_an_expression_is_what_numpy_makes_of_it(expression: str, values: Any) -> None:
    names, A = design(Formula(f"y ~ 0 + {{{expression}}}"), FRAME, {})
    assert len(names) == 1
    np.testing.assert_array_equal(A[:, 0], values)
    np.testing.assert_array_equal(
        Formula(f"{{{expression}}} ~ 1").response(*coded(FRAME, {})), values
    )


@pytest.mark.parametrize(
    "name",
    [
        *(
            "np",
            "C",
            "I",
            "log",
            "contr",
            "self",
            "lambda",
            "__class__",
            "q_0_",
            "Intercept",
            "2",
            ".",
            "größe",
            "ｘ",
        ),
        *("it's", 'a "b"', "x > 2", "a:b", "{x}", "e\u0301", "a\\b", "a\nb"),
    ],
)
def test_a_column_of_any_name_is_itself(name: str) -> None:
    frame = FRAME.rename(columns={"my col": name})
    column = frame[name].to_numpy()
    names, A = design(Formula(f"y ~ 0 + {quoted([name])}"), frame, {})
    assert names == [name]
    np.testing.assert_array_equal(A[:, 0], column)
    formula = Formula(f"y ~ 0 + {{`{name}` + x}} + log(`{name}`) + I(`{name}`):x")
    assert formula.columns == ["y", name, "x"]
    _, A = design(formula, frame, {})
    np.testing.assert_array_equal(A.T, [column + FRAME.x, np.log(column), column * FRAME.x])


def test_a_word_that_python_would_normalise_is_the_column_written() -> None:
    frame = FRAME.assign(**{"ｘ": 0.0})  # as a keyword, Python would normalise it
    _, A = design(Formula("y ~ 0 + {ｘ + 1} + {x + 1}"), frame, {})
    np.testing.assert_array_equal(A.T, [np.ones(5), FRAME.x + 1])


def test_a_name_that_cannot_be_quoted_is_refused() -> None:
    for name in ("a`b", ""):
        with pytest.raises(fs.InputError, match="rename it"):
            quoted(["x", name])


@pytest.mark.parametrize(
    "terms", ["g + `g[T.b]`", "x*h + `x:h`", "{x > 2} + `x > 2`", "g:h + `g[a]:h`"]
)
def test_two_columns_of_one_name_are_refused(terms: str) -> None:
    frame = FRAME.assign(**dict.fromkeys(("g[T.b]", "x:h", "x > 2", "g[a]:h"), FRAME.x))
    with pytest.raises(fs.InputError, match="two columns would be named"):
        design(Formula(f"y ~ {terms}"), frame, {"g": LEVELS["g"]})


def test_levels_of_any_name_have_a_column() -> None:
    names, A = design(
        Formula("y ~ g"), FRAME.replace({"g": {"b": "__b", "c": "]:"}}), {"g": ["__b", "a", "]:"]}
    )
    assert names == ["Intercept", "g[T.a]", "g[T.]:]"]
    np.testing.assert_array_equal(A[:, 1], FRAME.g == "a")


def test_numbers_at_one_client_are_text_where_another_has_text() -> None:
    names, A = design(Formula("y ~ 0 + h"), FRAME, {"h": ["1", "2", "3", "none"]})
    assert names == ["h[1]", "h[2]", "h[3]", "h[none]"]
    np.testing.assert_array_equal(A.sum(axis=0), [2, 2, 1, 0])
    _, A = design(Formula("y ~ 0 + {h == '1'}"), FRAME, {"h": ["1", "2", "3", "none"]})
    np.testing.assert_array_equal(A[:, 0], FRAME.h == 1)


def test_a_target_of_successes_and_failures_is_two_columns_of_counts() -> None:
    formula = Formula("cbind(x, y - x) ~ h")
    assert formula.grouped == ("x", "y - x")
    assert formula.target == "cbind(x, y - x)"
    assert formula.target_column is None
    assert formula.target_columns == ["x", "y"]
    successes, failures = formula.pair(*coded(FRAME, {}))
    np.testing.assert_array_equal(successes, FRAME.x)
    np.testing.assert_array_equal(failures, FRAME.y - FRAME.x)
    assert Formula("y ~ x").grouped is None
    with pytest.raises(fs.InputError, match="for the target"):
        design(Formula("y ~ cbind(x, h)"), FRAME, {})


@pytest.mark.parametrize("target", ["g", "{g}", "I(g)", "{g == 1}", "{x == 'a'}", "nosuch"])
def test_a_response_that_is_no_number_is_refused(target: str) -> None:
    with pytest.raises(fs.InputError, match="formula"):
        Formula(f"{target} ~ 1").response(*coded(FRAME, {}))


def test_a_design_can_be_written_without_changing_the_frame() -> None:
    frame = pd.DataFrame({"y": [1.0, 2.0], "x": [3.0, 4.0]}, index=[7, 7])
    for terms in ("0 + x", "0 + {x > 3}", "0", "x"):
        _, A = design(Formula(f"y ~ {terms}"), frame, {})
        assert A.flags.c_contiguous
        assert A.dtype == np.float64
        A[:] = 0
    Formula("y ~ x").response(frame)[:] = 0
    assert frame.to_numpy().tolist() == [[1, 3], [2, 4]]
    assert design(Formula("y ~ x"), frame.iloc[:0], {})[1].shape == (0, 2)


@pytest.mark.parametrize(
    "terms",
    [
        "(x + h + y2)**30",
        "*".join(f"c{i}" for i in range(21)),
        ":".join(f"c{i}" for i in range(2_000)),
        "("
        + "+".join(f"a{i}" for i in range(1_000))
        + ")/("
        + "+".join(f"b{i}" for i in range(1_000))
        + ")",
        "(" + "+".join(f"a{i}" for i in range(90)) + ")**2" + "+z" * 2_000,
        "x" + "^2" * 2_000,
        "+".join(f"I(x*{i})" for i in range(3_000)),
        "-" * 5_000 + "x",
        "(" * 5_000 + "x" + ")" * 5_000,
        "(x+" * 1_200 + "x" + ")" * 1_200,
        "{" + "-" * 5_000 + "x}",
        "{" + "+".join(["x"] * 5_000) + "}",
        "{" + "x**" * 5_000 + "2}",
        "{x + '" + '\\"' * 9_000 + "}",
        "{x + " + "9" * 10_000 + "}",
        "9" * 4_000 + ":x",
        ":".join(f"C(c{i})" for i in range(9)),
    ],
)
def test_a_formula_that_would_take_long_is_refused_soon(terms: str) -> None:
    frame = FRAME.assign(**{f"c{i}": FRAME.h for i in range(9)})
    started = time.perf_counter()
    with pytest.raises(fs.InputError) as caught:
        design(Formula(f"y ~ {terms}"), frame, {f"c{i}": ["1", "2", "3"] for i in range(9)})
    assert len(str(caught.value)) < 1_000
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "terms",
    [
        "+".join(f"I(x*{i})" for i in range(1_500)),
        "+".join(["x"] * 5_000),
        "(" * 100 + "x" + ")" * 100,
        "{" + "(" * 100 + "x" + ")" * 100 + "}",
        "(x+" * 60 + "x" + ")" * 60,
    ],
)
def test_a_long_formula_takes_little_time(terms: str) -> None:
    started = time.perf_counter()
    design(Formula(f"y ~ {terms}"), FRAME, {})
    assert time.perf_counter() - started < 10


def test_a_design_of_too_many_columns_is_refused_before_it_is_made() -> None:
    levels: list[Level] = [str(i) for i in range(1, MOST_COLUMNS + 1)]
    assert design(Formula("y ~ 0 + C(h)"), FRAME, {"h": levels})[1].shape == (5, MOST_COLUMNS)
    for terms in ("C(h)", "g*C(h)"):
        with pytest.raises(fs.InputError, match=f"more than {MOST_COLUMNS}"):
            design(Formula(f"y ~ {terms}"), FRAME, {"h": levels, "g": LEVELS["g"]})


PIECES = [
    *(
        "x",
        "h",
        "g",
        "y2",
        "`my col`",
        ".",
        "a.b",
        "1",
        "0",
        "2",
        "1e3",
        ".5",
        "'a'",
        '"b"',
        "TRUE",
    ),
    *("+", "-", "*", "/", ":", "^", "**", "%in%", "%%", "%/%", "~", "|", "&", "!", "<", ">=", "=="),
    *("(", ")", "(", ")", "{", "}", ",", "=", "I(", "C(", "log(", "offset(", "factor(", "c("),
    *(
        "TRUE",
        "relevel(",
        "Q(",
        "poly(",
        "cut(",
        "ifelse(",
        "round(",
        "cbind(",
        "seq(",
        "Treatment(",
    ),
    *("__import__(", "eval(", "np.", "lambda", "\\", "`", "'", "\0", "#", ";", "[", "]", "%", "@"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join))
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_formula_or_refused_in_one_line(text: str) -> None:
    message = "formula "
    try:
        formula = Formula(f"y ~ {text}")
        if formula.open:
            formula = formula.expanded(["y", "x", "h"])
        names, A = design(formula, FRAME, {"g": LEVELS["g"], "h": LEVELS["h"]})
        assert A.shape == (5, len(names))
    except fs.InputError as error:
        message = str(error)
    assert message.startswith("formula ")
    assert "\n" not in message


def expressions() -> st.SearchStrategy[str]:
    """Arithmetic and conditions with brackets where they need not be."""
    leaves = st.sampled_from(["x", "h", "`my col`", "2", "0.5", "x"])
    two = st.sampled_from(["+", "-", "*", "/", "^", "**", "%%", ">", "<=", "&", "|"])

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        bracketed = inner.map(lambda text: f"({text})")
        return st.one_of(
            st.tuples(bracketed, two, bracketed).map("".join),
            st.tuples(st.sampled_from(["-", "!", "+"]), bracketed).map("".join),
            inner.map(lambda text: f"abs({text})"),
            inner.map(lambda text: f"{{{text}}}"),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@given(expressions())
@settings(max_examples=200, deadline=None)
def test_the_name_of_a_column_is_an_expression_of_the_same_values(text: str) -> None:
    names, A = design(Formula(f"y ~ 0 + I({text})"), FRAME, {})
    again, B = design(Formula(f"y ~ 0 + {names[0]}"), FRAME, {})
    assert again == names
    np.testing.assert_array_equal(A, B)


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("I(x^2)", FRAME.x**2),
        ("{-x^2}", -(FRAME.x**2)),
        ("round(x / 2)", [0, 1, 2, 2, 4]),
        ("round(0.15 * x / x, 1)", np.full(5, 0.1)),
        ("ifelse(g == 'a', x, -1)", [1, -1, 3, -1, -1]),
        ("pmin(x, h, 2)", [1, 2, 1, 2, 2]),
        ("I(g %in% c('a', 'c'))", [1, 0, 1, 1, 0]),
        ("I(h %in% 2)", [0, 1, 0, 1, 0]),
        ("(x > 2 & !(h == 1))", [0, 0, 0, 1, 1]),
        ("log(x, 2)", np.log2(FRAME.x)),
        ('Q("my col")', FRAME["my col"]),
        # Of a missing value R knows only that NA & FALSE is false and NA | TRUE is true.
        ("{log(-x) > 1 & x < 0}", np.zeros(5)),
        ("{log(-x) > 1 | x > 0}", np.ones(5)),
        ("{log(-x) > 1}", np.full(5, np.nan)),
        ("{1 > log(-x)}", np.full(5, np.nan)),
        ("{!(log(-x) > 1)}", np.full(5, np.nan)),
        ("ifelse(log(-x) > 1, 1, 0)", np.full(5, np.nan)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_functions_and_conditions_have_the_values_of_r(expression: str, values: Any) -> None:
    names, A = design(Formula(f"y ~ 0 + {expression}"), FRAME, {"g": LEVELS["g"]})
    assert len(names) == 1
    np.testing.assert_array_equal(A[:, 0], values)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("y ~ C(g, Treatment('d'))", "d is none of the levels a, b, c"),
        ("y ~ relevel(g, ref=1)", "1 is none of the levels a, b, c"),
        ("y ~ C(g, contr.sum(4))", "for 4 levels, there are 3"),
        ("y ~ factor(g, levels=c('a', 'b'))", "c is not among them"),
        ("y ~ C(g, contr.treatment, base=4)", "from 1 to 3"),
        ("y ~ I(g %in% c('a', 1))", "text is compared with a number"),
        ("y ~ I(x %in% c('a', 'b'))", "text is compared with a number"),
        ("y ~ .", "name the columns"),
        ("y ~ x + offset(C(g))", "C(g) is a category, and has no numbers"),
        ("y ~ x + offset(poly(h, 2, raw=TRUE))", "has 2 columns: one is needed"),
    ],
)
def test_levels_that_there_are_not_are_refused(text: str, why: str) -> None:
    with pytest.raises(fs.InputError, match="formula") as caught:
        design(Formula(text), FRAME, {"g": LEVELS["g"]})
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("y ~ .", "y ~ x + my.var + `a b`"),
        ("log(y) ~ . - x", "log(y) ~ x + my.var + `a b` - x"),
        ("y ~ .^2", "y ~ (x + my.var + `a b`)^2"),
        ("y ~ x:.", "y ~ x:(x + my.var + `a b`)"),
        ("y ~ I(x^.5) + .", "y ~ I(x^.5) + x + my.var + `a b`"),
    ],
)
def test_a_dot_stands_for_all_other_columns(text: str, expanded: str) -> None:
    assert Formula(text).open
    assert Formula(text).expanded(["x", "y", "my.var", "a b"]) == Formula(expanded)


def test_a_date_is_compared_with_a_date_that_is_written() -> None:
    frame = FRAME.assign(visit=[18261.0, 18262.0, 18262.5, 18263.0, 18264.0])
    for text, values in (
        ("(visit >= '2020-01-01')", [0, 1, 1, 1, 1]),
        ("('2020-01-01' == visit)", [0, 1, 0, 0, 0]),
        ("I(visit %in% c('2020-01-02', '2020-01-03'))", [0, 0, 0, 1, 1]),
    ):
        formula = Formula(f"y ~ 0 + {text}")
        columns = formula.compile(Schema({}, {"visit": "date"}))
        np.testing.assert_array_equal(formula.evaluate(columns, frame)[0][:, 0], values)


def test_a_formula_without_its_constant_has_the_same_terms() -> None:
    for text in ("y ~ x + h", "y ~ x > 2", "y ~ x > 2 & h < 1", "y ~ 1 + x"):
        plain = Formula(text).without_intercept()
        assert not plain.intercept
        names = design(Formula(text), FRAME, {})[0]
        assert design(plain, FRAME, {})[0] == names[1:]


def test_offsets_of_the_formula_are_added_to_those_of_the_options() -> None:
    rng = np.random.default_rng(5)
    frames = []
    for _ in range(3):
        x, t, u = rng.normal(size=40), rng.uniform(1, 3, 40), rng.normal(size=40)
        counts = rng.poisson(t * np.exp(0.4 * x + u)).astype(float)
        frames.append(pd.DataFrame({"y": counts, "x": x, "t": t, "u": u}))
    expected = fs.fit(frames, "y ~ x", family="poisson", exposure="t", offset="u")
    for text, exposure in (
        ("y ~ x + offset(log(t)) + offset(u)", None),
        ("y ~ offset(u) + x", "t"),
        ("y ~ . - u - t + offset(I(log(t) + u))", None),
    ):
        model = fs.fit(frames, text, family="poisson", exposure=exposure)
        np.testing.assert_allclose(model.params, expected.params, rtol=1e-9)
        assert model.llf == pytest.approx(expected.llf, rel=1e-12)
        np.testing.assert_allclose(model.predict(frames[0]), expected.predict(frames[0]), rtol=1e-9)
    with pytest.raises(fs.InputError, match="multinomial takes no offset"):
        fs.fit(frames, "y ~ x + offset(t)", family="multinomial")


def test_a_plan_is_compiled_once_and_pickled_without_what_was_compiled() -> None:
    frame, schema = coded(FRAME, {"g": LEVELS["g"]})
    plan = Plan("y ~ g * log(x)", "gaussian", schema.levels, schema.types)
    A, _ = plan.design(frame, "here")
    assert plan.design_columns is plan.design_columns
    restored = pickle.loads(pickle.dumps(plan))
    assert restored == plan
    assert restored.names == plan.names
    np.testing.assert_array_equal(restored.design(frame, "here")[0], A)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seq(0, 10, 2.5)", (0.0, 2.5, 5.0, 7.5, 10.0)),
        ("seq(0, 10, 3)", (0.0, 3.0, 6.0, 9.0)),
        ("seq(0, 0.6, 0.2)", (0.0, 0.2, 0.4, 0.2 * 3)),
        ("seq(10, 0, by=-5)", (10.0, 5.0, 0.0)),
        ("seq(1, 1, 2)", (1.0,)),
        ("seq(0, 1, length.out=3)", (0.0, 0.5, 1.0)),
    ],
)
def test_a_sequence_is_that_of_r(text: str, values: tuple[float, ...]) -> None:
    assert constant(parse(text)) == values


@pytest.mark.parametrize(
    "text",
    ["seq(0, 10, 0)", "seq(0, 10, -1)", "seq(0, 1e4, 1)", "seq(0, 1)", "seq(0, 1, length.out=1)"],
)
def test_a_sequence_without_an_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seq"):
        constant(parse(text))
