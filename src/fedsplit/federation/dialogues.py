"""An analysis of a study that is a dialogue: a new one is its dialogue and its parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsplit.channels.channel import Channel, Request
from fedsplit.channels.patience import Patience
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError, RequestError, listed
from fedsplit.federation.study import Analysis, Study
from fedsplit.regression.analysis import Analysis as Dialogues
from fedsplit.regression.analysis import analyse_over
from fedsplit.regression.client.plan import BasicPlan, Plan
from fedsplit.regression.options import Settings


@dataclass(frozen=True, kw_only=True)
class DialogueAnalysis(Analysis):
    """A dialogue about the rows of plans; its parameters are the other fields.

    Attributes
    ----------
    types : mapping of str to str
        Every column that is used, with its type.
    levels : mapping of str to sequence of str
        Those of categories; in a secure study all are declared.
    """

    types: Mapping[str, str]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @abstractmethod
    def dialogue(self) -> Dialogues[Any]:
        """What ``analyse`` takes."""

    @property
    @abstractmethod
    def models(self) -> Mapping[str, str]:
        """The formulas that it asks about, without dots, each with its family."""

    @property
    def extra(self) -> Sequence[str]:
        """What its models may have as weights, offset or exposure."""
        return ()

    @property
    def columns(self) -> Mapping[str, str]:
        return self.types

    def run(
        self,
        channel: Channel,
        secure: bool,
        patience: Patience | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Any:
        settings = Settings(types=self.types, levels=self.levels, secure=secure)  # type: ignore[arg-type]  # checked by Settings
        return analyse_over(channel, self.dialogue(), settings, patience)

    def check(self, study: Study) -> None:
        used = {column for each in self.models for column in Formula(each).columns}
        if any(Formula(each).open for each in self.models):
            raise InputError("the study's formula has a '.' in it: it has to name every column")
        if not used <= set(self.types):
            raise InputError(
                f"the study declares {listed(sorted(self.types))}, but its models use "
                f"{listed(sorted(used))}"
            )

    def check_request(self, study: Study, request: Request, answered: int) -> None:
        for question in request.parts:
            coding = getattr(question, "coding", None)
            if coding is not None:
                self._check_plan(coding.plan)

    def _check_plan(self, plan: BasicPlan) -> None:
        """Raise RequestError for rows of another model than those of the dialogue."""
        derived = plan.derived if isinstance(plan, Plan) else {}
        for each in derived.values():
            self._check_plan(each.plan)
        same = {
            "formula": plan.formula in self.models,
            "family": self.models.get(plan.formula) == plan.family,
            "columns": {*plan.types, *plan.others} <= {*self.types, *derived},
            "types": all(self.types.get(name, kind) == kind for name, kind in plan.types.items()),
            "weights": {*plan.extra} <= {*self.extra},
        }
        for what, holds in same.items():
            if not holds:
                raise RequestError(f"the question differs from the approved study in its {what}")
