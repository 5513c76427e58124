"""Keys and certificates of a federation: TLS for the server, and one key per client."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsplit.checks import count
from fedsplit.errors import InputError

SAFE_NAME = re.compile(r"\w[\w.-]{0,63}")
HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")

MOST_DAYS = 36500
"""The longest validity of a certificate."""

CLIENTS = "clients"
"""The folder of the clients' keys."""


def check_name(name: str) -> None:
    """Raise InputError unless a client's name is safe as the name of a file."""
    if not SAFE_NAME.fullmatch(name) or name.endswith("."):
        raise InputError(
            f"client {name!r}: use letters, digits, '.', '-' and '_', at most 64, "
            "a letter or digit first"
        )


def make_keys(folder: Path, clients: Sequence[str], hosts: Sequence[str], days: int) -> None:
    """Create the keys of a federation in a folder; existing files are never overwritten.

    ``ca.crt`` and ``ca.key`` sign ``server.crt``, which belongs to ``server.key``.
    ``clients/NAME.key`` and ``clients/NAME.pub`` are a client's private and public key.

    Parameters
    ----------
    folder : Path
        Created if needed.
    clients : sequence of str
        Their names.
    hosts : sequence of str
        Host names or IP addresses under which clients reach the server.
    days : int
        How long the certificates are valid.
    """
    if count("days", days) > MOST_DAYS:
        raise InputError(f"days must be at most {MOST_DAYS}, not {days}")
    for name in clients:
        check_name(name)
    # Some file systems hold a.key and A.key for the same file.
    if not clients or len({name.casefold() for name in clients}) < len(clients):
        raise InputError("clients: name at least one, and each only once")
    if not hosts:
        raise InputError("hosts: name at least one under which clients reach the server")
    addresses = [_general_name(host) for host in hosts]
    (folder / CLIENTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = ["ca.crt", "ca.key", "server.crt", "server.key"]
    wanted += [f"{CLIENTS}/{name}.{kind}" for name in clients for kind in ("key", "pub")]
    for name in wanted:
        if (folder / name).exists():
            raise _exists(folder / name)

    ca_key = _new_key()
    ca_name = _common_name(f"fedsplit {folder.absolute().name}")
    ca = _certificate(ca_name, ca_key, ca_name, ca_key, days, is_ca=True)
    server_key = _new_key()
    server = _certificate(_common_name(hosts[0]), server_key, ca_name, ca_key, days, is_ca=False)
    server = server.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    server = server.add_extension(x509.SubjectAlternativeName(addresses), critical=False)

    for name, key, certificate in (("ca", ca_key, ca), ("server", server_key, server)):
        private = key.private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
        )
        _write(folder / f"{name}.key", private, secret=True)
        signed = certificate.sign(ca_key, hashes.SHA256())
        _write(folder / f"{name}.crt", signed.public_bytes(forms.Encoding.PEM))
    for name in clients:
        write_key(folder / CLIENTS / f"{name}.key")


def write_key(path: Path) -> None:
    """Create a client's private key, and its public key beside it."""
    key = _new_key()
    private = key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
    )
    _write(path, private, secret=True)
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    _write(path.with_suffix(".pub"), public + b"\n")


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a client's private key, in OpenSSH's format or PEM."""
    content = path.read_bytes()
    load = forms.load_pem_private_key
    if b"OPENSSH" in content[:64]:
        load = forms.load_ssh_private_key
    try:
        key = load(content, None)
    except TypeError:
        raise InputError(f"{path}: has a password, give a key without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{path}: is not a private key; make keys with fedsplit keys") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: is not an ECDSA key; make keys with fedsplit keys")
    return key


def read_public_keys(folder: Path) -> dict[str, bytes]:
    """Read the clients' public keys.

    Parameters
    ----------
    folder : Path
        One that ``make_keys`` wrote to, or one with NAME.pub files.

    Returns
    -------
    dict of str to bytes
        By client, its public key in PEM.
    """
    within = folder
    if (folder / CLIENTS).is_dir():
        within = folder / CLIENTS
    keys = {
        path.stem: public_pem(path.read_bytes(), str(path)) for path in sorted(within.glob("*.pub"))
    }
    if not keys:
        raise InputError(f"{within}: has no public keys (NAME.pub); make keys with fedsplit keys")
    for name, key in keys.items():
        check_name(name)
        twins = [other for other in keys if keys[other] == key]
        if len(twins) > 1:
            raise InputError(
                f"{within}: clients {', '.join(twins)} have the same key, each needs its own"
            )
    return keys


def public_pem(key: bytes, where: str) -> bytes:
    """Convert a public key in PEM or OpenSSH's format to PEM; ``where`` is for errors."""
    load = forms.load_pem_public_key
    if not key.lstrip().startswith(b"-----"):
        load = forms.load_ssh_public_key
    try:
        public = load(key)
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{where}: is not a public key; make keys with fedsplit keys") from None
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise InputError(f"{where}: is not an ECDSA key; make keys with fedsplit keys")
    return public.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    """Write a new file; a secret one is readable by its owner alone from its creation on."""
    mode = 0o600 if secret else 0o644
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _exists(path) from None
    with os.fdopen(file, "wb") as opened:
        opened.write(content)


def _exists(path: Path) -> InputError:
    return InputError(f"{path}: exists already, choose another folder")


def _general_name(host: str) -> x509.GeneralName:
    """Return a host name or IP address as certificates hold it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not HOST_NAME.fullmatch(host):
            raise InputError(
                f"host {host!r}: use a name or an address, without port, such as fit.example.org"
            ) from None
        return x509.DNSName(host)


def _common_name(text: str) -> x509.Name:
    """Return a name for a certificate, where at most 64 characters are allowed."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
    is_ca: bool,
) -> x509.CertificateBuilder:
    """Return a certificate to be signed: of a CA, or of a server."""
    now = datetime.now(UTC)
    path_length = 0 if is_ca else None  # this CA signs servers, not other CAs
    usage = x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(own_id, critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=path_length), critical=True)
        .add_extension(usage, critical=True)
    )
