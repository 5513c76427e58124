"""A study in plain words, for the owner of a client's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from textwrap import wrap

from fedsplit.data.texts import appearance
from fedsplit.data.types import ColumnProfile
from fedsplit.regression.client.privacy import Privacy
from fedsplit.sites.studies.hashes import short
from fedsplit.sites.studies.noise import NOTHING, Spent
from fedsplit.sites.studies.overlaps import Exposure
from fedsplit.sites.studies.store import APPROVED_DAYS
from fedsplit.sites.studies.study import AS_READ, Study

WIDTH = 88

INDENT = 11

SECURE = (
    "everything masked: the server can read the sum over all clients of each answer, and nothing "
    "of this client alone, unless all the others below work for it",
    "once: counts of rows, missing values and of the levels that the study declares, means and "
    "cross products of the coded columns",
    "per round: vectors and an information matrix, as long as the coefficients; at the end the "
    "log-likelihood, and for a classifier counts by predicted probability",
)
"""What a client sends in a study with secure sums."""

QUIET: tuple[object, ...] = (None, False, "", [], {})
"""Values of options that need not be mentioned."""


UNTIL = (
    f"its result, and at most {APPROVED_DAYS} days after you approve it; the same study again then "
    "needs your approval again. A question that is repeated counts once, as long as your rows stay "
    "the same"
)


@dataclass(frozen=True)
class Local:
    """What the owner sees of a study beside the study itself; none of it leaves.

    Attributes
    ----------
    name : str
        Of the client.
    signed : bool
        Whether the study is signed by the coordinator, and that was checked.
    columns : mapping of str to ColumnProfile or None
        What all columns here can be read as.
    rows, complete : int
        How many rows there are, and how many have a value in every column of the study.
    least : int
        The fewest rows about which questions are answered.
    trouble : str
        Why the file cannot be read, if it cannot.
    vectors : bool
        Whether matrices are sent for proofs only.
    rules : sequence of str
        The rules under which the client answers.
    left : int or None
        How many more questions the owner allows.
    limit : str
        The option or rule that says so.
    log : str
        Where everything is written down.
    known : mapping of str to str
        The fingerprints of the partners' keys that the owner has approved before.
    exposed : sequence of Exposure
        The clients whose part the server can tell by this study and earlier ones.
    spent : Spent
        What earlier studies with noise have used.
    """

    name: str
    signed: bool
    columns: Mapping[str, ColumnProfile | None]
    rows: int
    complete: int
    least: int
    trouble: str
    vectors: bool
    rules: Sequence[str]
    left: int | None
    limit: str
    log: str
    known: Mapping[str, str] = field(default_factory=dict)
    exposed: Sequence[Exposure] = ()
    spent: Spent = NOTHING


def study_in_words(study: Study, here: Local) -> str:
    """A study and what it means here."""
    lines = [f"study {short(study.hash)}", ""]
    parts = {
        "model": [f"{study.family}: {study.formula}"],
        "options": [", ".join(_options(study)) or "none beside the defaults"],
        "columns": _columns(study, here),
        "rows": [_rows(study, here)],
        "sent": _sent(study, here),
        "to": [_coordinator(study, here)],
        "with": _members(study, here),
        "caution": _exposed(here),
        "removal": _removal(study),
        "rules": here.rules,
        "until": [UNTIL],
        "budget": [_budget(study, here)],
        "log": [here.log],
    }
    for title, texts in parts.items():
        lines += _block(title, texts)
    return "\n".join(lines) + "\n"


def lacking(study: Study, here: Local) -> list[str]:
    """The study's columns that are not in the file, each with the nearest that is."""
    names = {appearance(name).casefold(): name for name in here.columns}
    found = []
    for column in study.columns:
        if column in here.columns:
            continue
        near = get_close_matches(appearance(column).casefold(), names, n=1)
        text = f"there is no column {column} here"
        if near:
            text += f"; did you mean {names[near[0]]}?"
        found.append(text)
    return found


def _block(title: str, texts: Iterable[str]) -> list[str]:
    """Some texts under a title, wrapped."""
    lines: list[str] = []
    for text in texts:
        lines += wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    margin = " " * INDENT
    head = f"  {title:<{INDENT - 2}}"
    return [(head if at == 0 else margin) + line for at, line in enumerate(lines)]


def _options(study: Study) -> list[str]:
    return [
        f"{name} {_value(value)}"
        for name, value in study.options.items()
        if value not in QUIET
        and value != 0.0
        and name != "dp"
        and (name != "delta" or study.family == "huber")
    ]


def _value(value: object) -> str:
    if value is True:
        return "yes"
    if isinstance(value, Mapping):
        texts = {
            name: "|".join([each] if isinstance(each, str) else each)
            for name, each in value.items()
        }
        return " ".join(f"{name}={text}" for name, text in texts.items())
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)


