"""``fedsplit client``."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fedsplit.checks import count
from fedsplit.commands.approving import ask_at_terminal, has_terminal, state_folder
from fedsplit.commands.client_view import View
from fedsplit.commands.keys import check_extra
from fedsplit.commands.supervisor import BAD_INPUT, lifeline, supervise
from fedsplit.commands.terminal import print_error
from fedsplit.data.reading import Reading, read_codes
from fedsplit.errors import InputError
from fedsplit.regression.fields import options_of
from fedsplit.regression.options import Settings
from fedsplit.sites.studies.hashes import read_whole_hash

if TYPE_CHECKING:
    from fedsplit.regression.client.guards.rules import Rules
    from fedsplit.sites.studies.approval import Credentials

CRASHED = 70
"""Exit status of a child that is to be restarted (EX_SOFTWARE of sysexits.h)."""


class Configuration(NamedTuple):
    """What the supervised process is told, as JSON; paths are absolute."""

    server: str
    data: str
    name: str
    key: str | None
    certificate: str | None
    ca: str | None
    proxy: str | None
    insecure: bool
    folder: str
    max_rounds: int | None
    strict: bool
    vectors: bool
    log: str | None
    restarted: bool
    na: Sequence[str]
    decimal: str
    approve: str
    prompted: bool
    policy: str | None


def client_command(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")],
    data: Annotated[
        str, typer.Option(metavar="FILE", help="This client's rows, as fedsplit fit takes them.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name in the federation; by default that of the key, or of the file.",
        ),
    ] = None,
    na: Annotated[str, typer.Option(metavar="CODE,...", help=options_of(Settings)["na"].text)] = "",
    decimal: Annotated[
        str, typer.Option(metavar="MARK", help=options_of(Settings)["decimal"].text)
    ] = ".",
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the client's state; by default ~/.local/state/fedsplit/NAME.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Private key of this client, NAME.key.", rich_help_panel="Network"
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate ca.crt of the server; by default those that this machine trusts.",
            rich_help_panel="Network",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate of the key; by default NAME.crt beside it.",
            rich_help_panel="Network",
        ),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="HTTP proxy to connect through; by default that of HTTPS_PROXY and NO_PROXY.",
            rich_help_panel="Network",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Use neither encryption nor keys, for tests on one machine.",
            rich_help_panel="Network",
        ),
    ] = False,
    approve: Annotated[
        str,
        typer.Option(
            metavar="ask|always|HASH",
            help="Which studies this client takes part in: ask at the terminal, or wait for "
            "fedsplit approve; always; or the one with this hash, and wait with any other.",
            rich_help_panel="Privacy",
        ),
    ] = "ask",
    max_rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum number of questions to answer, until this command is started again.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse requests that could disclose single rows, whatever the server asks for.",
            rich_help_panel="Privacy",
        ),
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rules of this client, policy.toml; those of --strict hold as well. "
            "fedsplit policy check says what they allow.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    vectors: Annotated[
        bool,
        typer.Option(
            "--vectors",
            help="Tell matrices for proofs only: the rounds of the whole fit then use vectors.",
            rich_help_panel="Privacy",
        ),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Log with one line per question; by default questions.jsonl in the folder.",
            rich_help_panel="Privacy",
        ),
    ] = None,
) -> None:
    """Take part in fits with the rows of a file, which stay on this machine.

    The client connects to a server, which proposes a study. Once its owner has approved that, the
    client answers its questions, and no others. At the start it prints what will leave this
    machine. It runs until it is stopped: it reconnects when the server is away, and is restarted
    when its process dies.

    No rule can promise that nothing is learnt of a person. Sums over several rows are told, and
    they narrow down what each of these rows can be, the more so with every study. Who knows the
    other rows of a sum, or other columns of a row, can work out the rest. That something was
    refused, and how long an answer took, says a little too.

    Exit status: 2 bad input; 130 interrupted; 143 terminated.
    """
    check_extra()
    from fedsplit.remote.keys import check_name

    if not insecure and key is None:
        raise InputError(
            "give --key and --ca, as the server's owner has them, or --insecure for a test on "
            "one machine"
        )
    if insecure and ca is not None:
        raise InputError("--ca is for TLS, which --insecure turns off: leave one of them out")
    if max_rounds is not None:
        count("max_rounds", max_rounds)
    if name is None:
        name = Path(data).name.split(".")[0]
        if key is not None:
            name = key.stem
    check_name(name)
    reading = Reading(tuple(read_codes(na)), decimal)
    if folder is None:
        folder = state_folder() / name
    if approve not in ("ask", "always"):
        approve = read_whole_hash(approve)
    prompted = approve == "ask" and has_terminal()
    chosen = Configuration(
        server=server,
        data=data,
        name=name,
        key=_absolute(key),
        certificate=_absolute(certificate),
        ca=_absolute(ca),
        proxy=proxy,
        insecure=insecure,
        folder=str(folder.absolute()),
        max_rounds=max_rounds,
        strict=strict,
        vectors=vectors,
        log=_absolute(log),
        restarted=False,
        na=reading.na,
        decimal=reading.decimal,
        approve=approve,
        prompted=prompted,
        policy=_absolute(policy),
    )
    first = json.dumps(chosen._asdict()).encode()
    again = json.dumps(chosen._replace(restarted=True)._asdict()).encode()
    if prompted:
        ask_at_terminal(folder)
    raise typer.Exit(supervise([sys.executable, "-P", "-m", __name__], first, again, _report))


def _absolute(path: Path | None) -> str | None:
    if path is None:
        return None
    return str(path.absolute())


def _report(text: str) -> None:
    typer.echo(f"fedsplit client: {text}", err=True)


def work() -> int:
    """Run the supervised process; returns its exit status."""
    os.umask(0o077)  # what is kept here is for its owner alone
    sys.excepthook = lambda *_: None  # a stack trace could have values of rows in it
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
    try:
        line, stop = lifeline()
        return _answer(Configuration(**json.loads(line)), stop)
    except (InputError, OSError) as error:
        print_error(error)
        return BAD_INPUT
    except Exception as error:
        _report(f"it failed ({type(error).__name__})")
        return CRASHED


def _answer(chosen: Configuration, stop: threading.Event) -> int:
    """Answer a server's questions until ``stop`` is set; returns the exit status."""
    from fedsplit.remote.folder_lock import alone

    # before anything there is read, or counted anew
    with alone(Path(chosen.folder)):
        return _answer_alone(chosen, stop)


