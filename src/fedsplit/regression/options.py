"""What a user chooses for a fit, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsplit.checks import count, number, one_of
from fedsplit.errors import InputError, listed
from fedsplit.regression.families import FAMILIES

MISSING = ("drop", "fail", "mean")


@dataclass(frozen=True)
class Settings:
    """The options of ``fit``; see there."""

    family: str = "gaussian"
    ridge: float = 0.0
    l1: float = 0.0
    nonnegative: Sequence[str] = ()
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
        if number("tol", self.tol) > 1:
            raise InputError(f"tol is in standard errors, above 0 and at most 1, not {self.tol!r}")
        if not isinstance(self.method, str):
            raise InputError(f"method must be a name, as in 'fedsplit', not {self.method!r}")
        number("delta", self.delta)
        count("rounds", self.rounds, least=10)
        count("seed", self.seed, least=0)
        for name in ("weights", "offset", "exposure"):
            _column(name, getattr(self, name))
        if isinstance(self.nonnegative, str) or not all(
            isinstance(name, str) for name in self.nonnegative
        ):
            raise InputError(
                f"nonnegative must be a list of coefficients' names, not {self.nonnegative!r}"
            )
        object.__setattr__(self, "nonnegative", tuple(self.nonnegative))
        family = FAMILIES[self.family]
        if self.exposure is not None and not family.link.multiplicative:
            able = [name for name, each in FAMILIES.items() if each.link.multiplicative]
            raise InputError(
                f"exposure needs a log link ({listed(able)}), {self.family} has none: use offset"
            )
        if self.offset is not None and not family.takes_offset:
            raise InputError(f"{self.family} takes no offset")

    @property
    def symmetric(self) -> bool:
        """Whether a ridge of a multinomial has all classes alike; l1 and constraints are on the coefficients shown."""
        return self.ridge > 0 and not self.l1 and not self.nonnegative

    @property
    def biased(self) -> str | None:
        """What keeps the answer from being the maximum of the likelihood."""
        names = {"a ridge": self.ridge, "an l1 penalty": self.l1, "a constraint": self.nonnegative}
        return next((name for name, value in names.items() if value), None)


def _column(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} must be the name of a column, not {value!r}")
