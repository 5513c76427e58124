"""A federation in this process that exchanges files alone: the commands as users type them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedsplit.commands.app import run
from fedsplit.remote.issuing import make_keys, request_certificate, sign_request
from hospitals import people, write

Told = pytest.CaptureFixture[str]

FORMULA = "score ~ age + ward"

STUDY = "visits"


class ByFiles:
    """A coordinator and some sites, each with its own folder, and a folder for their mail.

    Every site makes its own key.
    """

    def __init__(self, folder: Path, data: Mapping[str, Path], *model: str) -> None:
        self.folder, self.data, self.model = folder, dict(data), model
        self.names = sorted(data)
        self.study = folder / STUDY
        self.keys = folder / "keys"
        if not self.keys.exists():
            make_keys(self.keys, [], ["localhost"], 2)
            for name in self.names:
                path, _ = request_certificate(folder / name, name)
                sign_request(self.keys, path, 2, False)

    def copied(self, folder: Path) -> ByFiles:
        """The same federation elsewhere, as it is now."""
        shutil.copytree(self.folder, folder)
        copy = ByFiles(folder, self.data, *self.model)
        about = copy.study / "run.json"
        text = about.read_text(encoding="utf-8")
        about.write_text(text.replace(str(self.keys), str(copy.keys)), encoding="utf-8")
        return copy

    def ask(self, *more: str, study: str = STUDY) -> int:
        return run(["ask", str(self.folder / study), "--keys", str(self.keys), *self.model, *more])

    def question(self, number: int, study: str = STUDY) -> Path:
        return self.folder / study / f"question-{number}.fedsplit"

    def file(self, number: int, name: str) -> Path:
        return self.folder / f"answer-{number}-{name}.fedsplit"

    def state(self, name: str) -> Path:
        return self.folder / name / "state"

    def answer(
        self, name: str, question: Path, *more: str, out: Path | None = None, approve: str = ""
    ) -> int:
        """Answer a question, of a study that the owner has approved by its hash."""
        if out is None:
            number = question.stem.rpartition("-")[2]
            out = self.folder / f"answer-{number}-{name}.fedsplit"
        return run(
            [
                "answer", str(question), "--data", str(self.data[name]), "--folder",
                str(self.state(name)), "--key", str(self.folder / name / f"{name}.key"), "--ca",
                str(self.keys / "ca.crt"), "--out", str(out), "--approve",
                approve or self.hash(question),
                *more,
            ]
        )  # fmt: skip

    def hash(self, question: Path) -> str:
        """Of the study in the folder of a question, or of the first one."""
        folder = question.parent if (question.parent / "study.json").exists() else self.study
        return hashlib.sha256((folder / "study.json").read_bytes()).hexdigest()

    def answer_all(self, number: int, study: str = STUDY) -> list[Path]:
        """Every site answers a question."""
        for name in self.names:
            assert self.answer(name, self.question(number, study)) == 0
        return [self.file(number, name) for name in self.names]

    def combine(self, *more: Path | str) -> int:
        return run(["combine", str(self.study), *map(str, more)])

    def rounds(self) -> int:
        """Exchange files until the study is done; returns how many rounds that takes."""
        assert self.ask() == 0
        number = 0
        while not (self.study / "result.fedsplit").exists():
            number += 1
            assert number < 30
            assert self.combine(*self.answer_all(number)) == 0
        return number


def hospitals(folder: Path, sizes: tuple[int, ...] = (60, 45, 30)) -> ByFiles:
    """Hospitals whose study is not begun yet."""
    folder.mkdir()
    paths = {Path(path).stem: Path(path) for path in write(people(sizes=sizes), folder)}
    return ByFiles(folder / "federation", paths, "--formula", FORMULA)


def refusal(capsys: Told, status: int) -> str:
    """The one line with which something was refused."""
    error = capsys.readouterr().err
    assert status == 2, error
    [line] = error.splitlines()
    return line.removeprefix("fedsplit: error: ")
