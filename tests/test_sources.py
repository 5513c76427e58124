"""What a user names as clients: read right, or refused in one line; never guessed."""

import csv
import gzip
import io
import json
import os
import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pandas as pd
import pytest

from fedsplit.data.frames import as_written
from fedsplit.data.sources import sources
from fedsplit.data.texts import level_codes, readable
from fedsplit.data.types import MISSING, ColumnProfile, Type
from fedsplit.errors import InputError, RowError
from tampering import mutated

FRAME = pd.DataFrame({"age": [50, 61, 47], "site": ["a", "b", "a"], "cost": [1.5, np.nan, -2e3]})


def one(path: Path, content: bytes | str) -> Any:
    """The one client of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    [source] = sources(path)
    return source


def kinds_of(source: Any) -> dict[str, str]:
    """What each column is read as by the client alone."""
    found = {}
    for name, fit in source.columns().items():
        found[name] = "other"
        if fit is not None:
            found[name] = "empty" if fit.empty else fit.type
    return found


def read_own(source: Any, names: list[str]) -> pd.DataFrame:
    """Some columns, each read as what the client alone would."""
    own = kinds_of(source)
    readable = {"empty": "number", "other": "text"}
    kinds = [own.get(name, "text") for name in names]
    wanted = {name: readable.get(kind, kind) for name, kind in zip(names, kinds, strict=True)}
    return cast(pd.DataFrame, source.read(wanted))


def refused(act: Callable[[], object], start: object, *parts: str) -> None:
    with pytest.raises(InputError) as caught:
        act()
    message = str(caught.value)
    assert message.startswith(str(start)), message
    assert "\n" not in message
    assert len(message) < 300 + len(str(start))
    for part in parts:
        assert part in message


def parquet(path: Path, query: str) -> Path:
    with duckdb.connect() as connection:
        connection.execute(f"copy ({query}) to '{path}' (format parquet)")
    return path


def test_a_csv_file_is_read_with_its_kinds(tmp_path: Path) -> None:
    source = one(
        tmp_path / "boston.csv",
        '\ufeffn, b ,t,d,"x,y"\r\n1,true,NA,2020-01-31,.5\r\n'
        " 2e3,,'q',,+1\r\n NA ,FALSE,\"a\r\nb\",2020-02-01 10:00,007\r\n",
    )
    assert source.name == "boston"
    assert kinds_of(source) == {
        "n": "number",
        "b": "boolean",
        "t": "text",
        "d": "date",
        "x,y": "number",
    }
    frame = read_own(source, ["x,y", "t", "b", "n", "d"])
    assert list(frame.columns) == ["x,y", "t", "b", "n", "d"]
    assert [str(dtype) for dtype in frame.dtypes] == [
        "float64",
        "object",
        "float64",
        "float64",
        "float64",
    ]
    np.testing.assert_array_equal(frame["n"], [1.0, 2000.0, np.nan])
    np.testing.assert_array_equal(frame["b"], [1.0, np.nan, 0.0])
    np.testing.assert_array_equal(frame["x,y"], [0.5, 1.0, 7.0])
    assert frame["t"].tolist() == [None, "'q'", "a\r\nb"]
    np.testing.assert_array_equal(frame["d"], [18292.0, np.nan, 18293 + 10 / 24])
    assert source.read({"x,y": "text"})["x,y"].tolist() == [".5", "+1", "007"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_delimiter_is_the_one_of_the_first_line(
    tmp_path: Path, delimiter: str, end: str
) -> None:
    lines = [delimiter.join(row) for row in (['"a;,|\t."', "b"], ["1", '"x,;|\t"'], ["2", "y"])]
    frame = read_own(one(tmp_path / "x.csv", end.join(lines)), ["b", "a;,|\t."])
    assert frame["b"].tolist() == ["x,;|", "y"]
    assert frame["a;,|\t."].tolist() == [1.0, 2.0]


def test_every_word_for_missing_is_missing_in_numbers_and_in_text(tmp_path: Path) -> None:
    rows = "".join(f'{word},{word},x\n"{word}", {word} ,y\n' for word in MISSING)
    source = one(tmp_path / "x.csv", f"n,t,k\n1,q,z\n{rows}")
    frame = read_own(source, ["n", "t"])
    assert kinds_of(source) == {"n": "number", "t": "text", "k": "text"}
    assert (
        frame["n"].isna().tolist()
        == frame["t"].isna().tolist()
        == [False] + [True] * 2 * len(MISSING)
    )
    assert kinds_of(one(tmp_path / "y.csv", "a,b\nNA,\n")) == {"a": "empty", "b": "empty"}


@pytest.mark.parametrize(
    "value",
    [
        "1_000",
        "+-1",
        "0x10",
        '"1,234"',
        "1 000",
        "$5",
        "yes",
        "1f",
        "٣",
        "12:30",
        "1/2/2020",
        "2020-13-01",
    ],
)
def test_what_is_not_plainly_a_number_is_text_as_it_stands(tmp_path: Path, value: str) -> None:
    source = one(tmp_path / "x.csv", f"a,b\n{value},1\n{value},2\n")
    assert kinds_of(source)["a"] == "text"
    assert read_own(source, ["a"])["a"].tolist() == [value.strip('"')] * 2


def test_the_last_line_of_a_long_file_decides_too(tmp_path: Path) -> None:
    source = one(tmp_path / "x.csv", "a,b\n" + "1,2\n" * 50_000 + "x,3\n")
    assert kinds_of(source) == {"a": "text", "b": "number"}
    assert len(read_own(source, ["a"])) == 50_001


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\n\na,b\n1,2\n", "first line is empty"),
        (b"a,a\n1,2\n", "named 'a'"),
        (b"a, a \n1,2\n", "named 'a'"),
        (b"a,\n1,2\n", "column 2 of 2 has no name"),
        (b"1,2.5\n3,4\n", "first line is numbers"),
        (b"a;b,c\n1;2,3\n", "as often as"),
        (b"a,b\n1\n", "line 2: it has more or fewer values"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: it has more or fewer values"),
        (b"a,b\n1,2\n1,2,\n", "line 3: it has more or fewer values"),
        (b'a,"b,"\n1,"2,3"\n1,2,NA\n', "line 3: it has more or fewer values"),
        (b'a,"x\ny"\r\n1,2\r\n', "line break"),
        (b'a,b\n1,"2\n3,4\n', "line 2: a quote is not closed"),
        (b'a,b\n1,"2"x\n', "line 2: a quote is not closed"),
        (b'a,"b\n1,2\n', "first line cannot be read"),
        ("a,b\n1,é\n".encode("latin-1"), "UTF-8"),
        ("é,b\n1,2\n".encode("latin-1"), "UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "NUL"),
        (b"a,b\n1,x\0\n", "NUL"),
    ],
)
def test_csv_that_could_be_misread_is_refused(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "x.csv"
    refused(lambda: kinds_of(one(path, content)), path, part)


@pytest.mark.parametrize("number", ["1e400", "inf", "-inf", "Infinity", "9" * 400])
def test_an_infinite_number_is_refused_with_its_place(tmp_path: Path, number: str) -> None:
    path = tmp_path / "x.csv"
    refused(
        lambda: read_own(one(path, f"a,b\n1,2\n1,{number}\n"), ["a", "b"]),
        path,
        "column 'b', row 2",
        "infinite",
    )
    refused(
        lambda: read_own(sources({"us": FRAME.assign(cost=-np.inf)})[0], ["cost"]),
        "us: column 'cost', row 1: ",
    )


def test_a_header_alone_is_a_client_without_rows(tmp_path: Path) -> None:
    assert read_own(one(tmp_path / "x.csv", "a,b"), ["b", "a"]).shape == (0, 2)
    assert kinds_of(one(tmp_path / "y.csv", "a\n")) == {"a": "empty"}


def test_names_that_differ_in_case_are_two_columns_of_csv_and_json(tmp_path: Path) -> None:
    assert read_own(one(tmp_path / "x.csv", "a,A\n1,2\n"), ["A", "a"]).to_dict("list") == {
        "A": [2.0],
        "a": [1.0],
    }
    assert read_own(one(tmp_path / "y.jsonl", '{"a":1}\n{"A":2}'), ["A"])["A"].isna().tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".json"])
def test_a_gzip_file_is_read_and_a_damaged_one_is_refused(tmp_path: Path, suffix: str) -> None:
    rows = [{"a": i, "b": f"x{i * i}"} for i in range(3000)]
    mark = "\t" if suffix == ".tsv" else ","
    table = f"a{mark}b\n" + "".join(f"{row['a']}{mark}{row['b']}\n" for row in rows)
    text = "".join(json.dumps(row) + "\n" for row in rows) if "js" in suffix else table
    path, whole = tmp_path / f"x{suffix}.gz", gzip.compress(text.encode())
    source = one(path, whole)
    assert source.name == "x"
    assert read_own(source, ["b"])["b"].tolist() == [row["b"] for row in rows]
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    for bad in (
        whole[: len(whole) // 2],
        whole[:-4],
        bytes(flipped),
        text.encode(),
        whole + b"junk",
    ):
        refused(lambda bad=bad: kinds_of(one(path, bad)), path)  # type: ignore[misc]  # mypy cannot infer this lambda


def test_parquet_has_the_kinds_of_its_schema_and_nested_columns_are_refused_only_when_read(
    tmp_path: Path,
) -> None:
    path = parquet(
        tmp_path / "x.parquet",
        "select 7::utinyint u, 2.5::decimal(10, 2) d, 123456789012345678901234::hugeint h, "
        "'nan'::double f, true b, date '2020-01-31' dt, timestamp '2020-01-31 10:00:00' ts, "
        "timestamptz '2020-01-31 10:00:00+02' tz, [1, 2] l, {'x': 1} s, 'q\"''' \"t\"\"'\", "
        "null::varchar z, 9007199254740993::bigint i, 'ab'::blob bl",
    )
    [source] = sources(path)
    kinds = kinds_of(source)
    assert list(kinds.values()) == (
        ["number"] * 3
        + ["empty"]
        + ["boolean"]
        + ["date"] * 3
        + ["other"] * 2
        + ["text", "empty"]
        + ["number", "other"]
    )
    readable = [name for name, kind in kinds.items() if kind != "other"]
    row = read_own(source, readable).iloc[0].tolist()
    assert row[:3] == [7.0, 2.5, 123456789012345678901234.0]
    assert np.isnan(row[3])
    assert row[4:] == [
        1.0,
        18292.0,
        18292 + 10 / 24,
        18292 + 8 / 24,
        "q\"'",
        row[-2],
        2.0**53,
    ]
    assert np.isnan(row[-2])
    texts = source.read(dict.fromkeys(["d", "f", "b", "dt", "ts", "tz", "i"], "text"))
    assert texts.iloc[0].tolist() == [
        "2.5",
        None,
        "True",
        "2020-01-31",
        "2020-01-31 10:00:00",
        "2020-01-31 08:00:00",
        "9007199254740993",
    ]
    refused(lambda: read_own(source, ["u", "l"]), path, "column 'l' is nested")


def test_parquet_that_is_not_whole_or_not_parquet_or_has_two_columns_of_one_name_is_refused(
    tmp_path: Path,
) -> None:
    path = parquet(tmp_path / "x.parquet", "select range i, range * 2 j from range(1000)")
    whole = path.read_bytes()
    for bad in (whole[: len(whole) // 2], whole[50:], b"a,b\n1,2\n" * 9, b"PAR1PAR1"):
        refused(lambda bad=bad: read_own(one(path, bad), ["i", "j"]), path)  # type: ignore[misc]  # mypy cannot infer this lambda
    other = tmp_path / "y.parquet"
    other.write_bytes(whole.replace(b"\x01j", b"\x01i"))
    refused(lambda: kinds_of(sources(other)[0]), other, "two columns have the same name")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": "x"}\n\n{"b": null, "a": 2.5, "c": [1]}\n',
        '[{"a":1,"b":"x"},\n{"a":2.5,"c":{}}]',
    ],
)
def test_json_is_read_by_the_line_or_as_one_array(tmp_path: Path, text: str) -> None:
    source = one(tmp_path / "x.json", "\ufeff" + text)
    assert kinds_of(source) == {"a": "number", "b": "text", "c": "other"}
    frame = read_own(source, ["b", "a"])
    assert frame["a"].tolist() == [1.0, 2.5]
    assert frame["b"].tolist() == ["x", None]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[]", "no columns"),
        ('{"a": 1}\n{"a": \n', "line 2"),
        ('{"a": 1}{"a": 2}\n', "line 1"),
        ('{"a": 1, "a": 2}\n', "line 1: a key appears twice"),
        ('{"a": 1}\n3\n', "line 2: expected an object"),
        ('[{"a": 1}, 3]', "entry 2: expected an object"),
        ('{"a": 1}\n[1]\n', "line 2: expected an object"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a": 1e400}', "infinite"),
        ('{"a": 1' + "0" * 400 + "}", "infinite"),
        ('{"a": [1]}\n{"a": 1}', "nested"),
    ],
)
def test_json_that_could_be_misread_is_refused(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "x.jsonl"
    refused(lambda: read_own(one(path, text), ["a"]), path, part)


def test_a_column_that_is_not_there_is_refused_with_the_nearest_that_is(tmp_path: Path) -> None:
    source = one(tmp_path / "x.csv", "age,income\n1,2\n")
    refused(
        lambda: read_own(source, ["agee"]),
        tmp_path / "x.csv",
        "no column 'agee', did you mean 'age'?",
        "age, income",
    )
    refused(
        lambda: read_own(sources({"us": FRAME})[0], ["zzz"]), "us: ", "there are age, site, cost"
    )


def test_what_is_not_a_readable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "gone.csv").symlink_to("nowhere.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for name, part in [
        ("folder.csv", "no file in the folder"),
        ("loop.csv", "symbolic links"),
        ("gone.csv", "No such file"),
        ("pipe.csv", "is not a file"),
        ("none.csv", "there is no such file"),
        ("*.parquet", "no file matches"),
        ("x" * 300 + ".csv", "name too long"),
    ]:
        refused(lambda name=name: kinds_of(sources(tmp_path / name)[0]), tmp_path / name, part)  # type: ignore[misc]  # as above
    (tmp_path / "x.docx").write_bytes(b"PK")
    refused(
        lambda: sources(tmp_path / "x.docx"), tmp_path / "x.docx", ".csv, .txt, .tsv", ".parquet"
    )
    refused(lambda: sources("a\0b"), "'a")
    refused(lambda: sources(""), "''")
    refused(lambda: sources(3), "data must be")
    refused(lambda: sources([]), "there is no client")
    refused(lambda: sources({}), "there is no client")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    source = one(tmp_path / "x.csv", "a\n1\n")
    (tmp_path / "x.csv").chmod(0)
    refused(lambda: kinds_of(source), tmp_path / "x.csv", "Permission denied")


@pytest.mark.parametrize(
    "name", ["http://x.org/a.csv", "s3://b/a.parquet", "https://x/*.csv", "file:///etc/a.csv"]
)
def test_only_local_files_are_read(tmp_path: Path, name: str) -> None:
    refused(lambda: sources(name), name, "only local files")
    toml = tmp_path / "c.toml"
    toml.write_text(f"[clients.a]\npath = '{name}'")
    refused(lambda: sources(toml), name, "only local files")


def test_a_name_that_exists_is_that_file_whatever_characters_it_has(tmp_path: Path) -> None:
    names = [
        "a*.csv",
        "a?.csv",
        "a[1].csv",
        "ab.csv",
        "a1.csv",
        "a'q.csv",
        'a"q.csv',
        "a b{1,2}.csv",
        "a\\b.csv",
        "a;--.csv",
        "é.csv",
    ]
    for i, name in enumerate(names):
        (tmp_path / name).write_text(f"i\n{i}\n")
    for i, name in enumerate(names):
        [source] = sources(str(tmp_path / name))
        assert read_own(source, ["i"])["i"].tolist() == [i], name
    assert len(sources(tmp_path)) == len(names)
    part = parquet(tmp_path / "x.parquet", "select 1 a")
    folder = tmp_path / "year=2020"
    folder.mkdir()
    part.rename(folder / "x.parquet")
    assert kinds_of(sources(folder)[0]) == {"a": "number"}  # a folder's name is not a column


def test_folders_patterns_and_lists_give_one_client_a_file_in_order(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", ".hidden.csv", "notes.md", "c.tsv"):
        (tmp_path / name).write_text("x\n1\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "d.csv").write_text("x\n1\n")

    def names(data: object) -> list[str]:
        return [source.name for source in sources(data)]

    assert names(tmp_path) == ["a", "b", "c"]
    assert names(str(tmp_path / "*.csv")) == ["a", "b"]
    assert names([tmp_path / "c.tsv", str(tmp_path / "sub"), FRAME]) == ["c", "d", "client 2"]
    assert names({"one": tmp_path / "a.csv", "two": FRAME}) == ["one", "two"]
    refused(lambda: sources([tmp_path / "a.csv", tmp_path / "*.csv"]), "two clients are named 'a'")
    refused(lambda: sources({"one": tmp_path}), "one: ", "3 files")
    refused(lambda: sources({1: FRAME}), "a client's name must be text")
    refused(lambda: sources({"one": 3}), "one: expected a file or a DataFrame")


def test_a_toml_file_names_clients_with_files_and_queries_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a, b"
    folder.mkdir()
    # A file of the same name in the working folder is not the one that is meant.
    (tmp_path / "x.csv").write_text("a,b\n9,9\n")
    (folder / "x.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "all.toml").write_text(
        '[clients.boston]\npath = "x.csv"\n'
        "[clients.seattle]\nquery = \"select b, a from 'x.csv' where a > 1; \"\n"
        '[clients.comment]\nquery = """from read_csv(\'x.csv\') -- all"""\n'
    )
    monkeypatch.chdir(tmp_path)
    clients = sources("a, b/all.toml")
    assert [client.name for client in clients] == ["boston", "seattle", "comment"]
    assert [read_own(client, ["b", "a"])["b"].tolist() for client in clients] == [
        [2.0, 4.0],
        [4.0],
        [2.0, 4.0],
    ]
    assert kinds_of(clients[1]) == {"b": "number", "a": "number"}
    assert Path.cwd() == tmp_path
    refused(lambda: read_own(clients[0], ["c"]), "boston (a, b/x.csv): ")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[clients.a]\npath = x", "line 2"),
        ("", "there is no client"),
        ("clients = 3", "clients must be a table"),
        ("types = 3\n[clients.a]\npath='x.csv'", "types must be a table"),
        ("[types]\na = 'int'\n[clients.a]\npath='x.csv'", "a must be one of number, boolean"),
        ("[reading]\nna = 9\n[clients.a]\npath='x.csv'", "na must be a list of texts"),
        ("[reading]\ndecimal = ';'\n[clients.a]\npath='x.csv'", "decimal must be '.' or ','"),
        ("[reading]\nx = 1\n[clients.a]\npath='x.csv'", "unknown key 'x'"),
        ("[clients]", "there is no client"),
        ("[clients.a]\n", "client a: a client has either path or query, this one has neither"),
        ("[clients.a]\npath='x.csv'\nquery='from x'", "this one has both"),
        ("[clients.a]\npaht='x.csv'", "unknown key 'paht'"),
        ("version=1\n[clients.a]\npath='x.csv'", "unknown key 'version'"),
        ("[clients]\na='x.csv'", "client a: write [clients.NAME]"),
        ("[clients.a]\npath=3", "path must be text"),
        ("[clients.a]\nquery='selec 1'", "client a: "),
        ("[clients.a]\nquery='from nowhere'", "client a: "),
        ("[clients.a]\nquery='from FRAME'", "client a: "),
        ("[clients.a]\nquery='select 1 a, 2 A'", "named 'a'"),
        ("[clients.a]\nquery=\"copy (select 1) to 'y.csv'\"", "client a: "),
        ("[clients.a]\nquery=\"from 'https://example.org/x.parquet'\"", "client a: "),
    ],
)
def test_a_toml_file_that_names_no_clients_rightly_is_refused(
    tmp_path: Path, text: str, part: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    refused(lambda: kinds_of(sources(path)[0]), path, part)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c.toml"]


@pytest.mark.parametrize(
    ("content", "options", "part"),
    [
        ("a,b\n1,2\n3\n", "auto_detect=false, columns={'a': 'INT', 'b': 'INT'}", "more or fewer"),
        ("a,b\n1,2\nsecret,4\n", "columns={'a': 'INT', 'b': 'INT'}", "give read_csv its format"),
    ],
)
def test_a_line_that_a_query_cannot_read_is_named_without_its_values(
    tmp_path: Path, content: str, options: str, part: str
) -> None:
    (tmp_path / "x.csv").write_text(content)
    toml = tmp_path / "c.toml"
    toml.write_text(f"[clients.a]\nquery = \"from read_csv('x.csv', header=true, {options})\"\n")
    [source] = sources(toml)
    refused(lambda: source.read({"a": "number"}), toml, "line 3: ", part)
    with pytest.raises(InputError) as caught:
        source.read({"a": "number"})
    assert "secret" not in str(caught.value)


def test_a_group_column_splits_one_file_into_clients_and_reads_it_once(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("site,v\n10,1\n9,2\n10,3\n" + "02,4\n")
    clients = sources(path, group="site")
    assert [client.name for client in clients] == ["02", "9", "10"]
    assert kinds_of(clients[0]) == {"site": "number", "v": "number"}
    assert read_own(clients[2], ["v", "site"]).to_dict("list") == {
        "v": [1.0, 3.0],
        "site": [10.0, 10.0],
    }
    first = read_own(clients[1], ["v"])
    path.unlink()
    assert read_own(clients[0], ["v"])["v"].tolist() == [
        4.0
    ]  # from what the first client's read kept
    first.loc[0, "v"] = 99.0
    assert read_own(clients[1], ["v"])["v"].tolist() == [2.0]
    frames = sources(FRAME, group="site")
    assert [client.name for client in frames] == ["a", "b"]
    assert read_own(frames[0], ["age"])["age"].tolist() == [50.0, 47.0]
    big = parquet(
        tmp_path / "y.parquet", "select unnest([9007199254740993, 9007199254740992]) k, 1 v"
    )
    assert {client.name for client in sources(big, group="k")} == {
        "9007199254740993",
        "9007199254740992",
    }


def test_a_group_that_cannot_split_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("site,v\na,1\n,2\nNA,3\n")
    refused(
        lambda: sources(path, group="site", missing="fail"),
        path,
        "2 of 3 rows have no 'site': fill them, or leave them out by missing='drop'",
    )
    path.write_text("site,v\n,2\nNA,3\n")
    refused(lambda: sources(path, group="site"), path, "there is no row with a 'site'")
    refused(lambda: sources(path, group="sites"), path, "did you mean 'site'?")
    refused(
        lambda: sources([FRAME, FRAME], group="site"),
        "group 'site' splits one file or DataFrame, there are 2",
    )
    path.write_text("site,v\n")
    refused(lambda: sources(path, group="site"), path, "no row")
    path.write_text("site,v\na,1\nb,2\n")
    clients = sources(path, group="site")
    path.write_text("site,v\na,1\n")
    refused(lambda: read_own(clients[0], ["v"]), path, "has changed")


def test_frames_of_every_dtype_are_read_and_never_changed() -> None:
    frame = pd.DataFrame(
        {
            "int": [1, 2],
            "nullable": pd.array([1, None], dtype="Int64"),
            "bool": [True, False],
            "boolean": pd.array([True, None], dtype="boolean"),
            "category": pd.Categorical(["x", None]),
            "levels": pd.Categorical([3, 4]),
            "string": pd.array(["x", None], dtype="string"),
            "str": pd.Series(["x", None]).array,  # of objects before pandas 3
            "object": np.array(["x", None], dtype=object),
            "decimal": [Decimal("1.5"), None],
            "none": np.array([None, None], dtype=object),
            "stamp": pd.to_datetime(["2020-01-31", None]),
            "day": [date(2020, 1, 31), None],
            "f32": np.array([0.5, np.nan], dtype=np.float32),
            "mixed": np.array(["x", 1], dtype=object),
            "list": [[1], [2]],
            "complex": [1j, 2j],
            "delta": pd.to_timedelta([1, 2]),
        },
        index=[7, 7],
    )
    before = frame.copy(deep=True)
    [source] = sources(frame)
    kinds = kinds_of(source)
    assert list(kinds.values()) == (
        ["number"] * 2
        + ["boolean"] * 2
        + ["text", "number"]
        + ["text"] * 3
        + ["number", "empty"]
        + ["date"] * 2
        + ["number", "text"]
        + ["other"] * 3
    )
    read = read_own(source, [name for name, kind in kinds.items() if kind != "other"])
    for name, kind in kinds.items():
        if kind not in ("text", "other"):
            assert read[name].dtype == np.float64
    for name in ("string", "str", "object", "mixed"):
        assert read[name].dtype == object
        assert all(value is None or type(value) is str for value in read[name])
    assert read["nullable"].isna().tolist() == read["boolean"].isna().tolist() == [False, True]
    assert read["string"].tolist() == read["str"].tolist() == read["object"].tolist() == ["x", None]
    assert read["category"].cat.categories.tolist() == ["x"]
    assert read["levels"].tolist() == [3.0, 4.0]
    assert source.read({"levels": "text"})["levels"].tolist() == ["3", "4"]
    assert source.columns()["levels"] == ColumnProfile("all", "all", "none", "none", "none", True)
    assert read["decimal"].iloc[0] == 1.5
    assert read["stamp"].tolist()[0] == read["day"].tolist()[0] == 18292.0
    assert source.read({"stamp": "text"})["stamp"].tolist() == ["2020-01-31", None]
    assert read["mixed"].tolist() == ["x", "1"]
    read.loc[:, "f32"] = 9.0
    read.iloc[:, 0] = 9.0
    pd.testing.assert_frame_equal(frame, before)


def test_frames_whose_columns_have_no_plain_names_are_refused() -> None:
    for frame, part in [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "named 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", 3]), "the name of column 3 is not text"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "several levels"),
        (pd.DataFrame(index=[1]), "no columns"),
    ]:
        refused(lambda frame=frame: kinds_of(sources([frame])[0]), "client 0: ", part)  # type: ignore[misc]  # as above


