"""What the README says is what happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedsplit.commands.app import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MAKE = (ROOT / "Makefile").read_text()


def shown(before: str) -> list[str]:
    """The lines that the README shows after some words."""
    block = re.search(rf"{before}\n\n```text\n(.*?)```", README, re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def proof_at_rounding(line: str) -> str:
    """A line without the digits of a proof, which are those of rounding."""
    return re.sub(r"\d+e-\d+(?= of the| standard errors of)", "#", line)


def test_the_example_prints_what_the_readme_shows() -> None:
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert example is not None
    code, output = example.groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == output


def test_the_main_job_prints_the_table_that_the_readme_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = re.search(r"^run:.*?\n\t(.*?)\n\n", MAKE, re.DOTALL | re.MULTILINE)
    assert recipe is not None
    command = shlex.split(recipe.group(1).replace("\\\n", " "))
    monkeypatch.chdir(tmp_path)
    assert (
        run([argument.replace("examples/", f"{ROOT}/examples/") for argument in command[1:]]) == 0
    )
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [*map(proof_at_rounding, printed)] == [
        *map(proof_at_rounding, shown("`make run` prints"))
    ]


def test_compare_prints_the_table_that_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == shown("runs several methods on one random problem:")


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
