"""``fedsplit site``: what an owner of data does. This module prints, and nothing else."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import fedsplit as fs
from fedsplit.commands.help import Command, Group, application, section
from fedsplit.commands.terminal import print_error, say, show_key, wrapped
from fedsplit.errors import InputError, listed
from fedsplit.texts import one_line, printable

Folder = Annotated[Path, typer.Argument(metavar="DIR", show_default=False)]
Hash = Annotated[str, typer.Argument(metavar="HASH", show_default=False)]

site_app = application(
    cls=Group,
    help="Answer for an organisation's rows: studies, decisions, and the record.\n\n"
    "Example: fedsplit site start north\nfedsplit site approve north 2f610a3b",
)


@site_app.command("init", cls=Command)
def init_command(
    folder: Folder,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The rows: a file, or a TOML list with one file or query."
        ),
    ] = None,
    url: Annotated[
        str, typer.Option(metavar="https://HOST:PORT", help="Where the coordinator listens.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of site.toml; may be repeated."),
    ] = None,
) -> None:
    """Accept the certificate that the coordinator sent, and write site.toml.

    Example: fedsplit site init north north.pem --data visits.csv
    --url https://fit.example.org:8000

    DIR is the folder that fedsplit keys request made. In its site.toml all keys are shown with
    their defaults. A renewed certificate is accepted in the same way; site.toml is kept then.
    """
    given = dict(each.partition("=")[::2] for each in settings or ())
    if len(given) < len(settings or ()):
        raise InputError(f"--set: a key is given twice, among {listed(settings or ())}")
    policy = fs.Site.create(folder, certificate, data, url, given)
    typer.echo(f"{folder}: site {policy.name} answers from {policy.data}")
    typer.echo("compare the key of its coordinator by telephone")
    show_key(bytes.fromhex(policy.coordinator))
    typer.echo(f"what it allows: {folder / 'site.toml'}")


@site_app.command("start", cls=Command)
def start_command(
    folder: Folder,
    proxy: Annotated[
        str | None,
        typer.Option(metavar="http://HOST:PORT", help="By default that of HTTPS_PROXY."),
    ] = None,
) -> None:
    """Connect to the coordinator, and answer questions of approved studies until stopped.

    Example: fedsplit site start north

    On a terminal you are asked about studies that wait. Otherwise fedsplit site approve decides,
    also while this runs. Started again, it goes on where it was, and asks nothing twice.

    Exit status: 2 bad input; 75 the coordinator has to act first, as it revoked the key or has to
    renew a certificate; 130 or 143 stopped.
    """
    site = _open(folder, say)
    if trouble := site.trouble():
        say(f"the rows cannot be read yet: {trouble}")
    stop = threading.Event()
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        threading.Thread(target=_ask, args=(_open(folder), stop), daemon=True).start()
    else:
        for study in site.waiting():
            say(f"study {study.hash[:8]} waits for you: fedsplit site approve {folder}")
    try:
        site.serve(proxy=proxy)
    finally:
        stop.set()


@site_app.command("answer", cls=Command)
def answer_command(
    folder: Folder,
    post: Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False)],
) -> None:
    """Answer the questions in FOLDER, for studies by files.

    Example: fedsplit site answer north /media/stick/north

    Beside each question an answer is written. Readable copies, with the numbers before they are
    masked, are in the site's own folder (answers). Of a study that waits for your decision nothing
    is answered.

    Exit status: 0 done; 1 nothing was answered; 2 bad input.
    """
    if not post.is_dir():
        raise InputError(f"{post}: there is no such folder")
    site = _open(folder, say)
    written = site.answer_files(post)
    for path in written:
        typer.echo(path)
    for study in site.waiting():
        typer.echo(f"study {study.hash[:8]} waits for you: fedsplit site approve {folder}")
    if not written:
        typer.echo(f"{post}: no question for {site.policy.name} was answered")
        raise typer.Exit(1)


@site_app.command("check", cls=Command)
def check_command(
    folder: Folder,
    study: Annotated[str | None, typer.Argument(metavar="[HASH]", show_default=False)] = None,
) -> None:
    """Show how the rows are read; with HASH try a study on them, and say what would be refused.

    Example: fedsplit site check north 2f610a3b

    A trial runs the study on your rows alone. Nothing is sent or recorded.

    Exit status: 0 done; 1 a question would be refused; 2 bad input.
    """
    site = _open(folder)
    if study is not None:
        trial = site.trial(study)
        _show(site.describe(study, trial))
        if trial.refused:
            raise typer.Exit(1)
        return
    rows = []
    for name, column in site.check().items():
        text = column.type or "unreadable"
        if column.levels:
            text += f": {listed((f'{level} {n:,}' for level, n in column.levels.items()), 5)}"
        text += f"; {column.missing:,} missing" if column.missing else ""
        rows.append((one_line(name), one_line(text)))
    typer.echo(section(str(site.policy.data), rows))


@site_app.command("approve", cls=Command)
def approve_command(
    folder: Folder,
    study: Annotated[str | None, typer.Argument(metavar="[HASH]", show_default=False)] = None,
) -> None:
    """Show the studies that wait for your decision; with HASH approve one.

    Example: fedsplit site approve north 2f610a3b

    A study is tried on your rows first. One that would be refused is not approved, unless you
    change site.toml.

    Exit status: 0 done; 2 bad input, or a question would be refused.
    """
    site = _open(folder)
    if study is None:
        for each in site.waiting():
            _show(site.describe(each.hash))
            typer.echo(f"\nfedsplit site approve {folder} {each.hash[:16]}")
            typer.echo(f"fedsplit site decline {folder} {each.hash[:16]}\n")
        if not site.waiting():
            typer.echo("no study waits for you")
        return
    for line in site.approve(study).lines():
        _show(line)
    typer.echo(f"study {study[:16]} is approved")


@site_app.command("decline", cls=Command)
def decline_command(
    folder: Folder,
    study: Hash,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; the coordinator reads it.")
    ] = "",
) -> None:
    """Decline a study, also one that was approved: nothing of it is answered from now on.

    Example: fedsplit site decline north 2f610a3b --reason "no ethics vote yet"
    """
    declined = _open(folder).decline(study, reason)
    typer.echo(f"study {declined.hash[:8]} is declined")


@site_app.command("resume", cls=Command)
def resume_command(folder: Folder) -> None:
    """Show which questions were refused, and let studies that were halted for it go on.

    Example: fedsplit site resume north
    """
    found = _open(folder).resume()
    for entry in found:
        _show(f"{_when(entry.time)}  {entry.study.hex()[:8]}  {entry.detail}")
    typer.echo(f"{len(found)} refusals; they count no more" if found else "nothing was refused")


@site_app.command("status", cls=Command)
def status_command(folder: Folder) -> None:
    """Show the studies and whom they wait for, the budgets, and when certificates end.

    Example: fedsplit site status north
    """
    site = _open(folder)
    status, policy = site.status(), site.policy
    for each in status.studies:
        refused = f", {each.refused} refused" if each.refused else ""
        typer.echo(f"study {each.study.hash[:16]}  {one_line(each.study.title, 50)}")
        questions = "1 question" if each.answered == 1 else f"{each.answered} questions"
        typer.echo(f"  {each.decision}, {questions} answered{refused}")
        if each.waits:
            _show(f"  waits {each.waits}")
    if not status.studies:
        typer.echo("no study was proposed yet")
    typer.echo(f"questions, 24 hours  {status.questions}{_of(policy.questions_per_day)}")
    typer.echo(f"studies, 24 hours    {status.begun}{_of(policy.studies_per_day)}")
    if status.spent[0]:
        typer.echo(f"ε spent              {status.spent[0]:g}{_of(policy.privacy_epsilon)}")
        typer.echo(f"δ spent              {status.spent[1]:g}{_of(policy.privacy_delta)}")
    for name, ends in status.certificates.items():
        typer.echo(f"{name + '.crt':<20} valid until {ends}")


@site_app.command("log", cls=Command)
def log_command(
    folder: Folder,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with the hash of the chain.")
    ] = False,
) -> None:
    """Print the record: everything that was answered, refused and decided.

    Example: fedsplit site log north --json
    """
    for entry, chained in _open(folder).log():
        if as_json:
            typer.echo(json.dumps(_plain(entry, chained), ensure_ascii=False))
            continue
        joined = entry.event == "answer" and not entry.exchange
        what = f"{entry.event} {entry.exchange or ''}" if not joined else "joined"
        detail = one_line(entry.detail.partition("\n")[0])
        head = f"{entry.number:>5}  {_when(entry.time)}  {entry.study.hex()[:8]}  {what:<13}"
        _show(f"{head} {detail}".rstrip(), indent=7)


@site_app.command("audit", cls=Command)
def audit_command(
    folder: Folder,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER:HASH",
            help="An entry that the coordinator has of the log.",
        ),
    ] = None,
) -> None:
    """Verify the record, and compute every answer again from the copies of the rows.

    Example: fedsplit site audit north

    That entries are missing at the end is noticed with --head alone.

    Exit status: 0 OK; 1 an entry is wrong; 2 bad input.
    """
    entry = None
    if head is not None:
        parts = re.fullmatch("([0-9]+):([0-9a-f]{64})", head)
        if parts is None:
            raise InputError(f"--head {head}: give a number, a colon and 64 hexadecimal digits")
        entry = int(parts[1]), bytes.fromhex(parts[2])
    found = _open(folder).audit(entry)
    last = f"{found.head.number}:{found.head.hash.hex()}"
    typer.echo(f"{found.entries} entries; the last is\n{last}" if found.entries else "no entries")
    computed = found.exact + found.close
    typer.echo(f"{computed} answers computed again, {found.exact} of them equal to the bit")
    if found.with_noise:
        typer.echo(f"{found.with_noise} answers with noise, which cannot be drawn again")
    for number_, what in found.wrong:
        _show(f"entry {number_} {what}")
    if found.wrong:
        raise typer.Exit(1)
    typer.echo("OK")


def _open(folder: Path, watch: Callable[[str], object] = lambda line: None) -> fs.Site:
    """The site in a folder, with this user's record of what was disclosed."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return fs.Site.open(folder, Path(base) / "fedsplit" / "disclosed.db", watch=watch)


