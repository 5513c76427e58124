"""Designs are R's model matrices: figures of scripts in tests/data, which say how they run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from designs import coded
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.pooled_functions import ModelFrame
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.dialogue import Several, converse, together

ROWS = pd.DataFrame(
    {
        "y": np.arange(1.0, 13.0),
        "x": [0.5, 2, 3.25, 5, 8, 1, 2.5, 4, 7, 6, 2, 9],
        "z": [-1, 0.25, 2, -3, 1, 4, -0.5, 0, 2.5, -2, 1.5, 3],
        "t": [1.0, 2, 4, 8, 1, 2, 3, 5, 10, 20, 40, 100],
        "a": list("pqprqrpqrpqp"),
        "b": list("uvuuvvuvuvuu"),
        "k": [1.0, 2, 3, 1, 2, 3, 1, 2, 4, 1, 4, 2],
        "flag": [1.0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1],
        "my.var": np.arange(1.0, 13.0),
        "odd name": [3.0, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8],
    }
)
LEVELS = {"a": ["p", "q", "r"], "b": ["u", "v"], "k": ["1", "2", "3", "4"]}

DATA = Path(__file__).parent / "data"
ANSWERS = json.loads((DATA / "model_matrix.json").read_text(encoding="utf-8"))
OF_PACKAGES = json.loads((DATA / "package_formulas.json").read_text(encoding="utf-8"))


def levels_of(formula: Formula) -> dict[str, Any]:
    categories = formula.categories | {"a", "b"}
    return {name: LEVELS[name] for name in formula.columns if name in categories & set(LEVELS)}


@pytest.mark.parametrize("answer", ANSWERS, ids=[each["formula"] for each in ANSWERS])
def test_a_design_is_the_model_matrix_of_r(answer: dict[str, Any]) -> None:
    formula = Formula(answer["formula"])
    if formula.open:
        formula = formula.expanded(ROWS)
    frame, schema = coded(ROWS, levels_of(formula))
    columns = formula.compile(schema)
    # The clients' rows, one after another: some lack levels that others have.
    parts = [formula.evaluate(columns, frame[start : start + 3]) for start in range(0, 12, 3)]
    A = np.concatenate([part for part, _ in parts])
    offset = np.concatenate([part for _, part in parts])
    expected = np.array(answer["columns"]).T
    assert A.shape == expected.shape
    np.testing.assert_allclose(A, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(offset, answer["offset"] or np.zeros(12), rtol=1e-12)
    assert len(set(columns.names)) == len(columns.names)


@pytest.mark.parametrize(
    "answer", OF_PACKAGES, ids=[f"{each['package']}: {each['formula']}" for each in OF_PACKAGES]
)
def test_a_formula_of_the_examples_of_a_package_has_the_model_matrix_of_r(
    answer: dict[str, Any],
) -> None:
    rows = pd.DataFrame(answer["rows"])
    formula = Formula(answer["formula"])
    if formula.open:
        formula = formula.expanded(rows)
    levels = dict(answer["levels"])
    for name in formula.categories - levels.keys():
        levels[name] = sorted({f"{value:g}" for value in rows[name]})
    rows, schema = coded(rows, {name: levels[name] for name in formula.columns if name in levels})
    calls = {call.text: call for call in formula.pooled}

    class Here:
        def ask(self, several: Several) -> dict[str, Any]:
            return {
                text: statistic.part(
                    calls[text].argument(ModelFrame(rows, schema)), Withheld(1)
                ).value()
                for text, statistic in several.questions.items()
            }

    agreements = {text: call.function.agreement() for text, call in calls.items()}
    known = {text: each for text, each in agreements.items() if each is not None}
    states = converse(together(known), Here())
    columns = formula.compile(schema._replace(state=states))
    A, offset = formula.evaluate(columns, rows)
    expected = np.array(answer["columns"]).T
    assert A.shape == expected.shape
    np.testing.assert_allclose(A, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(offset, answer["offset"] or np.zeros(len(rows)), rtol=1e-12)
