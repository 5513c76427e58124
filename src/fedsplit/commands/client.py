"""``fedsplit client``."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsplit.checks import count
from fedsplit.commands.keys import EXTRA
from fedsplit.commands.supervisor import BAD_INPUT, lifeline, supervise
from fedsplit.errors import InputError

CRASHED = 70


def client_command(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the server listens.")],
    data: Annotated[str, typer.Option(help="This client's file, as fedsplit fit takes it.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="By which the server knows this client: the name of its key, or of its file."
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="This client's private key, NAME.key.")] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            help="The server's ca.crt; without, the certificates that this machine trusts."
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys, for a test on one machine.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="For what this client keeps; ~/.local/state/fedsplit/NAME where not given."
        ),
    ] = None,
    max_rounds: Annotated[
        int | None,
        typer.Option(help="The most rounds that are answered until this command is started again."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse what could disclose single rows, whatever the server wants."
        ),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(
            help="File with a line for each question; questions.jsonl in the folder otherwise."
        ),
    ] = None,
) -> None:
    """Take part in fits with the rows of a file, which stay here: dial a server and answer its questions.

    First it is said what will leave this machine. The client runs until it is stopped: it dials again when the server
    is away, and is started again when its process dies.

    Exit status: 2 bad input, 130 interrupted, 143 terminated.
    """
    if importlib.util.find_spec("flwr") is None:
        raise InputError(EXTRA)
    from fedsplit.remote.keys import check_name

    if not insecure and key is None and ca is None:
        raise InputError(
            "give --key and --ca, as the server's owner has them, or --insecure for a test on one machine"
        )
    if insecure and ca is not None:
        raise InputError("--ca is for TLS, which --insecure does without: leave one of them out")
    if max_rounds is not None:
        count("max_rounds", max_rounds)
    known = name or (Path(data).name.split(".")[0] if key is None else key.stem)
    check_name(known)
    told = {
        "server": server,
        "name": known,
        "data": data,
        "key": _absolute(key),
        "ca": _absolute(ca),
        "insecure": insecure,
        "folder": _absolute(folder or _place(known)),
        "max_rounds": max_rounds,
        "strict": strict,
        "log": _absolute(log),
    }
    first, again = (json.dumps({**told, "again": again}).encode() for again in (False, True))
    raise typer.Exit(supervise([sys.executable, "-P", "-m", __name__], first, again, _tell))


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _place(name: str) -> Path:
    """Where a client of this name keeps what it has to."""
    return (
        Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        / "fedsplit"
        / name
    )


def _tell(text: str) -> None:
    typer.echo(f"fedsplit client: {text}", err=True)


def work() -> int:
    """The client's own process, under the supervisor; its exit status."""
    os.umask(0o077)  # what is kept here is for its owner alone
    sys.excepthook = lambda *_: None  # nobody is shown a stack trace
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
    try:
        line, stop = lifeline()
        _work(json.loads(line), stop)
    except (InputError, OSError) as error:
        what = str(error)
        if isinstance(error, OSError):
            what = f"{error.filename or 'output'}: {error.strerror or error}"
        typer.echo(f"fedsplit: error: {' '.join(what.split())}", err=True)
        return BAD_INPUT
    except Exception as error:
        _tell(f"it failed ({type(error).__name__})")
        return CRASHED
    return 0


def _work(told: dict[str, Any], stop: threading.Event) -> None:
    from fedsplit.regression.client.service import Site
    from fedsplit.remote.flower.node import run_node

    folder, log, key, ca = (
        None if told[at] is None else Path(told[at]) for at in ("folder", "log", "key", "ca")
    )
    assert folder is not None
    site = Site(
        told["name"], told["data"], folder=folder, max_rounds=told["max_rounds"], strict=told["strict"], log=log,
        fresh=not told["again"],
    )  # fmt: skip
    if key is not None:
        key.read_bytes()  # what is missing from the start is bad input, and nothing that passes
    if not told["again"]:
        typer.echo(site.terms())
    try:
        run_node(
            told["server"], site.reply, key=key, ca=ca, insecure=told["insecure"], folder=folder, status=_tell,
            stop=stop, name=told["name"],
        )  # fmt: skip
    except OSError as error:  # a full disk, perhaps: it passes
        raise RuntimeError(error.strerror) from None


if __name__ == "__main__":
    sys.exit(work())