def _show(text: str, indent: int = 2) -> None:
    """Print a text that may have come from others, in lines of 80 columns."""
    typer.echo(printable(wrapped(text, indent=indent)))


def _ask(site: fs.Site, stop: threading.Event) -> None:
    """Ask about studies that wait, at the terminal."""
    put_off: set[str] = set()
    # seconds between looks for studies that wait for the owner
    while not stop.wait(0.5):
        with suppress(InputError):  # a disk that is full now: the next look tries again
            for study in site.waiting():
                if study.hash not in put_off and not site.trouble():
                    _ask_about(site, study)
                    put_off.add(study.hash)


def _ask_about(site: fs.Site, study: Any) -> None:
    trial = site.trial(study.hash)
    _show(f"\n{site.describe(study.hash, trial)}\n")
    digits = study.hash[:4]
    prompt = f'Type "yes {digits}" to approve, or "no":'
    if trial.refused:
        prompt = f'Change site.toml and type "yes {digits}" to try it again, or "no" to decline:'
    while True:
        try:
            # a line of its own, as what happens meanwhile is printed below it
            typer.echo(prompt)
            answer = input()
        except EOFError:
            return
        if study not in site.waiting():
            say(f"study {study.hash[:8]} was decided elsewhere")
            return
        try:
            match answer.lower().split():
                case ["yes", given] if given == digits:
                    site.approve(study.hash)
                    say(f"study {study.hash[:8]} is approved, and waits for the other sites")
                case ["no"]:
                    site.decline(study.hash)
                    say(f"study {study.hash[:8]} is declined")
                case _:
                    continue
        except InputError as error:
            print_error(error)
            continue
        return


def _of(most: float | None) -> str:
    return "" if most is None else f" of {most:g}"


def _when(time: float) -> str:
    return f"{datetime.fromtimestamp(time):%Y-%m-%d %H:%M}"


def _plain(entry: Any, chained: bytes) -> dict[str, Any]:
    """An entry of the log as JSON; the time is in seconds since 1970, as it is hashed."""
    found = {**entry._asdict(), "hash": chained}
    return {name: each.hex() if isinstance(each, bytes) else each for name, each in found.items()}
