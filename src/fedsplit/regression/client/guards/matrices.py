"""How many matrices of the same rows a client tells.

Several Hessians of the same rows, at different points, can determine these: q of them are
q·d(d + 1)/2 numbers, and n rows are n·d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from fedsplit import files
from fedsplit.clients.question import Question
from fedsplit.errors import RequestError, StateError
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.remote import codec

ROUNDS = 10
"""A fit by matrices has seldom more rounds."""

PROOFS = 4
"""How many matrices a fit by vectors may need for its proofs."""

SEARCHED = 16
"""The same where coefficients may be without bound, and some more are needed to see that."""

MOST_SHARE = 1 / 3
"""Of the numbers in the rows: a strict client tells no more in matrices."""


class Ledger:
    """What was told of the same rows: how many matrices, by the question that asked for them.

    Parameters
    ----------
    path : Path, optional
        A file that keeps it, so that the count outlives the process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._told: dict[str, int] = {}
        self._spent: dict[str, int] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                name, count = line.split()
                if name.startswith("="):
                    self._spent[name[1:]] = int(count)
                else:
                    self._told[name] = int(count)
        except ValueError:
            raise StateError(
                f"{path}: this count of what was disclosed cannot be read, so that nothing is "
                "answered: restore it from a backup"
            ) from None

    @property
    def total(self) -> int:
        """Of all questions."""
        return sum(self._told.values())

    def __contains__(self, digest: str) -> bool:
        return digest in self._told

    def add(self, digest: str, matrices: int) -> None:
        """Take note of what is about to be told."""
        self._keep(self._told | {digest: matrices}, self._spent)

    def add_all(self, digests: Sequence[str]) -> None:
        """Take note of several things, each of which counts once."""
        if digests:
            self._keep(self._told | dict.fromkeys(digests, 1), self._spent)

    def spend(self, what: str, most: int) -> bool:
        """Whether something has not been told as often as this; if so, it counts once more."""
        told = self._spent.get(what, 0)
        if told >= most:
            return False
        self._keep(self._told, self._spent | {what: told + 1})
        return True

    def _keep(self, told: dict[str, int], spent: dict[str, int]) -> None:
        """Remember counts, once they are on disk: what cannot be written is not disclosed."""
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            both = [*told.items(), *((f"={name}", n) for name, n in spent.items())]
            lines = [f"{name} {count}\n" for name, count in both]
            files.write_private(self._path, "".join(lines))
        self._told = told
        self._spent = spent


class MatrixGuard:
    """Counts the matrices that one client tells of the same rows.

    Parameters
    ----------
    rows : Design
    rules : Rules
        Whether their number is limited.
    vectors : bool
        Whether the client's owner allows matrices for proofs only.
    ledger : Ledger
        What has been told of these rows.
    """

    def __init__(self, rows: Design, rules: Rules, vectors: bool, ledger: Ledger) -> None:
        self._name = rows.name
        self._vectors = vectors
        self._ledger = ledger
        parameters = rows.A.shape[1] * max(1, rows.classes - 1)
        self._enough = math.inf
        self._jumps = rules.refuse and rows.family.name == "huber"
        # The matrix of a quadratic is the same everywhere, and part of the moments.
        if rules.refuse and not rows.family.quadratic:
            self._enough = math.floor(2 * MOST_SHARE * rows.rows / parameters)
            # a row that crosses δ between two points is the difference of their matrices
            if self._jumps:
                self._enough = 0
        self._most = max(PROOFS, self._enough)
        if vectors:
            self._most = min(SEARCHED, self._most)

    @property
    def limited(self) -> bool:
        """Whether there is anything to count."""
        return self._most < math.inf

    @property
    def findings(self) -> list[Finding]:
        """Why the rounds get no matrices of this client; empty if they do."""
        name = self._name
        why = ""
        if self._vectors:
            why = "allow matrices for proofs only"
        elif self._enough < ROUNDS:
            why = f"have too few rows for {ROUNDS} matrices of them"
            if self._jumps:
                why = "tell no matrices of a loss whose curvature jumps"
        if not why:
            return []
        one = why.replace("allow ", "allows ").replace("have ", "has ").replace("tell ", "tells ")
        so = "so that the rounds use vectors"
        return [Finding(name, f"client {name} {one}, {so}", f"clients {why}, {so}", name)]

    def check(self, question: Question, digest: str) -> None:
        """Raise RequestError if this question asks for a matrix too many; repetitions are free."""
        if question.brings_matrices and self.findings:
            raise RequestError(
                f"{self.findings[0].one}: choose the method quasi-newton, and leave out firth"
            )
        if digest in self._ledger:
            return
        told = self._ledger.total
        if told + question.matrices > self._most:
            raise RequestError(
                f"client {self._name} has told {told} matrices of its rows, and its rules allow "
                "no more: choose the method quasi-newton, fewer columns, or fewer values of lambda"
            )
        self._ledger.add(digest, question.matrices)


def check_matrices(guards: Sequence[MatrixGuard], question: Question, key: str) -> None:
    """Raise RequestError if a question asks some client for a matrix too many.

    The same question in other coordinates, which ``key`` names, is another one.
    """
    limited = [guard for guard in guards if guard.limited]
    if not question.matrices or not limited:
        return
    digest = sha256(codec.encode((key, question))).hexdigest()
    for guard in limited:
        guard.check(question, digest)
