"""The server's side of secure sums: it brings clients the keys of all, and counts exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from fedsplit import files
from fedsplit.channels.channel import Channel, Request
from fedsplit.channels.members import Patience
from fedsplit.channels.summed import FEWEST
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.remote.masked import MaskedChannel, Removal
from fedsplit.remote.messages import Transport, read_reply, write_request
from fedsplit.sites.secure.protocol import KeyLetter, Standing
from fedsplit.sites.studies.proposal import Decision, ShareKeys
from fedsplit.sites.studies.study import Study

TIMEOUT = 30.0
"""Seconds that a client has to take note of the keys."""


class Kept(NamedTuple):
    """What the server knows of a study with secure sums.

    Attributes
    ----------
    study : str
        Its hash.
    letters : mapping of str to KeyLetter
        By client.
    met : tuple of str
        The clients that have the keys of all.
    number : int
        Of the last exchange.
    members : tuple of str
        The clients that still take part.
    """

    study: str
    letters: Mapping[str, KeyLetter] = MappingProxyType({})
    met: tuple[str, ...] = ()
    number: int = 0
    members: tuple[str, ...] = ()


class KeyExchange:
    """The keys of a study with secure sums, on their way from each client to all.

    Nothing of it is secret, and a client takes nothing on trust from it.

    Parameters
    ----------
    path : Path or None
        A file in the folder of the run, so that it can be resumed; None for a run that always
        begins at its first exchange, with the answers that there are.
    study : Study
    """

    def __init__(self, path: Path | None, study: Study) -> None:
        self._path = path
        self._study = study
        self._kept = Kept(study.hash, members=tuple(sorted(study.members)))
        if path is None:
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Kept)
            if found.study == study.hash:  # otherwise of an earlier run in this folder
                self._kept = found
        except FileNotFoundError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(f"{path}: cannot be read; start again in another folder") from None

    def take(self, decisions: Mapping[str, Decision]) -> None:
        """Take the keys that came with the approvals of clients."""
        letters = dict(self._kept.letters)
        for name, decision in decisions.items():
            if decision.letter is None:
                continue
            if letters.setdefault(name, decision.letter) != decision.letter:
                raise InputError(
                    f"client {name} has another key of the study than before: it has lost what it "
                    "had sent, and the study cannot go on; change an option, which makes another"
                )
        self._keep(letters=letters)

    def share(self, transport: Transport, names: Sequence[str]) -> None:
        """Bring the keys of all to the clients that are there.

        Raises
        ------
        TooFewClients
            If one that has never had them is not there.
        """
        kept = self._kept
        lacking = [name for name in self._study.members if name not in kept.letters]
        if lacking:
            raise TooFewClients(f"client {listed(lacking)} has not sent its key: start it again")
        letters = [kept.letters[name] for name in sorted(kept.letters)]
        message = write_request(Request(ShareKeys(letters), study=self._study.hash))
        standings = {}
        for name, (found, _, _) in transport.send(dict.fromkeys(names, message), TIMEOUT).items():
            if found is None:
                continue
            reply = read_reply(found, Standing, 0.0)
            if reply.outcome != "answer":
                raise InputError(f"client {name}: {reply.text.removeprefix(f'client {name}: ')}")
            standings[name] = reply.value
        met = tuple(sorted({*kept.met, *standings}))
        absent = sorted(set(kept.members) - set(met))
        if absent:
            raise TooFewClients(f"client {listed(absent)} is away: start it again")
        number = kept.number
        if self._path is not None:
            number = max([number, *(each.number for each in standings.values())])
        self._keep(met=met, number=number)

    def channel(self, channel: Channel, patience: Patience) -> MaskedChannel:
        """The way to the clients, by which the server can read nothing but sums."""
        willing = [name for name, letter in self._kept.letters.items() if letter.removal]
        least = max(FEWEST, patience.min_clients or len(self._study.members))
        removal = Removal(willing, patience.give_up, least)
        kept = self._kept
        return MaskedChannel(channel, kept.number, kept.members, removal, self._note)

    def _note(self, number: int, members: tuple[str, ...]) -> None:
        self._keep(number=number, members=members)

    def _keep(self, **changes: object) -> None:
        self._kept = self._kept._replace(**changes)  # type: ignore[arg-type]  # its own fields
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        files.write(self._path, msgspec.json.encode(self._kept))