def _columns(study: Study, here: Local) -> list[str]:
    found = []
    for column, kind in study.columns.items():
        fit = here.columns.get(column)
        if fit is not None and kind == AS_READ:
            kind = f"{fit.type}, as read here"
        if column not in study.used:
            kind = "only decides which rows are complete"
        found.append(f"{column} ({kind})")
    absent = lacking(study, here)
    return [", ".join(found), *absent, "no other column is read or named"]


def _rows(study: Study, here: Local) -> str:
    if here.trouble:
        return f"the file cannot be read: {here.trouble}"
    if lacking(study, here):
        return "none: the file lacks columns of the study"
    text = (
        f"{here.complete:,} of {here.rows:,} rows here have a value in every one of them (this "
        "count is shown to you alone)"
    )
    if here.complete < here.least:
        text += f"; that is fewer than {here.least:,} (least_rows)"
    return text


def _private(study: Study, privacy: Privacy, before: Spent) -> list[str]:
    """What a client sends in a study with noise."""
    shared = " shared among all clients" if study.secure else ""
    earlier = []
    if before.epsilon:
        earlier = [f"this adds to earlier studies here, which have used {before} already"]
    return [
        f"{privacy.rounds} times a gradient and an information matrix, at the end also a number of "
        "rows, squares and weights: each a sum with noise, drawn here once, and nothing else",
        f"the noise{shared} makes this differentially private: with or without "
        f"{privacy.protects}, all answers together are told apart with ε {privacy.epsilon:g} and "
        f"δ {privacy.delta:g} at most, whatever points are asked about",
        f"rows are scaled to a length of {privacy.clip:g}; those that do not fit the declared "
        "types and levels are left out, and that is not told",
        *earlier,
    ]


def _sent(study: Study, here: Local) -> list[str]:
    if study.privacy is not None:
        return [*_private(study, study.privacy, here.spent), _questions(study)]
    if study.secure:
        return [*SECURE, _questions(study)]
    rounds = "vectors and an information matrix, as long as the coefficients"
    if here.vectors:
        rounds = "a vector as long as the coefficients; for a proof, a gradient and a matrix"
    return [
        "once: column types, counts of rows and missing values, levels of "
        "categories with their counts, means and cross products of the coded columns",
        f"per round: {rounds}; at most {study.options['rounds']} rounds, usually 5 to 30",
        _questions(study),
        "at the end: the log-likelihood, and for a classifier counts by predicted probability",
    ]


def _questions(study: Study) -> str:
    return f"in all at most {study.most:,} different questions, at {study.points:,} points"


def _coordinator(study: Study, here: Local) -> str:
    if not here.signed:
        return "NOT SIGNED: anybody may have sent this (--insecure)"
    return f"the coordinator with the key {short(study.coordinator[:32])} …, who signed this"


def _members(study: Study, here: Local) -> list[str]:
    found = []
    for name, key in study.members.items():
        known = "no key"
        if key:
            known = f"key {short(key[:32])} …"
        if name == here.name:
            known += " (this client)"
        found.append(f"{name}: {known}{_pinned(name, key, study, here)}")
    if study.least < len(study.members):
        found.append(f"at least {study.least} of them, if others do not answer")
    return found


def _pinned(name: str, key: str, study: Study, here: Local) -> str:
    """Whether the owner knows the key of a partner in secure sums."""
    if not study.secure or name == here.name:
        return ""
    if name not in here.known:
        return " NEW: compare it with them, not with the coordinator"
    if set(key.split()) <= set(here.known[name].split()):
        return " as you approved before"
    return " ANOTHER KEY THAN BEFORE: ask them why"


def _exposed(here: Local) -> list[str]:
    """What this study discloses together with earlier ones."""
    return [
        f"you took part in study {', '.join(f'{short(name[:16])} …' for name in studies)}, and not "
        f"with the same clients: the server can compute what {' and '.join(clients)} alone sent, "
        f"as the difference of {'two' if len(studies) == 1 else 'several'} sums, as far as the "
        "studies have columns in common"
        for clients, studies in here.exposed
    ]


def _removal(study: Study) -> list[str]:
    """What it means to let a study with secure sums go on without this client."""
    if not study.secure or study.least == len(study.members):
        return []
    return [
        "if this client is away for long, the others can go on without it, but only if you allow "
        "that: the server can then compute everything that this client alone has sent, as the "
        "difference of two sums. To allow it, type removal instead of yes, or use "
        "fedsplit approve --allow-removal; otherwise the others wait for this client"
    ]


def _budget(study: Study, here: Local) -> str:
    if here.left is None:
        return "no limit on the number of questions (--max-rounds)"
    text = f"{here.left:,} more questions are answered ({here.limit}); a fit usually takes 10 to 40"
    if here.left < study.most:
        text += f", this study at most {study.most:,}: it stops when none are left"
    return text
