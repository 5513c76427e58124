"""The analysis of a study that is a regression: what travels, and which questions belong to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from fedsplit.channels.channel import Channel, Request
from fedsplit.channels.patience import Patience
from fedsplit.clients.question import Question
from fedsplit.data.formula.formula import Formula, quoted
from fedsplit.errors import InputError, RequestError, listed
from fedsplit.federation.study import Analysis, Study
from fedsplit.regression.client.design import Frame
from fedsplit.regression.client.plan import Coding, Plan, columns_of
from fedsplit.regression.client.questions import NoisySums, Survey
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.fit import asked_formula, fit_over
from fedsplit.regression.options import FitOptions, Regression, Settings
from fedsplit.regression.privacy import Privacy, privacy_of
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.table import pooled_summary
from fedsplit.regression.server.agreement import draft_of, with_declarations

AS_READ = "as read"
"""The type of a column that is not declared: sites say what they can read it as."""

Setting: TypeAlias = str | int | float | bool | Sequence[str] | Mapping[str, Any] | None

ELSEWHERE = ("columns", "decimal", "family", "method", "na", "secure", "seed", "types")
"""Settings of a fit that a study says elsewhere, or that sites need not know."""


@dataclass(frozen=True)
class RegressionStudy(Analysis):
    """One regression.

    Attributes
    ----------
    formula, family : str
        The formula names every column: ``.`` is not allowed in it.
    types : mapping of str to str
        Every column that is used, with its type, or ``AS_READ``. Those that are not in the model
        only decide which rows are complete.
    options : mapping
        Every other setting of the model, by name.
    """

    name: ClassVar[str] = "regression"

    formula: str
    family: str
    types: Mapping[str, str]
    options: Mapping[str, Setting]

    @classmethod
    def of(cls, options: Regression) -> RegressionStudy:
        """The analysis of a fit.

        Raises
        ------
        InputError
            If a formula leaves columns open, or types are declared of others than it uses.
        """
        formula = whole_formula(options)
        settings = options.settings
        extra = columns_of(settings.weights, settings.offset, settings.exposure)
        used = list(dict.fromkeys([*formula.columns, *extra, *settings.columns]))
        for column in settings.declared:
            if column not in used:
                raise InputError(
                    f"types: {column} is not in the model, which uses {listed(used, 12)}"
                )
        chosen: dict[str, Setting] = json.loads(json.dumps(asdict(settings)))
        return cls(
            formula=formula.text,
            family=settings.chosen_family.name,
            types={name: settings.declared.get(name, AS_READ) for name in used},
            options={name: chosen[name] for name in sorted(chosen) if name not in ELSEWHERE},
        )

    @property
    def columns(self) -> Mapping[str, str]:
        return self.types

    @property
    def extra(self) -> dict[str, str | None]:
        """The columns that are no part of the formula, by their use."""
        found = {use: self.options[use] for use in ("weights", "offset", "exposure")}
        return {use: each if isinstance(each, str) else None for use, each in found.items()}

    @property
    def used(self) -> set[str]:
        """The columns of the model; the others only decide which rows are complete."""
        return {*Formula(self.formula).columns, *columns_of(*self.extra.values())}

    @cached_property
    def privacy(self) -> Privacy | None:
        """What is promised of the noise; None if there is none."""
        return privacy_of(self.options["dp"])

    @property
    def usual(self) -> int:
        return 40 if self.privacy is None else self.privacy.rounds

    def fit_options(self, secure: bool, **chosen: Any) -> FitOptions:
        """What ``fit`` is called with."""
        options: dict[str, Any] = dict(self.options)
        return FitOptions(
            None,
            self.formula,
            family=self.family,
            types={name: kind for name, kind in self.types.items() if kind != AS_READ} or None,  # type: ignore[misc]  # checked by FitOptions
            columns=[name for name in self.types if name not in self.used],
            secure=secure,
            **{**options, "dp": self.privacy, **chosen},
        )

    def run(
        self,
        channel: Channel,
        secure: bool,
        patience: Patience | None = None,
        progress: Callable[[Any], object] | None = None,
        **chosen: Any,
    ) -> Model:
        options = self.fit_options(secure, patience=patience, progress=progress, **chosen)
        return fit_over(channel, options)

    def with_heads(self, result: Model, heads: Mapping[str, str]) -> Model:
        return replace(result, run=replace(result.run, logs=heads))

    def summary(self, result: Model) -> str:
        return pooled_summary(result)

    def check(self, study: Study) -> None:
        if self.family not in FAMILIES:
            raise InputError(f"the study has the unknown family {self.family[:40]!r}")
        names = {each.name for each in fields(Settings)} - set(ELSEWHERE)
        if set(self.options) != names:
            raise InputError("the study has other options than this fedsplit knows")
        if Formula(self.formula).open:
            raise InputError("the study's formula has a '.' in it: it has to name every column")
        if not self.used <= set(self.types):
            raise InputError(
                f"the study declares {listed(sorted(self.types))}, but its model uses "
                f"{listed(sorted(self.used))}"
            )
        try:
            options = self.fit_options(study.secure)
        except TypeError:
            raise InputError("the study has an option of the wrong type") from None
        if study.secure:
            formula, excluded = asked_formula(options)
            with_declarations(draft_of(formula, options.settings, excluded), options.settings)
        if self.options["dp"] is not None:
            self._check_private(study)

    def _check_private(self, study: Study) -> None:
        """Raise InputError for a study whose noise would protect nobody."""
        try:
            privacy = self.privacy
        except TypeError:
            raise InputError(
                "the study has a dp of other fields than this fedsplit knows"
            ) from None
        assert privacy is not None
        if json.loads(json.dumps(asdict(privacy))) != self.options["dp"]:
            raise InputError("the study has a dp of other fields than this fedsplit writes")
        formula = Formula(self.formula)
        if formula.pooled or formula.grouped is not None:
            raise InputError("dp: the formula has a function of all rows, or groups of trials")
        if AS_READ in self.types.values():
            raise InputError("dp: the study does not declare the types of all columns")
        if privacy.seed is not None:
            raise InputError("dp: noise from a seed gives no privacy: leave it out")
        if study.least < len(study.members):
            raise InputError("dp: every member is needed: leave out least")

    def check_request(self, study: Study, request: Request, answered: int) -> None:
        for question in request.parts:
            # each question has its own share of ε: the same one twice would spend more
            if isinstance(question, NoisySums) and question.number != answered + 1:
                raise RequestError(f"question {question.number} is not the next one with noise")
            self._check_question(study, question)

    def _check_question(self, study: Study, question: Question) -> None:
        if self.privacy is not None and not isinstance(question, NoisySums):
            raise RequestError(f"a study with noise has no question {question.name()}")
        if "modified_score" in question.titles and not self.options["firth"]:
            raise RequestError("the approved study has no question modified_score")
        coding = getattr(question, "coding", None)
        if coding is not None:
            self._check_coding(coding)
        if isinstance(question, Survey) and study.secure:
            declared: Any = self.options["levels"] or {}
            levels = {column: list(each) for column, each in question.coding.plan.levels.items()}
            _same("list of levels", all(levels[each] == declared.get(each) for each in levels))
        if isinstance(question, NoisySums):
            self._check_noise(study, question)
        frame = getattr(question, "frame", None)
        if frame is not None:
            self.check_frame(frame)

    def check_frame(self, frame: Frame) -> None:
        """Raise RequestError for coordinates of another model."""
        robust = FAMILIES[self.family].robust
        _same("deviation of the residuals", robust or frame.spread == 1.0)
        _same("ridge", bool(self.options["ridge"]) or not frame.ridge.any())

    def _check_coding(self, coding: Coding) -> None:
        plan = coding.plan
        texts = {self.formula}
        if self.options["intercept"] is False:
            texts.add(Formula(self.formula).without_intercept().text)
        _same("formula", plan.formula in texts)
        _same("family", plan.family == self.family)
        for name, value in plan.parameters.items():
            _same(name, value == self.options.get(name))
        for use, column in self.extra.items():
            _same(use, getattr(plan, use) == column)
        self._check_types(plan)
        _same("derived columns", not plan.derived)
        _same("columns", set(plan.others) == set(self.types) - self.used)

    def _check_types(self, plan: Plan) -> None:
        if plan.draft:
            declared = {name: kind for name, kind in self.types.items() if kind != AS_READ}
            _same("types", dict(plan.types) == declared)
            return
        _same("columns", set(plan.types) == set(self.types))
        for column, kind in self.types.items():
            _same(f"type of {column}", kind in (AS_READ, plan.types[column]))

    def _check_noise(self, study: Study, question: NoisySums) -> None:
        """Raise RequestError for less noise, or other bounds, than are declared."""
        privacy = self.privacy
        if privacy is None:
            raise RequestError("the approved study has no noise")
        _same("privacy", question.privacy == privacy)
        shares = max(1, len(study.members) - privacy.colluding) if study.secure else 1
        _same("share of the noise", question.shares == shares)
        plan = question.coding.plan
        declared: Any = self.options["levels"] or {}
        target = Formula(self.formula).target_column
        asked = {**plan.levels, **({str(target): plan.classes} if plan.classes else {})}
        same = (sorted(levels) == sorted(declared.get(each, ())) for each, levels in asked.items())
        _same("list of levels", all(same))
        _same("functions", not plan.state)


def whole_formula(options: Regression) -> Formula:
    """The formula of a fit, with every column named: no site sends names of columns by itself."""
    text = options.formula
    if text is None:
        text = f"{quoted([str(options.target)])} ~ ."
    formula = Formula(text)
    if not formula.open:
        return formula
    if not options.columns:
        raise InputError(
            "between organisations sites do not disclose the names of their columns: name the "
            "covariates in columns, or in the formula"
        )
    return asked_formula(options)[0]


def _same(what: str, holds: bool) -> None:
    if not holds:
        raise RequestError(f"the question differs from the approved study in its {what}")


ANALYSES: dict[str, type[Analysis]] = {RegressionStudy.name: RegressionStudy}
"""The analyses that a study can name."""
