"""Which questions of a study were asked."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from fedsplit import files
from fedsplit.clients.question import Question
from fedsplit.errors import RequestError
from fedsplit.remote import codec
from fedsplit.remote.channel import Request
from fedsplit.sites.studies.limits import ABOUT_NO_POINT, NOT_SHOWN
from fedsplit.sites.studies.study import Study


class AskedQuestions:
    """Which questions of a study were asked: the same one again adds nothing, and does not count.

    That holds as long as the rows are the same: of other rows it is another question.

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
        self._seen = dict.fromkeys(files.recover_lines(path))
        self._counts = Counter(line.partition(" ")[0] for line in self._seen)

    def __len__(self) -> int:
        return sum(self._counts[name] for name in set(self._counts) - set(NOT_SHOWN))

    def add(self, request: Request, rows: str) -> None:
        """Count the questions of a request; raises InputError for one too many.

        Parameters
        ----------
        request : Request
        rows : str
            The version of the rows that it is about.
        """
        for question in request.parts:
            name = question.name()
            line = f"{name} {question_digest(request, question, rows)}"
            if line in self._seen:
                continue
            if self._counts[name] >= self._study.questions[name]:
                raise RequestError(
                    f"the approved study has {self._study.questions[name]} questions {name}, and "
                    "all of them were asked"
                )
            if name not in ABOUT_NO_POINT and self._points >= self._study.points:
                raise RequestError(
                    f"the approved study has {self._study.points} points, and all of them were "
                    "asked about"
                )
            files.append_line(self._path, line)
            self._counts[name] += 1
            self._seen[line] = None

    @property
    def _points(self) -> int:
        return sum(self._counts[name] for name in set(self._counts) - set(ABOUT_NO_POINT))


def question_digest(request: Request, question: Question, rows: str) -> str:
    """What a question is known by: the same one about the same rows has the same answer."""
    key = request.key
    if question.prepares:
        key = ""
    return hashlib.sha256(codec.encode((key, request.m, question, rows))).hexdigest()
