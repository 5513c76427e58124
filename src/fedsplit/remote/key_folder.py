"""The folder of a federation's keys: who may join, and their certificates.

``ca.crt`` and ``ca.key`` are the authority, ``server.crt`` and ``server.key`` the server's,
``coordinator.crt`` and ``coordinator.key`` sign studies. ``clients/NAME.pub`` are the keys of a
client that may join, one per line; ``NAME.crt`` is its certificate, and ``NAME.key`` its private
key where that was made here.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fedsplit.errors import InputError
from fedsplit.remote.certificates import Authority, read_certificate
from fedsplit.remote.keys import (
    check_name,
    check_public_key,
    fingerprint,
    read_private_key,
    read_public_keys,
)

CLIENTS = "clients"
"""The folder of the clients' keys."""

RESERVED = ("all", "ca", "coordinator", "server")
"""Names that clients cannot have."""


class Entry(NamedTuple):
    """A certificate of the federation.

    Attributes
    ----------
    name : str
        Of the client; "server" and "coordinator" are those.
    fingerprints : tuple of str
        Of the keys under which it is known.
    ends : datetime or None
        When its certificate expires; None where there is none.
    """

    name: str
    fingerprints: tuple[str, ...]
    ends: datetime | None


def entries(folder: Path) -> list[Entry]:
    """All certificates of a federation but the CA's."""
    check_folder(folder)
    within = clients_folder(folder)
    found = []
    for name in ("server", "coordinator"):
        path = folder / f"{name}.crt"
        if path.exists():
            certificate = read_certificate(path)
            key = check_public_key(certificate.public_key(), path)
            found.append(Entry(name, (fingerprint(key),), certificate.not_valid_after_utc))
    for name in known_clients(folder):
        keys = read_public_keys(within / f"{name}.pub")
        ends = None
        if (within / f"{name}.crt").exists():
            ends = read_certificate(within / f"{name}.crt").not_valid_after_utc
        found.append(Entry(name, tuple(fingerprint(key) for key in keys), ends))
    return found


def clients_folder(folder: Path) -> Path:
    """Where the clients' keys are: in ``clients``, or in the folder itself."""
    if (folder / CLIENTS).is_dir():
        return folder / CLIENTS
    return folder


def known_clients(folder: Path) -> list[str]:
    """The names of the clients that may join."""
    return sorted(path.stem for path in clients_folder(folder).glob("*.pub"))


def check_client(name: str) -> None:
    """Raise InputError unless a client may have this name."""
    check_name(name)
    if name.casefold() in RESERVED:
        raise InputError(f"client {name!r}: this name is reserved, choose another")


def check_folder(folder: Path) -> None:
    """Raise InputError unless a folder has the keys of a federation."""
    if not (folder / "ca.crt").is_file():
        raise InputError(
            f"{folder}: has no keys of a federation; make them with fedsplit keys {folder} "
            "--clients NAME,... --host HOST"
        )


def read_authority(folder: Path) -> Authority:
    """The federation's CA, with its key."""
    check_folder(folder)
    path = folder / "ca.key"
    if not path.exists():
        raise InputError(
            f"{path}: is needed to issue certificates: copy it back from where it is kept, and "
            "remove it afterwards"
        )
    return Authority(read_certificate(folder / "ca.crt"), read_private_key(path))
