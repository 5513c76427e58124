"""``fedsplit server``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit.channels.channel import Channel
from fedsplit.channels.members import Patience
from fedsplit.commands.fit import present
from fedsplit.commands.gathering import check_enough, gather, identified, wanted_clients
from fedsplit.commands.interrupts import discarding, resumable
from fedsplit.commands.keys import check_extra
from fedsplit.commands.options import (
    Json,
    PrivacyOptions,
    Resilience,
    take,
    with_fields,
    with_whole_formula,
)
from fedsplit.commands.server_options import ServerNetwork
from fedsplit.commands.server_view import ServerView
from fedsplit.commands.studies import (
    approved_by_all,
    check_private,
    check_secure,
    keep_study,
    masked,
    signed_study,
    telling_failure,
)
from fedsplit.errors import listed
from fedsplit.regression.options import FitOptions
from fedsplit.remote.messages import MessageChannel, Signature

if TYPE_CHECKING:
    from fedsplit.channels.checkpoint import Checkpoint
    from fedsplit.regression.result.model import Model
    from fedsplit.regression.server.federation import Progress
    from fedsplit.remote.https.server import HttpsServer
    from fedsplit.remote.signatures import Signer
    from fedsplit.sites.studies.study import Study

RESUMED_WAIT = 60.0
"""The most seconds to wait for clients to return to a run that is resumed."""

NOT_HERE = ("group", "na", "decimal", "seed", "method", "engine", "address", "cohorts")
"""Options of ``fit`` that are about clients in this process or on a cluster."""


@with_fields(
    *(each for each in fields(FitOptions) if each.name not in NOT_HERE),
    *(each for each in fields(Resilience) if each.name != "checkpoint"),
    *(each for each in fields(PrivacyOptions) if each.name != "dp_seed"),
    *fields(ServerNetwork),
)
def server_command(
    clients: Annotated[
        str,
        typer.Option(metavar="N|NAME,...", help="Number of clients to wait for, or their names."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for the model, its trace, its page and the checkpoint."
        ),
    ],
    as_json: Json = False,
    **chosen: Any,
) -> None:
    """Fit one regression with clients in other organisations, which run fedsplit client.

    The server waits for the clients, proposes the study to them (OUT/study.json), and waits until
    the owner of each has approved it. Then it agrees with them on columns and categories, runs the
    rounds, and prints the table and the proof. Clients connect to the server. Only their answers
    leave them, never their rows. The run is kept in OUT/checkpoint until it is done, and can be
    resumed.

    Exit status: 0 done; 1 tolerance not proved, or a client is missing, has declined the study,
    was removed or has no complete row; 2 bad input, or a client refuses to answer; 130 or 143
    interrupted.
    """
    from fedsplit.regression.result.io import check_folder  # pandas takes a second to import

    check_extra()
    network = take(ServerNetwork, chosen)
    if chosen["resume"] is None:
        chosen["checkpoint"] = out / "checkpoint"
    resilience = take(Resilience, chosen)
    chosen["dp"] = take(PrivacyOptions, chosen).privacy
    check_folder(out)
    run = ServerRun(clients, out, network, resilience, with_whole_formula(chosen))
    with resumable(run.checkpoint):
        model = run.fit()
    complete = present(model, out, as_json)
    run.checkpoint.discard()
    if not complete:
        typer.echo(f"fedsplit: {advice(model)}", err=True)
        raise typer.Exit(1)


class ServerRun:
    """One fit with clients in other organisations.

    Whatever can be wrong with the options and the keys is found before the server listens.

    Parameters
    ----------
    clients : str
        Number of clients to wait for, or their names.
    out : Path
        Folder of the run.
    network : ServerNetwork
    resilience : Resilience
        With a folder to resume from, or for a new checkpoint.
    model : mapping
        The options of the model.

    Attributes
    ----------
    checkpoint : Checkpoint
    """

    def __init__(
        self,
        clients: str,
        out: Path,
        network: ServerNetwork,
        resilience: Resilience,
        model: Mapping[str, Any],
    ) -> None:
        kept = resilience.kept
        assert kept is not None  # one of its folders is given
        self.checkpoint: Checkpoint = kept
        self._resumed = resilience.resume is not None
        self._out = out
        self._wait = network.wait
        self._least = resilience.min_clients
        self._signer: Signer | None = network.signer()
        self._server: HttpsServer = network.server()
        self._view = ServerView(self._server.clients)
        self._reported: list[Progress] = []
        self._options = FitOptions(
            None,
            **model,
            patience=resilience.patience,
            checkpoint=kept,
            progress=self._report,
        )
        allowed = None
        if self._server.allowed is not None:
            allowed = self._server.allowed.names
        self._known, self._wanted = wanted_clients(clients, allowed)
        check_enough(self._wanted, self._least)
        if self._options.secure:
            check_secure(self._options, self._wanted, self._least, self._signer)
        check_private(self._options, self._wanted, self._least)

    def fit(self) -> Model:
        """Gather the clients, have the study approved, fit, and write the model."""
        from fedsplit.regression.fit import fit_over  # pandas takes a second to import
        from fedsplit.regression.result.table import pooled_summary

        self._warn()
        patience = self._options.patience or Patience()
        with self._server as server, self._view as view:
            members, study, signature = self._agreed()
            connected = partial(_among, members, server.present)
            asked = members
            if self._resumed:  # whose owners have approved before
                asked = connected()
            proposal = approved_by_all(server, study, signature, asked, view)
            view.fits(members)
            with discarding(self.checkpoint, self._reported), telling_failure(proposal, connected):
                channel: Channel = MessageChannel(server, members, study.hash)
                if study.secure:
                    channel = masked(channel, proposal, server, connected(), self._out, patience)
                model = fit_over(channel, self._options)
            # before the approvals end: without its files, the run has to be resumed
            model.write(self._out)
            complete = model.settings.dp is not None or model.converged
            proposal.finish(connected(), complete, pooled_summary(model))
        return model

    def _agreed(self) -> tuple[list[str], Study, Signature]:
        """The members of the study, once they are connected, and the study."""
        if self._resumed:
            members = list(self.checkpoint.about().get("clients", ()))
            study, signature = self._study(members)  # another one is refused at once
            wait = min(self._wait, RESUMED_WAIT)
            self._identified(self._gathered(members, len(members), wait, 0))
        else:
            connected = self._gathered(self._known, self._wanted, self._wait, self._least)
            members = self._identified(connected)
            study, signature = self._study(members)
        return members, study, signature

    def _gathered(
        self, known: Sequence[str], wanted: int, wait: float, least: int | None
    ) -> list[str]:
        return gather(self._server.present, known, wanted, wait, least, self._view.gathered)

    def _identified(self, members: Sequence[str]) -> list[str]:
        """Those of the members that can take part, or are away for the moment."""
        connected = _among(members, self._server.present)
        compatible = identified(self._server, connected, self._least)
        return [name for name in members if name in compatible or name not in connected]

    def _study(self, members: Sequence[str]) -> tuple[Study, Signature]:
        study, signature = signed_study(self._options, members, self._signer, self._least)
        keep_study(study, self._out, self._resumed)
        return study, signature

    def _warn(self) -> None:
        """Print what expires soon."""
        warnings = [self._server.warning]
        if self._signer is not None:
            warnings.append(self._signer.warning)
        for warning in filter(None, warnings):
            typer.echo(f"fedsplit: warning: {warning}", err=True)

    def _report(self, now: Progress) -> None:
        self._reported.append(now)
        self._view.progress(now)


def _among(who: Sequence[str], present: Callable[[], Iterable[str]]) -> list[str]:
    """Those of some clients that are connected."""
    found = set(present())
    return [name for name in who if name in found]


def advice(model: Model) -> str:
    """Why a table is not that of all clients to the tolerance, and what to do about it."""
    if model.removed:
        return (
            f"the table is without {listed(model.removed)}: to have all, mend what is said above, "
            "and fit again into another folder"
        )
    if not model.converged:
        return "the tolerance is not proved: allow more rounds with --rounds, or add a --ridge"
    if model.not_estimable:
        return "some coefficients are not determined by the data: leave their columns out"
    return "a client has no complete row: see the table of clients, or use --missing"
