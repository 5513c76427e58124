"""The proof of a fit: what all clients' gradients and information matrices show at one x."""

from __future__ import annotations

from typing import NamedTuple

from fedsplit.arrays import Array, add_diagonal, unpacked
from fedsplit.clients.questions import Decrement, Gradient, Information, ProofScalars
from fedsplit.dialogue import Answering
from fedsplit.loop.certificate import Certificate, Facts
from fedsplit.methods.method import Evidence
from fedsplit.penalties.penalty import FitPenalty

PROOF = 3
"""The questions of a proof: gradients, information matrices, scalars."""


class Proof(NamedTuple):
    """What the clients answered at x, and what it proves.

    Attributes
    ----------
    x : (d,) array
    gradients : (m, d) array
    information : (m, d, d) array
        The Hessians, each with its share of the penalty's ridge.
    scalars : ProofScalars
    certificate : Certificate
    """

    x: Array
    gradients: Array
    information: Array
    scalars: ProofScalars
    certificate: Certificate


def prove(
    clients: Answering, x: Array, penalty: FitPenalty | None, subgradient: Array | None
) -> Proof:
    """Ask ``PROOF`` questions of every client, and prove what follows.

    Parameters
    ----------
    clients : Answering
        All of them have to answer.
    x : (d,) array
    penalty : FitPenalty or None
    subgradient : (d,) array or None
        One of the penalty at x.
    """
    gradients = clients.ask(Gradient(x)).rows
    information = clients.ask(Information(x)).rows.copy()
    if penalty is not None:
        add_diagonal(information, penalty.l2 / len(gradients))
    slope = gradients.sum(axis=0)
    if subgradient is not None:
        slope = slope + subgradient
    scalars = ProofScalars(**clients.ask(Decrement(x, slope)).parts)
    certificate = Facts(x, slope, scalars, penalty).certificate(information.sum(axis=0))
    return Proof(x, gradients, information, scalars, certificate)


def prove_by_evidence(
    evidence: Evidence, x: Array, penalty: FitPenalty | None, subgradient: Array | None
) -> Proof:
    """What the answers of one round of ``FedSplitInformation`` prove at its x, without a question.

    The information matrices are those of the clients' own points, which are x at the end.
    """
    m = len(evidence.spread)
    information = unpacked(evidence.hessians)
    H = evidence.least_hessian
    slope = evidence.gradients.sum(axis=0)
    if penalty is not None:
        add_diagonal(information, penalty.l2 / m)
        add_diagonal(H[None], penalty.l2)
    if subgradient is not None:
        slope = slope + subgradient
    certificate = Facts(x, slope, evidence.scalars, penalty).certificate(H)
    return Proof(x, evidence.gradients, information, evidence.scalars, certificate)
