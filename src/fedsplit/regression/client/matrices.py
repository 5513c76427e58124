"""How many matrices of the same rows a client tells.

Several Hessians of the same rows, at different points, can determine these: q of them are
q·d(d + 1)/2 numbers, and n rows are n·d.
"""

from __future__ import annotations

import math
from hashlib import sha256

from fedsplit.clients.questions import Question
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.findings import Finding
from fedsplit.remote import codec

ROUNDS = 10
"""A fit by matrices has seldom more rounds."""

PROOFS = 4
"""How many matrices a fit by vectors may need for its proofs."""

MOST_SHARE = 1 / 3
"""Of the numbers in the rows: a strict client tells no more in matrices."""


class MatrixGuard:
    """Counts the matrices that one client tells of the same rows.

    Parameters
    ----------
    rows : Design
    strict : bool
        Whether their number is limited.
    vectors : bool
        Whether the client's owner allows matrices for proofs only.
    """

    def __init__(self, rows: Design, strict: bool, vectors: bool) -> None:
        self._name = rows.name
        self._vectors = vectors
        parameters = rows.A.shape[1] * max(1, rows.classes - 1)
        self._most = math.inf
        if strict:
            self._most = math.floor(2 * MOST_SHARE * rows.rows / parameters)
        self._told: dict[bytes, int] = {}

    @property
    def findings(self) -> list[Finding]:
        """Why the rounds get no matrices of this client; empty if they do."""
        name = self._name
        why = ""
        if self._vectors:
            why = "allow matrices for proofs only"
        elif self._most < ROUNDS:
            why = f"have too few rows for {ROUNDS} matrices of them"
        if not why:
            return []
        one = why.replace("allow ", "allows ").replace("have ", "has ")
        so = "so that the rounds use vectors"
        return [Finding(name, f"client {name} {one}, {so}", f"clients {why}, {so}", name)]

    def check(self, question: Question) -> None:
        """Raise InputError if this question asks for a matrix too many; repetitions are free."""
        if not question.matrices:
            return
        if question.brings_matrices and self.findings:
            raise InputError(
                f"{self.findings[0].one}: choose the method fedsplit, and leave out firth"
            )
        self._told[sha256(codec.encode(question)).digest()] = question.matrices
        told = sum(self._told.values())
        if told > max(PROOFS, self._most):
            raise InputError(
                f"client {self._name} has told {told - question.matrices} matrices of its rows, "
                "and strict checks allow no more: choose the method fedsplit, or fewer columns"
            )
