"""What a user chooses for a fit, checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fedsplit.checks import count, number
from fedsplit.errors import InputError
from fedsplit.regression.families import FAMILIES

MISSING = ("drop", "fail", "mean")


@dataclass(frozen=True)
class Settings:
    """The options of ``fit``; see there."""

    family: str = "gaussian"
    ridge: float = 0.0
    l1: float = 0.0
    elastic_net: tuple[float, float] | None = None
    nonnegative: tuple[str, ...] = ()
    weights: str | None = None
    offset: str | None = None
    exposure: str | None = None
    intercept: bool = True
    standardize: bool = False
    missing: str = "drop"
    strict: bool = False
    tol: float = 1e-9
    rounds: int = 500
    seed: int = 0
    method: str = "fedsplit"
    delta: float = 1.345

    def __post_init__(self) -> None:
        one_of("family", self.family, FAMILIES)
        one_of("missing", self.missing, MISSING)
        number("ridge", self.ridge, strict=False)
        number("l1", self.l1, strict=False)
        number("tol", self.tol)
        number("delta", self.delta)
        count("rounds", self.rounds, least=10)
        count("seed", self.seed, least=0)
        if self.elastic_net is not None:
            if len(self.elastic_net) != 2:
                raise InputError(f"elastic_net is two numbers, of |x| and of x²/2, not {self.elastic_net!r}")
            for part in self.elastic_net:
                number("elastic_net", part, strict=False)
            if self.l1 or self.ridge:
                raise InputError("elastic_net brings its own l1 and ridge: leave those out")
        if FAMILIES[self.family].link == "identity" and self.exposure is not None:
            raise InputError(f"exposure needs a log link (poisson, gamma), {self.family} has none: use offset")
        if self.family == "logistic" and self.exposure is not None:
            raise InputError("exposure needs a log link (poisson, gamma), logistic has none: use offset")
        if self.family == "multinomial" and (self.offset or self.exposure):
            raise InputError("multinomial takes no offset and no exposure")

    @property
    def lasso(self) -> float:
        """λ of λ‖x‖₁."""
        return self.l1 if self.elastic_net is None else self.elastic_net[0]

    @property
    def quadratic(self) -> float:
        """λ of (λ/2)‖x‖²."""
        return self.ridge if self.elastic_net is None else self.elastic_net[1]

    @property
    def symmetric(self) -> bool:
        """Whether a ridge of a multinomial has all classes alike; l1 and constraints are on the coefficients shown."""
        return self.quadratic > 0 and not self.lasso and not self.nonnegative

    @property
    def biased(self) -> str | None:
        """What keeps the answer from being the maximum of the likelihood."""
        names = {"a ridge": self.quadratic, "an l1 penalty": self.lasso, "a constraint": self.nonnegative}
        return next((name for name, value in names.items() if value), None)


def one_of(name: str, value: object, known: Collection[str]) -> None:
    """Refuse a value that is not among those known."""
    if value not in known:
        raise InputError(f"{name} {value!r} is not known: use one of {', '.join(known)}")
