"""``fedsplit study``: what a coordinator does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import fedsplit as fs
from fedsplit.commands.fit import present, show
from fedsplit.commands.help import Command, Group, application
from fedsplit.commands.interrupts import Terminated
from fedsplit.commands.options import Json
from fedsplit.commands.terminal import live, say, wrapped
from fedsplit.errors import InputError

study_app = application(
    cls=Group,
    help="Studies: what a coordinator computes.\n\nExample: fedsplit study check "
    "federation/visits.toml\nfedsplit study run federation/visits.toml --out result",
)

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for the model, its trace and its page."),
]


@study_app.command("new", cls=Command)
def new_command(
    file: File,
    data: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="DATA",
            help="A file with the columns of the sites and all levels, such as the own data.",
        ),
    ],
    formula: Annotated[
        str, typer.Option(metavar="FORMULA", help="Model formula, as fit takes it.")
    ],
    family: Annotated[
        str, typer.Option(metavar="NAME", help="Family of the model, as fit takes it.")
    ] = "gaussian",
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="A line for the owners of the sites.")
    ] = "",
    sites: Annotated[
        str | None,
        typer.Option(
            metavar="SITE,...", help="The members.", show_default="all with a certificate"
        ),
    ] = None,
    open_: Annotated[
        bool,
        typer.Option(
            "--open", help="The coordinator sees the answers of each site, not only their sums."
        ),
    ] = False,
    chosen: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another key of [study] or [model], such as weights=w; may be repeated.",
        ),
    ] = None,
) -> None:
    """Write a study file, with the types and levels that are in some data.

    Example: fedsplit study new federation/visits.toml --from north.csv
    --formula "visits ~ age + C(plan)" --family poisson

    FILE lies in the folder of fedsplit keys init. Nothing of DATA is written but types and levels,
    which secure studies have to declare. Edit FILE as you like: owners approve what is in it when
    it is proposed.
    """
    terms, options = fs.Coordinator.assigned(chosen or ())
    own: dict[str, Any] = {"title": title or formula}
    if sites is not None:
        own["sites"] = [each.strip() for each in sites.split(",")]
    if open_:
        own["secure"] = False
    model = {"formula": formula, "family": family}
    for name in (own.keys() & terms.keys()) | (model.keys() & options.keys()):
        raise InputError(f"{name} is given twice, by an option and by --set")
    coordinator = _coordinator(file)
    study = coordinator.propose(file.name, data, own | terms, **model, **options)
    typer.echo(f"{file}: a study of {len(study.members)} sites; fedsplit study check shows it")
    if not (study.purpose and study.contact and study.until):
        typer.echo("owners ask for its purpose, contact and last day: write them into it")


@study_app.command("check", cls=Command)
def check_command(file: File) -> None:
    """Show a study as the owners of its sites will see it.

    Example: fedsplit study check federation/visits.toml
    """
    coordinator = _coordinator(file)
    typer.echo(coordinator.describe(coordinator.study(file.name)))


@study_app.command("run", cls=Command)
def run_command(
    file: File,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where sites connect.")
    ] = "0.0.0.0:8000",
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for owners to decide.",
            show_default="604800, a week",
        ),
    ] = 7 * 86400.0,
    round_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long one exchange waits for answers.")
    ] = 60.0,
    give_up: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="After which an absent site is left out, or waited for no more."
        ),
    ] = 600.0,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE", help="Go on without a site, in an open study; may be repeated."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Method of an open study, as fit takes it.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Propose a study to its sites, wait for their owners, and compute its result.

    Example: fedsplit study run federation/visits.toml --out result

    Sites connect to this process, in any order. Stopped at any time, the same command goes on
    where it was.

    Exit status: 0 done; 1 a site declines or is away, or the tolerance is not proved; 2 bad input;
    130 or 143 interrupted.
    """
    if out is not None:
        fs.Model.check_folder(out)
    study = _study(file)
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--listen {listen}: give HOST:PORT, such as 0.0.0.0:8000")
    patience = fs.Patience(round_timeout, give_up)
    chosen: dict[str, Any] = {} if method is None else {"method": method}
    if without:
        chosen["without"] = dict.fromkeys(without, "by the coordinator")
    with fs.HttpsTransport(file.parent, host.strip("[]"), int(port), status=say) as transport:
        coordinator = _coordinator(file, transport, patience=patience, wait=wait, watch=say)
        try:
            say(f"study {study.hash[:8]} is proposed on {host}:{transport.port}")
            found = coordinator.run(study, progress=show if live() else None, **chosen)
        except (KeyboardInterrupt, Terminated):
            say("interrupted: the same command goes on from here")
            raise
    _conclude(found, out, as_json)


