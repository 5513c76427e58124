"""The rules of a client's owner as a file, ``policy.toml``."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from fedsplit.errors import InputError, listed
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.families import FAMILIES
from fedsplit.sites.studies.study import Study


class Key(NamedTuple):
    """One key of a policy.

    Attributes
    ----------
    field : str
        Of ``Rules``.
    what : str
        Which values it takes, in words.
    read : callable
        The value for the field; raises ValueError for one that cannot be used.
    """

    field: str
    what: str
    read: Callable[[Any], object]


def _count(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError
        return value

    return read


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError
    return float(value)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError
    return tuple(value)


def _families(value: Any) -> tuple[str, ...]:
    found = _texts(value)
    if not set(found) <= set(FAMILIES):
        raise ValueError
    return found


def _fingerprints(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise ValueError
    found = []
    for name, text in value.items():
        plain = re.sub(r"[\s:]", "", str(text)).lower()
        if not re.fullmatch("[0-9a-f]{64}", plain):
            raise ValueError
        found.append((name, plain))
    return tuple(found)


PATTERNS = 'a list of names or patterns of columns, such as ["age", "lab_*"]'
FINGERPRINTS = "a table of clients, each with the 64 digits of its key's fingerprint"
SHARE = "a number above 0, at most 1"

KEYS: Mapping[str, Key] = {
    "columns_allowed": Key("allowed", PATTERNS, _texts),
    "columns_denied": Key("denied", PATTERNS, _texts),
    "families": Key("families", f"a list of {', '.join(FAMILIES)}", _families),
    "least_rows": Key("rows", "a whole number of at least 1", _count(1)),
    "least_sites": Key("sites", "a whole number of at least 1", _count(1)),
    "smallest_group": Key("smallest", "a whole number of at least 2", _count(2)),
    "largest_leverage": Key("leverage", SHARE, _share),
    "parameters_per_row": Key("parameters", SHARE, _share),
    "matrices": Key("matrices", "true or false", _flag),
    "questions_per_day": Key("questions", "a whole number of at least 0", _count(0)),
    "studies_per_day": Key("studies", "a whole number of at least 0", _count(0)),
    "refusals_before_halt": Key("refusals", "a whole number of at least 1", _count(1)),
    "secure_sums_only": Key("secure", "true or false", _flag),
    "partners": Key("partners", FINGERPRINTS, _fingerprints),
    "privacy_only": Key("private", "true or false", _flag),
    "privacy_epsilon": Key("epsilon", "a number above 0", _positive),
    "privacy_delta": Key("delta", SHARE, _share),
    "removal_allowed": Key("removal", "true or false", _flag),
}
"""Every key of a policy. All of them are optional, and the rules of ``--strict`` hold as well."""


def read_policy(path: Path) -> Rules:
    """The rules in a file; whatever cannot be meant raises InputError with the file and the key."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {' '.join(str(error).split())}") from None
    rules: dict[str, Any] = {}
    for name, value in found.items():
        if name not in KEYS:
            near = get_close_matches(name, KEYS, n=1)
            guess = f", did you mean {near[0]}?" if near else f": the keys are {listed(KEYS, 99)}"
            raise InputError(f"{path}: there is no key {name!r}{guess}")
        key = KEYS[name]
        try:
            rules[key.field] = key.read(value)
        except ValueError:
            raise InputError(f"{path}: {name} must be {key.what}, not {value!r}") from None
    chosen = Rules(refuse=True, **rules)
    # fewer rows than a group has are one group
    return replace(chosen, rows=max(chosen.rows, chosen.smallest))


def objection(rules: Rules, study: Study) -> str:
    """The rule that a study breaks whatever the data are; an empty text if there is none."""
    if rules.secure and not study.secure:
        return "secure_sums_only: the server would learn more than sums over clients"
    if rules.private and study.privacy is None:
        return "privacy_only: the study has no noise"
    if rules.families is not None and study.family not in rules.families:
        return f"families: {study.family} is none of {listed(rules.families)}"
    if study.least < rules.sites:
        return f"least_sites: it goes on with {study.least} clients, fewer than {rules.sites}"
    if study.options["firth"] and not rules.matrices:
        return "matrices: firth needs one in every round"
    for column in study.columns:
        why = denied(rules, column)
        if why:
            return f"{why}: {column}"
    return ""


def denied(rules: Rules, column: str) -> str:
    """The rule by which a column may not be used; an empty text if it may."""
    if any(fnmatchcase(column, pattern) for pattern in rules.denied):
        return "columns_denied"
    if rules.allowed is None or any(fnmatchcase(column, each) for each in rules.allowed):
        return ""
    return "columns_allowed"


def _leverage(rules: Rules) -> str:
    """What is done about the leverages of single rows in all that was disclosed."""
    if rules.leverage is None:
        return "how much can rest on a single row is reported to you (largest_leverage refuses)"
    return f"no row has a leverage above {rules.leverage:g} in all answers (largest_leverage)"


def in_words(rules: Rules) -> list[str]:
    """The rules, one sentence each, with the keys of a policy."""
    consequence = "reported to the server as a warning"
    if rules.refuse:
        consequence = "refused"
    lines = [
        f"answers from fewer than {rules.rows} rows (least_rows), about fewer than "
        f"{rules.smallest} (smallest_group), or with more parameters than {rules.share} of the "
        f"rows (parameters_per_row) are {consequence}",
    ]
    if rules.refuse:
        lines.append(
            f"{_leverage(rules)}; after {rules.refusals} refusals nothing is answered until you "
            "have reviewed them "
            "(refusals_before_halt)"
        )
    if not rules.matrices:
        lines.append("matrices are sent for proofs only (matrices)")
    if rules.families is not None:
        lines.append(f"only {', '.join(rules.families)} (families)")
    if rules.allowed is not None:
        lines.append(f"only columns {', '.join(rules.allowed)} (columns_allowed)")
    if rules.denied:
        lines.append(f"never columns {', '.join(rules.denied)} (columns_denied)")
    if rules.sites > 1:
        lines.append(f"at least {rules.sites} clients (least_sites)")
    if rules.secure:
        lines.append("secure sums only (secure_sums_only)")
    if rules.partners is not None:
        names = ", ".join(name for name, _ in rules.partners)
        lines.append(f"secure sums with {names} alone, by their keys (partners)")
    if rules.private:
        lines.append("noise for differential privacy only (privacy_only)")
    if rules.epsilon is not None:
        lines.append(f"ε of {rules.epsilon:g} at most, over all studies (privacy_epsilon)")
    if rules.limits_noise:
        lines.append(f"δ of {rules.delta:g} at most, over all studies (privacy_delta)")
    if rules.removal:
        lines.append("a study may go on without this client (removal_allowed)")
    for number, what, key in (
        (rules.studies, "studies", "studies_per_day"),
        (rules.questions, "questions", "questions_per_day"),
    ):
        if number is not None:
            lines.append(f"at most {number:,} {what} a day ({key})")
    return lines
