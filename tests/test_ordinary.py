"""Ordinary analyses that strict sites answer, one after the other, and those that they refuse.

``python tests/test_ordinary.py`` prints the table of docs/guards.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
import real
from fedsplit.errors import InputError
from fedsplit.federation.coordinator import StudyResult
from fedsplit.regression.result.model import Model
from fedsplit.testing import Federation

REFUSED = "a rule of its owner, or its data, do not allow"
"""What the coordinator reads."""


OPEN: dict[str, Any] = {
    "secure_sums_only": False,
    "least_sites": 1,
    "questions": 200,
    "refusals_before_halt": 10**6,
}


class Analyst:
    """Strict sites that remember what they have answered, and who asks them for models."""

    def __init__(self, folder: Path, frames: Mapping[str, pd.DataFrame], columns: str) -> None:
        self.frames = {name.replace(" ", ""): frame for name, frame in frames.items()}
        self.federation = Federation(folder, self.frames, **OPEN)
        self.coordinator = self.federation.coordinator(self.federation.direct())
        self.columns = columns.split()
        self.studies = 0

    def fit(self, analysis: Analysis) -> Model:
        self.studies += 1
        study = self.federation.regression(
            analysis.formula,
            title=f"study {self.studies}",
            questions=200,
            secure=False,
            family=analysis.family,
            columns=self.columns,
            **analysis.options,
        )
        found = self.coordinator.run(study)
        assert isinstance(found, StudyResult)
        model: Model = found.result
        return model

    def why(self) -> str:
        """What the owners see of what was refused."""
        logs = [self.federation.site(name).record.log() for name in self.federation.names]
        return " ".join(each.detail for log in logs for each in log if each.event == "refused")


@dataclass(frozen=True)
class Analysis:
    """A model that somebody would ask for.

    Attributes
    ----------
    formula, family : str
    options : mapping
        Further options of ``fit``.
    refused : str
        What an owner sees if it is refused; empty if it is answered.
    reason : str
        Why it is, in the table.
    """

    formula: str
    family: str = "gaussian"
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    reason: str = ""


RAND_COLUMNS = (
    "mdvis logc idp lpi fmde linc xage female child black educdec physlm disea health plan visited"
)
TABLE = "mdvis ~ logc + idp + fmde + linc + xage + female + educdec + physlm + disea"
RAND = [
    Analysis(TABLE, "poisson"),
    Analysis("mdvis ~ logc + disea", "poisson"),  # docs/fit.md
    Analysis("mdvis ~ logc + idp + disea", "poisson"),  # docs/deploy.md
    Analysis("mdvis ~ xage + female + child", "poisson"),
    Analysis("mdvis ~ female * xage + linc", "poisson"),
    Analysis("mdvis ~ C(plan) + linc + xage", "poisson"),
    Analysis("mdvis ~ poly(xage, 2) + female + linc", "poisson"),
    Analysis("mdvis ~ ns(xage, 4) + female", "poisson"),
    Analysis("mdvis ~ cut(xage, c(-Inf, 18, 40, Inf)) + female", "poisson"),
    Analysis("{mdvis > 0} ~ linc + xage + female + C(health)", "logistic"),
    Analysis("{mdvis > 10} ~ linc + xage + female", "logistic"),
    Analysis("visited ~ logc + linc + disea", "logistic", {"firth": True}),
    Analysis("linc ~ xage + female + black + educdec"),
    Analysis("linc ~ xage + I(xage**2) + female + educdec"),
    Analysis("I(log(mdvis + 1)) ~ linc + disea + C(health)"),
    Analysis("lpi ~ logc + linc + xage + female"),
    Analysis("disea ~ xage + female + linc + black"),
    Analysis("educdec ~ linc + lpi + female"),
    Analysis("linc ~ xage + female + educdec", "huber"),
    Analysis("I(mdvis + 1) ~ logc + linc + disea", "gamma"),
    Analysis("mdvis ~ logc + linc + xage + disea", "poisson", {"ridge": 1.0}),
    Analysis(TABLE, "poisson", {"l1": 5.0}),
    Analysis("health ~ xage + linc + disea", "multinomial"),
    Analysis(f"{TABLE} + C(health)", "poisson"),  # the table of the README
    Analysis("{mdvis > 0} ~ logc + linc + xage + female + C(health)", "logistic"),
    Analysis("I(log(mdvis + 1)) ~ logc + linc + disea + C(health)"),
    Analysis("mdvis ~ cut(xage, c(0, 18, 40, 64)) + female", "poisson"),
    Analysis(
        "mdvis ~ C(health) * C(plan) * female",
        "poisson",
        {},
        "fewer than 3 rows of a kind",
        "an interaction of three is that of one or two rows at four sites: their leverage is 1",
    ),
]
DIABETES_COLUMNS = "target high score age sex bmi bp s1 s2 s3 s4 s5 s6"
DIABETES = [
    Analysis("target ~ bmi + bp + s5"),
    Analysis("target ~ age + C(sex) + bmi", options={"ridge": 1.0}),
    Analysis("target ~ poly(bmi, 2) + age"),
    Analysis("high ~ bmi + bp", "logistic"),
    Analysis("score ~ bmi + bp", "gamma"),
    Analysis("target ~ bmi + bp + age", "huber", {"delta": 1.5}),
    Analysis(
        "target ~ age + sex + bmi + bp + s1 + s2 + s3 + s4 + s5 + s6",
        "gaussian",
        {},
        "has 32 rows for 11 parameters",
        "a site has 32 rows for 11 parameters, more than a third",
    ),
]


def randhie(folder: Path) -> Analyst:
    return Analyst(folder, real.randhie(), RAND_COLUMNS)


def diabetes(folder: Path) -> Analyst:
    return Analyst(folder, real.diabetes(), DIABETES_COLUMNS)


def check(analyst: Analyst, analyses: Sequence[Analysis]) -> list[Model]:
    """Every analysis is answered, or refused for its reason; the models of the former."""
    models = []
    for analysis in analyses:
        if analysis.refused:
            with pytest.raises(InputError, match=REFUSED):
                analyst.fit(analysis)
            why = analyst.why()
            assert any(words in why for words in analysis.refused.split("|"))
            continue
        model = analyst.fit(analysis)
        assert model.converged, analysis.formula
        models.append(model)
    return models


def test_models_of_the_diabetes_data_are_answered_one_after_the_other(tmp_path: Path) -> None:
    analyst = diabetes(tmp_path)
    models = check(analyst, DIABETES)
    answered = [analysis for analysis in DIABETES if not analysis.refused]
    for model, analysis in zip(models, answered, strict=True):
        here = fs.fit(
            analyst.frames,
            analysis.formula,
            family=analysis.family,
            columns=analyst.columns,
            strict=True,
            **analysis.options,
        )
        assert np.array_equal(model.params, here.params), analysis.formula


@pytest.mark.slow
def test_models_of_the_rand_data_are_answered_one_after_the_other(tmp_path: Path) -> None:
    assert sum(not analysis.refused for analysis in RAND) >= 20
    check(randhie(tmp_path), RAND)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["poisson", "gaussian"])
def test_rounded_sums_cost_a_strict_fit_less_than_its_certificate_allows(family: str) -> None:
    plain = fs.fit(real.EXAMPLES / "randhie", TABLE, family=family)
    strict = fs.fit(real.EXAMPLES / "randhie", TABLE, family=family, strict=True)
    assert strict.converged
    assert plain.bse is not None
    assert np.abs((plain.params - strict.params) / plain.bse).max() < 1e-8
    # where a client would rather be, it does not tell under rules
    assert strict.rounds <= plain.rounds + 1


@pytest.mark.slow
@pytest.mark.skipif(not real.FLIGHTS.exists(), reason="make data downloads the flights")
def test_models_of_the_flights_are_answered() -> None:
    carriers = [path for path in sorted(real.FLIGHTS.glob("*.csv")) if path.stem != "OO"]
    assert fs.fit(carriers, "late ~ hour + month", family="logistic", strict=True).converged
    assert fs.fit(carriers, "distance ~ hour + month", strict=True).converged


def table() -> list[str]:
    """The lines of the table in docs/guards.md."""
    lines = ["| data | model | family | strict sites | why |", "| --- | --- | --- | --- | --- |"]
    for title, make, analyses in (
        ("RAND", randhie, RAND),
        ("diabetes", diabetes, DIABETES),
    ):
        with tempfile.TemporaryDirectory() as name:
            analyst = make(Path(name))
            for analysis in analyses:
                told = "answer"
                try:
                    analyst.fit(analysis)
                except InputError:
                    told = "refuse"
                assert (told == "refuse") == bool(analysis.refused)
                options = "".join(f", {k} = {v:g}" for k, v in analysis.options.items())
                what = f"`{analysis.formula}`{options}"
                lines.append(
                    f"| {title} | {what} | {analysis.family} | {told} | {analysis.reason} |"
                )
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
