"""Keys and certificates of a federation: the server's for TLS, and one key a client, by which it is known."""

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

SAFE = re.compile(r"\w[\w.-]{0,63}")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
LONGEST = 36500
CLIENTS = "clients"


def check_name(name: str) -> None:
    """Refuse a client's name that is no safe name of a file."""
    if not SAFE.fullmatch(name) or name.endswith("."):
        raise InputError(
            f"client {name!r}: use letters, digits, '.', '-' and '_', at most 64, a letter or digit first"
        )


def make_keys(folder: Path, clients: Sequence[str], hosts: Sequence[str], days: int) -> None:
    """Make a federation's keys in a folder; nothing that is there is written over.

    ``ca.crt`` and ``ca.key`` sign ``server.crt``, which with ``server.key`` is for a server at these hosts, names or
    addresses, for so many days. ``clients/NAME.key`` and ``clients/NAME.pub`` are a client's key.
    """
    if count("days", days) > LONGEST:
        raise InputError(f"days must be at most {LONGEST}, not {days}")
    for name in clients:
        check_name(name)
    if not clients or len({name.casefold() for name in clients}) < len(clients):
        raise InputError("clients: name at least one, and each only once")
    if not hosts:
        raise InputError("hosts: name at least one under which clients reach the server")
    places = [_place(host) for host in hosts]
    (folder / CLIENTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = ["ca.crt", "ca.key", "server.crt", "server.key"]
    wanted += [f"{CLIENTS}/{name}.{kind}" for name in clients for kind in ("key", "pub")]
    for name in wanted:
        if (folder / name).exists():
            raise InputError(f"{folder / name}: is there already, choose another folder")

    ca_key, server_key = _new_key(), _new_key()
    ca = _certificate(f"fedsplit {folder.absolute().name}"[:64], ca_key, None, ca_key, days)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(_usage(signs_certificates=True), critical=True)
    signed_ca = ca.sign(ca_key, hashes.SHA256())
    server = _certificate(hosts[0][:64], server_key, signed_ca.subject, ca_key, days)
    server = server.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    server = server.add_extension(_usage(signs_certificates=False), critical=True)
    server = server.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    server = server.add_extension(x509.SubjectAlternativeName(places), critical=False)

    _write(folder / "ca.key", _pem(ca_key), secret=True)
    _write(folder / "ca.crt", signed_ca.public_bytes(forms.Encoding.PEM))
    _write(folder / "server.key", _pem(server_key), secret=True)
    _write(
        folder / "server.crt", server.sign(ca_key, hashes.SHA256()).public_bytes(forms.Encoding.PEM)
    )
    for name in clients:
        write_key(folder / CLIENTS / f"{name}.key")


def write_key(path: Path) -> None:
    """Make a client's key, and beside it its public key."""
    key = _new_key()
    _write(
        path,
        key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()),
        secret=True,
    )
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    _write(path.with_suffix(".pub"), public + b"\n")


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A client's key from its file, in OpenSSH's form or PEM."""
    content = path.read_bytes()
    load = forms.load_ssh_private_key if b"OPENSSH" in content[:64] else forms.load_pem_private_key
    try:
        key = load(content, None)
    except TypeError:
        raise InputError(f"{path}: is a key under a password, give one without") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{path}: is no private key; make keys with fedsplit keys") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(
            f"{path}: is a key of another kind, not ECDSA; make keys with fedsplit keys"
        )
    return key


def read_public_keys(folder: Path) -> dict[str, bytes]:
    """By client, its public key in PEM: those in the folder that ``make_keys`` made, or in one with NAME.pub files."""
    within = folder / CLIENTS if (folder / CLIENTS).is_dir() else folder
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
    """A public key in PEM, from PEM or OpenSSH's form; ``where`` it is from, for a message."""
    load = (
        forms.load_pem_public_key
        if key.lstrip().startswith(b"-----")
        else forms.load_ssh_public_key
    )
    try:
        public = load(key)
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{where}: is no public key; make keys with fedsplit keys") from None
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise InputError(
            f"{where}: is a key of another kind, not ECDSA; make keys with fedsplit keys"
        )
    return public.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    """A new file; a secret one is for its owner alone from the first byte on."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    except FileExistsError:
        raise InputError(f"{path}: is there already, choose another folder") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(content)


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not HOST.fullmatch(host):
            raise InputError(
                f"host {host!r}: use a name or an address, without port, such as fit.example.org"
            ) from None
        return x509.DNSName(host)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name | None,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
