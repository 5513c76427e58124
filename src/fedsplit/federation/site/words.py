"""What a study means at a site, in plain words for its owner alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fedsplit.data.tables import Source
from fedsplit.errors import InputError, listed
from fedsplit.federation.regression import AS_READ
from fedsplit.federation.site.trial import Trial
from fedsplit.federation.study import Study
from fedsplit.federation.words import in_lines, key_text, study_parts

if TYPE_CHECKING:
    from fedsplit.federation.site.site import Site


class ColumnReading(NamedTuple):
    """How a column is read at a site.

    Attributes
    ----------
    type : str
        What the site alone would read it as; empty if it cannot be read.
    missing : int
        Rows without a value.
    levels : mapping of str to int
        Of text, the rows that have each value.
    """

    type: str
    missing: int
    levels: Mapping[str, int]


def readings(source: Source, columns: Iterable[str] | None = None) -> dict[str, ColumnReading]:
    """How columns of a table are read."""
    found = {}
    for name, profile in source.columns(columns).items():
        if profile is None:
            found[name] = ColumnReading("", 0, {})
            continue
        values = source.read({name: "text"})[name]
        counts = values.astype(object).value_counts() if profile.type == "text" else {}
        levels = {str(level): int(counts[level]) for level in sorted(counts.keys())}
        found[name] = ColumnReading(profile.type, int(values.isna().sum()), levels)
    return found


def described(site: Site, study: Study, trial: Trial) -> str:
    """A study, how its columns are read here, whom it is with, and what its trial found."""
    policy, parts = site.policy, study_parts(study)
    columns = list(study.analysis.columns)
    try:
        source = site.copies.current()
        read = readings(source, columns)
        missing = source.read(dict.fromkeys(read or source.names()[:1], "text")).isna().any(axis=1)
        rows = f"{int((~missing).sum()):,} of {len(missing):,} here have a value in all of them"
    except InputError as error:
        read, rows = {}, f"cannot be read: {error}"
    refused = "is refused" if policy.rules == "refuse" else "IS SENT, with a warning to you"
    days = f"{policy.approved_days} days after you approve it at the latest"
    spent = site.spent(study.digest)
    if getattr(study.analysis, "privacy", None) is not None and spent[0]:
        noise = "this adds to ε {:g} and δ {:g} of earlier studies of these rows"
        parts["leaves"].append(noise.format(*spent))
    parts |= {
        "columns": [*_columns(study, read), "no other column is read or named"],
        "rows": [rows],
        "members": _members(site, study),
        "caution": _cautions(site, study),
        "rules": [
            f"an answer about fewer than {policy.least_rows} rows, a level of fewer than "
            f"{policy.smallest_group}, or more than {policy.parameters_per_row:.3g} parameters for "
            f"each row {refused} (site.toml)"
        ],
        "until": [f"{parts['until'][0]}, and {days}"],
        "trial": trial.lines(),
    }
    return in_lines(study, parts)


def _columns(study: Study, read: Mapping[str, ColumnReading]) -> list[str]:
    """How each column is read here, with the levels that it has and should have."""
    analysis = study.analysis
    declared = getattr(analysis, "options", vars(analysis)).get("levels") or {}
    found = []
    for column, kind in analysis.columns.items():
        if column not in read:
            found.append(f"{column} ({kind}): is not here" if read else f"{column} ({kind})")
            continue
        own = read[column]
        text = f"{column} ({f'{own.type}, as read here' if kind == AS_READ else kind})"
        if column not in getattr(analysis, "used", analysis.columns):
            text = f"{column} (only decides which rows are complete)"
        elif own.levels:
            text += f": {listed((f'{name} {n:,}' for name, n in own.levels.items()), 12)}"
            if absent := [str(each) for each in declared.get(column, ()) if each not in own.levels]:
                text += f"; no row here has {listed(absent)}"
        found.append(text + (f"; {own.missing:,} missing" if own.missing else ""))
    return found


def _members(site: Site, study: Study) -> list[str]:
    """The other sites, with the keys that are to be compared."""
    found, known = [], site.known_keys()
    for name, key in study.members.items():
        text, digits = "NEW, compare this key with them by telephone", key_text(key)
        if name == site.policy.name:
            text, digits = "this site", ""
        elif known.get(name) == key:
            text, digits = f"key {digits[:19]} … as you approved before", ""
        elif name in known:
            text = "ANOTHER KEY THAN BEFORE, ask them why"
        found += [f"{name}: {text}", digits[:40], digits[40:]]
    if study.least < len(study.members):
        found.append(f"it goes on with {study.least} of them, if others do not answer")
    return found


def _cautions(site: Site, study: Study) -> list[str]:
    """What a study discloses together with earlier ones."""
    return [
        f"EXPOSES {' and '.join(sites)}: you are in study {listed(each[:8] for each in studies)} "
        "with other members, and from the sums of both the coordinator can compute what "
        f"{'they' if len(sites) > 1 else 'this site'} alone sent, as far as columns are the same"
        for sites, studies in site.exposed(study).items()
    ]
