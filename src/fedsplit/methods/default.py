"""The method of a run whose user named none."""

from __future__ import annotations

from typing import Any

from fedsplit.clients.oracle import Clients
from fedsplit.methods.dave import DAvePG
from fedsplit.methods.information import FedSplitInformation, InformationState
from fedsplit.methods.lbfgs import LBFGS
from fedsplit.methods.method import Method
from fedsplit.methods.quasi_newton import QuasiNewton

MOST_COORDINATES = 500
"""Above this, a client's few Newton steps take longer than a vector method's whole run."""

MOST_ENTRIES = 2e7
"""The most entries of all clients' Hessians, m·d²: the server adds them up in every round."""


def affordable(m: int, d: int) -> bool:
    """Whether Hessians of m clients and d coordinates are small enough to be asked for."""
    return d <= MOST_COORDINATES and m * d**2 <= MOST_ENTRIES


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
    m = clients.m
    d = clients.d
    vectors = ""
    if not clients.hessians:
        vectors = "the clients cannot compute their Hessians"
    elif not affordable(m, d):
        vectors = f"Hessians of {m} clients × {d} coordinates are too large"
    reason = f"Hessians of {m} clients × {d} coordinates are affordable"
    if state is not None:
        reason = "it continues from its state"
        vectors = "" if isinstance(state, InformationState) else reason
    method: Method[Any] = FedSplitInformation(wait=participation < 1.0)
    if vectors:
        method = QuasiNewton()
        if asynchronous:
            method = DAvePG()
        elif device:
            method = LBFGS()
    return method, f"method: {method.described()} ({vectors or reason})"
