"""Sums over all clients, for methods that need an answer from every one of them."""

from __future__ import annotations

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer
from fedsplit.errors import InputError


def complete(name: str, answer: Answer) -> Array:
    """The rows of an answer that every client gave: a sum without one of them is of another F."""
    if not array_namespace(answer.rows).all(answer.present):
        raise InputError(
            f"{name} needs every client's answer in every round: use a method that takes "
            "partial participation, such as FedSplit"
        )
    return answer.rows


def total(name: str, answer: Answer) -> Array:
    """The sum of an answer's rows over all clients."""
    summed: Array = array_namespace(answer.rows).sum(complete(name, answer), axis=0)
    return summed


def curvatures(name: str, clients: Clients, x0: Array) -> Array:
    """ℓ_j and L_j, (m, 2); those at x0 if some L_j has no bound that holds for every x."""
    xp = array_namespace(x0)
    rows = complete(name, clients.curvature())
    if not xp.all(xp.isfinite(rows)):
        rows = complete(name, clients.curvature(x0))
    largest = float(xp.max(rows[:, 1]))
    if not (xp.all(xp.isfinite(rows)) and largest > 0):
        raise InputError(
            f"{name}: no step follows from curvatures L_j up to {largest:g}: pass step="
        )
    return rows
