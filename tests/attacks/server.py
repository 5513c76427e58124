"""What a malicious server can do to a real site, and how an attack is described."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from asked import Anything, AskedSite
from fedsplit.arrays import Array
from fedsplit.channels.channel import Request
from fedsplit.clients.question import Question
from fedsplit.data.types import Type
from fedsplit.federation.site.disclosed import Known
from fedsplit.federation.site.record import StudyState
from fedsplit.federation.site.rows import StudyRows
from fedsplit.federation.site.site import Site
from fedsplit.regression.client.design import Frame, Moments, Scaling, key_of
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.client.questions import Settle
from fedsplit.regression.families.numbers import HuberFamily
from sum_questions import ask_moments, moments_in

Keys: TypeAlias = Mapping[str, Any]
"""Keys of a site's policy."""

STRICT: Keys = {"refusals_before_halt": 3}
WARN: Keys = {"rules": "warn"}
TALKATIVE: Keys = {}

NAME = "clinic"
ROWS = 200
TYPES: dict[str, Type] = {
    "age": "number",
    "income": "number",
    "bmi": "number",
    "visits": "number",
    "ill": "number",
    "ward": "text",
}
WARDS = ["north", "south", "west"]


class Refused(Exception):
    """The site gave no answer."""


def patients(few: int) -> pd.DataFrame:
    """Rows of a clinic; ``few`` of them have no bmi, and they are the oldest."""
    rng = np.random.default_rng(11)
    age = np.sort(rng.uniform(20, 80, ROWS).round(3))
    income = np.exp(rng.normal(7.0, 0.5, ROWS)).round(2)
    frame = pd.DataFrame({"age": age, "income": income, "bmi": rng.normal(25, 3, ROWS).round(2)})
    frame["visits"] = rng.poisson(2.0, ROWS) + 1
    frame["ill"] = rng.integers(0, 2, ROWS)
    frame["ward"] = rng.choice(WARDS, ROWS)
    frame.loc[ROWS - few :, "bmi"] = np.nan
    # no rare pattern beside those of the attacks
    return frame


class RecordingSite(Site):
    """A site that records what it disclosed also under rules that only warn."""

    def _rows_of(self, state: StudyState) -> tuple[StudyRows, Known]:
        rows, known = super()._rows_of(state)
        rows.records = True
        return rows, known


class Server:
    """What a server can do to a site: send bytes, and read bytes.

    Parameters
    ----------
    folder : Path
        Empty.
    rules : mapping
        Keys of the site's policy.
    few : int
        How many rows are to be read.
    frame : DataFrame, optional
        Other rows than those of ``patients``.
    """

    kind: type[Site] = RecordingSite

    def __init__(
        self, folder: Path, rules: Keys, few: int, frame: pd.DataFrame | None = None
    ) -> None:
        self.few = few
        self.frame = patients(few) if frame is None else frame
        self.settled: dict[str, Settle] = {}
        self.asked = AskedSite(folder, self.frame, NAME, self.kind, **rules)

    def leverages(self) -> Array:
        """h of every row in what the site has disclosed."""
        site = self.asked.site
        *_, state = site.studies()
        known = site.disclosed.copy(state.copy)
        assert known is not None
        found: Array = np.sort(site.disclosed.ledger(known).leverages())
        return found

    def replace_rows(self, frame: pd.DataFrame) -> None:
        """Have the site answer another study from other rows."""
        asked = self.asked
        frame.to_csv(asked.site.policy.data, index=False)
        asked.study = asked.propose(Anything(), questions=10**6, title="another study")

    def ask(self, question: Question, key: str = "") -> Any:
        reply = self.asked.ask(Request(question, key, 1, self.settled.get(key)))
        if reply.outcome != "answer":
            raise Refused(reply.text)
        if isinstance(reply.value, list):
            return reply.value[0]
        return reply.value

    def answers(self, question: Question, key: str = "") -> bool:
        """One bit: whether the site answers."""
        try:
            self.ask(question, key)
        except Refused:
            return False
        return True

    def coding(self, formula: str, family: str = "gaussian", **changes: Any) -> Coding:
        levels = {}
        if "ward" in formula:
            levels = {"ward": WARDS}
        types = changes.pop("types", {name: TYPES[name] for name in TYPES if name in formula})
        plan = Plan(formula, family, levels, types, **changes)
        if family == "logistic" and not formula.startswith(("{", "cbind")):
            plan = replace(plan, classes=["0", "1"])
        return Coding(plan, False, (NAME,))

    def moments(self, coding: Coding) -> Moments:
        """The moments of coded rows."""
        return moments_in(self.ask(ask_moments(coding)), coding)

    def code(self, formula: str, family: str = "gaussian", **changes: Any) -> Any:
        """The moments of a design."""
        return self.moments(self.coding(formula, family, **changes))

    def settle(
        self, coding: Coding, p: int, delta: float = 1.345, scaling: Scaling | None = None
    ) -> str:
        """The key of plain coordinates."""
        scaling = scaling or Scaling(np.zeros(p), np.ones(p), 1.0)
        family = coding.plan.chosen_family
        spread = delta * scaling.unit / family.delta if isinstance(family, HuberFamily) else 1.0
        frame = Frame(scaling, None, spread, False, np.zeros(p))
        key = key_of(coding, frame)
        self.ask(Settle(coding, frame))
        self.settled[key] = Settle(coding, frame)
        return key

    def oldest(self, more: int = 0) -> float:
        """An age between those of the oldest few and the others."""
        ages = self.frame["age"]
        at = ROWS - self.few - more
        return float((ages[at - 1] + ages[at]) / 2)

    @property
    def secret(self) -> float:
        """The income of the oldest few, in all."""
        return float(self.frame["income"].tail(self.few).sum())


def bisected(low: float, high: float, above: Callable[[float], bool], bits: int = 40) -> float:
    """Where an answer changes."""
    for _ in range(bits):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if above(middle) else (low, middle)
    return 0.5 * (low + high)


def products(moments: Any, column: str) -> float:
    """Σ a y of a column a and the target, from the moments of a gaussian model."""
    at = list(moments.names).index(column)
    return float(moments.cross[at] + moments.weight * moments.mean[at] * moments.net_mean)


class Guess(NamedTuple):
    """What a server has found out, and what is true."""

    found: float
    true: float
    within: float = 1e-3

    @property
    def right(self) -> bool:
        return bool(abs(self.found - self.true) <= self.within * abs(self.true))


@dataclass(frozen=True)
class Attack:
    """An attack.

    Attributes
    ----------
    title : str
        In the table.
    run : callable
        What the server finds out.
    few : tuple of int
        Of how many rows.
    guard : str
        What stops it, in the table; empty if a strict policy does not.
    off : mapping
        The policy of a site without this guard.
    rows : int
        How many rows it reads when it is about one.
    seen : bool
        Whether it reads from sums, so that the ledger shows it.
    """

    title: str
    run: Callable[[Server], Guess]
    guard: str
    few: tuple[int, ...] = (1, 2, 4)
    off: Keys = field(default_factory=lambda: WARN)
    rows: int = 1
    seen: bool = True
