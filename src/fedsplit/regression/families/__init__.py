"""Families of regressions: one file each, and the table of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from fedsplit.errors import InputError, listed
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.gamma import GammaFamily
from fedsplit.regression.families.gaussian import GaussianFamily
from fedsplit.regression.families.huber import HuberFamily
from fedsplit.regression.families.logistic import LogisticFamily
from fedsplit.regression.families.multinomial import MultinomialFamily
from fedsplit.regression.families.poisson import PoissonFamily

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


def family_of(name: str, parameters: Mapping[str, float]) -> Family:
    """The family of this name with these parameters; others are as in the table.

    Raises
    ------
    InputError
        If there is no such family, or it has no such parameter.
    """
    if name not in FAMILIES:
        raise InputError(f"there is no family {name[:40]!r}: {listed(FAMILIES, 12)}")
    family = FAMILIES[name]
    unknown = set(parameters) - set(parameters_of(name))
    if unknown:
        raise InputError(f"the family {name} has no parameter {listed(sorted(unknown))}")
    return replace(family, **parameters)


def parameters_of(name: str) -> dict[str, float]:
    """The parameters of the family of this name, as they are in the table."""
    family = FAMILIES[name]
    return {each.name: getattr(family, each.name) for each in fields(family)}


def known_name(name: object) -> object:
    """The name of a family here, from one that R or statsmodels has; others as they are."""
    for family in FAMILIES.values():
        if name in family.aliases:
            return family.name
    return name
