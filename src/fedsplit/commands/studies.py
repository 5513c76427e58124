"""What ``fedsplit server`` does about a study: it is signed, written, and approved by all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedsplit import files
from fedsplit.channels.channel import Channel
from fedsplit.channels.members import Patience
from fedsplit.commands.interrupts import Terminated
from fedsplit.commands.server_view import ServerView
from fedsplit.errors import InputError, NoMinimiser, TooFewClients, listed
from fedsplit.remote.messages import Signature, Transport
from fedsplit.texts import one_line, printable

if TYPE_CHECKING:
    from fedsplit.regression.options import FitOptions
    from fedsplit.remote.signatures import Signer
    from fedsplit.sites.studies.proposal import Decision
    from fedsplit.sites.studies.proposing import Proposal
    from fedsplit.sites.studies.study import Study

POLL = 2.0
"""Seconds between looks at what owners have decided."""

FILE = "study.json"

KEYS = "keys.json"
"""The clients' public keys of a study with secure sums."""

NO_RESULT = ""
"""In the place of a result: the run has stopped, and may be resumed."""

USUAL = 40
"""As many questions, or fewer, are enough for most fits."""


def signed_study(
    options: FitOptions,
    who: Sequence[str],
    signer: Signer | None,
    least: int | None,
) -> tuple[Study, Signature]:
    """The study of a fit, and the coordinator's signature; without keys there is none.

    Parameters
    ----------
    options : FitOptions
    who : sequence of str
        The clients.
    signer : Signer or None
    least : int or None
        The fewest clients with which the run continues.
    """
    from fedsplit.sites.studies.proposing import make_study

    if signer is None:
        unknown = dict.fromkeys(who, "")
        return make_study(options, unknown, "", least), Signature()
    from fedsplit.remote.key_folder import entries

    if options.secure:
        _check_made_elsewhere(signer.folder, who)
    known = {entry.name: " ".join(entry.fingerprints) for entry in entries(signer.folder)}
    members = {name: known[name] for name in who}
    study = make_study(options, members, signer.fingerprint, least)
    return study, signer.sign(study.canonical)


def check_secure(
    options: FitOptions, wanted: int, least: int | None, signer: Signer | None
) -> None:
    """Raise InputError unless a study with these options can have secure sums.

    Parameters
    ----------
    options : FitOptions
    wanted : int
        How many clients there are to be.
    least : int or None
        The fewest with which the run continues.
    signer : Signer or None
    """
    from fedsplit.channels.summed import FEWEST
    from fedsplit.regression.fit import asked_formula
    from fedsplit.regression.server.agreement import draft_of, with_declarations

    if signer is None:
        raise InputError("--secure needs keys that the clients made: give --keys, not --insecure")
    if min(wanted, least or wanted) < FEWEST:
        raise InputError(f"--secure needs {FEWEST} clients at least, also with --min-clients")
    formula, excluded = asked_formula(options)
    with_declarations(draft_of(formula, options.settings, excluded), options.settings)


def check_private(options: FitOptions, wanted: int, least: int | None) -> None:
    """Raise InputError if a study with these options is to have noise, and cannot.

    Parameters
    ----------
    options : FitOptions
    wanted : int
        How many clients there are to be.
    least : int or None
        The fewest with which the run continues.
    """
    from fedsplit.regression.client.privacy import noise_multiplier
    from fedsplit.regression.fit import asked_formula
    from fedsplit.regression.server.private import declared_columns, declared_plan, say_clip

    privacy = options.dp
    if privacy is None:
        return
    if least not in (None, wanted):
        raise InputError("dp: every client is needed: leave out --min-clients")
    if privacy.colluding >= wanted:
        raise InputError(f"--dp-colluding {privacy.colluding}: there are only {wanted} clients")
    formula, excluded = asked_formula(options)
    plan = declared_plan(formula, options.settings, excluded)
    declared_columns(plan, privacy)
    say_clip(plan, privacy)
    noise_multiplier(privacy.epsilon, privacy.delta)  # needs a package that may not be there


def _check_made_elsewhere(keys: Path, who: Sequence[str]) -> None:
    """Raise InputError if the key of a client was made here."""
    from fedsplit.remote.key_folder import clients_folder

    for name in who:
        path = clients_folder(keys) / f"{name}.key"
        if path.exists():
            raise InputError(
                f"{path}: with --secure the key of a client must not be known here: have {name} "
                f"make its own with fedsplit keys . --request {name}, and --sign that"
            )


