"""Robust regression with Huber's loss."""

from __future__ import annotations

from fedsplit.losses.huber import Huber
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.link import IDENTITY

HUBER = Family(
    name="huber",
    link=IDENTITY,
    loss=lambda classes, symmetric, delta: Huber(delta),
    # The Hessian, of the rows within δ, takes the place of the expected information.
    canonical=True,
    dispersed=True,
    has_units=True,
)
"""A number whose distribution is left open, so that only the robust covariance has a meaning."""
