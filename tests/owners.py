"""A federation in this process whose sites have keys, and owners who approve studies."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedsplit.channels.channel import Reply, Request
from fedsplit.clients.question import Question
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.survey import Survey
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.regression.result.model import Model
from fedsplit.remote.issuing import make_keys
from fedsplit.remote.keys import fingerprint, read_private_key
from fedsplit.remote.messages import MessageChannel, read_reply, write_request
from fedsplit.remote.signatures import Signer
from fedsplit.sites.events import Event
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site
from fedsplit.sites.studies.credentials import Credentials
from fedsplit.sites.studies.proposal import Decision
from fedsplit.sites.studies.proposing import Proposal, make_study
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study
from test_service import FORMULA, table

NAMES = ("a", "b", "c")

DRAFT = Plan(FORMULA, "poisson", draft=True)


def survey(draft: Plan = DRAFT, name: str = "a") -> Survey:
    """The first question of a fit, to one client."""
    return Survey(Coding(draft, False, (name,)))


def with_tables(folder: Path, names: Sequence[str] = NAMES) -> Path:
    """A folder with a file for each client; each has a column that no study uses."""
    for seed, name in enumerate(names):
        table(seed).assign(secret=1.0).to_csv(folder / f"{name}.csv", index=False)
    return folder


@contextmanager
def disk_full(room: int = 1) -> Iterator[None]:
    """No file can be larger than this while it lasts."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


class Federation:
    """Sites in this process with keys, whose owners approve studies."""

    names: Sequence[str] = NAMES

    def __init__(self, folder: Path, approve: str = "ask", **rules: object) -> None:
        self.folder, self.mode, self.rules = folder, approve, rules
        self.keys = folder / "keys"
        if not self.keys.exists():
            self.make_keys()
        self.signer = Signer(self.keys)
        self.seen: list[Event] = []
        self.watch: Callable[[Event], object] = self.seen.append
        self.start()

    def make_keys(self) -> None:
        make_keys(self.keys, self.names, ["127.0.0.1"], 2)

    def key(self, name: str) -> Path:
        return self.keys / "clients" / f"{name}.key"

    def start(self) -> None:
        self.sites = {name: self.site(name) for name in self.names}

    def site(self, name: str) -> Site:
        ca = (self.keys / "ca.crt").read_bytes()
        credentials = Credentials(self.fingerprint(name), ca, self.key(name))
        return Site(
            name,
            str(self.folder / f"{name}.csv"),
            folder=self.folder / f"kept {name}",
            options=SiteOptions(approve=self.mode, credentials=credentials, **self.rules),  # type: ignore[arg-type]  # the site's own rules
            watch=self.watch,
        )

    def fingerprint(self, name: str) -> str:
        return fingerprint(read_private_key(self.key(name)).public_key())

    def send(
        self, mail: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        return {name: (self.sites[name].reply(letter), "", 0.01) for name, letter in mail.items()}

    def studies(self, name: str = "a") -> Studies:
        return Studies(self.folder / f"kept {name}")

    def words(self, study: Study, name: str = "a") -> str:
        """What the owner reads, once it is there."""
        studies = self.studies(name)
        end = time.monotonic() + 60
        while not (studies.path(study.hash) / "words.txt").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        return studies.words(study.hash)

    def study(self, formula: str = FORMULA, least: int | None = None, **settings: object) -> Study:
        options = FitOptions(None, formula, family="poisson", **settings)  # type: ignore[arg-type]  # fit's own
        members = {name: self.fingerprint(name) for name in self.names}
        return make_study(options, members, self.signer.fingerprint, least)

    def proposal(self, study: Study) -> Proposal:
        return Proposal(self, study, self.signer.sign(study.canonical))

    def approve(self, study: Study) -> None:
        """Propose a study that everybody approves."""
        self.proposal(study).wait(self.names, lambda known, unanswered: None, lambda: None)

    def propose(self, study: Study, name: str = "a") -> Decision:
        return self.proposal(study).ask([name])[name]

    def fit(self, study: Study, **settings: object) -> Model:
        options = FitOptions(None, FORMULA, family="poisson", **settings)  # type: ignore[arg-type]  # fit's own
        return fit_over(MessageChannel(self, self.names, study.hash), options)

    def ask(self, question: Question, study: str = "", key: str = "", name: str = "a") -> Reply:
        message = write_request(Request(question, key, 3, study=study))
        return read_reply(self.sites[name].reply(message), question.answer_type, 0.0)
