"""Designs are R's model matrices: figures of tests/data/model_matrix.R, which says how it runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.model_frame import Schema

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

with (Path(__file__).parent / "data" / "model_matrix.json").open(encoding="utf-8") as file:
    ANSWERS = json.load(file)


def levels_of(formula: Formula) -> dict[str, Any]:
    categories = formula.categories | {"a", "b"}
    return {name: LEVELS[name] for name in formula.columns if name in categories & set(LEVELS)}


@pytest.mark.parametrize("answer", ANSWERS, ids=[each["formula"] for each in ANSWERS])
def test_a_design_is_the_model_matrix_of_r(answer: dict[str, Any]) -> None:
    formula = Formula(answer["formula"])
    if formula.open:
        formula = formula.expanded(ROWS)
    columns = formula.compile(Schema(levels_of(formula)))
    # The clients' rows, one after another: some lack levels that others have.
    parts = [formula.evaluate(columns, ROWS[start : start + 3]) for start in range(0, 12, 3)]
    A = np.concatenate([part for part, _ in parts])
    offset = np.concatenate([part for _, part in parts])
    expected = np.array(answer["columns"]).T
    assert A.shape == expected.shape
    np.testing.assert_allclose(A, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(offset, answer["offset"] or np.zeros(12), rtol=1e-12)
    assert len(set(columns.names)) == len(columns.names)
