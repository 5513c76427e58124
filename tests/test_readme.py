"""What the README says is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedsplit.cli import run

README = (Path(__file__).parent.parent / "README.md").read_text()
TABLE = re.search(r"`make run` prints\n\n```text\n(.*?)```", README, re.DOTALL)


def test_the_example_prints_what_the_readme_shows() -> None:
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert example is not None
    code, shown = example.groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == shown


def test_the_main_job_prints_the_table_that_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert TABLE is not None
    assert run(["compare"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == TABLE.group(1).splitlines()


def test_every_name_that_the_readme_uses_exists() -> None:
    import fedsplit as fs

    for dotted in set(re.findall(r"fs\.([A-Za-z0-9_.]+)", README)):
        target: object = fs
        for part in dotted.rstrip(".").split("."):
            target = getattr(target, part)


def test_every_public_name_has_a_docstring() -> None:
    import fedsplit as fs

    for name in fs.__all__:
        assert (getattr(fs, name).__doc__ or "").strip(), name
