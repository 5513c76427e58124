"""Which questions of a study were asked."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

from fedsplit.errors import RequestError
from fedsplit.remote import codec
from fedsplit.remote.channel import Request
from fedsplit.sites.studies.study import BEFORE, Study


class AskedQuestions:
    """Which questions of a study were asked: the same one again adds nothing, and does not count.

    Parameters
    ----------
    path : Path
        A file with one line per question: its kind, and a digest.
    study : Study
        Whose numbers are the limits.
    """

    def __init__(self, path: Path, study: Study) -> None:
        self._path = path
        self._study = study
        lines: list[str] = []
        if path.exists():
            lines = path.read_text(encoding="ascii").splitlines()
        self._seen = dict.fromkeys(lines)
        self._counts = Counter(line.partition(" ")[0] for line in self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, request: Request) -> None:
        """Count the questions of a request; raises InputError for one too many."""
        for question in request.parts:
            name = question.name()
            content = codec.encode((request.key * (not question.prepares), request.m, question))
            line = f"{name} {hashlib.sha256(content).hexdigest()}"
            if line in self._seen:
                continue
            if self._counts[name] >= self._study.questions[name]:
                raise RequestError(
                    f"the approved study has {self._study.questions[name]} questions {name}, and "
                    "all of them were asked"
                )
            if name not in BEFORE and not question.prepares and self._points >= self._study.points:
                raise RequestError(
                    f"the approved study has {self._study.points} points, and all of them were "
                    "asked about"
                )
            self._counts[name] += 1
            self._seen[line] = None
            self._write(line)

    @property
    def _points(self) -> int:
        settled = {*BEFORE, "settle"}
        return sum(number for name, number in self._counts.items() if name not in settled)

    def _write(self, line: str) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(file, "a", encoding="ascii") as opened:
            opened.write(line + "\n")
