"""Families of regressions, and the table of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from fedsplit.checks import one_of
from fedsplit.errors import InputError, listed
from fedsplit.regression.families.classes import LogisticFamily, MultinomialFamily
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.numbers import (
    GammaFamily,
    GaussianFamily,
    HuberFamily,
    PoissonFamily,
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        GaussianFamily(),
        LogisticFamily(),
        PoissonFamily(),
        GammaFamily(),
        MultinomialFamily(),
        HuberFamily(),
    )
}
"""Every family by name: the command line, the documentation and the tests read this table."""


def family_of(text: str, parameters: Mapping[str, float] | None = None) -> Family:
    """The family of a text such as ``huber`` or ``huber:delta=2``.

    Other parameters are as in ``parameters``, where they are there, or else as in the table.

    Raises
    ------
    InputError
        If there is no such family, or it has no such parameter.
    """
    name, _, rest = text.partition(":")
    name = next((each.name for each in FAMILIES.values() if name in each.aliases), name)
    one_of("family", name[:40], FAMILIES)
    given = dict(parameters or {})
    for part in filter(None, rest.split(",")):
        parameter, _, value = part.partition("=")
        try:
            given[parameter] = float(value)
        except ValueError:
            raise InputError(f"family {text[:40]!r}: {value!r} is no number") from None
    known = parameters_of(FAMILIES[name])
    if unknown := set(given) - set(known):
        has = f"it has {listed(known)}" if known else "it has none"
        raise InputError(f"the family {name} has no parameter {listed(sorted(unknown))}: {has}")
    return replace(FAMILIES[name], **given)


def parameters_of(family: Family) -> dict[str, float]:
    """The parameters of a family, by name."""
    return {each.name: getattr(family, each.name) for each in fields(family)}


def text_of(family: Family) -> str:
    """The text that ``family_of`` makes this family of, if it is one of the table."""
    given = ",".join(f"{name}={value!r}" for name, value in parameters_of(family).items())
    return f"{family.name}:{given}" if given else family.name
