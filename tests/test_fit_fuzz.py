"""A thousand files that something happened to: never a stack trace, never a silent wrong answer."""

import gzip
import json
import random
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.cli import run
from fedsplit.silos.sources import sources
from tampering import mutated

FORMULA = "y ~ x + C(g)"
COLUMNS = ["y", "x", "g"]


def client(seed: int, n: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, g = rng.normal(0, 3, n).round(3), rng.choice(["red", "blue", "grün"], n)
    return pd.DataFrame({"y": (2 + x + (g == "red") + rng.normal(size=n)).round(3), "x": x, "g": g, "note": "a, b"})


def packed(frame: pd.DataFrame, path: Path) -> bytes:
    """A file's bytes, by its ending."""
    if path.suffix == ".parquet":
        with duckdb.connect() as connection:
            connection.register("frame", frame)
            connection.execute(f"copy frame to '{path}' (format parquet)")
        return path.read_bytes()
    text = frame.to_json(orient="records", lines=True) if ".jsonl" in path.name else frame.to_csv(index=False)
    return gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()


def pooled(paths: list[Path]) -> dict[str, float]:
    """The least squares fit of the rows that the files hold now, by NumPy."""
    frame = pd.concat([source.read(COLUMNS) for source in sources(paths)]).dropna()
    levels = sorted(frame.g.map(str).unique())
    A = np.column_stack([np.ones(len(frame)), frame.x, *(frame.g.map(str) == level for level in levels[1:])])
    names = ["Intercept", "x", *(f"C(g)[T.{level}]" for level in levels[1:])]
    return dict(zip(names, np.linalg.lstsq(A, frame.y.to_numpy(float), rcond=None)[0], strict=True))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
def test_a_file_that_was_tampered_with_is_refused_in_one_line_or_fitted_as_it_is(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(ending)
    paths = [tmp_path / f"site{j}.{ending if j == 1 else 'csv'}" for j in range(3)]
    whole = [packed(client(j), path) for j, path in enumerate(paths)]
    for path, content in zip(paths, whole, strict=True):
        path.write_bytes(content)
    outcomes = {0: 0, 1: 0, 2: 0}
    for _ in range(250):
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
    assert outcomes[2] > 20
    assert outcomes[0] > 0


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"y,x,g", b"y,x,g\n", b"PAR1", b"{}", b"\xff\xfe\x00", b"\n" * 5])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet", "json", "tsv"])
def test_files_with_nothing_in_them_are_refused(ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"site.{ending}"
    path.write_bytes(content)
    with pytest.raises(fs.InputError, match="site"):
        fs.fit(path, FORMULA)
