"""What the README and the guides say is what happens: every block of code in them runs."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pytest
import typer

from fedsplit.commands.app import app, run

ROOT = Path(__file__).parent.parent
MAKE = (ROOT / "Makefile").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """How the headings of a page are linked to."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")],
    ids=lambda page: page.name,
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", page.read_text("utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor[1:] in anchors(target), anchor


class Block(NamedTuple):
    """A block of code in a page."""

    page: str
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    for language, text in found:
        yield Block(page.name, language, text)


EVERY = [block for page in PAGES for block in blocks(page)]
EXAMPLES = ["README.md", "docs/solve.md"]
"""The pages that begin with a short example, and show what their Python prints."""

PYTHON = [
    page
    for page in PAGES
    if sum(each.language == "python" for each in blocks(page)) > (page.name == "README.md")
]
"""The pages with Python beside the example of the README, which has a test of its own."""

SLOW = "folds="
"""A page whose Python has this in it takes a minute: cross-validation of a whole path."""

COMMANDS = [
    shlex.split(line, comments=True)
    for block in EVERY
    if block.language in ("sh", "bash", "console")
    for line in block.text.replace("\\\n", " ").splitlines()
    if line.strip()
]

NOT_RUN = {
    "pip install .": "installs; .ci/run does the same",
    "make test": "runs these tests",
    "make run": "test_the_main_job_prints_the_table_that_the_guide_shows runs its recipe",
    "pip wheel": "needs a network; .ci/run installs the package",
    "pip install --no-index": "needs the wheels",
    "docker": "needs a builder",
    "sudo": "changes the machine",
}
"""Commands of the pages that no test here runs, by how they begin, and why."""

BETWEEN = ("keys", "study", "site")
"""Nouns of the commands between organisations, which tests/test_examples.py runs as a whole."""


def shown(page: str, before: str) -> list[str]:
    """The lines that a page of the documentation shows after some words."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = re.search(rf"{before}\n\n```text\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def proof_at_rounding(line: str) -> str:
    """A line without the digits of a proof, which are those of rounding."""
    return re.sub(r"\d+e-\d+(?= of the| standard errors)", "#", line)


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_print_what_the_page_shows(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown_after = re.findall(r"```python\n([^`]*)```\n(?:\n```text\n(.*?)```)?", text, re.DOTALL)
    first, _ = shown_after[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code for code, _ in shown_after)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout == "".join(output for _, output in shown_after)


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


def code(page: Path) -> str:
    """The Python of a page, as a reader runs it from top to bottom."""
    return "\n".join(each.text for each in blocks(page) if each.language == "python")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (SLOW in code(page)), id=page.name)
        for page in PYTHON
    ],
)
def test_the_python_of_every_page_runs(page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code(page)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the commands of the guides name, in the folder where they run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    sites = ("site_a", "site_b", "site_c", "data/a", "data/b", "boston", "seattle", "bonn", "all")
    for name in sites:
        n = 60
        frame = pd.DataFrame(
            {
                "visits": rng.poisson(3.0, n),
                "age": rng.integers(20, 80, n),
                "plan": rng.integers(1, 4, n),
                "income": rng.normal(size=n),
                "y": rng.normal(size=n),
                "x": rng.normal(size=n),
                "year": 2015,
                "hospital": rng.choice(["north", "south"], n),
                "ward": rng.choice(["1", "2A"], n),
            }
        )
        style = {"sep": ";", "decimal": ","} if name == "bonn" else {}  # as clients.toml says
        if name == "bonn":
            frame = frame.rename(columns={"age": "alter"})
        frame.to_csv(f"{name}.csv", index=False, **style)
        copy = f"copy (select * from read_csv('{name}.csv')) to '{name}.parquet'"
        if name in ("seattle", "all"):
            duckdb.sql(copy)
    lists = [each.text for each in EVERY if each.language == "toml"]
    [clients] = [text for text in lists if "[clients." in text]
    (tmp_path / "clients.toml").write_text(clients)
    [model] = [text for text in lists if text.startswith("[model]")]
    (tmp_path / "model.toml").write_text(model)


def expanded(words: list[str]) -> list[str]:
    """The words of a command after the shell has replaced the patterns."""
    found: list[str] = []
    for word in words:
        matching = sorted(str(path) for path in Path().glob(word)) if "*" in word else []
        found += matching or [word]
    return found


@pytest.mark.parametrize(
    "words",
    [words for words in COMMANDS if words[0] == "fedsplit"],
    ids=lambda words: " ".join(words[1:4]),
)
def test_every_command_of_the_pages_runs_or_is_parsed(
    words: list[str], files: None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, name, *_ = words
    command: Any = typer.main.get_command(app)
    context = typer.Context(command)
    _, found, rest = command.resolve_command(context, words[1:])
    if name in BETWEEN:
        name, found, rest = found.resolve_command(typer.Context(found), rest)
        found.make_context(name, list(rest))  # raises for an option that does not exist
    else:
        assert run(expanded(words[1:])) == 0, capsys.readouterr().err


def test_a_command_that_is_not_run_has_a_reason() -> None:
    others = [" ".join(words) for words in COMMANDS if words[0] != "fedsplit"]
    for line in others:
        assert any(line.startswith(each) for each in NOT_RUN), line
    for beginning in NOT_RUN:
        assert any(line.startswith(beginning) for line in others), beginning


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=str)
def test_every_make_target_that_a_page_names_is_there(page: Path) -> None:
    targets = re.findall(r"^make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", MAKE, re.MULTILINE), target