def masked(
    channel: Channel,
    proposal: Proposal,
    transport: Transport,
    connected: Sequence[str],
    out: Path,
    patience: Patience,
) -> Channel:
    """The way to clients that mask their answers, once each has the keys of all.

    Parameters
    ----------
    channel : Channel
        To the clients.
    proposal : Proposal
        Which they have approved.
    transport : Transport
    connected : sequence of str
        The clients that are there.
    out : Path
        The folder of the run.
    patience : Patience
    """
    from fedsplit.sites.studies.key_exchange import KeyExchange

    keys = KeyExchange(out / KEYS, proposal.study)
    keys.take(proposal.decisions)
    keys.share(transport, connected)
    return keys.channel(channel, patience)


def keep_study(study: Study, out: Path, resumed: bool) -> None:
    """Write a study into the folder of the run, and print its hash.

    Raises
    ------
    InputError
        If a run that is resumed had another one.
    """
    from fedsplit.sites.studies.hashes import short

    path = out / FILE
    if resumed and path.exists() and path.read_bytes() != study.canonical:
        changed = listed(_differences(path.read_bytes(), study.canonical))
        raise InputError(
            f"{path}: the run had another study ({changed} changed): resume it with the options "
            "and keys that it had, or start again in another folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    files.write(path, study.canonical)
    typer.echo(f"study {short(study.hash)}\nwritten to {path}", err=True)


def _differences(before: bytes, now: bytes) -> list[str]:
    """The names of what differs between two studies, in the words of their files."""
    try:
        old = json.loads(before)
    except ValueError:
        return ["the file"]
    new = json.loads(now)
    names = []
    for key in {**old, **new}:
        here, there = old.get(key), new.get(key)
        if here == there:
            continue
        if key == "options" and isinstance(here, dict):
            names += [name for name in there if here.get(name) != there[name]]
        else:
            names.append(key)
    return names


def approved_by_all(
    transport: Transport,
    study: Study,
    signature: Signature,
    who: Sequence[str],
    view: ServerView,
) -> Proposal:
    """Propose a study, and wait until every owner has approved it."""
    from fedsplit.sites.studies.proposing import Proposal

    proposal = Proposal(transport, study, signature)
    warned: set[str] = set()

    def report(known: Mapping[str, Decision], unanswered: Mapping[str, str]) -> None:
        states = {name: decision.state for name, decision in known.items()}
        view.decided({name: f"no answer: {why}" for name, why in unanswered.items()} | states)
        lines = []
        if not view.draws:
            lines.append(approvals(known, unanswered, who))
        for name, decision in known.items():
            if name not in warned and decision.left is not None and decision.left < USUAL:
                warned.add(name)
                lines.append(
                    f"client {name} answers only {decision.left:,} more questions, a fit usually "
                    f"takes 10 to {USUAL}: ask its owner to allow more"
                )
        for line in lines:
            typer.echo(printable(line), err=True)

    try:
        proposal.wait(who, report, lambda: time.sleep(POLL))
    except (KeyboardInterrupt, Terminated):
        view.stop()
        typer.echo(
            "fedsplit: interrupted before all owners had approved: start the same command again, "
            "what they decided is kept",
            err=True,
        )
        raise
    return proposal


@contextmanager
def telling_failure(proposal: Proposal, there: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Tell the clients that are there when a run ends without a result."""
    try:
        yield
    except (InputError, NoMinimiser, TooFewClients):
        proposal.finish(there(), False, NO_RESULT)
        raise


def approvals(
    known: Mapping[str, Decision], unanswered: Mapping[str, str], who: Sequence[str]
) -> str:
    """Who has approved, who has not, and why some have not answered."""
    states: dict[str, list[str]] = {"approved": [], "pending": [], "declined": [], "absent": []}
    for name in who:
        if name in known:
            states[known[name].state].append(name)
        elif unanswered.get(name):
            states["absent"].append(f"{name} ({one_line(unanswered[name], 200)})")
        else:
            states["absent"].append(name)
    parts = [f"approved by {len(states['approved'])} of {len(who)}"]
    if states["pending"]:
        owners = "owner"
        if len(states["pending"]) > 1:
            owners = "owners"
        parts.append(f"waiting for the {owners} of {', '.join(states['pending'])}")
    if states["absent"]:
        parts.append(f"no answer from {', '.join(states['absent'])}")
    return "; ".join(parts)
