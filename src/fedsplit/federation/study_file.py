"""Study files: the TOML in which a coordinator writes down what is to be computed, and for whom.

A study file lies in the coordinator's folder, beside the keys, from which the members are taken.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from fedsplit import files
from fedsplit.data.files.opening import read_toml
from fedsplit.errors import InputError, listed
from fedsplit.federation import authority
from fedsplit.federation.keys import public_bytes
from fedsplit.federation.regression import RegressionStudy
from fedsplit.federation.study import Study
from fedsplit.federation.tables import converted, given_value, in_toml, key_in_toml
from fedsplit.regression.analysis import analyse
from fedsplit.regression.fields import assigned, keys_of
from fedsplit.regression.fit import asked_formula
from fedsplit.regression.model_file import model_options
from fedsplit.regression.options import FitOptions, Settings
from fedsplit.regression.server.agreement import declaration, draft_of, with_declared

HEAD = """\
# A study, for the owners of the sites to approve. `fedsplit study check FILE` shows it in words.
"""


ABOUT_MODELS = {each.name for each in fields(Settings)} - {"secure"} | {"formula", "target"}
"""The options of ``fit`` that say what is computed, not where or from which data."""


class StudyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``[study]``; see ``Study``.

    Attributes
    ----------
    sites : list of str, optional
        The members; all sites of the federation without it.
    """

    title: str
    purpose: str = ""
    contact: str = ""
    until: date | None = None
    secure: bool = True
    questions: int | None = None
    least: int = 0
    sites: list[str] | None = None


def read_study_file(path: Path) -> Study:
    """Read a study; its members are those of the federation in the same folder."""
    return _study(read_toml(path), path)


def assigned_keys(pairs: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of [study] and of [model] in texts such as ``least=3`` and ``ridge=1``."""
    kinds = get_type_hints(StudyTable)
    terms: dict[str, Any] = {}
    about_models = []
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark or key not in kinds:
            close = get_close_matches(key, [*kinds, *keys_of(FitOptions)], n=1)
            if close and close[0] in kinds:
                raise InputError(f"--set: there is no key {key!r}: did you mean {close[0]}?")
            about_models.append(pair)
            continue
        if key in terms:
            raise InputError(f"--set {key} is given twice")
        terms[key] = text if kinds[key] is str else given_value(text)
    return terms, assigned(FitOptions, about_models)


def write_study_file(path: Path, data: object, terms: Mapping[str, Any], **options: Any) -> Study:
    """Write a study with the types and levels that are in data of the coordinator's.

    Parameters
    ----------
    path : Path
        Of a new file in the coordinator's folder.
    data : object
        As ``fit`` takes it: a file with the columns that the sites have, and all levels. Nothing
        but the types and the levels is written.
    terms : mapping
        The keys of ``[study]``.
    **options
        Of ``fit``.

    Returns
    -------
    Study
    """
    if path.exists():
        raise InputError(f"{path}: is there already, choose another name")
    for name in options:
        if name not in ABOUT_MODELS:
            raise InputError(f"{name} is no part of a study")
    given = FitOptions(None, **options)
    formula, excluded = asked_formula(given)
    draft = draft_of(formula, given.settings, excluded)
    plan = analyse(
        lambda settings: declaration(draft, settings),
        data,
        **{name: options[name] for name in ("types", "na", "decimal") if name in options},
    )
    settings = with_declared(given.settings, plan)
    model = {
        **{name: value for name, value in options.items() if name not in ("target", "group")},
        "formula": plan.formula,
        "family": settings.chosen_family.name,
    }
    tables: dict[str, Mapping[str, Any]] = {
        "types": settings.declared,
        "levels": settings.declared_levels,
        "dp": {} if given.dp is None else asdict(given.dp),
    }
    # whoever joins the federation later would make another study of it
    members = [each.name for each in authority.members(path.parent)]
    terms = {**terms, "sites": terms.get("sites", members)}
    text = _text(terms, model, tables)
    study = _study(tomllib.loads(text), path)
    if study.until and study.until < datetime.now(UTC).date().isoformat():
        raise InputError(f"until: {study.until} is over: choose a later day")
    files.write(path, text)
    return study


def _study(found: Mapping[str, Any], path: Path) -> Study:
    asked = found.get("study")
    other = found.keys() - {"study", "model"}
    if other:
        raise InputError(f"{path}: unknown table {min(other)!r}: there are [study] and [model]")
    if not isinstance(asked, dict):
        raise InputError(f"{path}: there is no table [study], which has the title of the study")
    terms = converted(asked, StudyTable, f"{path}: [study]")
    model = model_options(found.get("model"), str(path))
    for name in model:
        if name not in ABOUT_MODELS:
            raise InputError(f"{path}: [model] {name} is no part of a study")
    options = FitOptions(None, secure=terms.secure, **model)
    analysis = RegressionStudy.of(options)
    known = {each.name: each.key.hex() for each in authority.members(path.parent)}
    names = list(known) if terms.sites is None else terms.sites
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: [study] sites: {name} is there twice")
        if name not in known:
            raise InputError(
                f"{path}: [study] sites: {name} is none of those with a certificate: "
                f"{listed(known) or 'there is none yet'}"
            )
    key = authority.read_key(path.parent / "coordinator.key")
    try:
        return Study(
            title=terms.title,
            analysis=analysis,
            members={name: known[name] for name in names},
            coordinator=public_bytes(key).hex(),
            secure=terms.secure,
            questions=analysis.usual if terms.questions is None else terms.questions,
            least=terms.least,
            purpose=terms.purpose,
            contact=terms.contact,
            until=terms.until.isoformat() if terms.until else "",
        )
    except InputError as error:
        raise InputError(f"{path}: [study] {error}") from None


def _text(
    terms: Mapping[str, Any], model: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]
) -> str:
    """The content of a study file."""
    lines = [HEAD + "[study]"]
    lines += [f"{key} = {in_toml(value)}" for key, value in terms.items()]
    # what owners will ask for
    wanted = ('purpose = "…"', 'contact = "…"', "until = 2030-12-31")
    lines += [f"# {line}" for line in wanted if line.split()[0] not in terms]
    lines += ["", "[model]"]
    lines += [
        f"{key} = {in_toml(value)}"
        for key, value in model.items()
        if key not in tables and value is not None
    ]
    for name, table in tables.items():
        if table:
            lines += ["", f"[model.{name}]"]
            lines += [
                f"{key_in_toml(key)} = {in_toml(value)}"
                for key, value in table.items()
                if value is not None
            ]
    return "\n".join(lines) + "\n"