def parsed(content: bytes) -> list[list[list[str]]]:
    """What Python's csv module makes of it, with and without spaces before quotes."""
    text, answers = content.decode("utf-8-sig"), []
    for skip in (False, True):
        try:
            rows = list(
                csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=skip)
            )
        except csv.Error:
            continue
        width = len(rows[0])
        rows = [row for row in rows if row or width == 1]
        rows = [row or [""] for row in rows]
        if all(len(row) == width for row in rows):
            if width > 1 and not rows[0][0].strip():  # row names
                rows = [row[1:] for row in rows]
            answers.append(rows)
    return answers


def same(text: str, value: object) -> bool:
    text = text.strip()
    if value is None or value != value:
        return text in MISSING or text.lower().lstrip("+-") == "nan"
    if isinstance(value, float):
        return value == {"true": 1.0, "false": 0.0}.get(text.lower()) or value == float(text)
    return isinstance(value, str) and value.strip() == text


def attempt(path: Path, content: bytes) -> pd.DataFrame | None:
    """What is read, or None where it is refused in one line that begins with the path."""
    try:
        source = one(path, content)
        return cast(
            pd.DataFrame,
            read_own(source, [name for name, kind in kinds_of(source).items() if kind != "other"]),
        )
    except InputError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return None


def base(rng: random.Random) -> bytes:
    words = ["red", "a b", 'say "x"', "x,y", "two\nlines", "é", ""]
    rows = [
        [str(i), f"{rng.gauss(0, 1):.4g}", rng.choice(words), rng.choice(["true", "false", "NA"])]
        for i in range(12)
    ]
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"])).writerows(
        [["id", "x", "t", "ok"], *rows]
    )
    return out.getvalue().encode()


