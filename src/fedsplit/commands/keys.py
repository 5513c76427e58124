"""``fedsplit keys``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.regression.options import names

EXTRA = (
    "clients in other organisations need aiohttp and cryptography: pip install 'fedsplit[sites]'"
)

INSTRUCTIONS = """\
{folder}, for a server at {hosts}, valid for {days} days:

  stays with the server   server.crt, server.key, ca.crt, clients/*.pub
  to each client          its own clients/NAME.key and NAME.crt, over a secure channel, and ca.crt
  signs studies           coordinator.key, coordinator.crt: keep them with the server
  keep offline            ca.key: whoever has it can issue certificates

{then}"""

HAND_OUT = """\
{name} may join, with the key {fingerprint}
and a certificate that is valid for {days} days. {files}"""

REQUESTED = """\
{name}.key stays here, and nobody else needs it. Send {path} to the coordinator, who runs
  fedsplit keys DIR --sign {name}.csr
and compares this fingerprint with you: {fingerprint}
Put the {name}.crt and the ca.crt that come back beside {name}.key."""


def check_extra() -> None:
    """Raise InputError unless what clients in other organisations need is installed."""
    if any(importlib.util.find_spec(name) is None for name in ("aiohttp", "cryptography")):
        raise InputError(EXTRA)


def keys_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    clients: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Make a federation, with a key for each of these clients. Clients that make "
            "their own key are added by --sign; if all do, give --host alone.",
        ),
    ] = "",
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Name or address at which clients reach the server; may be repeated. By default "
            "localhost and 127.0.0.1.",
        ),
    ] = None,
    days: Annotated[
        int, typer.Option(metavar="N", help="Days for which certificates are valid.")
    ] = 365,
    add: Annotated[str, typer.Option(metavar="NAME", help="Make the key of one more client.")] = "",
    revoke: Annotated[
        str,
        typer.Option(metavar="NAME", help="Revoke a client immediately: its files are deleted."),
    ] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="List who may join, and when certificates expire.")
    ] = False,
    request: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="At a client: make NAME.key, unless it is there, and NAME.csr for the "
            "coordinator to sign.",
        ),
    ] = "",
    sign: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Issue the certificate that a client's NAME.csr asks for."
        ),
    ] = None,
    overlap: Annotated[
        bool,
        typer.Option("--overlap", help="With --sign: the client's earlier key may be used too."),
    ] = False,
    renew: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Issue new certificates for the keys of clients, server, coordinator or all.",
        ),
    ] = "",
) -> None:
    """Make the keys of a federation: certificates for TLS, and one key per client.

    DIR is the folder for the keys; keys that are there are not overwritten. A server with these
    keys admits only the clients that it lists, and knows each by its key: Ed25519 or ECDSA P-256.
    """
    check_extra()
    actions: dict[str, Callable[[], str]] = {
        "--clients": lambda: _make(folder, clients, host or ["localhost", "127.0.0.1"], days),
        "--add": lambda: _add(folder, add, days),
        "--revoke": lambda: _revoke(folder, revoke),
        "--list": lambda: _list(folder),
        "--request": lambda: _request(folder, request),
        "--sign": lambda: _sign(folder, Path(sign or ""), days, overlap),
        "--renew": lambda: _renew(folder, names(renew), days),
    }
    given = (clients or host, add, revoke, list_, request, sign, renew)
    chosen = [name for name, value in zip(actions, given, strict=True) if value]
    if len(chosen) != 1:
        raise InputError(f"give one of {', '.join(actions)}")
    if overlap and sign is None:
        raise InputError("--overlap is for --sign")
    if not list_:
        files.check_writable(folder)
    typer.echo(actions[chosen[0]]())


def _make(folder: Path, clients: str, hosts: list[str], days: int) -> str:
    from fedsplit.remote.issuing import make_keys

    wanted = names(clients)
    make_keys(folder, wanted, hosts, days)
    then = "No client may join yet: sign the requests of clients with --sign."
    if wanted:
        then = f"Delete clients/*.key here once they have been delivered: {', '.join(wanted)}."
    return INSTRUCTIONS.format(folder=folder, hosts=", ".join(hosts), days=days, then=then)


def _add(folder: Path, name: str, days: int) -> str:
    from fedsplit.remote.issuing import add_client

    mark = add_client(folder, name, days)
    given = (
        f"To {name}, over a secure channel:\nclients/{name}.key (then delete it here), "
        f"clients/{name}.crt and ca.crt."
    )
    return HAND_OUT.format(name=name, fingerprint=mark, days=days, files=given)


def _revoke(folder: Path, name: str) -> str:
    from fedsplit.remote.issuing import revoke_client

    gone = ", ".join(path.name for path in revoke_client(folder, name))
    return f"{name} is revoked from its next request on; deleted: {gone}"


def _request(folder: Path, name: str) -> str:
    from fedsplit.remote.issuing import request_certificate

    path, mark = request_certificate(folder, name)
    return REQUESTED.format(name=name, path=path, fingerprint=mark)


def _sign(folder: Path, path: Path, days: int, overlap: bool) -> str:
    from fedsplit.remote.issuing import sign_request

    name, mark = sign_request(folder, path, days, overlap)
    given = (
        f"Compare the fingerprint with {name}, and\nif it is another, --revoke {name}. Send it "
        f"clients/{name}.crt and ca.crt, which are not secret."
    )
    return HAND_OUT.format(name=name, fingerprint=mark, days=days, files=given)


def _renew(folder: Path, wanted: list[str], days: int) -> str:
    from fedsplit.remote.issuing import renew

    made = ", ".join(str(path.relative_to(folder)) for path in renew(folder, wanted, days))
    advice = "Deliver them to their owners; the old ones work until they expire."
    return f"valid for {days} days: {made}\n{advice}"


def _list(folder: Path) -> str:
    from fedsplit.remote.key_folder import entries

    rows = [("name", "expires", "key")]
    for entry in entries(folder):
        for mark in entry.fingerprints:
            rows.append((entry.name, _expiry(entry.ends), mark))
    return "\n".join(_columns(rows))


def _expiry(ends: datetime | None) -> str:
    if ends is None:
        return "no certificate"
    left = (ends - datetime.now(UTC)).days
    if left < 0:
        return f"{ends:%Y-%m-%d} (expired)"
    return f"{ends:%Y-%m-%d} ({left} days)"


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """The cells of a table, padded to the widest of each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
