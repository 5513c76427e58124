"""A site of one, whose coordinator asks it whatever it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedsplit.channels import codec
from fedsplit.channels.channel import Reply, Request
from fedsplit.federation.messages import (
    Inquiry,
    Message,
    Proposal,
    Response,
    read_response,
    write_message,
)
from fedsplit.federation.questions import encode_request
from fedsplit.federation.regression import RegressionStudy
from fedsplit.federation.site.site import Site
from fedsplit.federation.study import Analysis, Study
from fedsplit.testing import Federation

TALKATIVE: dict[str, Any] = {
    "secure_sums_only": False,
    "least_sites": 1,
    "questions": 10**6,
    "refusals_before_halt": 10**9,
}
"""The policy of an owner who leaves everything to the rules about rows."""


@dataclass(frozen=True)
class Anything(Analysis):
    """A study to which every question belongs."""

    name: ClassVar[str] = "anything"

    @property
    def columns(self) -> Mapping[str, str]:
        return {}

    def run(self, *arguments: object, **settings: object) -> None:
        raise NotImplementedError

    def check(self, study: Study) -> None:
        pass

    def check_request(self, study: Study, request: Request, answered: int) -> None:
        pass


KNOWN: dict[str, type[Analysis]] = {
    Anything.name: Anything,
    RegressionStudy.name: RegressionStudy,
}


class AskedSite:
    """A site, and whoever has its coordinator's key.

    Parameters
    ----------
    folder : Path
    rows : DataFrame or path
    name : str
    kind : type of Site
    **policy
        Keys beside ``TALKATIVE``.

    Attributes
    ----------
    site : Site
    seen : list of str
        What its owner was shown.
    """

    def __init__(
        self, folder: Path, rows: Any, name: str = "a", kind: type[Site] = Site, **policy: Any
    ) -> None:
        self.federation = Federation(folder, {name: rows}, seed=1, **{**TALKATIVE, **policy})
        self.name = name
        self.seen: list[str] = []
        self._kind = kind
        self._number = 0
        self.study: Study | None = None  # that to which every question belongs
        self.start()

    def start(self) -> None:
        """Begin a process, as after a restart."""
        federation, name = self.federation, self.name
        self.site = self._kind(
            federation.folder / name,
            federation.keys[name],
            federation.policy(name),
            federation.folder / name / "disclosed.db",
            analyses=KNOWN,
            watch=self.seen.append,
            draw=np.random.default_rng(2).bytes,
        )

    def send(self, message: Message) -> Response:
        """The response to a message."""
        data = self.site.reply(write_message(self.federation.key, message))
        return read_response(bytes.fromhex(self.federation.members[self.name]), data)

    def propose(self, analysis: Analysis, **terms: Any) -> Study:
        """A study that the site has joined."""
        study = self.federation.study(analysis, **{"secure": False, **terms})
        response = self.send(Proposal(study.content))
        assert response.outcome == "answer", response.reason
        return study

    def inquire(self, question: bytes, study: Study | None = None) -> Response:
        """The response to the next question of a study."""
        if study is None:
            study = self.study = self.study or self.propose(Anything(), questions=10**6)
        self._number += 1
        return self.send(Inquiry(study.digest, self._number, question))

    def ask(self, request: Request, study: Study | None = None) -> Reply:
        response = self.inquire(encode_request(request), study)
        if response.outcome != "answer":
            return Reply("refused", text=response.reason)
        return Reply("answer", codec.decode(request.question.answer_type, response.value))

    @property
    def refusals(self) -> list[str]:
        """What was refused, as its owner reads it."""
        return [each.detail for each in self.site.record.log() if each.event == "refused"]
