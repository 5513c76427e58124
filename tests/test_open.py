"""What the paper leaves open, in small: every experiment computes, draws, and checks claims."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedsplit.paper import experiments
from fedsplit.paper.experiments import OPEN
from fedsplit.paper.reproduction import reproduce, select

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
    monkeypatch.setitem(experiments.OPEN, name, small)
    reproduce([small], tmp_path, "")
    assert list(tmp_path.glob(f"{name}*.png"))
    assert list((tmp_path / "data" / name).glob("*.csv"))
    assert name in (tmp_path / "claims.json").read_text(encoding="utf-8")


def test_the_paper_itself_is_reproduced_by_default_and_open_questions_by_name() -> None:
    assert {each.name for each in select([])}.isdisjoint(OPEN)
    assert [each.name for each in select(["open"])] == list(OPEN)
    assert [each.name for each in select(["fig1", "open-fedavg"])] == ["fig1", "open-fedavg"]
