"""A study: everything that clients are going to be asked, for their owners to approve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from fedsplit.channels.summed import FEWEST
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.plan import columns_of
from fedsplit.regression.client.privacy import Privacy, privacy_of
from fedsplit.regression.families import FAMILIES
from fedsplit.remote.messages import PROTOCOL
from fedsplit.sites.studies.limits import NOT_SHOWN, about_no_point, limits_of
from fedsplit.statistic import STATISTICS
from fedsplit.version import __version__

AS_READ = "as read"
"""The type of a column that is not declared: clients tell what they can read it as."""

STUDY_BYTES = 2**16
"""The most bytes of a study: people read it."""

Setting: TypeAlias = str | int | float | bool | Sequence[str] | Mapping[str, Any] | None
"""The value of an option."""


@dataclass(frozen=True)
class Study:
    """What one fit is going to ask of every client.

    Attributes
    ----------
    formula, family : str
        The formula names every column: ``.`` is not allowed in it.
    columns : mapping of str to str
        Every column that is used, with its type, or ``AS_READ``. Those that are not in the model
        only decide which rows are complete.
    options : mapping
        Every other option of the model.
    questions : mapping of str to int
        The greatest number of different questions of each kind.
    points : int
        The greatest number of different questions about points x.
    predictor : float
        The greatest |a_iᵀx| of a row at such a point.
    members : mapping of str to str
        The clients, with the fingerprints of their keys, separated by spaces where one has several;
        empty without keys.
    coordinator : str
        The fingerprint of the key that signs it; empty without keys.
    least : int
        The fewest clients with which the run goes on when others are removed.
    protocol : int
        The version of the messages.
    secure : bool
        Whether the server learns sums over clients alone.
    """

    formula: str
    family: str
    columns: Mapping[str, str]
    options: Mapping[str, Setting]
    questions: Mapping[str, int]
    points: int
    predictor: float
    members: Mapping[str, str]
    coordinator: str
    least: int
    protocol: int = PROTOCOL
    secure: bool = False

    @property
    def canonical(self) -> bytes:
        """The one form that has a hash and is signed: JSON, sorted, without spaces, in UTF-8."""
        return json.dumps(
            asdict(self),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        ).encode()

    @cached_property  # every message is checked by it
    def hash(self) -> str:
        """The SHA-256 of the canonical form, in hexadecimal digits."""
        return hashlib.sha256(self.canonical).hexdigest()

    @property
    def formulas(self) -> set[str]:
        """The formula, and the same without its constant term where that is left out."""
        found = {self.formula}
        if self.options["intercept"] is False:
            found.add(Formula(self.formula).without_intercept().text)
        return found

    @property
    def extra(self) -> dict[str, str | None]:
        """The columns that are no part of the formula, by their use."""
        return {use: _text(self.options[use]) for use in ("weights", "offset", "exposure")}

    @property
    def used(self) -> set[str]:
        """The columns of the model; the others only decide which rows are complete."""
        return {*Formula(self.formula).columns, *columns_of(*self.extra.values())}

    @property
    def privacy(self) -> Privacy | None:
        """What is promised of the noise; None if there is none."""
        return privacy_of(self.options["dp"])

    @property
    def most(self) -> int:
        """The greatest number of different questions in all."""
        shown = about_no_point() - set(NOT_SHOWN)
        return sum(self.questions.get(name, 0) for name in shown) + self.points


OPTIONS: Mapping[str, Any] = {
    "aliased": str,
    "delta": float,
    "dp": Mapping[str, Any] | None,
    "empty_site": str,
    "exposure": str | None,
    "firth": bool,
    "intercept": bool,
    "l1": float,
    "levels": Mapping[str, Sequence[str]] | None,
    "missing": str,
    "nonnegative": Sequence[str],
    "offset": str | None,
    "reference": Mapping[str, str] | None,
    "ridge": float,
    "rounds": int,
    "separation": str,
    "standardize": bool,
    "strict": bool,
    "tol": float,
    "weights": str | None,
}
"""The options that a study holds beside its family and the types of columns, with their types."""


def read_study(content: bytes, kinds: Mapping[str, object]) -> Study:
    """The study in a message, from any source: whatever is not a study raises InputError.

    Parameters
    ----------
    content : bytes
        In the canonical form.
    kinds : mapping of str
        The questions that a client answers, by name.
    """
    if len(content) > STUDY_BYTES:
        raise InputError(f"a study of {len(content)} bytes is larger than {STUDY_BYTES}")
    try:
        found = json.loads(content)
        # NaN and lone surrogates, which have no canonical form, are valid for ``loads``.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise InputError("a study that is not JSON") from None
    if isinstance(found, dict) and found.get("protocol") != PROTOCOL:
        raise InputError(
            f"the study is for protocol {str(found.get('protocol'))[:20]}, fedsplit {__version__} "
            f"here has protocol {PROTOCOL}: install the same version on both sides"
        )
    if not isinstance(found, dict) or set(found) != {each.name for each in fields(Study)}:
        raise InputError("a study with other fields than this version of fedsplit knows")
    try:
        study = msgspec.convert(found, Study)
        for name, kind in OPTIONS.items():
            msgspec.convert(study.options.get(name), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"a study with a field of the wrong type ({error})"[:200]) from None
    if study.canonical != content:
        raise InputError("a study that is not in its canonical form")
    _check(study, kinds)
    return study


def _check(study: Study, kinds: Mapping[str, object]) -> None:
    """Raise InputError for a study that contradicts itself."""
    if study.secure:
        _check_secure(study)
    if study.family not in FAMILIES:
        raise InputError(f"the study has the unknown family {study.family[:40]!r}")
    if set(study.options) != set(OPTIONS):
        raise InputError("the study has other options than this version of fedsplit knows")
    if study.options["dp"] is not None:
        _check_private(study)
    formula = Formula(study.formula)
    if formula.open:
        raise InputError("the study's formula has a '.' in it: it has to name every column")
    used = study.used
    if not used <= set(study.columns):
        raise InputError(
            f"the study declares {listed(sorted(study.columns))}, but its model uses "
            f"{listed(sorted(used))}"
        )
    if not 1 <= study.least <= len(study.members):
        raise InputError("the study has no member, or goes on with more than it has")
    _check_limits(study, kinds)


def _check_limits(study: Study, kinds: Mapping[str, object]) -> None:
    """Raise InputError for questions, or numbers of them, that the options do not imply."""
    titles = {each.title() for each in STATISTICS.values()}
    unknown = sorted(set(study.questions) - set(kinds) - titles)
    if unknown:
        raise InputError(f"the study has the unknown question {unknown[0][:40]!r}")
    if min([*study.questions.values(), study.points]) < 0:
        raise InputError("the study has negative numbers of questions")
    rounds, firth = study.options["rounds"], study.options["firth"]
    implied = limits_of(
        int(rounds),  # type: ignore[arg-type]  # a number
        bool(firth),
        len(study.members),
        study.least,
        study.secure,
        study.privacy,
    )
    for name, number in study.questions.items():
        most = implied.questions.get(name, 0)
        if number > most:
            raise InputError(
                f"the study has {number} questions {name}, where its options imply at most {most}"
            )
    if study.points > implied.points:
        raise InputError(
            f"the study has {study.points} points, where its options imply {implied.points}"
        )


def _check_secure(study: Study) -> None:
    """Raise InputError for a study whose sums could not be secure."""
    if study.least < FEWEST:
        raise InputError(
            f"secure sums are of {FEWEST} clients at least: of fewer each could be told, and the "
            f"study goes on with {study.least}"
        )
    without = [name for name, key in study.members.items() if not key]
    if without:
        raise InputError(
            f"secure sums need keys, {listed(without)} has none: start without --insecure"
        )
    # owners compare one with their partners, and whoever has another could answer in their place
    several = [name for name, key in study.members.items() if len(key.split()) > 1]
    if several:
        raise InputError(
            f"secure sums need one key of each client, {listed(several)} has several: leave one "
            "line in its file of public keys"
        )


def _check_private(study: Study) -> None:
    """Raise InputError for a study whose noise would protect nobody."""
    try:
        privacy = study.privacy
    except TypeError:
        raise InputError("the study has a dp of other fields than this version knows") from None
    assert privacy is not None
    if json.loads(json.dumps(asdict(privacy))) != study.options["dp"]:
        raise InputError("the study has a dp of other fields than this version writes")
    formula = Formula(study.formula)
    if formula.pooled or formula.grouped is not None:
        raise InputError("dp: the study's formula has a function of all rows, or groups of trials")
    if AS_READ in study.columns.values():
        raise InputError("dp: the study does not declare the types of all columns")
    if privacy.seed is not None:
        raise InputError("dp: noise from a seed gives no privacy: leave out --dp-seed")
    if study.least < len(study.members):
        raise InputError("dp: every client is needed: leave out --min-clients")


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return None
