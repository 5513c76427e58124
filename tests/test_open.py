"""What the paper leaves open, in small: every experiment computes, draws, and checks claims."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.paper import experiments
from fedsplit.paper.reproduction import reproduce, select
from open import OPEN

ROOT = Path(__file__).parents[1]

SMALL: dict[str, dict[str, object]] = {
    "open-fedavg": {
        "m": 2,
        "d": 2,
        "n": 20,
        "rounds": 12,
        "seeds": 2,
        "step": 0.01,
        "local_steps": 2,
        "many_local_steps": [1, 3],
        "batches": [5, 20],
        "steps": [0.005, 0.01],
    },
    "open-stochastic-prox": {
        "logistic": [3, 5, 100],
        "spiked": [3, 5, 40],
        "rounds": 30,
        "sgd_rounds": 4,
    },
    "open-privacy": {
        "spiked": [3, 4, 8],
        "logistic": [3, 3, 60],
        "kappas": [10.0],
        "rounds": 20,
        "seeds": 1,
        "kappa": 10.0,
        "shown": 5,
        "runs": 2,
        "many_rounds": [2, 4],
    },
    "open-second-order": {"logistic": [3, 5, 100], "spiked": [3, 5, 40], "rounds": 30},
    "open-async": {"m": 2, "d": 2, "n": 20, "kappa": 4.0, "seeds": 1, "rounds": 20},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_an_open_question_has_figures_data_and_claims(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = OPEN[name]
    small = replace(whole, settings=dict(whole.settings) | SMALL[name])
    monkeypatch.setitem(OPEN, name, small)
    reproduce([small], tmp_path, "")
    assert list(tmp_path.glob(f"{name}*.png"))
    assert list((tmp_path / "data" / name).glob("*.csv"))
    assert name in (tmp_path / "claims.json").read_text(encoding="utf-8")


def test_the_paper_itself_is_reproduced_by_default_and_open_questions_by_name() -> None:
    assert {each.name for each in select([])}.isdisjoint(OPEN)
    assert [each.name for each in select(["open"])] == list(OPEN)
    assert [each.name for each in select(["fig1", "open-fedavg"])] == ["fig1", "open-fedavg"]
    with pytest.raises(fs.InputError, match="figure 'open-what' is not known: use one of fig1"):
        select(["open-what"])


def test_a_process_finds_the_experiments_beside_its_sources(tmp_path: Path) -> None:
    # the pool of processes of a run has them by name alone, whatever its folder is
    code = "from fedsplit.paper.experiments import named; print(named('open-async').title)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Delays and stragglers\n"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if the package were not in a checkout; the folder that it is in."""
    module = tmp_path / "site-packages" / "fedsplit" / "paper" / "experiments.py"
    monkeypatch.setattr(experiments, "__file__", str(module))
    for name in [each for each in sys.modules if each.partition(".")[0] == "open"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_outside_of_a_checkout_one_line_says_where_the_experiments_are(
    installed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(installed)  # what lies beside an installed package is another project's
    (installed / "elsewhere").mkdir()
    monkeypatch.chdir(installed / "elsewhere")
    assert run(["reproduce", "open", "--out", "out"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "examples/open of fedsplit's repository: run this in a checkout" in said
    assert not Path("out").exists()


def test_the_current_folder_may_be_a_checkout(installed: Path) -> None:
    write_folder(installed)
    assert experiments.open_questions() == {}


def test_experiments_that_cannot_be_imported_are_not_half_imported(installed: Path) -> None:
    write_folder(installed, "import numpy\nOPEN = missing\n")
    with pytest.raises(NameError, match="missing"):
        experiments.open_questions()
    assert "open" not in sys.modules


def write_folder(folder: Path, text: str = "OPEN = {}\n") -> None:
    (folder / "examples" / "open").mkdir(parents=True)
    (folder / "examples" / "open" / "__init__.py").write_text(text)


def test_the_examples_use_public_names_alone() -> None:
    public = {"fedsplit", "fedsplit.local", "fedsplit.paper"}
    for path in (ROOT / "examples" / "open").glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]) and words[1].startswith("fedsplit"):
                assert words[1] in public, f"{path.name}: {line}"
