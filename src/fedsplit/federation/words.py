"""A study in plain words, for those who decide on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from fedsplit.federation.keys import in_groups
from fedsplit.federation.study import Study
from fedsplit.regression.options import Settings
from fedsplit.texts import one_line

WIDTH, INDENT = 80, 12

SUMS = [
    "once: counts of rows, of missing values and of levels; means and cross products of the coded "
    "columns",
    "per question: a vector and a matrix, as long as the coefficients; at the end the "
    "log-likelihood, and of a classifier counts by predicted probability",
]

SEEN_SECURE = [
    "the coordinator and every member see the sums over all members, and the result",
    "nobody sees what one site sends, unless all the others work together",
]


def study_parts(study: Study) -> dict[str, list[str]]:
    """What a study says to everybody, by title; a site says more of some of them."""
    return {
        "title": [study.title],
        "purpose": [study.purpose or "not given"],
        "contact": [study.contact or "not given"],
        "asked by": [f"the coordinator with the key {key_text(study.coordinator[:16])} …"],
        "model": _models(study.analysis),
        "columns": [f"{column} ({kind})" for column, kind in study.analysis.columns.items()],
        "rows": [],
        "leaves": [
            *_leaves(study),
            f"at most {study.questions} questions are answered, most fits ask 5 to 10",
        ],
        "seen by": SEEN_SECURE
        if study.secure
        else ["the coordinator sees every answer of each site by itself"],
        "members": [f"{name}: key {key_text(key[:16])} …" for name, key in study.members.items()],
        "caution": [],
        "until": [study.until or "its result"],
    }


def in_lines(study: Study, parts: Mapping[str, Iterable[str]]) -> str:
    """Texts under their titles, in lines of 80 columns."""
    lines = [f"study {study.hash}"]
    for title, texts in parts.items():
        head = f"  {title}"
        for text in filter(None, texts):
            # texts are the coordinator's, and names of columns and levels can be anything
            for line in wrap(one_line(text, 4000), WIDTH - INDENT, subsequent_indent="  "):
                lines.append(f"{head:<{INDENT}}{line}")
                head = ""
    return "\n".join(lines)


def key_text(digits: str) -> str:
    """A key in groups of digits."""
    return in_groups(bytes.fromhex(digits))


def _models(analysis: Any) -> list[str]:
    """What is fitted, with the options that are not the usual ones."""
    models = getattr(analysis, "models", None)
    if models is not None:
        return [analysis.name, *(f"{family}: {formula}" for formula, family in models.items())]
    # values that need not be mentioned
    usual = json.loads(json.dumps(asdict(Settings())))
    chosen = [
        f"{name} {_value(each)}"
        for name, each in analysis.options.items()
        if each != usual[name] and name not in ("dp", "levels")
    ]
    return [f"{analysis.family}: {analysis.formula}", ", ".join(chosen)]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_value(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return "|".join(map(str, value))
    return "yes" if value is True else str(value)


def _leaves(study: Study) -> list[str]:
    """What each site sends."""
    privacy = getattr(study.analysis, "privacy", None)
    if privacy is None:
        return SUMS if hasattr(study.analysis, "formula") else ["sums over rows, as it asks for"]
    shared = " shared among all members" if study.secure else ""
    return [
        f"{privacy.rounds} times a vector and a matrix, as long as the coefficients, and at the "
        "end numbers of rows, squares and weights: each a sum with noise, drawn once",
        f"the noise{shared} promises that with or without {privacy.protects} all answers together "
        f"are told apart with ε {privacy.epsilon:g} and δ {privacy.delta:g} at most",
    ]
