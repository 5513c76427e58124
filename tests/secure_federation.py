"""A federation in this process with secure sums: sites whose keys were made there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedsplit.channels.members import Patience
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.regression.result.model import Model
from fedsplit.remote.issuing import make_keys, request_certificate, sign_request
from fedsplit.remote.messages import MessageChannel
from fedsplit.sites.studies.key_exchange import KeyExchange
from fedsplit.sites.studies.study import Study
from owners import Federation, with_tables
from test_service import FORMULA

DECLARED: Mapping[str, object] = {
    "secure": True,
    "types": {"y": "number", "x": "number", "ward": "text"},
    "levels": {"ward": ["east", "north", "west"]},
}


def about_study(message: bytes) -> bool:
    """Whether a message is about the study as a whole."""
    return message.partition(b"\n")[0] in (b"propose", b"share_keys", b"finish")


class ClockedChannel(MessageChannel):
    """A channel on whose clock time passes in waits alone."""

    time = 0.0

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:  # type: ignore[override]  # time does not pass
        self.time += seconds


class SecureFederation(Federation):
    """Sites in this process that answer by masked numbers alone.

    Those that are ``away`` do not answer; with ``restarts`` each begins anew for every message.
    """

    names = ("a", "b", "c", "d")

    def __init__(self, folder: Path, approve: str = "ask", **rules: object) -> None:
        if not (folder / "d.csv").exists():
            with_tables(folder, self.names)
        self.away: set[str] = set()
        self.restarts = False
        self.letters: list[tuple[str, bytes, bytes]] = []
        # called with the number of questions about rows that went out so far
        self.before: Callable[[int], object] = lambda number: None
        super().__init__(folder, approve, **rules)

    def make_keys(self) -> None:
        make_keys(self.keys, ["spare"], ["127.0.0.1"], 2)
        for name in self.names:
            request, _ = request_certificate(self.folder / "own", name)
            sign_request(self.keys, request, 2)

    def key(self, name: str) -> Path:
        return self.folder / "own" / f"{name}.key"

    def send(
        self, mail: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        found: dict[str, tuple[bytes | None, str, float]] = {}
        if not any(map(about_study, mail.values())):
            self.before(self.asked)
        for name, message in mail.items():
            if name in self.away:
                found[name] = (None, "it is not connected", 0.0)
                continue
            if self.restarts:
                self.sites[name] = self.site(name)
            reply = self.sites[name].reply(message)
            self.letters.append((name, message, reply))
            found[name] = (reply, "", 0.01)
        return found

    @property
    def asked(self) -> int:
        """How many questions about rows the first site has answered."""
        return sum(name == "a" and not about_study(message) for name, message, _ in self.letters)

    def study(self, formula: str = FORMULA, least: int | None = None, **settings: object) -> Study:
        return super().study(formula, least, **{**DECLARED, **settings})

    def decide(self, study: Study, removal: Sequence[str] = ()) -> None:
        """Have the study approved by every owner; some allow to go on without them."""
        self.proposal(study).ask(self.names)
        for name in self.names:
            self.studies(name).decide(
                study.hash, "approved", "fedsplit approve", removal=name in removal
            )

    def exchange(self, study: Study, names: Sequence[str] | None = None) -> KeyExchange:
        """The keys of all, brought to everybody."""
        proposal = self.proposal(study)
        there = [name for name in names or self.names if name not in self.away]
        proposal.wait(there, lambda known, unanswered: None, lambda: None)
        keys = KeyExchange(self.folder / "fit" / "keys.json", study)
        keys.take(proposal.decisions)
        keys.share(self, there)
        return keys

    def summed_fit(self, study: Study, **settings: object) -> Model:
        patience = Patience(10.0, 60.0, min_clients=study.least)
        chosen = {**DECLARED, "patience": patience, **settings}
        options = FitOptions(None, FORMULA, family="poisson", **chosen)  # type: ignore[arg-type]  # fit's own
        channel = ClockedChannel(self, self.names, study.hash)
        keys = self.exchange(study)
        return fit_over(keys.channel(channel, patience), options)
