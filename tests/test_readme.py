"""What the README says is what happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedsplit.commands.app import run

ROOT = Path(__file__).parent.parent
MAKE = (ROOT / "Makefile").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def shown(page: str, before: str) -> list[str]:
    """The lines that a page of the documentation shows after some words."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = re.search(rf"{before}\n\n```text\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def proof_at_rounding(line: str) -> str:
    """A line without the digits of a proof, which are those of rounding."""
    return re.sub(r"\d+e-\d+(?= of the| standard errors of)", "#", line)


@pytest.mark.parametrize("page", ["README.md", "docs/solve.md"])
def test_the_example_prints_what_the_page_shows(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert example is not None
    code, output = example.groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == output


def test_the_main_job_prints_the_table_that_the_guide_shows(
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
        *map(proof_at_rounding, shown("fit.md", "`make run` prints"))
    ]


def test_compare_prints_the_table_that_the_guide_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == shown("solve.md", "runs several methods on one random problem:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_a_page_uses_exists(page: Path) -> None:
    import fedsplit as fs

    for dotted in set(re.findall(r"\bfs\.([A-Za-z0-9_.]+)", page.read_text(encoding="utf-8"))):
        target: object = fs
        for part in dotted.rstrip(".").split("."):
            target = getattr(target, part)


def test_every_public_name_has_a_docstring() -> None:
    import fedsplit as fs

    for name in fs.__all__:
        assert (getattr(fs, name).__doc__ or "").strip(), name
