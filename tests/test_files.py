"""Files as other programs write them: the fit is that of the plain table, or a refusal in one line.

tests/data/make.R made the files in tests/data.
"""

import csv
import gzip
import io
import random
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyreadstat
import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.data.files import delimited
from fedsplit.data.files.delimited import DelimitedTable
from fedsplit.data.files.libraries import labelled
from fedsplit.data.sources import sources
from fedsplit.data.tables import Source
from fedsplit.data.types import ColumnProfile, Reading
from fedsplit.errors import InputError
from tampering import mutated

FILES = Path(__file__).parent / "data"
FORMULA = "y ~ age + dose + stage + visit + seen"


@pytest.fixture(scope="module")
def plain() -> Any:
    return fs.fit(FILES / "plain.csv", FORMULA)


def same_bits(one: Any, other: Any) -> bool:
    assert list(one.params.index) == list(other.params.index)
    return bool(np.array_equal(one.params, other.params) and np.array_equal(one.bse, other.bse))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("write_csv.csv", {}),
        ("write_csv2.csv", {"decimal": ","}),
        ("write_table.txt", {}),
        ("write_table_tab.txt", {}),
        ("people.rds", {}),
        ("tibble.rds", {}),
        ("openxlsx.xlsx", {}),
        ("people.sav", {}),
        ("people.zsav", {}),
        ("people.dta", {}),
        ("people.xpt", {}),
        ("people.sas7bdat", {}),
    ],
)
def test_a_file_of_another_program_gives_the_fit_of_the_plain_file(
    plain: Any, name: str, options: dict[str, Any]
) -> None:
    assert same_bits(fs.fit(FILES / name, FORMULA, **options), plain)


@pytest.mark.parametrize("name", ["write_csv.csv", "write_table.txt"])
def test_row_names_are_no_column_and_are_noted(name: str) -> None:
    [source] = sources(FILES / name)
    assert list(source.columns())[:2] == ["y", "age"]
    model = fs.fit(FILES / name, FORMULA)
    assert sum("row names" in warning for warning in model.warnings) == 1


def test_row_names_at_many_sites_are_one_warning(tmp_path: Path) -> None:
    rows = (FILES / "write_csv.csv").read_text()
    for i in range(4):
        (tmp_path / f"s{i}.csv").write_text(rows)
    [note] = [text for text in fs.fit(tmp_path, FORMULA).warnings if "row names" in text]
    assert "4 clients" in note
    assert "s0" in note


@pytest.mark.parametrize("name", ["people.rds", "people.sav", "people.zsav", "people.dta"])
def test_levels_keep_the_order_of_the_factor_or_of_the_codes(name: str) -> None:
    model = fs.fit(FILES / name, "y ~ grade")
    assert list(model.estimates.names) == ["Intercept", "grade[T.mid]", "grade[T.high]"]


def test_columns_of_a_data_frame_that_are_no_plain_vectors_are_read() -> None:
    plain = fs.fit(FILES / "plain.csv", "y ~ age + stage")
    odd = fs.fit(FILES / "odd.rds", "y ~ as_is + stage")
    np.testing.assert_array_equal(odd.params, plain.params)
    scaled = fs.fit(FILES / "odd.rds", "y ~ scaled + stage")
    t = [model.params.to_numpy()[1] / model.estimates.errors[1] for model in (scaled, plain)]
    assert t[0] == pytest.approx(t[1], rel=1e-12)


def test_labels_of_only_some_values_are_no_levels_and_user_missing_values_are_missing() -> None:
    for name in ("people.sav", "people.dta"):
        [source] = sources(FILES / name)
        frame = source.read({"part": "number", "score": "number", "grade": "number"})
        assert set(frame["part"]) == {1.0, 2.0, 3.0}
        assert frame["score"].isna().sum() == 9  # every seventh, and one that is missing anyway
        assert set(frame["grade"]) == {1.0, 2.0, 3.0}  # its codes, if they are asked for


def test_values_of_equal_labels_are_not_merged(tmp_path: Path) -> None:
    path = tmp_path / "x.sav"
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    pyreadstat.write_sav(frame, str(path), variable_value_labels={"a": {1: "x", 2: "x", 3: "y"}})
    assert sources(path)[0].read({"a": "text"})["a"].tolist() == ["1", "2", "3"]


