"""Damaged files, a thousand in the slow run: no stack trace, and no silent wrong answer."""

import csv
import gzip
import io
import json
import random
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.data.sources import sources
from fedsplit.data.types import MISSING
from tampering import mutated

FORMULA = "y ~ x + C(g)"
COLUMNS = ["y", "x", "g"]


def client(seed: int, n: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, g = rng.normal(0, 3, n).round(3), rng.choice(["red", "blue", "grün"], n)
    return pd.DataFrame(
        {"y": (2 + x + (g == "red") + rng.normal(size=n)).round(3), "x": x, "g": g, "note": "a, b"}
    )


def packed(frame: pd.DataFrame, path: Path) -> bytes:
    """A file's bytes, by its ending."""
    if path.suffix == ".parquet":
        with duckdb.connect() as connection:
            connection.register("frame", frame)
            connection.execute(f"copy frame to '{path}' (format parquet)")
        return path.read_bytes()
    text = (
        frame.to_json(orient="records", lines=True)
        if ".jsonl" in path.name
        else frame.to_csv(index=False)
    )
    return gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a file as text, by Python's own readers; of Parquet, by the reader under test."""
    if path.suffix == ".parquet":
        [source] = sources(path)
        return [
            {str(key): text(value) for key, value in row.items()}
            for row in source.read({"y": "number", "x": "number", "g": "text"}).to_dict("records")
        ]
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = content.decode("utf-8-sig")
    if ".jsonl" in path.name:
        told = [json.loads(line) for line in lines.split("\n") if line.strip()]
        return [{key: text(row.get(key)) for key in COLUMNS} for row in told]
    names, *values = csv.reader(io.StringIO(lines, newline=""), strict=True)
    return [dict(zip(map(str.strip, names), row, strict=True)) for row in values]


def text(value: object) -> str:
    return "" if value is None or value != value else str(value)


def pooled(paths: list[Path]) -> dict[str, float]:
    """The least squares fit of the complete rows that the files hold now, by NumPy."""
    rows = [[row[column].strip() for column in COLUMNS] for path in paths for row in rows_of(path)]
    kept = [row for row in rows if not any(value in MISSING for value in row)]
    y, x = (np.array([float(row[k]) for row in kept]) for k in (0, 1))
    levels = sorted({row[2] for row in kept})
    A = np.column_stack(
        [
            np.ones(len(kept)),
            x,
            *(np.array([row[2] == level for row in kept]) for level in levels[1:]),
        ]
    )
    names = ["Intercept", "x", *(f"C(g)[T.{level}]" for level in levels[1:])]
    sizes = np.linalg.norm(A, axis=0)
    return dict(zip(names, np.linalg.lstsq(A / sizes, y, rcond=None)[0] / sizes, strict=True))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
@pytest.mark.parametrize("trials", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_a_file_that_was_tampered_with_is_refused_in_one_line_or_fitted_as_it_is(
    ending: str, trials: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(f"{ending} {trials}")
    paths = [tmp_path / f"site{j}.{ending if j == 1 else 'csv'}" for j in range(3)]
    whole = [packed(client(j), path) for j, path in enumerate(paths)]
    for path, content in zip(paths, whole, strict=True):
        path.write_bytes(content)
    outcomes = {0: 0, 1: 0, 2: 0}
    for _ in range(trials):
        paths[1].write_bytes(mutated(whole[1], rng))
        status = run(["fit", *map(str, paths), "--formula", FORMULA, "--json"])
        out, err = capsys.readouterr()
        outcomes[status] += 1
        if status == 2:
            assert out == ""
            assert err.startswith("fedsplit: error: ")
            assert err.count("\n") == 1
            assert len(err) < 500
            continue
        coef, expected = json.loads(out)["coef"], pooled(paths)
        assert set(coef) == set(expected)
        size = max(abs(value) for value in expected.values())
        for name, value in expected.items():
            assert coef[name] == pytest.approx(value, rel=1e-6, abs=1e-6 * size)
    assert outcomes[2] > trials // 12
    assert outcomes[0] > 0 or ending == "csv.gz"  # which has a checksum


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0", b"y,x,g", b"y,x,g\n", b"PAR1", b"{}", b"\xff\xfe\x00", b"\n" * 5]
)
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet", "json", "tsv"])
def test_files_with_nothing_in_them_are_refused(
    ending: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"site.{ending}"
    path.write_bytes(content)
    with pytest.raises(fs.InputError, match="site"):
        fs.fit(path, FORMULA)


WORDS = [
    *("fit", "compare", "report", "keys", "study", "--help", "--json", "--version"),
    *("--formula", "--family", "--types", "--levels", "--set", "--ridge", "--tol", "--columns"),
    *("--reference", "--method", "--rounds", "--engine", "--out", "--resume", "--group", "--na"),
    *(
        "y ~ x",
        "y ~",
        "y ~ C(g)",
        "{y > 1} ~ x",
        "g=red|blue",
        "g=text",
        "x=",
        "=",
        "",
        "-1",
        "1e400",
    ),
    *(
        "nan",
        "0",
        "12",
        "poisson",
        "huber:delta=-1",
        "newton",
        "ray",
        "no/such",
        "a.toml",
        "site.csv",
    ),
    *(
        "dp.epsilon=1",
        "dp=1",
        "dp.=",
        "rounds=10",
        "na=.,-9",
        "firth=yes",
        "levels=g=a|b",
        "x" * 300,
    ),
    *("\0", "\n", "\x1b[31m", "grün", "\u202e", "--", "-", "*", "..", "init", "new", "list"),
]


@pytest.mark.parametrize("trials", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_words_in_any_order_end_in_a_status_and_at_most_one_line_of_error(
    trials: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    client(0).to_csv("site.csv", index=False)
    Path("a.toml").write_text("[model]\nformula = 'y ~ x'\n")
    rng = random.Random(trials)
    for _ in range(trials):
        start = rng.choice([["fit", "site.csv", "--formula", "y ~ x"], ["fit", "site.csv"], []])
        words = [*start, *rng.choices(WORDS, k=rng.randint(1, 4))]
        status = run(words)
        out, err = capsys.readouterr()
        assert status in (0, 1, 2), words
        assert "a fault of fedsplit" not in err, words
        assert len(out.splitlines()) > 0 or status == 2, words
        errors = [line for line in err.splitlines() if line.startswith("fedsplit: error: ")]
        assert len(errors) == (status == 2), words
        assert "\x1b" not in err, words
