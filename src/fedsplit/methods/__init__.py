"""Methods: one file a method, and the table by which the command line knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsplit.errors import InputError
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.method import Method
from fedsplit.prox.gradient import GradientProx

METHODS: dict[str, Callable[..., Method[Any]]] = {"fedgd": FedGD, "fedprox": FedProx, "fedsplit": FedSplit}

SETTINGS: dict[str, dict[str, Callable[[str], object]]] = {
    "fedgd": {"step": float, "local_steps": int},
    "fedprox": {"step": float, "steps": int},
    "fedsplit": {"step": float, "steps": int, "start": str},
}
"""What may follow a method's name. ``steps`` and ``start`` make the local solver a ``GradientProx``."""


def parse(text: str) -> Method[Any]:
    """A method from its name and settings, such as ``fedgd:local_steps=10`` or ``fedsplit:steps=5,start=iterate``."""
    name, _, rest = text.partition(":")
    if name not in METHODS:
        raise InputError(f"method {name!r} is not known: use one of {', '.join(METHODS)}")
    settings: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in SETTINGS[name]:
            raise InputError(f"method {name!r} has no setting {key!r}: use {', '.join(SETTINGS[name])}")
        try:
            settings[key] = SETTINGS[name][key](value)
        except ValueError:
            raise InputError(f"method {text!r}: {value!r} is no value for {key}") from None
    inner = {key: settings.pop(key) for key in ("steps", "start") if key in settings}
    if inner:
        settings["prox"] = GradientProx(**inner)  # type: ignore[arg-type]  # parsed by the table's own types
    return METHODS[name](**settings)
