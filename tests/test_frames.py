"""Frames of other libraries give the fit of pandas' frame, and pandas comes back."""

import sys
from collections.abc import Callable
from typing import Any

import duckdb
import narwhals
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fedsplit as fs
from fedsplit.data.frames import SeriesColumn, as_pandas, in_pandas
from fedsplit.data.sources import sources
from fedsplit.data.types import PLAIN


class Capsule:
    """A table that speaks Arrow's PyCapsule interface and nothing else."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def pandas_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = pd.Categorical(
        rng.choice(["small", "medium", "large"], 90), ["small", "medium", "large"], ordered=True
    )
    frame = pd.DataFrame(
        {"x": rng.normal(size=90).round(3), "size": size, "site": np.arange(90) % 3}
    )
    frame["k"] = pd.array([i % 4 if i % 11 else None for i in range(90)], dtype="Int64")
    frame["y"] = frame["x"] + frame["size"].cat.codes + rng.normal(size=90).round(3)
    return frame


def of_duckdb(frame: pd.DataFrame) -> Any:
    connection = duckdb.connect()
    connection.register("frame", frame)
    return connection.sql("from frame")


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ([1.0, 2.0, np.nan], "all"),
        ([1.0, 2.5, 3.5, np.inf], "some"),
        ([1.5, -np.inf, 0.1], "none"),
    ],
)
def test_a_column_of_floats_says_how_many_are_whole(values: list[float], whole: str) -> None:
    profile = SeriesColumn(pd.Series(values)).profile(PLAIN)
    assert profile is not None
    assert (profile.integer, profile.decimal) == (whole, "all")


def test_shares_in_a_frame_are_no_classes() -> None:
    frame = pandas_frame().assign(share=lambda each: (each.y > 0) * 0.5)
    with pytest.raises(fs.InputError, match="column share holds numbers that are not whole"):
        fs.fit(frame, "share ~ x", family="logistic", group="site")


OTHERS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pyarrow": lambda frame: pa.Table.from_pandas(frame),
    "batches": lambda frame: pa.Table.from_pandas(frame).to_reader(max_chunksize=7),
    "capsule": lambda frame: Capsule(pa.Table.from_pandas(frame)),
    "DuckDB": of_duckdb,
    "narwhals": lambda frame: narwhals.from_native(frame),
    "narwhals, lazy": lambda frame: narwhals.from_native(frame).lazy(),
}


@pytest.mark.parametrize("library", OTHERS)
def test_a_frame_of_any_library_gives_the_fit_of_the_frame_of_pandas(library: str) -> None:
    frame = pandas_frame()
    other = OTHERS[library]
    plain = fs.fit(frame, "y ~ x + size + C(k)", group="site")
    model = fs.fit(other(frame), "y ~ x + size + C(k)", group="site")
    assert list(model.estimates.names) == list(plain.estimates.names)
    assert list(plain.estimates.names)[2:4] == [
        "size[T.medium]",
        "size[T.large]",
    ]  # the order is kept
    np.testing.assert_array_equal(model.params, plain.params)
    listed = fs.fit([other(frame.iloc[:50]), frame.iloc[50:]], "y ~ x")
    named = fs.fit({"a": frame.iloc[:50], "b": other(frame.iloc[50:])}, "y ~ x")
    np.testing.assert_array_equal(listed.params, named.params)
    predicted = model.predict(other(frame))
    assert isinstance(predicted, pd.Series)
    np.testing.assert_array_equal(predicted, plain.predict(frame))


@pytest.mark.parametrize("library", ["pyarrow", "capsule", "DuckDB", "narwhals"])
def test_the_estimators_take_frames_of_any_library(library: str) -> None:
    frame = pandas_frame()
    X, y, groups = frame[["x", "site"]], frame["y"], frame["site"]
    plain = fs.FedLinearRegression().fit(X, y, groups=groups)
    rows = OTHERS[library](X)
    arrow = pa.Table.from_pandas(frame)
    model = fs.FedLinearRegression().fit(rows, arrow["y"], groups=arrow["site"])
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert list(model.feature_names_in_) == ["x", "site"]
    assert list(model.clients_) == [0, 1, 2]
    np.testing.assert_array_equal(model.predict(OTHERS[library](X)), plain.predict(X))


def test_every_type_of_arrow_is_read_as_it_is_stored() -> None:
    big = 2**53 + 1
    table = pa.table(
        {
            "whole": pa.array([big, None], pa.int64()),
            "flag": pa.array([True, None]),
            "day": pa.array([18292, None], pa.date32()),
            "moment": pa.array([0, None], pa.timestamp("us", tz="Europe/Paris")),
            "exact": pa.array([big, None], pa.decimal128(38, 0)),
            "word": pa.array(["x", None], pa.large_string()),
            "list": [[1], None],
        }
    )
    [source] = sources(table)
    found = source.columns()
    types = {name: fit.type if fit is not None else None for name, fit in found.items()}
    assert types == {
        "whole": "number",
        "flag": "boolean",
        "day": "date",
        "moment": "date",
        "exact": "number",
        "word": "text",
        "list": None,
    }
    texts = source.read(dict.fromkeys(["whole", "exact", "flag", "day"], "text"))
    assert texts.iloc[0].tolist() == [str(big), str(big), "True", "2020-01-31"]
    assert texts.iloc[1].tolist() == [None] * 4


def test_without_pyarrow_a_frame_of_arrow_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = pa.Table.from_pandas(pandas_frame())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(fs.InputError, match=r"a pyarrow.Table is read by pyarrow: install it"):
        fs.fit(table, "y ~ x")


def test_without_narwhals_frames_of_pandas_and_arrow_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = pandas_frame()
    table = pa.Table.from_pandas(frame)
    monkeypatch.setitem(sys.modules, "narwhals", None)
    assert list(in_pandas(table).columns) == list(frame.columns)
    assert as_pandas(frame) is frame
    with pytest.raises(fs.InputError, match="data must be a file, a folder, a DataFrame"):
        fs.fit(3, "y ~ x")


def test_a_column_or_an_array_is_no_frame() -> None:
    for data in (np.zeros(3), pd.Series([1]), pa.chunked_array([[1, 2]]), 3):
        assert as_pandas(data) is None
