"""Families of regressions: one file each, and the table of all of them."""

from __future__ import annotations

from fedsplit.regression.families.gamma import GAMMA
from fedsplit.regression.families.gaussian import GAUSSIAN
from fedsplit.regression.families.huber import HUBER
from fedsplit.regression.families.logistic import LOGISTIC
from fedsplit.regression.families.multinomial import MULTINOMIAL
from fedsplit.regression.families.poisson import POISSON

FAMILIES = {
    family.name: family for family in (GAUSSIAN, LOGISTIC, POISSON, GAMMA, MULTINOMIAL, HUBER)
}
"""Every family by name: the command line, the documentation and the tests read this table."""
