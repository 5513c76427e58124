"""A fit of a million rows stays small: the benchmark's own measurement, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("million")  # the rows are made once

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "fit.py"


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("million")
    subprocess.run(
        [sys.executable, BENCHMARK, "--make", folder], check=True, stdout=subprocess.DEVNULL
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_a_million_rows_of_fifty_columns_fit_in_four_gigabytes(million: Path, family: str) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--million", million, family],
        check=True,
        stdout=subprocess.PIPE,
    )
    assert json.loads(done.stdout)["peak"] < 4
