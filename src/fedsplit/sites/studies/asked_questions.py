"""Which questions of a study were asked."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from fedsplit import files
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
        self._seen = dict.fromkeys(files.read_lines(path))
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
            files.append_line(self._path, line)
            self._counts[name] += 1
            self._seen[line] = None

    @property
    def _points(self) -> int:
        settled = {*BEFORE, "settle"}
        return sum(number for name, number in self._counts.items() if name not in settled)