def _answer_alone(chosen: Configuration, stop: threading.Event) -> int:
    from fedsplit.remote.https.client import run_client
    from fedsplit.sites.service import Site

    folder = Path(chosen.folder)
    view = View(chosen.folder, chosen.prompted)
    paths = {
        name: Path(value)
        for name, value in chosen._asdict().items()
        if name in ("key", "certificate", "ca", "log") and value is not None
    }
    site = Site(
        chosen.name,
        chosen.data,
        folder=folder,
        max_rounds=chosen.max_rounds,
        strict=chosen.strict,
        rules=_rules(chosen.policy),
        vectors=chosen.vectors,
        log=paths.get("log"),
        fresh=not chosen.restarted,
        reading=Reading(tuple(chosen.na), chosen.decimal),
        approve=chosen.approve,
        credentials=_credentials(paths, chosen.insecure),
        watch=view,
    )
    if not chosen.restarted:
        typer.echo(site.terms())
    try:
        run_client(
            chosen.server,
            site.reply,
            key=paths.get("key"),
            certificate=paths.get("certificate"),
            ca=paths.get("ca"),
            insecure=chosen.insecure,
            proxy=chosen.proxy,
            status=view.line,
            stop=stop,
            name=chosen.name,
        )
    except OSError as error:  # perhaps a full disk, which may pass: the process is restarted
        print_error(error)
        return CRASHED
    return 0


def _rules(policy: str | None) -> Rules:
    """The rules in a file; without one, those that only warn."""
    from fedsplit.regression.client.guards.rules import WARN
    from fedsplit.sites.studies.policy import read_policy

    if policy is None:
        return WARN
    return read_policy(Path(policy))


def _credentials(paths: Mapping[str, Path], insecure: bool) -> Credentials | None:
    """What studies are verified with: the client's own key, and the federation's authority."""
    if insecure:
        return None
    if not {"key", "ca"} <= set(paths):
        raise InputError("give both --key and --ca: studies are verified with them")
    from fedsplit.remote.keys import fingerprint, read_private_key
    from fedsplit.sites.studies.approval import Credentials

    own = read_private_key(paths["key"]).public_key()
    return Credentials(fingerprint(own), paths["ca"].read_bytes())


if __name__ == "__main__":
    sys.exit(work())