def test_csv_that_was_tampered_with_is_refused_or_read_as_pythons_csv_module_reads_it(
    tmp_path: Path,
) -> None:
    rng, read = random.Random(0), 0
    for trial in range(400):
        content = mutated(base(rng), rng)
        packed = trial % 4 == 0
        frame = attempt(
            tmp_path / f"x.csv{'.gz' if packed else ''}",
            gzip.compress(content) if packed else content,
        )
        if frame is None:
            continue
        read += 1
        answers = parsed(content)
        assert any(
            [name.strip() for name in rows[0]] == list(frame.columns)
            and len(rows) - 1 == len(frame)
            and all(
                same(cell, frame.iat[i, j])
                for i, row in enumerate(rows[1:])
                for j, cell in enumerate(row)
            )
            for rows in answers
        ), (trial, content, frame)
    assert 50 < read < 350


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv.gz"])
def test_packed_files_that_were_tampered_with_are_refused_in_one_line_or_read(
    tmp_path: Path, suffix: str
) -> None:
    rng, read = random.Random(1), 0
    whole = "".join(
        json.dumps({"id": i, "x": i / 7, "t": "é" * (i % 3), "ok": i % 2 == 0}) + "\n"
        for i in range(20)
    ).encode()
    if suffix == ".parquet":
        whole = parquet(
            tmp_path / "y.parquet", "select range id, range / 7 x, 'é' t from range(20)"
        ).read_bytes()
    if suffix == ".csv.gz":
        whole = gzip.compress(base(rng))
    for _ in range(150):
        content = mutated(whole, rng)
        frame = attempt(tmp_path / f"x{suffix}", content)
        read += frame is not None
        if frame is not None and suffix == ".jsonl":
            records = [
                json.loads(line)
                for line in content.decode("utf-8-sig").splitlines()
                if line.strip()
            ]
            assert len(frame) == len(records)
            for i, record in enumerate(records):
                for name in frame.columns:
                    value, found = record.get(name), frame[name].iloc[i]
                    text = "" if pd.isna(value) else as_written(value)
                    assert same(text, found)
    assert read < 100


