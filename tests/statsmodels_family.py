"""The family of statsmodels that has the link and the variance of one of ours."""

import numpy as np
import statsmodels.api as sm

from fedsplit.regression.families.family import Family

DISTRIBUTIONS = ("Gaussian", "Binomial", "Poisson", "Gamma", "InverseGaussian")


def is_glm(family: Family) -> bool:
    """Whether statsmodels has the family as a GLM: with a likelihood and one predictor."""
    return family.log_likelihood is not None and not family.has_reference


def statsmodels_family(family: Family) -> sm.families.Family:
    assert family.variance is not None
    mu = np.array([0.2, 0.5, 0.8])
    link = getattr(sm.families.links, family.link.name.capitalize())()
    return next(
        kind(link=link)
        for kind in (getattr(sm.families, name) for name in DISTRIBUTIONS)
        if np.allclose(kind.variance(mu), family.variance(mu))
    )
