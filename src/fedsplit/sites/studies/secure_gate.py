"""What must hold before a client takes part in secure sums: its own key, and known partners."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedsplit.channels.channel import Request
from fedsplit.errors import RequestError, listed
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.remote.messages import content_digest
from fedsplit.sites.secure.pins import Pins
from fedsplit.sites.secure.protocol import KeyLetter
from fedsplit.sites.studies.credentials import Credentials
from fedsplit.sites.studies.overlaps import Exposure, Sums, exposed, sums_of
from fedsplit.sites.studies.store import Decided, Studies
from fedsplit.sites.studies.study import Study

if TYPE_CHECKING:
    from fedsplit.remote.keys import PrivateKey
    from fedsplit.sites.secure.ledger import Fresh, Record
    from fedsplit.sites.secure.participation import SecureStudy

ALWAYS = "always"

COORDINATORS_KEY = (
    "secure sums need a key that was made at the client, and its key was made by the coordinator: "
    "make one there with fedsplit keys --request, and sign that"
)


class SecureGate:
    """Decides with whom, and with which key, a client takes part in secure sums.

    Parameters
    ----------
    studies : Studies
        Where studies are kept.
    name : str
        Of the client.
    credentials : Credentials or None
    rules : Rules
        Of the owner.
    """

    def __init__(
        self, studies: Studies, name: str, credentials: Credentials | None, rules: Rules
    ) -> None:
        self._studies = studies
        self._name = name
        self._credentials = credentials
        self._rules = rules
        self.pins = Pins(studies.folder.parent, dict(rules.partners or ()))

    def check(self) -> None:
        """Raise RequestError unless the client has a key that nobody else knows."""
        self._signer()

    def objection(self, study: Study) -> str:
        """The rule that the partners of a study break; an empty text if there is none."""
        strangers = self.pins.strangers(study.members, self._name)
        if study.secure and self._rules.partners is not None and strangers:
            return f"partners: {strangers[0]} is none of them, or has another key"
        return ""

    def needs_owner(self, study: Study, mode: str) -> bool:
        """Whether a person has to decide: about what several studies disclose, or about keys.

        Parameters
        ----------
        study : Study
        mode : str
            As in ``Approval``: a hash covers the keys of a study, and not what others disclose.
        """
        strangers = self.pins.strangers(study.members, self._name)
        new = study.secure and mode == ALWAYS and bool(strangers)
        return new or bool(self.exposed(study))

    def exposed(self, study: Study) -> list[Exposure]:
        """The clients that a study exposes, together with others that have begun here."""
        return exposed(sums_of(study), self._told(study.hash))

    def _told(self, but: str) -> list[Sums]:
        """What the server has learnt in the studies that have begun here, all but one."""
        found = []
        for name in self._studies.hashes():
            folder = self._studies.path(name)
            if name == but or not (folder / "begun").exists():
                continue
            study = msgspec.json.decode((folder / "study.json").read_bytes(), type=Study)
            sets: tuple[tuple[str, ...], ...] = ()
            if study.secure:
                with suppress(RequestError):  # its ledger is lost: then by all members
                    sets = self.of(study).sets
            found.append(sums_of(study, sets))
        return found

    def check_first(self, study: Study) -> None:
        """Raise RequestError if an open study that has not begun exposes others meanwhile."""
        if not (self._studies.path(study.hash) / "begun").exists():
            self._check_read(study, self.exposed(study))

    def _check_set(self, study: Study, members: tuple[str, ...], record: Record) -> None:
        """Raise RequestError if a sum over other clients than before exposes one of them.

        Those are allowed whose owners let the study go on without them.
        """
        if members in record.sets:
            return
        earlier = self._told(study.hash)
        if record.sets:
            earlier.append(sums_of(study, record.sets))
        willing = self.of(study).willing
        found = [
            each
            for each in exposed(sums_of(study, [members]), earlier)
            if not set(each.clients) <= willing
        ]
        if found and record.sets:
            raise RequestError(
                f"together with another study the sum would tell what {listed(found[0].clients)} "
                "alone sent, whose owner has not allowed that"
            )
        self._check_read(study, found)

    def _check_read(self, study: Study, found: list[Exposure]) -> None:
        """Raise RequestError if clients are exposed of whom the owner here has not read."""
        accepted = self._studies.accepted(study.hash)
        for each in found:
            if each.clients not in accepted:
                self._studies.reopen(study.hash)
                raise RequestError(
                    f"together with another study it would tell what {listed(each.clients)} alone "
                    "sent: its owner has to approve that, so propose the study again"
                )

    def letter(self, study: Study, decided: Decided) -> KeyLetter:
        """The client's key for an approved study.

        What a person has approved is known from then on.
        """
        if decided.by != f"--approve {ALWAYS}":
            self.pins.keep(study.members)
        removal = self._rules.removal or decided.removal
        may_go_on = study.least < len(study.members)
        return self.of(study).letter(self._signer(), removal and may_go_on)

    def of(self, study: Study) -> SecureStudy:
        """The client's part in a study."""
        from fedsplit.sites.secure.participation import SecureStudy  # needs cryptography

        folder = self._studies.path(study.hash)
        return SecureStudy(folder, study.hash, study.members, self._name, study.least)

    def answer(
        self, study: Study, request: Request, compute: Callable[[Record], Fresh]
    ) -> NDArray[np.int64]:
        """The bits of the masked answer to a request of an approved study.

        Parameters
        ----------
        study : Study
        request : Request
        compute : callable
            Gives the numbers that are masked; not called if they were sent already.
        """
        step = request.step
        if step is None:
            raise RequestError("the study has secure sums: no client answers for itself")
        if request.m != len(step.members):
            raise RequestError(f"the sum is of {len(step.members)} clients, not of {request.m}")
        digest = content_digest(request)

        def checked(record: Record) -> Fresh:
            self._check_set(study, step.members, record)
            return compute(record)

        masked = self.of(study).answer(step.number, step.members, digest, checked)
        return masked.view(np.int64)

    def _signer(self) -> PrivateKey:
        """The client's own key."""
        if self._credentials is None or self._credentials.key is None:
            raise RequestError("secure sums need keys: start it without --insecure")
        from fedsplit.remote.issuing import made_here
        from fedsplit.remote.keys import read_private_key

        if not made_here(self._credentials.key):
            raise RequestError(COORDINATORS_KEY)
        return read_private_key(self._credentials.key)
