"""Issuing keys and certificates of a federation: new ones, requested ones, renewed ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsplit import files
from fedsplit.checks import count
from fedsplit.errors import InputError, listed
from fedsplit.remote.certificates import (
    Authority,
    certificate_pem,
    common_name,
    general_name,
    hosts_of,
    make_request,
    read_certificate,
)
from fedsplit.remote.key_folder import (
    CLIENTS,
    check_client,
    check_folder,
    clients_folder,
    known_clients,
    read_authority,
)
from fedsplit.remote.keys import (
    check_public_key,
    fingerprint,
    new_key,
    public_line,
    read_private_key,
    read_public_keys,
    write_new,
    write_private_key,
)

MOST_DAYS = 36500
"""The longest validity of a certificate."""


def make_keys(folder: Path, clients: Sequence[str], hosts: Sequence[str], days: int) -> None:
    """Create the keys of a federation in a folder; existing files are never overwritten.

    Parameters
    ----------
    folder : Path
        Created if needed.
    clients : sequence of str
        The names of those whose keys are made here; others send requests to be signed.
    hosts : sequence of str
        Host names or IP addresses under which clients reach the server.
    days : int
        How long the certificates are valid.
    """
    _check_wanted(clients, hosts, days)
    _check_free(folder, clients)
    (folder / CLIENTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority.new(f"fedsplit {folder.absolute().name}", new_key(), days)
    write_private_key(folder / "ca.key", authority.key)
    write_new(folder / "ca.crt", certificate_pem(authority.certificate))
    key = new_key()
    write_private_key(folder / "server.key", key)
    server = authority.issue(hosts[0], key.public_key(), "server", days, hosts)
    write_new(folder / "server.crt", certificate_pem(server))
    make_coordinator(folder, authority, days)
    for name in clients:
        _make_client(folder, authority, name, days)


def _check_wanted(clients: Sequence[str], hosts: Sequence[str], days: int) -> None:
    """Raise InputError for names, hosts or days that cannot be used."""
    _check_days(days)
    for name in clients:
        check_client(name)
    # Some file systems hold a.key and A.key for the same file.
    if len({name.casefold() for name in clients}) < len(clients):
        raise InputError("clients: name each only once")
    if not hosts:
        raise InputError("hosts: name at least one under which clients reach the server")
    for host in hosts:
        general_name(host)


def _check_free(folder: Path, clients: Sequence[str]) -> None:
    """Raise InputError if a file that is to be made is there already."""
    own = ("ca", "server", "coordinator")
    wanted = [f"{name}.{kind}" for name in own for kind in ("crt", "key")]
    wanted += [f"{CLIENTS}/{name}.{kind}" for name in clients for kind in ("key", "pub", "crt")]
    for name in wanted:
        if (folder / name).exists():
            raise InputError(f"{folder / name}: exists already, choose another folder")


def make_coordinator(folder: Path, authority: Authority, days: int) -> None:
    """Create the key that signs studies, and its certificate."""
    key = Ed25519PrivateKey.generate()
    write_private_key(folder / "coordinator.key", key)
    issued = authority.issue("coordinator", key.public_key(), "coordinator", days)
    write_new(folder / "coordinator.crt", certificate_pem(issued))


def add_client(folder: Path, name: str, days: int) -> str:
    """Create the key and the certificate of one more client; returns its fingerprint."""
    _check_days(days)
    check_client(name)
    authority = read_authority(folder)
    _check_new(folder, name)
    return _make_client(folder, authority, name, days)


def revoke_client(folder: Path, name: str) -> list[Path]:
    """Revoke a client immediately; returns the files that were deleted."""
    check_client(name)
    check_folder(folder)
    kinds = ("pub", "crt", "csr", "key")  # in this order: without the first it may not join
    paths = [clients_folder(folder) / f"{name}.{kind}" for kind in kinds]
    found = [path for path in paths if path.exists()]
    if not found:
        raise InputError(f"there is no client {name}, only {listed(known_clients(folder))}")
    for path in found:
        path.unlink()
    return found


def request_certificate(folder: Path, name: str) -> tuple[Path, str]:
    """At a client: make a key, unless NAME.key is there, and a request for its certificate.

    Returns
    -------
    Path
        The request, to be sent to the coordinator.
    str
        The key's fingerprint, for the coordinator to compare.
    """
    check_client(name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.csr"
    if path.exists():
        raise InputError(f"{path}: exists already, delete it to make another")
    secret = folder / f"{name}.key"
    if not secret.exists():
        write_private_key(secret, new_key())
    key = read_private_key(secret)
    write_new(path, make_request(name, key))
    return path, fingerprint(key.public_key())


def made_here(path: Path) -> bool:
    """Whether a client's key was made on this machine: its request is beside it.

    Keys that a coordinator makes for clients have none.
    """
    request = path.with_suffix(".csr")
    if not request.is_file():
        return False
    asked = check_public_key(_read_request(request).public_key(), request)
    return asked == read_private_key(path).public_key()


def sign_request(folder: Path, path: Path, days: int, overlap: bool = False) -> tuple[str, str]:
    """Issue the certificate that a client requests; it may join from then on.

    Parameters
    ----------
    folder : Path
        The federation's.
    path : Path
        The request.
    days : int
        How long the certificate is valid.
    overlap : bool
        Let a client that has another key already use both.

    Returns
    -------
    tuple of str
        The client's name, and its key's fingerprint.
    """
    _check_days(days)
    request = _read_request(path)
    name = common_name(request.subject)
    check_client(name)
    key = check_public_key(request.public_key(), path)
    public = clients_folder(folder) / f"{name}.pub"
    others = []
    if public.exists():
        others = [each for each in read_public_keys(public) if each != key]
    else:
        _check_new(folder, name)
    if others and not overlap:
        raise InputError(
            f"{path}: {name} has another key already ({fingerprint(others[0])}): revoke that "
            f"first with --revoke {name}, or let both be used with --overlap"
        )
    issued = read_authority(folder).issue(name, key, "client", days)
    files.write(public.with_suffix(".crt"), certificate_pem(issued))
    files.write(public, b"".join(public_line(each) + b"\n" for each in [*others, key]))
    return name, fingerprint(key)


def renew(folder: Path, names: Sequence[str], days: int) -> list[Path]:
    """Issue new certificates for the same keys; the old ones stay valid until they expire.

    Parameters
    ----------
    folder : Path
    names : sequence of str
        Of clients; "server" and "coordinator" are those, "all" is everybody.
    days : int

    Returns
    -------
    list of Path
        The certificates, to be delivered to their owners.
    """
    _check_days(days)
    check_folder(folder)
    known = known_clients(folder)
    if "all" in names:
        names = ["server", "coordinator", *known]
    for name in names:
        if name not in known and name not in ("server", "coordinator"):
            raise InputError(f"there is no client {name}, only {listed(known)}")
    authority = read_authority(folder)
    if "coordinator" in names and not (folder / "coordinator.key").exists():
        make_coordinator(folder, authority, days)  # of a folder that is older than studies
    return [_renew(folder, authority, name, days) for name in names]


def _check_days(days: int) -> None:
    if count("days", days) > MOST_DAYS:
        raise InputError(f"days must be at most {MOST_DAYS}, not {days}")


def _check_new(folder: Path, name: str) -> None:
    for known in known_clients(folder):
        if known.casefold() == name.casefold():
            raise InputError(f"there is a client {known} already, choose another name")


def _make_client(folder: Path, authority: Authority, name: str, days: int) -> str:
    path = folder / CLIENTS / f"{name}.key"
    key = new_key()
    write_private_key(path, key)
    issued = authority.issue(name, key.public_key(), "client", days)
    write_new(path.with_suffix(".crt"), certificate_pem(issued))
    write_new(path.with_suffix(".pub"), public_line(key.public_key()) + b"\n")
    return fingerprint(key.public_key())


def _renew(folder: Path, authority: Authority, name: str, days: int) -> Path:
    if name == "server":
        path = folder / "server.crt"
        hosts = hosts_of(read_certificate(path))
        key = read_private_key(folder / "server.key")
        issued = authority.issue(hosts[0], key.public_key(), "server", days, hosts)
    elif name == "coordinator":
        path = folder / "coordinator.crt"
        key = read_private_key(folder / "coordinator.key")
        issued = authority.issue(name, key.public_key(), "coordinator", days)
    else:
        path = clients_folder(folder) / f"{name}.crt"
        newest = read_public_keys(path.with_suffix(".pub"))[-1]
        issued = authority.issue(name, newest, "client", days)
    files.write(path, certificate_pem(issued))
    return path


def _read_request(path: Path) -> x509.CertificateSigningRequest:
    wrong = InputError(f"{path}: is not a request for a certificate; see fedsplit keys --request")
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
    except ValueError:
        raise wrong from None
    if not request.is_signature_valid:
        raise wrong
    return request
