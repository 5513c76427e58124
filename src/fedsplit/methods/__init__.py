"""Methods: one file each, and the table by which commands and tests know them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedsplit.errors import InputError
from fedsplit.local.gradient import GradientProx
from fedsplit.methods.admm import ADMM
from fedsplit.methods.agd import AGD
from fedsplit.methods.anderson import Anderson
from fedsplit.methods.asynchronous_information import AsynchronousInformation
from fedsplit.methods.cg import CG
from fedsplit.methods.dave import DAvePG
from fedsplit.methods.fedavg import FedAvg
from fedsplit.methods.feddyn import FedDyn
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.gd import GD
from fedsplit.methods.giant import GIANT
from fedsplit.methods.information import FedSplitInformation
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.method import Method
from fedsplit.methods.newton import Newton
from fedsplit.methods.relaxed import RelaxedFedSplit
from fedsplit.methods.scaffnew import Scaffnew
from fedsplit.methods.scaffold import SCAFFOLD
from fedsplit.methods.variants import FedSplit
from fedsplit.penalties.penalty import Penalty

_FEDSPLIT: dict[str, Callable[[str], object]] = {"step": float, "steps": int, "start": str}


def _anderson(memory: int = 20, **settings: Any) -> FedSplit:
    return FedSplit(accelerate=Anderson(memory), **settings)


METHODS: dict[str, tuple[Callable[..., Method[Any]], dict[str, Callable[[str], object]]]] = {
    "fedsplit": (FedSplit, _FEDSPLIT),
    "fedsplit-plain": (FedSplit.plain, _FEDSPLIT),
    "fedsplit-anderson": (_anderson, {"memory": int} | _FEDSPLIT),
    "information": (FedSplitInformation, {}),
    "fedgd": (FedGD, {"step": float, "local_steps": int}),
    "fedavg": (
        FedAvg,
        {
            "step": float,
            "local_steps": int,
            "batch": int,
            "clients": float,
            "epochs": int,
            "decay": float,
        },
    ),
    "fedprox": (FedProx, {"step": float, "steps": int}),
    "gd": (GD, {"step": float}),
    "agd": (AGD, {"step": float}),
    "cg": (CG, {}),
    "lbfgs": (LBFGS, {"memory": int}),
    "admm": (ADMM, {"step": float, "steps": int}),
    "scaffold": (SCAFFOLD, {"step": float, "local_steps": int}),
    "scaffnew": (Scaffnew, {"step": float, "probability": float, "seed": int}),
    "feddyn": (FedDyn, {"alpha": float, "steps": int}),
    "giant": (GIANT, {}),
    "newton": (Newton, {}),
}
"""Each method's factory, and the settings that may follow its name. ``steps`` and ``start`` are
those of a ``GradientProx`` as its local solver."""


def parse(text: str) -> Method[Any]:
    """A method from its name and settings.

    Examples are ``fedgd:local_steps=10`` and ``fedsplit:steps=5,start=iterate``.
    """
    name, _, rest = text.partition(":")
    if name not in METHODS:
        raise InputError(f"method {name!r} is not known: use one of {', '.join(METHODS)}")
    make, parsers = METHODS[name]
    settings: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in parsers:
            raise InputError(
                f"method {name!r} has no setting {key!r}: use {', '.join(parsers) or 'none'}"
            )
        try:
            settings[key] = parsers[key](value)
        except ValueError:
            raise InputError(f"method {text!r}: {value!r} is no value for {key}") from None
    inner = {key: settings.pop(key) for key in ("steps", "start") if key in settings}
    if inner:
        # The table's own types have parsed the settings.
        settings["prox"] = GradientProx(**inner)  # type: ignore[arg-type]
    return make(**settings)


def asynchronous_of(method: Method[Any]) -> Method[Any]:
    """The method by which a run of ``method`` goes on without waiting for anybody."""
    if hasattr(method, "absorb"):
        return method
    if isinstance(method, FedSplitInformation):
        return AsynchronousInformation(method.penalty)
    if isinstance(method, FedGD) and method.local_steps == 1:
        return DAvePG(method.step)
    if isinstance(method, FedSplit) and method.accelerate is None and method.adapt is None:
        return RelaxedFedSplit(method.step, method.prox, penalty=method.penalty)
    raise InputError(
        f"asynchronous: {type(method).__name__} needs the answers of all clients to one question: "
        "use FedSplitInformation(), DAvePG() or FedSplit.plain()"
    )


def with_penalty(method: Method[Any], penalty: Penalty) -> Method[Any]:
    """The method for F + g; raises InputError if it takes no penalty."""
    if not hasattr(method, "penalty"):
        makes = [make for make, _ in METHODS.values() if hasattr(make, "penalty")]
        names = ", ".join(getattr(make, "__name__", "") for make in makes)
        raise InputError(f"penalty: {type(method).__name__} takes none: use one of {names}")
    return replace(method, penalty=penalty)  # type: ignore[type-var]  # a dataclass, as methods are
