"""What becomes of the cells of files that nobody wrote for a test, beside pandas."""

from __future__ import annotations

import csv
import gzip
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsplit.data.files import delimited
from fedsplit.data.sources import sources
from fedsplit.data.types import MISSING, PLAIN, Reading, days, level_form
from fedsplit.errors import InputError

LIBERAL = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

ODD = (
    *("1e400", "-1e400", "1e-400", "1,234", "1.234,5", "0x10", "1_000", "١", "1.2.3", "--1", "1e"),
    *("31/01/2020", "2020-01-31", "2020-02-30", "10000-01-01", "nan", "-inf", "Infinity", "NA"),
    *("true", "FALSE", " a ", "\u00a0", "\ufeff", "é", "007", "+3", ".5", "5.", "", "  ", '"', "'"),
)
CELLS = (
    st.sampled_from(ODD)
    | st.text(st.sampled_from("ab1.,;'\" \t\u00a0é-e\n"), max_size=5)
    | st.integers(-(10**20), 10**20).map(str)
    | st.floats(allow_nan=False).map(repr)
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str, list[str], bytes]:
    """Return a suffix, a delimiter, the names of columns, and the bytes of a file."""
    delimiter = draw(st.sampled_from(",;\t|"))
    width = draw(st.integers(2, 4))
    names = [f"c{place}" for place in range(width)]
    file = io.StringIO()
    writer = csv.writer(
        file,
        delimiter=delimiter,
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        lineterminator=draw(st.sampled_from(["\n", "\r\n"])),
    )
    writer.writerow(names)
    writer.writerows(draw(st.lists(st.tuples(*[CELLS] * width), max_size=12)))
    content = file.getvalue().removesuffix("\n" * draw(st.integers(0, 1)))
    bom = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return ".tsv" if delimiter == "\t" else ".csv", delimiter, names, bom + content.encode()


def read(path: Path, few: int, reading: Reading = PLAIN) -> Any:
    """Return profiles and texts; texts of fewer characters are read by the parser alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited._split, "__defaults__", (few,))
        [source] = sources(path, reading=reading)
        profiles = source.columns()
        texts = source.take(dict.fromkeys(source.names(), "text"))
    return profiles, {name: list(column) for name, column in texts.items()}


@given(table=tables())
@LIBERAL
def test_the_cells_of_a_delimited_file_are_those_of_pandas(tmp_path: Path, table: Any) -> None:
    suffix, delimiter, names, content = table
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    profiles, texts = read(path, few=10_000)
    assert read(path, few=0) == (profiles, texts)
    frame = pd.read_csv(path, sep=delimiter, dtype=str, na_filter=False, encoding="utf-8-sig")
    for name in names:
        cells = [text.strip() for text in frame[name]]
        assert texts[name] == [None if text in MISSING else text for text in cells]
        try:
            numbers = sources(path)[0].take({name: "number"})[name]
        except InputError:
            continue
        booleans = {"true": 1.0, "false": 0.0}
        expected = [
            math.nan if text in MISSING else booleans.get(text.lower()) or float(text)
            for text in (text.replace("FALSE", "0") for text in cells)
        ]
        np.testing.assert_array_equal(numbers, expected)


@given(
    content=st.binary(max_size=60)
    | st.text("ab12,;\"\n\r \t.\0'é-{}[]:", max_size=60).map(lambda text: b"a,b\n" + text.encode()),
    suffix=st.sampled_from([".csv", ".txt", ".tsv", ".csv.gz", ".json", ".jsonl"]),
    packed=st.booleans(),
    reading=st.sampled_from(
        [PLAIN, Reading(decimal=","), Reading(na=("-9", "2020-01-01")), Reading(dates="%d/%m/%Y")]
    ),
)
@LIBERAL
def test_any_bytes_are_read_alike_by_both_ways_or_refused_in_one_line(
    tmp_path: Path, content: bytes, suffix: str, packed: bool, reading: Reading
) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(gzip.compress(content) if packed and suffix.endswith("gz") else content)
    outcomes = []
    for few in (10_000, 0):
        try:
            outcomes.append(repr(read(path, few, reading)))
        except InputError as error:
            outcomes.append(str(error))
            assert len(outcomes[-1].splitlines()) == 1
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1", "cp1252"])
def test_another_encoding_than_utf_8_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("y,größe\n1,2\n".encode(encoding))
    with pytest.raises(InputError, match=r"x\.csv: is not UTF-8 .*: save it as UTF-8"):
        sources(path)[0].columns()


@pytest.mark.parametrize(("numbers", "share"), [(3, "some"), (4, "some"), (5, "most"), (0, "none")])
def test_most_values_are_more_than_four_fifths(tmp_path: Path, numbers: int, share: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,z\n" + "1,1\n" * numbers + "a,1\n")
    profile = sources(path)[0].columns()["y"]
    assert profile is not None
    assert profile.decimal == share
    words = pd.DataFrame({"y": ["1"] * numbers + ["a"]}, dtype=object)
    of_frame = sources(words)[0].columns()["y"]
    assert of_frame is not None
    assert of_frame.decimal == share


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("0" + "1234567890" * 3, "1234567890" * 3),
        ("1e39", "1" + "0" * 39),
        ("1e40", "1e+40"),
        ("12345678901234567890123456789.0", "12345678901234567890123456789"),
        ("1.00000000000000000001", "1"),
        ("-0.0", "0"),
        ("1e-400", "0"),
        ("true", "1"),
    ],
)
def test_whole_numbers_of_forty_digits_are_exact_as_levels(text: str, level: str) -> None:
    assert level_form(text, "number") == level


def test_a_moment_is_days_in_utc_to_the_microsecond() -> None:
    assert days("1970-01-01 00:00:00.000001") == 1 / 86_400_000_000
    assert days("1970-01-02T01:30:00+01:30") == 1.0
    assert days("1969-12-31 12:00") == -0.5
    assert level_form("2020-01-31 23:30:00-00:30", "date") == "2020-02-01"
    assert level_form("2020-01-31 10:00:00.120000", "date") == "2020-01-31 10:00:00.12"
