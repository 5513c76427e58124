"""What the owner of a site allows: ``site.toml``, strict unless it says otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from fedsplit.data.files.opening import read_toml
from fedsplit.data.types import Reading
from fedsplit.errors import listed
from fedsplit.federation.study import Study
from fedsplit.federation.tables import converted
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.families import FAMILIES

Count = Annotated[int, msgspec.Meta(ge=1)]
Budget = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of ``site.toml``; every default is the strict choice.

    Attributes
    ----------
    name : str
        The site's name in studies.
    data : str
        What it answers from: a file, or a list with one file or query.
    na, decimal
        How text is read, as ``fit`` takes it.
    coordinator : str
        The coordinator's public key in hexadecimal digits, compared out of band.
    server : str
        Where the coordinator listens, ``https://HOST:PORT``; not needed by files.
    partners : dict of str to str, optional
        Public keys of the other sites, compared out of band: no others are accepted in a secure
        study. Without it the owner compares them before approving one; the coordinator could
        otherwise invent sites, and read a sum of one.
    approve : {"ask", "always"}
        ``ask`` waits for the owner's decision on every study; ``always`` approves what the other
        keys allow, and a secure study only if the keys of all its members are known.
    secure_sums_only : bool
        Whether only secure studies are joined.
    least_sites : int
        The fewest members of a study, also after removals.
    rules : {"refuse", "warn"}
        Whether an answer that breaks a rule about rows is refused, or sent with a warning to the
        owner.
    least_rows, smallest_group, parameters_per_row, largest_leverage, person, matrices
        The rules about rows; see docs/guards.md.
    families, columns_allowed, columns_denied : list of str, optional
        The families of models, and patterns of the columns, that a study may have.
    questions : int
        The most questions of one study. A fit asks about 8; 40 leaves room for a hard one.
    questions_per_day, studies_per_day : int, optional
        The most questions, and studies of which a first question is answered, within 24 hours.
    refusals_before_halt : int
        After so many refusals nothing of a study is answered until it is approved again: somebody
        who probes the rules is stopped.
    approved_days : int
        How long an approval holds.
    privacy_only : bool
        Whether a study must have noise, for differential privacy.
    privacy_epsilon, privacy_delta : float
        The most ε and δ of all studies with noise about the same rows together.
    message : int
        The most bytes of a question. It is a plan and a point, some kilobytes; in a secure study
        it brings the contributions of all members to the last exchange, 32 bytes a number.
    """

    name: str
    data: str
    coordinator: str
    na: list[str] = []
    decimal: Literal[".", ","] = "."
    server: str = ""
    partners: dict[str, str] | None = None
    approve: Literal["ask", "always"] = "ask"
    secure_sums_only: bool = True
    least_sites: Count = 3
    rules: Literal["refuse", "warn"] = "refuse"
    least_rows: Count = 10
    smallest_group: Annotated[int, msgspec.Meta(ge=2)] = 3
    parameters_per_row: Share = 1 / 3
    largest_leverage: Share | None = None
    person: str | None = None
    matrices: bool = True
    families: list[str] | None = None
    columns_allowed: list[str] | None = None
    columns_denied: list[str] = []
    questions: Count = 40
    questions_per_day: Budget | None = None
    studies_per_day: Budget | None = None
    refusals_before_halt: Count = 3
    approved_days: Count = 30
    privacy_only: bool = False
    privacy_epsilon: Positive | None = None
    privacy_delta: Share = 1e-3
    message: Count = 2**26

    def __post_init__(self) -> None:
        if self.partners is not None:  # as they are shown and told, in groups of four
            plain = {name: "".join(key.split()).lower() for name, key in self.partners.items()}
            msgspec.structs.force_setattr(self, "partners", plain)
        keys = {"coordinator": self.coordinator, **(self.partners or {})}
        for name, key in keys.items():
            if not re.fullmatch("[0-9a-f]{64}", key):
                raise ValueError(f"the key of {name} must be 64 hexadecimal digits")
        unknown = sorted(set(self.families or ()) - set(FAMILIES))
        if unknown:
            raise ValueError(f"families: {unknown[0]} is none of {', '.join(FAMILIES)}")

    @property
    def reading(self) -> Reading:
        return Reading(tuple(self.na), self.decimal)

    @property
    def about_rows(self) -> Rules:
        """The rules that answers follow."""
        return Rules(
            refuse=self.rules == "refuse",
            smallest=self.smallest_group,
            # fewer rows than a group has are one group
            rows=max(self.least_rows, self.smallest_group),
            parameters=self.parameters_per_row,
            leverage=self.largest_leverage,
            person=self.person,
            matrices=self.matrices,
        )

    @property
    def limits_noise(self) -> bool:
        """Whether the owner relies on what noise promises."""
        return self.privacy_only or self.privacy_epsilon is not None

    def objection(self, study: Study, key: bytes) -> str:
        """The rule that a study breaks whatever the data are; empty if there is none."""
        if study.coordinator != self.coordinator:
            return "the study names another coordinator"
        if study.members.get(self.name) != key.hex():
            return "this site is no member of the study under its own key"
        if study.questions > self.questions:
            return (
                f"questions: at most {self.questions} are answered, the study has {study.questions}"
            )
        if study.least < self.least_sites:
            return f"least_sites: it goes on with {study.least}, fewer than {self.least_sites}"
        if self.secure_sums_only and not study.secure:
            return "secure_sums_only: the coordinator would learn more than sums over all sites"
        if study.secure and self.partners is not None:
            for name, other in study.members.items():
                if name != self.name and self.partners.get(name) != other:
                    return f"partners: {name} is none of them, or has another key"
        for column in study.analysis.columns:
            rule = self.denied(column)
            if rule:
                return f"{rule}: {column}"
        analysis = study.analysis
        family = getattr(analysis, "family", None)
        if self.families is not None and family is not None and family not in self.families:
            return f"families: {family} is none of {listed(self.families)}"
        if self.privacy_only and getattr(analysis, "privacy", None) is None:
            return "privacy_only: the study has no noise"
        return ""

    def denied(self, column: str) -> str:
        """The rule by which a column may not be used; empty if it may."""
        if any(fnmatchcase(column, each) for each in self.columns_denied):
            return "columns_denied"
        allowed = self.columns_allowed
        if allowed is None or any(fnmatchcase(column, each) for each in allowed):
            return ""
        return "columns_allowed"


def read_policy(path: Path) -> Policy:
    """Read ``site.toml``; whatever cannot be meant raises InputError with the file and the key."""
    return policy_of(read_toml(path), str(path))


def policy_of(found: Mapping[str, Any], where: str) -> Policy:
    """The policy in the keys of a file."""
    return converted(found, Policy, where)
