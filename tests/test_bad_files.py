"""Files that would hang, fill the memory or end in a traceback: each is refused in one line."""

import gzip
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.channels.ray.ray_clients import read_cohort
from fedsplit.commands.app import run
from fedsplit.data.files import delimited
from fedsplit.data.files.delimited import Header
from fedsplit.data.sources import sources

DEEP = 20_000
LARGE = 1 << 26
"""Bytes that a small file unpacks to."""


def refused(capsys: pytest.CaptureFixture[str], path: Path, *parts: str) -> None:
    """Both Python and the command say what is wrong, in one line."""
    with pytest.raises(fs.InputError) as caught:
        fs.fit(path, "y ~ x")
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert "\n" not in message
    assert len(message) < 300 + len(str(path))
    for part in parts:
        assert part in message
    assert run(["fit", str(path), "--formula", "y ~ x"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for part in parts:
        assert part in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("x.jsonl", '{"y": 1, "x": ' + "[" * DEEP + "]" * DEEP + "}", "line 1: nested too deeply"),
        ("x.json", "[" * DEEP + "]" * DEEP, "the array: nested too deeply"),
        ("x.toml", "clients = " + "[" * DEEP + "]" * DEEP, "is not TOML"),
        ("x.toml", "[clients.a]\npath = " + "{a = " * DEEP, "is not TOML"),
        ("x.toml", "types." + "a." * DEEP + "a = 1", "a key of more than sixteen parts"),
        ("x.toml", "[clients." + "'a' . " * DEEP + "a]", "a key of more than sixteen parts"),
        ("x.toml", "#" * (1 << 23), "larger than 4 MB"),
    ],
)
def test_what_is_nested_or_long_beyond_use_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, part: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    refused(capsys, path, part)


def test_a_query_with_many_points_is_no_deep_key(tmp_path: Path) -> None:
    selected = ", ".join(f"t.a as a{i}" for i in range(40))
    (tmp_path / "x.toml").write_text(
        f'[clients.a]\nquery = """select {selected} from (select 1 as a) t"""\n'
    )
    [source] = sources(tmp_path / "x.toml")
    assert len(source.names()) == 40


@pytest.mark.parametrize("name", ["x.csv.gz", "x.jsonl.gz", "x.rds"])
def test_a_gzip_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"\n" if "json" in name else b"y,x\n")
        for _ in range(LARGE >> 20):
            file.write((b" " * 1023 + b"\n") * 1024 if "json" in name else b"0,0\n" * (1 << 18))
    assert path.stat().st_size < LARGE / 100
    refused(capsys, path, "unpacks to more than", "unpack it yourself")


def test_a_workbook_that_is_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.xlsx"
    openpyxl.Workbook().save(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet9.xml", " " * LARGE)
    refused(capsys, path, "unpacks to more than")


def test_arrays_that_are_a_bomb_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, A=np.zeros((LARGE // 80, 10)), b=np.zeros(LARGE // 80))
    with pytest.raises(fs.InputError, match=r"x\.npz: unpacks to more than") as caught:
        read_cohort(range(1), [str(path)], fs.LeastSquares(), 0.0)
    assert "\n" not in str(caught.value)


def test_a_parquet_file_that_is_damaged_anywhere_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.parquet"
    frame = pd.DataFrame({"y": np.arange(3000) % 7, "x": pd.Categorical(np.arange(3000) % 5)})
    frame.to_parquet(path)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for bad in (
        whole[:1000],
        whole[:-1],
        whole[: footer + 9] + b"\xff" * 40 + whole[footer + 49 :],
        whole[:-8] + b"\xff\xff\xff\x7fPAR1",
    ):
        path.write_bytes(bad)
        refused(capsys, path)


def test_a_folder_of_ten_thousand_files_is_hardly_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(10_000):
        (tmp_path / f"{i}.csv").touch()
    refused(capsys, tmp_path, "is 10,000 files", "which group names")


@pytest.mark.parametrize("how", ["appended to", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("y,x\n" + "1,2\n" * 100_000)
    original = delimited.rows_of

    def slowly(where: str, file: IO[str], header: Header) -> Iterator[Any]:
        for block in original(where, file, header):
            yield block
            if how == "appended to":
                with path.open("a") as more:
                    more.write("3,4\n")
            else:
                path.with_suffix(".new").write_text("y,x\n" + "5,6\n" * 100_000)
                path.with_suffix(".new").replace(path)

    monkeypatch.setattr(delimited, "rows_of", slowly)
    with pytest.raises(fs.InputError, match="was changed while it was read: wait until"):
        sources(path)[0].columns()


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    said: list[str] = []

    def ask() -> None:
        try:
            sources(tmp_path / "x.csv")[0].columns()
        except fs.InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)
    assert said == [f"{tmp_path / 'x.csv'}: is not a file"]