@study_app.command("ask", cls=Command)
def ask_command(
    file: File,
    post: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder for questions and answers, one of each site in it."
        ),
    ],
) -> None:
    """By files: take the answers that have come, and write the next questions.

    Example: fedsplit study ask federation/visits.toml --post post

    Carry FOLDER/SITE to each site, where fedsplit site answer puts its answers beside the
    questions, and bring it back: a shared folder does as well. Then give this command again.

    Exit status: 0 all questions are answered; 1 questions wait for sites; 2 bad input.
    """
    study = _study(file)
    transport = fs.FileTransport.open(post, file.parent)
    found = _coordinator(file, transport, watch=say).run(study)
    for path in transport.written:
        typer.echo(path)
    _result(found)
    typer.echo(f"all questions are answered: fedsplit study combine {file}")


@study_app.command("combine", cls=Command)
def combine_command(file: File, out: Out = None, as_json: Json = False) -> None:
    """Compute the result of a study from the answers that are recorded, and ask nobody.

    Example: fedsplit study combine federation/visits.toml --out result

    The same answers give the same result, also years later: this is the audit of a study.

    Exit status: 0 done; 1 answers are missing, or the tolerance is not proved; 2 bad input.
    """
    if out is not None:
        fs.Model.check_folder(out)
    study = _study(file)
    _conclude(_coordinator(file).run(study), out, as_json)


@study_app.command("status", cls=Command)
def status_command(file: File) -> None:
    """Say how far a study is, and which sites it waits for.

    Example: fedsplit study status federation/visits.toml
    """
    study = _study(file)
    coordinator = _coordinator(file)
    found = coordinator.run(study)
    joined = coordinator.joined(study)
    typer.echo(f"study {study.hash}\n{wrapped(f'  {study.title}')}")
    for name in study.members:
        typer.echo(f"  {name}: {'takes part' if name in joined else 'has not joined'}")
    if isinstance(found, fs.Interruption):
        typer.echo(wrapped(f"  {_waiting(found)}", indent=4))
    else:
        typer.echo(f"  has its result, after {found.questions} exchanges")


def _coordinator(file: Path, *args: Any, **settings: Any) -> fs.Coordinator:
    """The coordinator in whose folder a study file lies."""
    if file.is_dir():
        raise InputError(f"{file}: is a folder: name a study file in it")
    if not file.parent.joinpath("coordinator.key").exists():
        raise InputError(
            f"{file}: a study file lies in the folder that fedsplit keys init made, and here is no "
            "coordinator.key"
        )
    return fs.Coordinator.open(file.parent, *args, **settings)


def _study(file: Path) -> Any:
    return _coordinator(file).study(file.name)


def _result(found: fs.StudyResult | fs.Interruption) -> fs.StudyResult:
    """The result of a study; the command ends if it waits for sites."""
    if isinstance(found, fs.StudyResult):
        return found
    typer.echo(wrapped(_waiting(found)), err=True)
    raise typer.Exit(1)


def _waiting(found: fs.Interruption) -> str:
    """Which sites a study waits for, and what is known of the reasons."""
    what = f"exchange {found.number} waits" if found.number else "the study waits"
    sites = (f"{name} ({why})" if why else name for name, why in found.missing.items())
    return f"{what} for {', '.join(sites)}"


def _conclude(found: fs.StudyResult | fs.Interruption, out: Path | None, as_json: bool) -> None:
    model = _result(found).result
    if out is not None:
        model.write(out)
    if not present(model, out, as_json):
        raise typer.Exit(1)
