"""``fedsplit keys``: who may take part in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fedsplit as fs
from fedsplit.commands.help import Command, Group, application
from fedsplit.commands.terminal import show_key
from fedsplit.errors import InputError

keys_app = application(
    cls=Group,
    help="The keys and certificates of a federation.\n\nExample: fedsplit keys init federation\n"
    "fedsplit keys request north\nfedsplit keys sign federation north.csr",
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", show_default=False)]
Days = Annotated[
    int, typer.Option(metavar="N", help="How many days a certificate is valid; 3650 at most.")
]


@keys_app.command("init", cls=Command)
def init_command(
    folder: Folder,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST,...", help="Names and addresses under which sites reach the coordinator."
        ),
    ] = "localhost",
    days: Days = 365,
) -> None:
    """Create a federation: the folder of its coordinator, with an authority and a key.

    Example: fedsplit keys init federation --host fit.example.org

    DIR/ca.key issues certificates: whoever has it can let sites in. Keep it offline between uses.
    """
    fs.authority.create(folder, [each.strip() for each in host.split(",")], days)
    own = fs.authority.read_certificate(folder / "coordinator.crt")
    typer.echo(f"{folder}: the federation is created, its coordinator has the key")
    show_key(own.key)


@keys_app.command("request", cls=Command)
def request_command(
    folder: Folder,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the site; by default that of the folder."),
    ] = None,
) -> None:
    """Make the key of a site, and a request for its certificate.

    Example: fedsplit keys request north

    The key, DIR/site.key, never leaves the site. DIR/NAME.csr goes to the coordinator, by mail for
    example; both compare the key that is printed, by telephone.
    """
    name = folder.absolute().name if name is None else name
    content = fs.authority.request(folder, name)
    path = folder / f"{name}.csr"
    path.write_bytes(content)
    typer.echo(f"send {path} to the coordinator, and compare the key of {name} by telephone")
    show_key(fs.authority.requested_key(content))


@keys_app.command("sign", cls=Command)
def sign_command(
    folder: Folder,
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", show_default=False)],
    days: Days = 365,
) -> None:
    """Issue certificates for requests, whose files are named after their sites.

    Example: fedsplit keys sign federation north.csr south.csr

    Compare each key that is printed with its site, by telephone. DIR/NAME.pem goes back to the
    site; nothing in it is secret.
    """
    for path in requests:
        try:
            content = path.read_bytes()
            issued = fs.authority.sign(folder, path.stem, content, days)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        except InputError as error:
            where = "" if str(error).startswith((str(folder), "days")) else f"{path}: "
            raise InputError(f"{where}{error}") from None
        _write(folder, path.stem, issued)
        show_key(fs.authority.requested_key(content))


@keys_app.command("renew", cls=Command)
def renew_command(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST,...",
            help="For the coordinator, its names and addresses from now on.",
            show_default="those that it has",
        ),
    ] = "",
    days: Days = 365,
) -> None:
    """Issue a new certificate for the key of a site, or of the coordinator.

    Example: fedsplit keys renew federation north

    NAME is a site, whose new certificate is DIR/NAME.pem, or "coordinator". Nothing has to be
    restarted.
    """
    hosts = [each.strip() for each in host.split(",") if each.strip()]
    if hosts and name != "coordinator":
        raise InputError("--host is for the coordinator: sites have no address")
    issued = fs.authority.renew(folder, name, hosts, days)
    if name == "coordinator":
        typer.echo(
            f"{folder / 'coordinator.crt'}: is renewed, and used from the next connection on"
        )
    else:
        _write(folder, name, issued)


@keys_app.command("revoke", cls=Command)
def revoke_command(
    folder: Folder, name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
) -> None:
    """Shut a site out, at once.

    Example: fedsplit keys revoke federation north
    """
    fs.authority.revoke(folder, name)
    typer.echo(f"{name} is shut out")


@keys_app.command("list", cls=Command)
def list_command(folder: Folder) -> None:
    """List keys, and how long their certificates are valid.

    Example: fedsplit keys list federation

    DIR is the folder of a coordinator or of a site.
    """
    coordinator = fs.authority.read_certificate(folder / "coordinator.crt")
    own = folder / "site.crt"
    others = [fs.authority.read_certificate(own)] if own.exists() else fs.authority.members(folder)
    for name, holder in [("coordinator", coordinator), *((each.name, each) for each in others)]:
        typer.echo(f"{name}, until {holder.ends:%Y-%m-%d}")
        show_key(holder.key)


def _write(folder: Path, name: str, content: bytes) -> None:
    path = folder / f"{name}.pem"
    path.write_bytes(content)
    typer.echo(f"send {path} to {name}")
