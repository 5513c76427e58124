"""Methods: one file each, the table by which commands and tests know them, and the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.local.gradient import GradientProx
from fedsplit.methods.admm import ADMM
from fedsplit.methods.asynchronous import AsynchronousInformation, DAvePG
from fedsplit.methods.cg import CG
from fedsplit.methods.fedavg import FedAvg
from fedsplit.methods.feddyn import FedDyn
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.gd import AGD, GD
from fedsplit.methods.giant import GIANT
from fedsplit.methods.information import FedSplitInformation, InformationState, Newton
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.method import Method, settings_of
from fedsplit.methods.quasi_newton import QuasiNewton
from fedsplit.methods.scaffnew import Scaffnew
from fedsplit.methods.scaffold import SCAFFOLD

METHODS: dict[str, type[Method[Any]]] = {
    "fedsplit": FedSplit,
    "information": FedSplitInformation,
    "quasi-newton": QuasiNewton,
    "fedgd": FedGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "gd": GD,
    "agd": AGD,
    "cg": CG,
    "lbfgs": LBFGS,
    "admm": ADMM,
    "scaffold": SCAFFOLD,
    "scaffnew": Scaffnew,
    "feddyn": FedDyn,
    "giant": GIANT,
    "newton": Newton,
}
"""All methods by the names that users write; a new method is one more line."""


def readers_of(name: str) -> dict[str, Callable[[str], object]]:
    """By name, how each setting that may follow a method's name is read.

    They are the fields of the method that are numbers; a method with local solvers also takes
    ``steps`` and ``start`` of a ``GradientProx``.
    """
    types: dict[str, Callable[[str], object]] = {"float": float, "int": int}
    settings = settings_of(METHODS[name])
    readers = {each: types[word] for each, (word, _) in settings.items() if word in types}
    return readers | ({"steps": int, "start": str} if "prox" in settings else {})


def parse(text: str) -> Method[Any]:
    """A method from its name and settings.

    Examples are ``fedgd:local_steps=10`` and ``fedsplit:steps=5,start=iterate``.
    """
    name, _, rest = text.partition(":")
    if name not in METHODS:
        raise InputError(f"method {name!r} is not known: use one of {', '.join(METHODS)}")
    readers = readers_of(name)
    settings: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in readers:
            raise InputError(
                f"method {name!r} has no setting {key!r}: use {', '.join(readers) or 'none'}"
            )
        try:
            settings[key] = readers[key](value)
        except ValueError:
            raise InputError(f"method {text!r}: {value!r} is no value for {key}") from None
    inner = {key: settings.pop(key) for key in ("steps", "start") if key in settings}
    if inner:
        settings["prox"] = GradientProx(**inner)  # type: ignore[arg-type]  # read by their types
    return METHODS[name](**settings)


def asynchronous_of(method: Method[Any]) -> Method[Any]:
    """The method by which a run of ``method`` goes on without waiting for anybody."""
    if method.arrivals:
        return method
    if isinstance(method, FedSplitInformation):
        return AsynchronousInformation(method.penalty)
    if isinstance(method, FedGD) and method.local_steps == 1:
        return DAvePG(method.step)
    if isinstance(method, FedSplit):
        raise InputError(
            "asynchronous: FedSplit is Algorithm 1, which waits for everybody: use "
            "FedSplitInformation() or DAvePG(), or the relaxed FedSplit in examples/open/relaxed.py"
        )
    raise InputError(
        f"asynchronous: {type(method).__name__} needs the answers of all clients to one question: "
        "use FedSplitInformation() or DAvePG()"
    )


MOST_COORDINATES = 500
"""Above this, a client's few Newton steps take longer than a vector method's whole run."""


def affordable(m: int, d: int) -> bool:
    """Whether Hessians of m clients and d coordinates are small enough to be asked for."""
    # the server adds up m·d² entries in every round
    return d <= MOST_COORDINATES and m * d**2 <= 2e7


def default_method(
    clients: Clients,
    state: Any = None,
    participation: float = 1.0,
    asynchronous: bool = False,
    device: bool = False,
) -> tuple[Method[Any], str]:
    """``FedSplitInformation``, or ``QuasiNewton`` where Hessians are too large or unknown, and why.

    Where only a share of the clients takes part in a round, the former waits until all of them have
    answered a question: no step could otherwise be refused for raising F. Asynchronously ``DAvePG``
    takes the place of the latter, as its step does not depend on the delays, and on a device
    ``LBFGS``, which needs the sums of gradients alone.
    """
    fits = affordable(clients.m, clients.d)
    hessians = f"Hessians of {clients.m} clients × {clients.d} coordinates are "
    reason = hessians + ("affordable" if fits else "too large")
    if not clients.hessians:
        reason = "the clients cannot compute their Hessians"
    sent = fits and clients.hessians
    if state is not None:
        reason = "it continues from its state"
        sent = isinstance(state, InformationState)
    method: Method[Any] = QuasiNewton()
    if sent:
        method = FedSplitInformation(wait=participation < 1.0)
    elif asynchronous:
        method = DAvePG()
    elif device:
        method = LBFGS()
    return method, f"method: {method.described()} ({reason})"
