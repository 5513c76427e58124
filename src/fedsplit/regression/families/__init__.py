"""Families of regressions: one file each, and the table of all of them."""

from __future__ import annotations

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