def test_a_file_whose_name_is_no_text_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("y,x\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^'.*': its name is not UTF-8: rename it") as caught:
        sources(tmp_path)
    assert str(caught.value).isascii()


def test_a_value_that_is_not_of_its_type_can_be_read_as_missing() -> None:
    texts = {
        "x": np.array(["1.5", "inf", "k", None], dtype=object),
        "g": np.array(["01", "1", "b", None], dtype=object),
        "w": np.array(["p", None, "q", "1"], dtype=object),
    }
    types: dict[str, Type] = {"x": "number", "g": "number", "w": "text"}
    found = readable(texts, types, {"g"})
    np.testing.assert_array_equal(found["x"], [1.5, np.nan, np.nan, np.nan])
    assert list(found["g"].categories) == ["1"]
    assert found["g"].codes.tolist() == [0, 0, -1, -1]
    assert found["w"].tolist() == ["p", None, "q", "1"]


def test_a_missing_value_is_at_no_level_and_an_unknown_one_is_refused() -> None:
    values = pd.Series(pd.Categorical(["b", None, "a"]))
    assert level_codes("g", values, ["a", "b"]).tolist() == [1, -1, 0]
    with pytest.raises(RowError, match="column g: b is none of its levels a") as caught:
        level_codes("g", values, ["a"])
    assert caught.value.public == "column g has 1 values that are none of the levels a"
    with pytest.raises(RowError, match="column g: a is none of its levels b"):
        level_codes("g", values, ["b"])


def test_a_group_is_read_as_what_was_asked_for_last() -> None:
    first, second = sources(FRAME.iloc[[0, 1]], group="site")
    assert first.take({"age": "number"})["age"].tolist() == [50.0]
    assert second.take({"age": "text"})["age"].tolist() == ["61"]


def test_a_client_of_a_list_has_its_own_decimal_mark(tmp_path: Path) -> None:
    for name, content in (("a", "x;y\n1.5;2\n"), ("b", "x;y\n2,5;2\n")):
        (tmp_path / f"{name}.csv").write_text(content)
    clients = '[clients.a]\npath = "a.csv"\ndecimal = "."\n[clients.b]\npath = "b.csv"\n'
    (tmp_path / "c.toml").write_text(f'{clients}[reading]\ndecimal = ","\n')
    a, b = sources(tmp_path / "c.toml")
    assert [*a.take({"x": "number"})["x"], *b.take({"x": "number"})["x"]] == [1.5, 2.5]