def sheet(path: Path, rows: list[list[object]], more: Mapping[str, list[list[object]]]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for title, extra in more.items():
        page = book.create_sheet(title)
        for row in extra:
            page.append(row)
    book.save(path)
    return path


def test_a_sheet_has_numbers_dates_and_errors(tmp_path: Path) -> None:
    path = sheet(
        tmp_path / "x.xlsx",
        [
            [None, "a", " b ", "t", "d"],
            [1, 1, True, "x", date(2020, 1, 31)],
            [None, None, None, None, None],
            [2, 2.5, False, "#N/A", None],
        ],
        {"empty": []},
    )
    [source] = sources(path)
    frame = source.read({"a": "number", "b": "boolean", "t": "text", "d": "date"})
    assert frame["a"].tolist() == [1.0, 2.5]
    assert frame["b"].tolist() == [1.0, 0.0]
    assert frame["t"].tolist() == ["x", None]
    assert frame["d"][0] == (date(2020, 1, 31) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("rows", "more", "part"),
    [
        ([], {}, "empty"),
        ([["a"], [1]], {"two": [["b"], [1]]}, "2 sheets with values, Sheet, two"),
        ([["a", "b"], [1, "=A2+1"]], {}, "cell B2 is a formula without a value"),
        ([["a", None, "b"], [1, 2, 3]], {}, "column 2 of 3 has no name"),
        ([["a", "a"], [1, 2]], {}, "2 columns are named 'a'"),
    ],
)
def test_a_workbook_that_could_be_misread_is_refused(
    tmp_path: Path, rows: list[list[object]], more: Mapping[str, list[list[object]]], part: str
) -> None:
    path = sheet(tmp_path / "x.xlsx", rows, more)
    with pytest.raises(InputError) as caught:
        sources(path)[0].columns()
    assert str(caught.value).startswith(str(path))
    assert part in str(caught.value)


@pytest.mark.parametrize("name", ["people.rds", "people.sav", "people.dta", "openxlsx.xlsx"])
def test_a_damaged_file_of_another_program_is_refused_in_one_line(
    tmp_path: Path, name: str
) -> None:
    content = (FILES / name).read_bytes()
    path = tmp_path / name
    for bad in (content[: len(content) // 2], b"no such file"):
        path.write_bytes(bad)
        with pytest.raises(InputError) as caught:
            sources(path)[0].columns()
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    with pytest.raises(InputError, match=r"needs pyreadstat: .*pip install 'fedsplit\[files\]'"):
        sources(FILES / "people.sav")[0].columns()


def table(path: Path, content: bytes | str, reading: Reading | None = None) -> DelimitedTable:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return DelimitedTable("x", str(path), path, reading or Reading(), delimiters=",;\t| ")


def texts(found: DelimitedTable) -> dict[str, list[object]]:
    taken = found.take(dict.fromkeys(found.columns(), "text"))
    return {name: list(values) for name, values in taken.items()}


@pytest.mark.parametrize(
    "content",
    [
        "sep=;\na;b\n1;x\n2;y\n",
        'sep=,\r\n"a","b"\r\n1,x\r\n2,y\r\n',
        "a,b\n1,x\r\n2,y\r",
        '"a" "b"\n"1" 1 "x"\n"2" 2 "y"\n',
        "a b\n1 x\n2 y\n",
        '"","a","b"\n"1",1,"x"\n"2",2,"y"\n',
        ",a,b\n0,1,x\n1,2,y\n",
        '"a"\t"b"\n"1"\t1\t"x"\n"2"\t2\t"y"\n',
        'a,b\n"1" ,"x"  \n2, "y"\n',
    ],
)
def test_the_dialects_of_other_programs_are_read(tmp_path: Path, content: str) -> None:
    assert texts(table(tmp_path / "x.csv", content)) == {"a": ["1", "2"], "b": ["x", "y"]}


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2,\n3,4,\n",  # a delimiter at the end of every row is not a row name at its start
        "a,b\n1,2,3\n4,5,6\n",
        '"a","b"\n"1",2,3\n4,5\n',
    ],
)
def test_a_row_with_a_value_too_many_is_not_taken_for_one_with_a_name(
    tmp_path: Path, content: str
) -> None:
    with pytest.raises(InputError, match="values"):
        texts(table(tmp_path / "x.csv", content))


@pytest.mark.parametrize("before", [1, 5_000, 400_000])
def test_a_short_line_and_a_long_one_do_not_make_up_for_each_other(
    tmp_path: Path, before: int
) -> None:
    content = "a,b\n" + "1,2\n" * before + "1\n1,2,3\n" + "1,2\n" * 5_000
    with pytest.raises(InputError, match=f"line {before + 2}: it has more or fewer values"):
        table(tmp_path / "x.csv", content).columns()


@pytest.mark.parametrize("before", [1, 5_000, 400_000])
def test_a_value_that_is_no_number_is_named_with_its_row(tmp_path: Path, before: int) -> None:
    found = table(tmp_path / "x.csv", "a,b\n" + "1,2\n" * before + "x,2\n")
    with pytest.raises(InputError, match=f"column 'a', row {before + 1}: 'x' is no number"):
        found.take({"a": "number"})


def test_a_block_may_end_between_the_two_marks_of_a_line_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of = delimited.rows_of
    for size in range(1, 12):
        monkeypatch.setattr(delimited, "rows_of", partial(rows_of, size=size))
        monkeypatch.setattr(DelimitedTable._names, "__defaults__", (0,))  # nothing read ahead
        found = table(tmp_path / "x.csv", 'a\r\n1\r\n2\r\n"3"\r\n4\r\n5\r\n')
        assert texts(found) == {"a": ["1", "2", "3", "4", "5"]}, size


def test_an_empty_line_is_a_missing_value_of_the_only_column_and_else_no_row(
    tmp_path: Path,
) -> None:
    assert texts(table(tmp_path / "x.csv", "a\n1\n\n2\n")) == {"a": ["1", None, "2"]}
    two = texts(table(tmp_path / "y.csv", "a,b\n1,3\n\n2,4\n"))
    assert two == {"a": ["1", "2"], "b": ["3", "4"]}


def test_a_quote_that_is_not_closed_is_named_with_the_line_where_it_opens(tmp_path: Path) -> None:
    for before in (0, 1, 5_000):
        content = "a,b\n" + "1,2\n" * before + '1,"x\n3,4\n'
        with pytest.raises(InputError, match=f"line {before + 2}: a quote is not closed"):
            table(tmp_path / "x.csv", content).columns()


@pytest.mark.parametrize("odd", ["1_000", "NAN", "-nan", "٣", "1e5_0", "0x1p3"])
def test_what_python_takes_for_a_number_and_nobody_else_does_is_text(
    tmp_path: Path, odd: str
) -> None:
    content = "a\n" + "".join(f"{i}.5\n" for i in range(50)) + f"{odd}\n"
    found = table(tmp_path / "x.csv", content)
    fit = found.columns()["a"]
    assert fit is not None
    assert (fit.decimal, fit.text) == ("most", "some")
    with pytest.raises(InputError, match=f"row 51: '{odd}' is no number"):
        found.take({"a": "number"})


@pytest.mark.parametrize("distinct", [True, False])
def test_whole_numbers_are_counted_however_they_are_written(tmp_path: Path, distinct: bool) -> None:
    for whole, share in ((["1.0", "1e3", "007"], "all"), (["2.5", "1e-3"], "none")):
        cells = [f"{i}{cell}" if distinct else cell for i in range(1, 40) for cell in whole]
        fit = table(tmp_path / "x.csv", "\n".join(["a", *cells])).columns()["a"]
        assert fit is not None
        assert (fit.integer, fit.decimal) == (share, "all")


def test_a_file_that_has_been_rewritten_is_read_again(tmp_path: Path) -> None:
    writers: dict[str, Callable[[Path, int], object]] = {
        "x.csv": lambda path, x: path.write_text(f"a,b\n{x},1\n"),
        "x.jsonl": lambda path, x: path.write_text(f'{{"a": {x}, "b": 1}}\n'),
        "x.parquet": lambda path, x: duckdb.sql(f"select {x} a, 1 b").write_parquet(str(path)),
        "x.xlsx": lambda path, x: sheet(path, [["a", "b"], [x, 1]], {}),
    }
    for name, write in writers.items():
        path = tmp_path / name
        write(path, 1)
        [source] = sources(path)
        source.columns()
        write(path, 22)
        assert source.read({"a": "number"})["a"].tolist() == [22.0], name


WORDS = [
    *("red", "a b", 'say "x"', "x,y", "two\nlines", "é", "", "\xa0z\u2003", "1_000", "٣", "+-1"),
    *("1e5", "inf", "-Infinity", "nan", "NAN", "1.", "1.5e", "2020-01-01", "2020-02-30"),
    *("2020-01-01 10:00+02", "0000-01-01", "9999-12-31 23:30-01:00", "0001-01-01 00:30+01"),
    *("2020-01-01T10:00:00.123456789Z", "TRUE", "False", "tRue ", "-9", "-9.0", "-9.00", "-09"),
    *("1,5", "1.5", "#N/A", " NA ", "9007199254740993", "\t7"),
]
KINDS = [WORDS, WORDS[-12:], ["1", "2.5", " 3 "], ["2020-01-01", "2021-05-06 10:00"], ["true", ""]]
READINGS = [
    Reading(),
    Reading(("-9", ".")),
    Reading(("-9",), ","),
    Reading(("1", "-9,0", "2020-01-01"), ","),
    Reading(("1.50", "2020-01-01 00:00")),
]


def answers(path: Path, content: bytes, reading: Reading) -> object:
    """What is read, each column as what it is and as text; None where it is refused."""
    found = table(path, content, reading)
    try:
        fits = found.columns()
        wanted: dict[str, Any] = {}
        for name, fit in fits.items():
            shares = {"number": fit.decimal, "boolean": fit.boolean, "date": fit.date}  # type: ignore[union-attr]  # a column of text can always be read
            wanted[name] = next((kind for kind, part in shares.items() if part == "all"), "text")
        taken = [found.take(wanted), found.take(dict.fromkeys(fits, "text"))]
    except InputError:
        return None
    return str((fits, [{name: list(values) for name, values in each.items()} for each in taken]))


def test_quotes_and_where_a_block_ends_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(0)
    read = 0
    for trial in range(60):
        kinds = [rng.choice(KINDS) for _ in range(3)]
        rows = [[f"n{i}", *map(rng.choice, kinds)] for i in range(rng.randint(0, 9))]
        contents = []
        end = rng.choice(["\n", "\r\n", "\r"])
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
            out = io.StringIO(newline="")
            writer = csv.writer(out, lineterminator=end, quoting=quoting)
            writer.writerows([["id", "x", "t", "ok"], *rows])
            contents.append(out.getvalue().encode())
        if trial % 3:
            contents = [mutated(contents[trial % 2], rng)]
        elif end == "\r":  # Python leaves a line feed unquoted then
            del contents[0]
        reading = rng.choice(READINGS)
        found = [answers(tmp_path / "x.csv", content, reading) for content in contents]
        with monkeypatch.context() as patch:
            size = rng.choice([1, 7, 20])
            patch.setattr(delimited, "rows_of", partial(delimited.rows_of, size=size))
            patch.setattr(delimited, "_split", partial(delimited._split, few=0))
            found += [answers(tmp_path / "x.csv", content, reading) for content in contents]
        assert len(set(found)) == 1, contents
        read += found[0] is not None
    assert 20 < read < 55


def test_every_form_of_a_timestamp_is_read_alike(tmp_path: Path) -> None:
    clocks = ["10:00", "10:00:30", "10:00:30.5", "10:00:30.123456"]
    zones = ["", "Z", "+02", "-0230", "+02:30"]
    forms = [f"2020-01-01{between}{c}{z}" for between in " T" for c in clocks for z in zones]
    found = table(tmp_path / "x.csv", "\n".join(["t", *forms]))
    [fit] = found.columns().values()
    assert fit is not None
    assert fit.date == "all"
    expected = [datetime.fromisoformat(form).replace(tzinfo=None) for form in forms]
    offsets = {"": 0, "Z": 0, "+02": 2, "-0230": -2.5, "+02:30": 2.5}
    hours = [offsets[zone] for _ in " T" for _ in clocks for zone in zones]
    days = [
        (moment - datetime(1970, 1, 1)) / timedelta(days=1) - hour / 24
        for moment, hour in zip(expected, hours, strict=True)
    ]
    np.testing.assert_allclose(found.take({"t": "date"})["t"], days, rtol=1e-15)


def test_only_the_columns_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    frame = pd.DataFrame({f"c{i}": ["1", f"w{i}"] for i in range(30)})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    duckdb.from_df(frame).to_parquet(str(tmp_path / "x.parquet"))
    for data in (frame, *sorted(tmp_path.iterdir())):
        [source] = sources(data)
        assert source.names() == list(frame.columns)
        assert list(source.columns(["c7", "c3", "absent"])) == ["c3", "c7"]
        assert source.read({"c7": "text"})["c7"].tolist() == ["1", "w7"]


def test_codes_of_the_user_are_missing_in_every_format(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, -9.0, 3.0, -9.0], "t": ["x", ".", "-9", "-9.0"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    frame.to_excel(tmp_path / "x.xlsx", index=False)
    parquet = duckdb.from_df(frame)
    parquet.to_parquet(str(tmp_path / "x.parquet"))
    for data in (frame, *(tmp_path / f"x.{end}" for end in ("csv", "jsonl", "xlsx", "parquet"))):
        [source] = sources(data, reading=Reading(("-9", ".")))
        fits = source.columns()
        assert fits["a"] is not None
        assert fits["a"].decimal == "all", data
        read = source.read({"a": "number", "t": "text"})
        np.testing.assert_array_equal(read["a"], [1.0, np.nan, 3.0, np.nan])
        assert read["t"].tolist() == ["x", None, None, None], data


def fit_of(source: Source, column: str) -> ColumnProfile:
    """What a column can be read as."""
    fit = source.columns()[column]
    assert fit is not None
    return fit


@pytest.mark.parametrize("code", ["-9", "-9.0", "-9e0"])
def test_a_code_stands_for_its_number_however_it_is_written(tmp_path: Path, code: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n-9,1\n-9.00,2\n-9e+0,3\n-09,4\n")
    frame = pd.DataFrame({"a": [-9.0, -9.0, -9.0, 4.0], "b": [1, 2, 3, 4]})
    for data in (path, frame):
        [source] = sources(data, reading=Reading((code,)))
        assert source.read({"a": "number"})["a"].isna().tolist() == [True, True, True, False]


def test_a_date_can_be_a_code_in_every_format(tmp_path: Path) -> None:
    frame = pd.DataFrame({"d": pd.to_datetime(["1900-01-01", "2020-01-02", "1900-01-01"])})
    texts = ["1900-01-01", "2020-01-02", "1900-01-01 00:00:00"]
    (tmp_path / "x.csv").write_text("d\n" + "\n".join(texts) + "\n")
    frame.to_excel(tmp_path / "x.xlsx", index=False)
    pd.DataFrame({"d": texts}).to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    for kind in ("date", "timestamp", "timestamptz", "varchar"):
        query = f"select d::timestamp::{kind} as d from frame"
        duckdb.sql(query).write_parquet(str(tmp_path / f"{kind}.parquet"))
    for data in (frame, *sorted(tmp_path.iterdir())):
        [source] = sources(data, reading=Reading(("1900-01-01",)))
        found = source.read({"d": "date"})["d"].tolist()
        np.testing.assert_array_equal(found, [np.nan, 18263.0, np.nan], err_msg=str(data))
        assert fit_of(source, "d").date == "all"


def test_a_point_in_text_is_no_decimal_mark_beside_a_comma_in_any_format(tmp_path: Path) -> None:
    reading = Reading(decimal=",")
    frame = pd.DataFrame({"a": ["1,5", "1.234"], "b": ["x", "y"]})
    frame.to_csv(tmp_path / "x.csv", index=False, sep=";")
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    duckdb.from_df(frame).to_parquet(str(tmp_path / "x.parquet"))
    for data in (frame, *sorted(tmp_path.iterdir())):
        [source] = sources(data, reading=reading)
        assert fit_of(source, "a").decimal == "some", data
        with pytest.raises(InputError, match=r"row 2: '1.234' is no number"):
            source.read({"a": "number"})
    for values in ([1.5, 2.0], pd.Series([1.5, "2"], dtype=object), pd.Categorical(["1,5", "2"])):
        [source] = sources(pd.DataFrame({"a": values}), reading=reading)
        assert fit_of(source, "a").decimal == "all"
        assert source.read({"a": "number"})["a"].tolist() == [1.5, 2.0]
        assert source.read({"a": "text"})["a"].tolist() == ["1.5", "2"]


def test_a_column_of_a_database_without_any_value_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    duckdb.sql("select 1 as y, null as x").write_parquet(str(path))
    [source] = sources(path)
    assert fit_of(source, "x").empty
    assert source.read({"x": "number"})["x"].isna().tolist() == [True]


def test_a_decimal_comma_is_read_in_numbers_and_in_levels(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a;b\n1,5;x\n-2,25e1;y\n3;z\n")
    [source] = sources(path, reading=Reading(decimal=","))
    assert source.read({"a": "number"})["a"].tolist() == [1.5, -22.5, 3.0]
    assert source.read({"a": "text"})["a"].tolist() == ["1.5", "-2.25e1", "3"]
    path.write_text("a;b\n1,5;x\n1.5;y\n")
    with pytest.raises(InputError, match=r"row 2: '1.5' is no number"):
        source.read({"a": "number"})


def test_a_toml_file_declares_types_codes_and_the_decimal_mark(tmp_path: Path) -> None:
    for name in ("a", "b"):
        rows = "".join(f"{i % 7},{i % 2};{(i * i) % 5};0{i % 3}\n" for i in range(30))
        (tmp_path / f"{name}.csv").write_text(f"x;y;g\n-9;1;01\n{rows}")
    listed = tmp_path / "sites.toml"
    listed.write_text(
        "[clients.a]\npath='a.csv'\n[clients.b]\npath='b.csv'\n"
        "[types]\ng = 'text'\n[reading]\nna = ['-9']\ndecimal = ','\n"
    )
    model = fs.fit(listed, "y ~ x + g")
    assert list(model.estimates.names) == ["Intercept", "x", "g[T.01]", "g[T.02]"]
    assert model.nobs == 60
    assert model.settings.na == ("-9",)
    rows = pd.DataFrame({"x": [-9.0, 0.5], "g": ["00", "02"]})
    assert model.predict(rows).isna().tolist() == [True, False]  # the code is one here too


def test_clients_that_write_differently_give_the_fit_of_those_that_write_alike(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    frames = {
        name: pd.DataFrame(
            {
                "y": rng.normal(size=40).round(3),
                "age": rng.integers(20, 90, 40),
                "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 60, 40), "D"),
            }
        )
        for name in ("plain", "german", "english", "query")
    }
    frames["english"].loc[3, "age"] = -1
    frames["plain"].to_csv(tmp_path / "plain.csv", index=False)
    german = frames["german"].rename(columns={"age": "alter", "seen": "am"})
    how: dict[str, Any] = {"sep": ";", "decimal": ",", "date_format": "%d.%m.%Y"}
    german.to_csv(tmp_path / "german.csv", index=False, **how)
    frames["english"].to_csv(tmp_path / "english.csv", date_format="%d/%m/%Y", index=False)
    whole = (frames["query"]["y"] * 1000).round()
    text = frames["query"].assign(y=[f"{y:,.0f}" for y in whole])
    text.to_csv(tmp_path / "query.csv", date_format="%m/%d/%Y", sep=";", index=False)
    (tmp_path / "clients.toml").write_text(
        """
        [clients.plain]
        path = "plain.csv"
        [clients.german]
        path = "german.csv"
        decimal = ","
        dates = "%d.%m.%Y"
        rename = { alter = "age", am = "seen" }
        [clients.english]
        path = "english.csv"
        na = ["-1"]
        dates = "%d/%m/%Y"
        [clients.query]
        query = '''select y / 1000 as y, age, seen from
            read_csv('query.csv', delim=';', thousands=',', dateformat='%m/%d/%Y')'''
        """
    )
    frames["english"].loc[3, "age"] = np.nan
    expected = fs.fit(frames, "y ~ age + seen")
    model = fs.fit(tmp_path / "clients.toml", "y ~ age + seen")
    assert model.nobs == 159
    np.testing.assert_allclose(model.params, expected.params, rtol=1e-12)


def test_a_query_is_read_as_duckdb_returns_it_whatever_the_files_are_like(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a;d;t\n1.234,5;31/01/2020;1.5\n2,25;01/02/2020;2.5\n")
    query = (
        "from read_csv('x.csv', delim=';', decimal_separator=',', thousands='.', "
        "dateformat='%d/%m/%Y', types={'t': 'VARCHAR'})"
    )
    (tmp_path / "c.toml").write_text(
        f'[clients.a]\nquery = "{query}"\n[reading]\ndecimal = ","\ndates = "%m/%d/%Y"\n'
    )
    [source] = sources(tmp_path / "c.toml")
    found = source.read({"a": "number", "d": "date", "t": "number"})
    assert found["a"].tolist() == [1234.5, 2.25]
    assert found["d"].tolist() == [18292.0, 18293.0]
    assert found["t"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ("path = 'x.csv'\ndecimal = ';'", "client a: decimal must be '.' or ','"),
        ("path = 'x.csv'\ndecimal = 3", "client a: decimal must be text in quotes, not 3"),
        ("path = 'x.csv'\ndates = '%d'", "dates must be a format with day, month and year"),
        ("path = 'x.csv'\ndates = '%Y-%d-%m'", "would read 2001-02-03 as another day"),
        ("path = 'x.csv'\nna = '-9'", "na must be a list of texts"),
        ("path = 'x.csv'\nrename = ['a']", "rename must be a table from names in the file"),
        ("path = 'x.csv'\nrename = {z = 'a'}", "rename: there is no column 'z' in the file"),
        ("path = 'x.csv'\nrename = {a = 'b'}", "2 columns are named 'b'"),
        ("query = 'select 1 as a'\ndates = '%d/%m/%Y'", "dates is for files: in a query say it"),
        ("path = 'x.csv'\nformat = 'csv'", "and dates, decimal, na, rename"),
    ],
)
def test_what_a_client_of_a_list_cannot_have_is_refused(
    tmp_path: Path, entry: str, part: str
) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "c.toml").write_text(f"[clients.a]\n{entry}\n")
    with pytest.raises(InputError) as caught:
        sources(tmp_path / "c.toml")[0].columns()
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_date_in_the_format_of_a_client_is_a_level_as_everybody_writes_it(
    tmp_path: Path,
) -> None:
    content = "d,n\n31/01/2020,1\n1/2/2020,2\n"
    found = table(tmp_path / "x.csv", content, Reading(dates="%d/%m/%Y"))
    assert found.take({"d": "text"})["d"].tolist() == ["2020-01-31", "2020-02-01"]
    assert found.take({"d": "date"})["d"].tolist() == [18292.0, 18293.0]
    with pytest.raises(InputError, match=r"row 1: '1' is no date"):
        found.take({"n": "date"})


def test_codes_with_zeros_that_are_read_as_numbers_are_warned_of(tmp_path: Path) -> None:
    rows = "".join(f"{i * i % 7},{ward}\n" for i in range(30) for ward in ("01", "1", "2"))
    (tmp_path / "a.csv").write_text("y,ward\n" + rows)
    (tmp_path / "b.csv").write_text("y,ward\n" + rows.replace("01", "1"))
    model = fs.fit(tmp_path, "y ~ C(ward)")
    [warning] = [text for text in model.warnings if "ward" in text]
    assert warning.startswith("client a: codes such as 01 in column ward are read as numbers")
    assert "01 and 1 are one level: give types={'ward': 'text'} to keep them apart" in warning
    apart = fs.fit(tmp_path, "y ~ C(ward)", types={"ward": "text"})
    assert list(apart.estimates.names) == ["Intercept", "C(ward)[T.1]", "C(ward)[T.2]"]
    assert not [text for text in apart.warnings if "ward" in text]
    assert not [text for text in fs.fit(tmp_path / "b.csv", "y ~ C(ward)").warnings if "01" in text]


def test_separated_thousands_are_no_decimal_marks_in_any_advice(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = "".join(f'{i * i % 7};"{9 + i % 5},{884 - i}"\n' for i in range(40))
    path.write_text("y;cost\n" + rows)
    with pytest.raises(InputError) as caught:
        fs.fit(path, "y ~ cost")
    assert "remove the commas if they separate thousands" in str(caught.value)
    assert "only if they are decimal marks" in str(caught.value)
    path.write_text("y;cost\n" + "".join(f"{i % 7};{i}\n" for i in range(40)) + '3;"9,884"\n')
    with pytest.raises(InputError, match=r"row 41: '9,884' is no number: remove the commas if"):
        fs.fit(path, "y ~ cost")
    path.write_text("y;cost\n" + rows)
    [warning] = [text for text in fs.fit(path, "y ~ cost", decimal=",").warnings if "cost" in text]
    assert "every number with a comma has three digits after it, as '9,884' has" in warning
    path.write_text("y;cost\n" + rows + "3;1,5\n")
    assert not [text for text in fs.fit(path, "y ~ cost", decimal=",").warnings if "cost" in text]


def test_filling_by_means_is_refused_and_the_message_says_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,x\n1,2\n")
    with pytest.raises(InputError, match=r"missing 'mean' is not known: use one of drop, fail"):
        fs.fit(path, "y ~ x", missing="mean")  # type: ignore[arg-type]  # the test
    assert run(["fit", str(path), "--formula", "y ~ x", "--missing", "mean"]) == 2
    assert "drop, fail" in " ".join(capsys.readouterr().err.split())


def test_labels_of_kinds_of_missing_values_are_no_levels(tmp_path: Path) -> None:
    path = tmp_path / "x.dta"
    frame = pd.DataFrame({"y": [1.0, 2.0, 3.0], "sex": [1.0, "a", 2.0]})
    labels: dict[Any, str] = {1: "male", 2: "female", "a": "refused"}
    pyreadstat.write_dta(
        frame,
        str(path),
        missing_user_values={"sex": ["a"]},
        variable_value_labels={"sex": labels},
    )
    [source] = sources(path)
    values = source.read({"sex": "text"})["sex"]
    assert values.isna().tolist() == [False, True, False]
    assert values.tolist()[::2] == ["male", "female"]
    labels = {1.0: "male", 2.0: "female", np.nan: "refused"}  # as R's haven has them
    texts = labelled(pd.Series([1.0, np.nan, 2.0]), labels)
    assert texts is not None
    assert texts.isna().tolist() == [False, True, False]


def test_labels_at_one_site_and_their_numbers_at_another_are_refused(tmp_path: Path) -> None:
    for name, sex in (("a", [1, 2]), ("b", [1, 2, 9])):
        frame = pd.DataFrame({"y": np.arange(30) ** 2 % 7, "sex": np.resize(sex, 30)})
        labels: dict[str, dict[Any, str]] = {"sex": {1: "male", 2: "female"}}
        pyreadstat.write_sav(frame, str(tmp_path / f"{name}.sav"), variable_value_labels=labels)
    with pytest.raises(InputError, match=r"words at client a and holds numbers at client b"):
        fs.fit(tmp_path, "y ~ C(sex)")
    apart = fs.fit(tmp_path, "y ~ sex", types={"sex": "text"})
    assert len(apart.estimates.names) == 5


def test_merged_cells_are_no_missing_values(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in [("y", "g"), (1, "a"), (2, "a"), (3, "b")]:
        book.active.append(row)
    book.active.merge_cells("B2:B3")
    book.save(tmp_path / "x.xlsx")
    [source] = sources(tmp_path / "x.xlsx")
    with pytest.raises(InputError, match="cells B2:B3 are merged"):
        source.columns()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.csv", b"\xef\xbb\xbf"),
        ("b.csv", b"\n\r\n"),
        ("b.csv.gz", gzip.compress(b"", mtime=0)),
    ],
)
def test_a_file_that_says_nothing_is_an_empty_site(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(20)))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"client b: .*leave-out"):
        fs.fit(tmp_path, "y ~ x")
    assert fs.fit(tmp_path, "y ~ x", empty_site="leave-out").nobs == 20


def test_an_empty_site_is_named_or_left_out(tmp_path: Path) -> None:
    rows = "x,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(20))
    for name, content in (("a", rows), ("b", ""), ("c", rows), ("d", "x,y\n")):
        (tmp_path / f"{name}.csv").write_text(content)
    with pytest.raises(InputError, match=r"client b, d: .*leave-out"):
        fs.fit(tmp_path, "y ~ x")
    model = fs.fit(tmp_path, "y ~ x", empty_site="leave-out")
    assert model.nobs == 40
    assert "2 clients have no row with a value and are left out: b, d" in model.warnings
    both = fs.fit([tmp_path / "a.csv", tmp_path / "c.csv"], "y ~ x")
    assert same_bits(model, both)


def test_a_group_column_and_one_file_per_site_give_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "site": [f"s{i}" for i in rng.permutation(np.repeat(np.arange(100), 20))],
            "x": rng.standard_normal(2000).round(3),
            "t": rng.choice(["u", "v", "w"], 2000),
        }
    )
    frame["y"] = (frame["x"] + rng.standard_normal(2000)).round(3)
    frame.to_csv(tmp_path / "all.csv", index=False)
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, rows in frame.groupby("site"):
        rows.to_csv(folder / f"{name}.csv", index=False)
    grouped = fs.fit(tmp_path / "all.csv", "y ~ x + t", group="site")
    split = fs.fit(folder, "y ~ x + t")
    # As the shell expands a pattern.
    given = fs.fit(sorted(folder.iterdir()), "y ~ x + t")
    assert same_bits(grouped, split)
    assert same_bits(given, split)
    assert list(grouped.clients["n"].index) == [f"s{i}" for i in range(100)]
