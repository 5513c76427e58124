"""Analyses of one file each as studies: by every transport, open and secure, broken off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import analyses
from analyses import ANALYSES
from analyses.cox import Cox
from analyses.robust import Robust, robust
from carried import CARRIERS, broken_off, carried, replayed
from fedsplit.errors import InputError
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.regression.analysis import analyse
from fedsplit.testing import Federation
from test_analyses import assert_close, trials

EVERY = pytest.mark.parametrize("name", ANALYSES)
BOTH = pytest.mark.parametrize("secure", [False, True], ids=["open", "secure"])


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    with analyses.entered():
        yield


def made(folder: Path, name: str, **policy: Any) -> Federation:
    """The sites of ``trials``, strict where the analysis is one of sums."""
    own = {"secure_sums_only": False, "rules": "refuse" if ANALYSES[name].sums else "warn"}
    return Federation(folder, trials(), seed=1, **{**own, **policy})


def result(folder: Path, name: str, secure: bool, how: str = "direct") -> pd.DataFrame:
    federation = made(folder, name)
    found: pd.DataFrame = carried(
        federation, federation.study(ANALYSES[name].study, secure=secure), how
    ).result
    return found


def assert_same_bits(ours: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(ours, other, check_exact=True)
    assert ours.attrs == other.attrs


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(
            name,
            how,
            marks=[
                *[pytest.mark.slow] * (how in ("https", "ray") and name != "weighted"),
                *[pytest.mark.xdist_group("ray")] * (how == "ray"),
            ],
        )
        for name in ANALYSES
        for how in CARRIERS[1:]
    ],
)
@BOTH
def test_an_analysis_has_the_same_bits_by_every_transport(
    tmp_path: Path, name: str, secure: bool, how: str
) -> None:
    first = result(tmp_path / "direct", name, secure)
    assert_same_bits(first, result(tmp_path / how, name, secure, how))


@EVERY
def test_an_open_analysis_and_a_secure_one_are_that_of_this_process(
    tmp_path: Path, name: str
) -> None:
    ours, added = (result(tmp_path / str(secure), name, secure) for secure in (False, True))
    assert_close(ours, added, rtol=1e-10)
    assert_close(ours, analyse(ANALYSES[name].analysis, trials()), rtol=1e-9)
    if "se" in ours:
        assert (np.abs(ours["coef"] - added["coef"]) / ours["se"]).max() < 1e-9


@EVERY
@BOTH
@pytest.mark.parametrize(
    "how",
    ["direct", *(pytest.param(each, marks=pytest.mark.slow) for each in CARRIERS[1:])],
)
def test_an_analysis_that_is_broken_off_after_every_exchange_has_the_same_bits(
    tmp_path: Path, name: str, secure: bool, how: str
) -> None:
    federation = made(tmp_path / "broken", name)
    study = federation.study(ANALYSES[name].study, secure=secure)
    found = broken_off(federation, study, how)
    assert_same_bits(found.result, result(tmp_path / "whole", name, secure))
    assert_same_bits(found.result, replayed(federation, study).result)
    for each in federation.names:
        assert federation.site(each).record.count("answer") == found.questions


def test_an_analysis_whose_answers_are_no_sums_over_rows_is_refused_by_a_strict_site(
    tmp_path: Path,
) -> None:
    federation = made(tmp_path, "cox", rules="refuse")
    study = federation.study(ANALYSES["cox"].study, secure=False)
    with pytest.raises(InputError, match="its cost is no sum over its rows"):
        federation.run(study)


class Other(Robust):
    """What a coordinator asks in place of the approved analysis."""

    asks: Mapping[str, Any] = {}

    def dialogue(self) -> Any:
        return robust(**{"formula": self.formula, **self.asks})


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        ({"formula": "y ~ a + b"}, "formula"),
        ({"formula": "y ~ a + sex"}, "formula"),
        ({"family": "huber"}, "family"),
        ({"weights": "visits"}, "weights"),
        ({"offset": "visits"}, "weights"),
        ({"columns": ("altitude",)}, "columns"),
        ({"types": {"t": "text"}}, "types"),
    ],
)
def test_in_an_open_study_nothing_else_is_answered(
    tmp_path: Path, asks: Mapping[str, Any], why: str
) -> None:
    federation = made(tmp_path, "robust")
    types = dict.fromkeys(["y", "a", "b", "t", "visits"], "number")
    honest = Robust(formula="y ~ a + b + t", types=types)
    assert carried(federation, federation.study(honest, secure=False), "direct")
    other = Other(formula="y ~ a + b + t", types=types)
    object.__setattr__(other, "asks", asks)
    study = federation.study(other, secure=False, title="another")
    with pytest.raises(InputError, match=f"differs from the approved study in its {why}"):
        federation.run(study)


def test_in_a_secure_study_nothing_else_is_answered(tmp_path: Path) -> None:
    federation = made(tmp_path, "robust")
    types = dict.fromkeys(["y", "a", "b", "t"], "number")
    other = Other(formula="y ~ a + b + t", types=types)
    # its meat is that of another correction
    object.__setattr__(other, "asks", {"correction": "HC3"})
    with pytest.raises(InputError, match="the analysis of the study asks another question here"):
        federation.run(federation.study(other))


@pytest.mark.parametrize(
    ("study", "why"),
    [
        (Cox(formula="Surv(time, died) ~ a", types={"a": "number"}), r"declares a, .* use a, died"),
        (Robust(formula="y ~ .", types={"y": "number"}), "has to name every column"),
    ],
)
def test_a_study_that_does_not_declare_what_it_uses_is_none(
    tmp_path: Path, study: DialogueAnalysis, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        made(tmp_path, "robust").study(study)
