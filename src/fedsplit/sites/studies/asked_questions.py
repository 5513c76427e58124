"""Which questions of a study were asked."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from fedsplit import files
from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.clients.question import Question
from fedsplit.errors import RequestError
from fedsplit.sites.studies.limits import NOT_SHOWN, about_no_point
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
        self._counts = Counter(title for line in self._seen for title in _titles(line))

    def __len__(self) -> int:
        return sum(not _titles(line) <= set(NOT_SHOWN) for line in self._seen)

    def add(self, request: Request, rows: str) -> None:
        """Count the questions of a request; raises InputError for one too many.

        Parameters
        ----------
        request : Request
        rows : str
            The version of the rows that it is about.
        """
        for question in request.parts:
            line = f"{'+'.join(question.titles)} {question_digest(request, question, rows)}"
            if line in self._seen:
                continue
            for name in question.titles:
                if self._counts[name] >= self._study.questions[name]:
                    raise RequestError(
                        f"the approved study has {self._study.questions[name]} questions {name}, "
                        "and all of them were asked"
                    )
            if _about_points(line) and self._points >= self._study.points:
                raise RequestError(
                    f"the approved study has {self._study.points} points, and all of them were "
                    "asked about"
                )
            files.append_line(self._path, line)
            self._counts.update(question.titles)
            self._seen[line] = None

    @property
    def _points(self) -> int:
        return sum(map(_about_points, self._seen))


def _titles(line: str) -> set[str]:
    """The titles of a question in a line of the record."""
    return set(line.partition(" ")[0].split("+"))


def _about_points(line: str) -> bool:
    return not _titles(line) <= about_no_point()


def question_digest(request: Request, question: Question, rows: str) -> str:
    """What a question is known by: the same one about the same rows has the same answer."""
    key = request.key
    if question.prepares:
        key = ""
    return hashlib.sha256(codec.encode((key, request.m, question, rows))).hexdigest()
