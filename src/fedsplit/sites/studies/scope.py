"""What belongs to an approved study: a question of it, and what may be answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedsplit.clients.question import Question
from fedsplit.data.formula.formula import Formula
from fedsplit.data.types import ColumnProfile
from fedsplit.errors import RequestError
from fedsplit.regression.client.coding import Coding, Frame
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions import NoisySums
from fedsplit.regression.client.survey import Joint, Survey, SurveyAnswer
from fedsplit.regression.families import FAMILIES
from fedsplit.sites.studies.study import AS_READ, Study


def check_question(study: Study, question: Question) -> None:
    """Raise RequestError for a question that is not part of a study."""
    for name in question.titles:
        if name not in study.questions:
            raise RequestError(f"the approved study has no question {name}")
    coding = getattr(question, "coding", None)
    if coding is not None:
        check_coding(study, coding)
    if isinstance(question, Survey) and study.secure:
        declared: Any = study.options["levels"] or {}
        levels = {column: list(each) for column, each in question.coding.plan.levels.items()}
        _same("list of levels", all(levels[each] == declared.get(each) for each in levels))
    if isinstance(question, NoisySums):
        check_noise(study, question)
    frame = getattr(question, "frame", None)
    if frame is not None:
        check_frame(study, frame)


def check_coding(study: Study, coding: Coding) -> None:
    """Raise RequestError for rows of another model than a study's."""
    plan = coding.plan
    _same("formula", plan.formula in study.formulas)
    _same("family", plan.family == study.family)
    for name, value in plan.parameters.items():
        _same(name, value == study.options.get(name))
    for use, column in study.extra.items():
        _same(use, getattr(plan, use) == column)
    _check_types(study, plan)
    _same("derived columns", not plan.derived)
    _same("columns", set(plan.others) == set(study.columns) - study.used)


def check_noise(study: Study, question: NoisySums) -> None:
    """Raise RequestError for less noise, or other bounds, than a study has declared."""
    privacy = study.privacy
    if privacy is None:
        raise RequestError("the approved study has no noise")
    _same("privacy", question.privacy == privacy)
    shares = 1
    if study.secure:
        shares = max(1, len(study.members) - privacy.colluding)
    _same("share of the noise", question.shares == shares)
    plan = question.coding.plan
    declared: Any = study.options["levels"] or {}
    target = Formula(study.formula).target_column
    asked = {**plan.levels, **({str(target): plan.classes} if plan.classes else {})}
    listed = (sorted(levels) == sorted(declared.get(each, ())) for each, levels in asked.items())
    _same("list of levels", all(listed))
    _same("functions", not plan.state)


def check_categories(
    study: Study, question: Question, fits: Mapping[str, ColumnProfile | None]
) -> None:
    """Raise RequestError if values of numbers would be disclosed as levels of a category.

    The levels of a category are disclosed: of a column of numbers these are its values.

    Parameters
    ----------
    study : Study
    question : Question
    fits : mapping of str to ColumnProfile or None
        What the client's columns can be read as.
    """
    formula = Formula(study.formula)
    known = {*formula.categories, *(set(study.columns) - study.used)}
    if FAMILIES[study.family].classifies and formula.target_column is not None:
        known.add(formula.target_column)
    for column in _as_levels(question) - known:
        fit = fits.get(column)
        if fit is None or fit.empty or fit.category or study.columns[column] != AS_READ:
            continue
        if fit.type != "text" or fit.mostly_number:
            raise RequestError(f"column {column} is no category here: write C({column})")


def _as_levels(question: Question) -> set[str]:
    """The columns that a question takes for categories."""
    coding = getattr(question, "coding", None)
    if coding is None:
        return set()
    text = {name for name, kind in coding.plan.types.items() if kind == "text"}
    return {*coding.plan.categorical, *text}


def check_frame(study: Study, frame: Frame) -> None:
    """Raise RequestError for coordinates of another model than a study's."""
    robust = FAMILIES[study.family].robust
    _same("deviation of the residuals", robust or frame.spread == 1.0)
    _same("ridge", bool(study.options["ridge"]) or not frame.ridge.any())


def belonging(study: Study) -> Callable[[Coding, Frame], None]:
    """A check that what a client was prepared with before belongs to a study."""

    def check(coding: Coding, frame: Frame) -> None:
        check_coding(study, coding)
        check_frame(study, frame)

    return check


def narrowed(study: Study, question: Question, answer: Any) -> Any:
    """An answer without the names of columns that are not in a study."""
    if isinstance(question, Joint):
        parts = question.questions.items()
        return {name: narrowed(study, each, answer[name]) for name, each in parts}
    if not isinstance(question, Survey):
        return answer
    answers: list[SurveyAnswer] = answer
    return [
        each._replace(
            names=tuple(name for name in each.names if name in study.columns),
            profiles={name: own for name, own in each.profiles.items() if name in study.columns},
        )
        for each in answers
    ]


def _check_types(study: Study, plan: Plan) -> None:
    """Raise RequestError for columns, or types of columns, that are not those of a study."""
    if plan.draft:
        declared = {name: kind for name, kind in study.columns.items() if kind != AS_READ}
        _same("types", dict(plan.types) == declared)
        return
    _same("columns", set(plan.types) == set(study.columns))
    for column, kind in study.columns.items():
        _same(f"type of {column}", kind in (AS_READ, plan.types[column]))


def _same(what: str, holds: bool) -> None:
    if not holds:
        raise RequestError(f"the question differs from the approved study in its {what}")
