"""The family of statsmodels that has the link and the variance of one of ours."""

import numpy as np
import statsmodels.api as sm
from scipy import stats

from fedsplit.regression.families.family import Family

DISTRIBUTIONS = ("Gaussian", "Binomial", "Poisson", "Gamma", "InverseGaussian")


def is_glm(family: Family) -> bool:
    """Whether statsmodels has the family as a GLM: with a likelihood and one predictor."""
    return family.has_likelihood and family.classes != "several"


def log_likelihood(family: Family, pool: "sm.GLMResults") -> float:
    """That of a fit by statsmodels, with the dispersion that R takes.

    statsmodels has the φ of the standard errors for a gamma model, and a shape of w/φ.
    """
    if family.name != "gamma":
        return float(pool.llf)
    w = pool.model.var_weights
    phi = pool.deviance / np.sum(w)
    logs = stats.gamma.logpdf(pool.model.endog, 1 / phi, scale=phi * pool.fittedvalues)
    return float(w @ logs)


def aic(family: Family, pool: "sm.GLMResults") -> float:
    """φ counts as a parameter where it is estimated, as in R."""
    return -2 * log_likelihood(family, pool) + 2 * (len(pool.params) + family.dispersed)


def statsmodels_family(family: Family) -> sm.families.Family:
    mu = np.array([0.2, 0.5, 0.8])
    link = getattr(sm.families.links, family.link.name.capitalize())()
    return next(
        kind(link=link)
        for kind in (getattr(sm.families, name) for name in DISTRIBUTIONS)
        if np.allclose(kind.variance(mu), family.variance(mu))
    )
