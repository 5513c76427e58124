"""The coordinator: proposes a study, asks its sites, and records every exchange."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedsplit.channels.patience import Patience
from fedsplit.checks import number
from fedsplit.errors import InputError, TooFewClients, nearest
from fedsplit.federation import authority
from fedsplit.federation.channel import (
    Exchanges,
    OpenChannel,
    SecureChannel,
    StudyChannel,
    Waiting,
    each_alone,
)
from fedsplit.federation.journal import Journal, Recorded
from fedsplit.federation.keys import SigningKey, agree, public_bytes
from fedsplit.federation.messages import ENVELOPE, JOINING, LogHead, Proposal, Response
from fedsplit.federation.study import Study
from fedsplit.federation.study_file import assigned_keys, read_study_file, write_study_file
from fedsplit.federation.transport import Transport, Unreachable
from fedsplit.federation.words import in_lines, study_parts


@dataclass(frozen=True)
class StudyResult:
    """The end of a study.

    Attributes
    ----------
    result : Any
        What the analysis returned.
    questions : int
        How many exchanges there were, without that in which the sites joined.
    heads : mapping of str to LogHead
        The head of each site's log at its last answer, from its own connection.
    """

    result: Any
    questions: int
    heads: Mapping[str, LogHead]


@dataclass(frozen=True)
class Interruption:
    """A study that waits for sites: run it again to go on from here.

    Attributes
    ----------
    number : int
        The exchange that is not complete; 0 is that in which the sites join.
    missing : mapping of str to str
        Why each site has not answered, in a line.
    """

    number: int
    missing: Mapping[str, str] = field(default_factory=dict)


class Coordinator:
    """Runs studies.

    Parameters
    ----------
    folder : Path
        Holds ``journal.db``: all that was received.
    key : Ed25519 private key
        Signs every message.
    transport : Transport
        Reaches the sites.
    patience : Patience, optional
        How long to wait for answers, and for how many sites; ``Patience()`` without.
    wait : float
        Seconds to wait for owners to decide on a study. By files nobody waits.
    watch : callable, optional
        Called with a line whenever there is something to report: a site that joined, is waited
        for, or did something that it should not.

    Examples
    --------
    >>> import fedsplit as fs
    >>> with fs.HttpsTransport("federation", "0.0.0.0", 8000) as transport:  # doctest: +SKIP
    ...     coordinator = fs.Coordinator.open("federation", transport, wait=3600, watch=print)
    ...     print(coordinator.run(coordinator.study("visits.toml")).result)
    """

    def __init__(
        self,
        folder: Path,
        key: SigningKey,
        transport: Transport,
        *,
        patience: Patience | None = None,
        wait: float = 0.0,
        watch: Callable[[str], object] = lambda line: None,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.journal = Journal(folder / "journal.db")
        self._key = key
        self._transport = transport
        self._patience = patience or Patience()
        self._wait = number("wait", wait, strict=False)
        self._watch = watch

    @classmethod
    def open(
        cls, folder: Path | str, transport: Transport | None = None, **settings: Any
    ) -> Coordinator:
        """The coordinator whose keys are in a folder; without a transport it asks nobody.

        Then a study can be computed from the recorded answers, as far as they reach.
        """
        folder = Path(folder)
        key = authority.read_key(folder / "coordinator.key")
        return cls(folder, key, transport or Unreachable(), **settings)

    def study(self, name: str) -> Study:
        """The study in a file of the folder."""
        return read_study_file(self.folder / name)

    @staticmethod
    def assigned(pairs: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The keys of [study] and of [model] in texts such as ``least=3`` and ``ridge=1``."""
        return assigned_keys(pairs)

    def propose(self, name: str, data: object, terms: Mapping[str, Any], **options: Any) -> Study:
        """Write a study into a new file of the folder; see ``write_study_file``."""
        return write_study_file(self.folder / name, data, terms, **options)

    def describe(self, study: Study) -> str:
        """A study in words, as it is shown to owners."""
        return in_lines(study, study_parts(study))

    def joined(self, study: Study) -> list[str]:
        """The sites whose owners have approved a study."""
        found = self.journal.responses(study.digest, JOINING)
        return sorted(name for name, each in found.items() if each.data is not None)

    def run(
        self,
        study: Study,
        *,
        without: Mapping[str, str] | None = None,
        progress: Callable[[Any], object] | None = None,
        **chosen: Any,
    ) -> StudyResult | Interruption:
        """Carry a study on, as far as its sites answer.

        Exchanges that are in the journal are not asked again: the analysis runs on their recorded
        answers. So to resume a run, and to continue a study by files, are this same call.

        Parameters
        ----------
        study : Study
        without : mapping of str to str, optional
            Sites that an open study goes on without, each with the reason.
        progress : callable, optional
            As the analysis takes it.
        **chosen
            What an open study leaves to its coordinator, such as the ``method``.

        Raises
        ------
        InputError
            If a site refuses, and the study cannot go on without it.
        TooFewClients
            If an owner declines, or too many sites are absent.
        """
        if study.coordinator != public_bytes(self._key).hex():
            raise InputError("the study names another coordinator than the key here")
        if study.secure and (without or chosen):
            raise InputError("in a secure study nobody chooses: propose another one")
        for name in without or ():
            if name not in study.members:
                raise InputError(f"{name} is no site of the study: {nearest(name, study.members)}")
        self.journal.begin(study)
        exchanges = Exchanges(study, self.journal, self._key, self._transport, self._report)
        missing = self._join(exchanges)
        if missing:
            return Interruption(JOINING, missing)
        channel: StudyChannel = (
            SecureChannel(exchanges)
            if study.secure
            else OpenChannel(exchanges, list(study.members), without or {})
        )
        patience = replace(self._patience, min_clients=study.least)
        try:
            result = study.analysis.run(channel, study.secure, patience, progress, **chosen)
        except Waiting as waiting:
            return Interruption(waiting.number, waiting.missing)
        except (InputError, TooFewClients):
            self.journal.forget_last(study.digest)
            raise
        exchanges.end(study.analysis.summary(result))
        heads = {name: self.journal.head(study.digest, name) for name in study.members}
        known = {name: head for name, head in heads.items() if head is not None}
        texts = {name: f"{head.number}:{head.hash.hex()}" for name, head in known.items()}
        return StudyResult(study.analysis.with_heads(result, texts), channel.number, known)

    def _join(self, exchanges: Exchanges) -> dict[str, str]:
        """Have the sites join a study; why those have not that are still missing.

        Raises
        ------
        TooFewClients
            If one declines.
        """
        study, deadline = exchanges.study, time.monotonic() + self._wait
        before: dict[str, str] = {}

        def check(site: str, response: Response) -> None:
            size = 32 if study.secure else 0
            if response.transcript != study.digest or len(response.value) != size:
                raise InputError("this is not how a site joins a study")
            if study.secure:  # a key that others refuse would be their refusal: try it here
                agree(bytes(32), response.value)

        while True:
            joined = self.joined(study)
            absent = [name for name in study.members if name not in joined]
            if not absent:
                return {}
            messages = dict.fromkeys(absent, Proposal(study.content))
            left = max(0.0, deadline - time.monotonic())
            seconds = min(left, self._patience.round_timeout)
            results = exchanges.send(JOINING, messages, seconds, ENVELOPE, each_alone(check))
            missing = {
                name: "waits for its owner's decision" if e.outcome == "waiting" else e.trouble
                for name, e in results.items()
                if e.outcome != "answer"
            }
            self._record_why(study, missing)
            for name, each in results.items():
                if each.outcome == "answer":
                    self._watch(f"{name} has joined")
                if each.outcome == "refused":
                    raise TooFewClients(
                        f"site {name} does not take part ({each.trouble}): talk to its owner, "
                        "or propose a study without it"
                    )
                if exchanges.waits and missing.get(name, "") not in ("", before.get(name)):
                    self._watch(f"{name}: {missing[name]}")
            before = missing
            if not missing:
                return {}
            if not exchanges.waits or time.monotonic() >= deadline:
                return missing
            # seconds before owners who have not decided are asked again
            time.sleep(min(2.0, max(0.0, deadline - time.monotonic())))

    def _record_why(self, study: Study, missing: dict[str, str]) -> None:
        """Record why sites have not joined, for who looks at the study meanwhile."""
        known = self.journal.responses(study.digest, JOINING)
        with self.journal.transaction():
            for name, why in missing.items():
                if why:
                    self.journal.add(
                        study.digest, JOINING, name, Recorded("waiting", None, why, 0.0)
                    )
                elif name in known:
                    missing[name] = known[name].trouble

    def _report(self, site: str, what: str) -> None:
        self._watch(f"{site}: {what}")
