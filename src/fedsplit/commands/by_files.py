"""``fedsplit ask`` and ``fedsplit combine``: the coordinator's side of a study by files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit.commands.fit import present
from fedsplit.commands.gathering import check_enough, wanted_clients
from fedsplit.commands.keys import check_extra
from fedsplit.commands.options import (
    Json,
    PrivacyOptions,
    Resilience,
    take,
    with_fields,
    with_whole_formula,
)
from fedsplit.commands.server import NOT_HERE, advice
from fedsplit.commands.server_options import CoordinatorKeys
from fedsplit.commands.studies import check_private, check_secure, signed_study
from fedsplit.errors import InputError, NoMinimiser, TooFewClients, listed
from fedsplit.regression.options import FitOptions, names

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model
    from fedsplit.sites.letters.coordinator import Coordinator
    from fedsplit.sites.letters.study_folder import StudyFolder

OPTIONS = (
    *(each for each in fields(FitOptions) if each.name not in NOT_HERE),
    *(each for each in fields(Resilience) if each.name == "min_clients"),
    *(each for each in fields(PrivacyOptions) if each.name != "dp_seed"),
    *fields(CoordinatorKeys),
)


@with_fields(*OPTIONS)
def ask_command(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="Folder of the study.", show_default=False)
    ],
    clients: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Clients of a new study; by default all that there are keys for.",
        ),
    ] = "",
    **chosen: Any,
) -> None:
    """Begin a study by files, and write its first question.

    The study is kept in the folder STUDY. Send its file question-1.fedsplit to every client, by
    mail, a shared folder or a USB stick: there fedsplit answer makes an answer of it. fedsplit
    combine takes the answers, and writes the next question or the table.

    Without options, and where STUDY holds a study, the name of its last question is printed again.

    Exit status: 0 done; 2 bad input.
    """
    check_extra()
    from fedsplit.channels.folder_lock import alone
    from fedsplit.sites.letters.study_folder import StudyFolder  # takes a while to import

    folder = StudyFolder(study)
    if not folder.begun:
        _begin(folder, clients, chosen)
        return
    if clients or _given(chosen):
        raise InputError(
            f"{study}: holds a study already: leave out all options to have the name of its last "
            "question, or name another folder"
        )
    with alone(study):
        coordinator = _opened(folder)
        if not folder.number:  # interrupted before the first question
            coordinator.advance()
        _show_question(coordinator)


def _begin(folder: StudyFolder, clients: str, chosen: dict[str, Any]) -> None:
    from fedsplit.channels.folder_lock import alone
    from fedsplit.sites.letters.coordinator import Coordinator, new_run
    from fedsplit.sites.studies.hashes import short

    coordinator_keys = take(CoordinatorKeys, chosen)
    least = chosen.pop("min_clients")
    chosen["dp"] = take(PrivacyOptions, chosen).privacy
    model = with_whole_formula(chosen)
    members = _members(clients, coordinator_keys.keys)
    check_enough(len(members), least)
    signer = coordinator_keys.signer()
    options = FitOptions(None, **model)
    if options.secure:
        check_secure(options, len(members), least, signer)
    check_private(options, len(members), least)
    study, signature = signed_study(options, members, signer, least)
    folder.check_free()
    if signer is not None and signer.warning:
        typer.echo(f"fedsplit: warning: {signer.warning}", err=True)
    with alone(folder.path):
        run = new_run(members, model, least, coordinator_keys.keys)
        coordinator = Coordinator.begin(folder, run, study, signature)
        typer.echo(f"study {short(study.hash)}\nwritten to {folder.study}", err=True)
        coordinator.advance()
        _show_question(coordinator)


def _members(clients: str, keys: Path | None) -> list[str]:
    """The clients of a new study, sorted."""
    known = None
    if keys is not None:
        from fedsplit.remote.key_folder import known_clients

        known = known_clients(keys)
    if not clients and known:
        return known
    if not clients or clients.strip().isdecimal():
        raise InputError("--clients: give the names of the clients, as in north,south,east")
    members, _ = wanted_clients(clients, known)
    from fedsplit.remote.keys import check_name

    for name in members:  # files are named after them
        check_name(name)
    return sorted(members)


def _given(chosen: dict[str, Any]) -> bool:
    """Whether any option was given."""
    defaults = {each.name: each.default for each in OPTIONS}
    return any(value != defaults[name] for name, value in chosen.items())


def combine_command(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="Folder of the study.", show_default=False)
    ],
    answers: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[ANSWERS]...", help="Answers to its last question."),
    ] = None,
    without: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Go on without these clients, which do not answer any longer; at least "
            "--min-clients of fedsplit ask must be left.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Take the answers to the last question of a study by files; write the next, or the table.

    Answers can be given one by one, as they arrive, and an answer can be replaced by a newer one of
    the same client until all are there. With the last one the next question is written, or the
    table is printed, and the model, its trace and its page are written into STUDY. A file that is
    late, doubled, of another study, changed or in the wrong order is named and refused, and none of
    the others is taken then.

    Exit status: 0 done; 1 answers are missing, a client has declined the study, or the table is not
    that of all clients to the tolerance; 2 bad input, or a client refuses to answer.
    """
    check_extra()
    from fedsplit.channels.folder_lock import alone
    from fedsplit.sites.letters.study_folder import StudyFolder  # takes a while to import

    folder = StudyFolder(study)
    folder.run()
    with alone(study):
        coordinator = _opened(folder)
        if not folder.number:
            raise InputError(f"{study}: has no question yet; fedsplit ask {study} writes it")
        for name in coordinator.accept(answers or []):
            typer.echo(f"the answer of {name} replaces its earlier one", err=True)
        with coordinator.leaving_out(names(without)):
            _check_complete(folder)
            model = _advanced(coordinator)
        if model is None:
            _show_question(coordinator)
            return
        model.write(study)
        complete = present(model, study, as_json)
        coordinator.finish()
        typer.echo(
            f"done after {folder.number} rounds; send the result to all: {folder.result}", err=True
        )
    if not complete:
        typer.echo(f"fedsplit: {advice(model)}", err=True)
        raise typer.Exit(1)


def _check_complete(folder: StudyFolder) -> None:
    """End the command if answers are missing."""
    missing = folder.missing(folder.number)
    if missing:
        everyone = len(folder.asked(folder.number))
        typer.echo(
            f"round {folder.number}: {everyone - len(missing)} of {everyone} answers are here; "
            f"missing: {listed(missing, 20)}",
            err=True,
        )
        raise typer.Exit(1)


def _opened(folder: StudyFolder) -> Coordinator:
    from fedsplit.sites.letters.coordinator import Coordinator

    if folder.result.exists():
        raise InputError(
            f"{folder.path}: the study is done; its table is in {folder.path / 'report.html'}"
        )
    return Coordinator(folder)


def _advanced(coordinator: Coordinator) -> Model | None:
    """The model; None if another question was written."""
    try:
        return coordinator.advance()
    except (InputError, NoMinimiser, TooFewClients):
        number = coordinator.folder.number
        typer.echo(f"fedsplit: round {number} is still open: answers can be replaced", err=True)
        raise


def _show_question(coordinator: Coordinator) -> None:
    folder = coordinator.folder
    asked: Sequence[str] = list(folder.asked(folder.number))
    typer.echo(f"send question {folder.number} to {listed(asked, 20)}:", err=True)
    typer.echo(str(folder.question(folder.number)))
