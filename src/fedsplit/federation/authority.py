"""The certificates of a federation: its authority, requests of sites, and who may connect.

The coordinator's folder holds ``ca.key`` and ``ca.crt`` (the authority), ``coordinator.key`` and
``coordinator.crt`` (TLS and signatures), and ``members/NAME.crt`` for every site that may connect;
deleting that file revokes the site at once. A site's folder holds ``site.key``, which is made there
and never leaves it, ``site.crt``, and the certificates of its coordinator and their authority.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsplit.checks import count
from fedsplit.errors import InputError, NotAuthorised, listed
from fedsplit.federation.keys import in_groups as in_groups

Role: TypeAlias = Literal["coordinator", "site"]

_NAME = re.compile(
    r"(?!(all|coordinator|con|prn|aux|nul|(com|lpt)\d)$)[a-z0-9][\w-]{0,62}", re.I | re.A
)
_MOST_DAYS = 3650
_USES = {"coordinator": ExtendedKeyUsageOID.SERVER_AUTH, "site": ExtendedKeyUsageOID.CLIENT_AUTH}


class Holder(NamedTuple):
    """Whose a certificate is: a name, an Ed25519 public key, and when the certificate ends."""

    name: str
    key: bytes
    ends: datetime
    certificate: x509.Certificate

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Holder:
        """Return the holder; InputError unless it is one of a federation."""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key = certificate.public_key()
        if len(names) != 1 or not isinstance(key, Ed25519PublicKey):
            raise InputError("this is not a certificate of a federation")
        ends = certificate.not_valid_after_utc
        return cls(str(names[0].value), key.public_bytes_raw(), ends, certificate)


def check_name(name: str) -> None:
    """Raise InputError unless a site may have this name, which is a part of paths."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"site {name!r}: use letters, digits, - and _, at most 63, and no name that is reserved"
        )


def create(folder: Path, hosts: Sequence[str], days: int = 365) -> None:
    """Create a federation: its authority, and the key and certificate of the coordinator.

    Parameters
    ----------
    folder : Path
        Made if needed; it must not have an authority.
    hosts : sequence of str
        Names and addresses under which sites reach the coordinator.
    days : int
        How long the coordinator's certificate is valid; the authority's is for ten years.
    """
    if (folder / "ca.key").exists() or (folder / "ca.crt").exists():
        raise InputError(f"{folder}: has an authority already, choose another folder")
    ca, own = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    top = Holder.of(_issue("fedsplit federation", ca.public_key(), ca, None, _MOST_DAYS))
    issued = _issue("coordinator", own.public_key(), ca, top, days, _general_names(hosts))
    (folder / "members").mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, key, certificate in (("ca", ca, top.certificate), ("coordinator", own, issued)):
        _write_key(folder / f"{name}.key", key)
        _write(folder / f"{name}.crt", _pem(certificate))


def request(folder: Path, name: str) -> bytes:
    """Make the key of a site in its own folder, and return a request for a certificate (PEM).

    A key that is there is used again. The request travels unprotected: coordinator and owner
    compare its key by telephone.
    """
    check_name(name)
    path = folder / "site.key"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_key(path, Ed25519PrivateKey.generate())
    unsigned = x509.CertificateSigningRequestBuilder(_common_name(name))
    return unsigned.sign(read_key(path), None).public_bytes(forms.Encoding.PEM)


def requested_key(pem: bytes) -> bytes:
    """Return the public key in a request for a certificate, whose holder has signed the request."""
    try:
        wanted = x509.load_pem_x509_csr(pem)
        key = wanted.public_key()
        if wanted.is_signature_valid and isinstance(key, Ed25519PublicKey):
            return key.public_bytes_raw()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise InputError("this is not a request for a certificate that its own Ed25519 key has signed")


def sign(folder: Path, name: str, pem: bytes, days: int = 365) -> bytes:
    """Issue the certificate of a site, which may connect from then on.

    Parameters
    ----------
    folder : Path
        The coordinator's.
    name : str
        The coordinator's choice: whatever else the request states does not count.
    pem : bytes
        The request.
    days : int
        How long the certificate is valid.

    Returns
    -------
    bytes
        What ``accept`` takes at the site (PEM). Nothing in it is secret.
    """
    check_name(name)
    key = requested_key(pem)
    for known in members(folder):
        if known.key == key and known.name != name:
            raise InputError(f"{known.name} has this key already, and every site needs its own")
        if known.key != key and known.name.casefold() == name.casefold():
            raise InputError(
                f"there is a site {known.name}, with the key {in_groups(known.key)}: revoke it "
                "first, or choose another name"
            )
    return _enrol(folder, name, key, days)


def accept(folder: Path, pem: bytes) -> None:
    """Take what the coordinator sent for the key in a site's folder, new or renewed.

    From then on this authority and this coordinator's key are the site's: others are refused.
    """
    try:
        own, coordinator, ca = map(Holder.of, x509.load_pem_x509_certificates(pem))
    except ValueError:
        raise InputError("these are not the three certificates that a coordinator sends") from None
    for path, sent in ((folder / "ca.crt", ca), (folder / "coordinator.crt", coordinator)):
        if path.exists() and read_certificate(path).key != sent.key:
            raise InputError(
                f"{path}: has another key than the one that was sent; only if the federation has "
                "begun anew, remove this file"
            )
    key = read_key(folder / "site.key").public_key().public_bytes_raw()
    _check("the certificate that was sent", own, key, "site", ca)
    _check("the coordinator's certificate", coordinator, coordinator.key, "coordinator", ca)
    for name, holder in (("ca", ca), ("coordinator", coordinator), ("site", own)):
        _write(folder / f"{name}.crt", _pem(holder.certificate))


def renew(folder: Path, name: str, hosts: Sequence[str] = (), days: int = 365) -> bytes:
    """Issue a new certificate for the same key; the old one stays valid until it ends.

    Parameters
    ----------
    folder : Path
        The coordinator's; if it listens, the next connection is made with the new certificate.
    name : str
        Of a site, or ``"coordinator"``, which no site can have.
    hosts : sequence of str
        Names and addresses of the coordinator from now on; by default those that it has.
    days : int
        How long the certificate is valid.

    Returns
    -------
    bytes
        For a site, what ``accept`` takes there; for the coordinator, its certificate (PEM).
    """
    if name != "coordinator":
        known = {each.name: each.key for each in members(folder)}
        if name not in known:
            raise InputError(f"{folder}: there is no site {name!r}, only {listed(known) or 'none'}")
        return _enrol(folder, name, known[name], days)
    path = folder / "coordinator.crt"
    names = _general_names(hosts) if hosts else _names(read_certificate(path).certificate)
    public = read_key(folder / "coordinator.key").public_key()
    issued = _issue(name, public, *_authority(folder), days, names)
    _write(path, _pem(issued))
    return _pem(issued)


def revoke(folder: Path, name: str) -> None:
    """Shut a site out at once, on an open connection too."""
    paths = {each.stem: each for each in _members(folder)}
    if name not in paths:
        raise InputError(f"{folder}: there is no site {name!r}, only {listed(paths) or 'none'}")
    paths[name].unlink()


def members(folder: Path) -> list[Holder]:
    """Return the sites that may connect, sorted by name."""
    read_certificate(folder / "ca.crt")  # or this is no federation's folder
    return [read_certificate(path)._replace(name=path.stem) for path in _members(folder)]


def coordinator(folder: Path) -> tuple[Ed25519PrivateKey, dict[str, str]]:
    """Return the coordinator's key, and the public keys of the sites in hexadecimal digits."""
    known = {each.name: each.key.hex() for each in members(folder)}
    return read_key(folder / "coordinator.key"), known


def is_member(folder: Path, name: str, key: bytes) -> bool:
    """Whether the site of this name may connect, and has this key; its file is read anew."""
    try:
        known = read_certificate(folder / "members" / f"{name}.crt")
    except InputError:  # a damaged file shuts out one site, and no other
        return False
    return _NAME.fullmatch(name) is not None and known.key == key


def expiring(folder: Path, role: Role) -> list[str]:
    """Return a line for every certificate in a folder that ends within a month."""
    found = []
    for path in (folder / "ca.crt", folder / f"{role}.crt", *_members(folder)):
        ends = read_certificate(path).ends
        if (days := (ends - datetime.now(UTC)).days) < 30:
            found.append(
                f"{path} ends on {ends:%Y-%m-%d}, in {max(days, 0)} days: it has to be renewed"
            )
    return found


def tls_context(folder: Path, role: Role) -> ssl.SSLContext:
    """Return the context for TLS 1.3 of a coordinator or a site with the other.

    The own certificate is checked here: in a handshake the other side could not say what is wrong.

    Raises
    ------
    NotAuthorised
        If it is missing or not valid now: the coordinator has to issue or renew it.
    InputError
        If a file is not what it has to be.
    """
    path, ca, key = folder / f"{role}.crt", folder / "ca.crt", folder / f"{role}.key"
    public = read_key(key).public_key().public_bytes_raw()
    if not path.exists():
        raise NotAuthorised(f"{path}: is missing, the coordinator has to issue it")
    _check(str(path), read_certificate(path), public, role, read_certificate(ca))
    context = ssl.create_default_context(cafile=ca)
    if role == "coordinator":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # a resumed session would not present its certificate again
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(path, key)
    return context


def read_certificate(path: Path) -> Holder:
    """Read a certificate (PEM) of a federation."""
    try:
        return Holder.of(x509.load_pem_x509_certificate(path.read_bytes()))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: is not a certificate of a federation") from None


def read_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key (PEM)."""
    try:
        key = forms.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, Ed25519PrivateKey):
        return key
    raise InputError(f"{path}: is not an Ed25519 key in PEM without a password")


def _members(folder: Path) -> list[Path]:
    return sorted((folder / "members").glob("*.crt"))


def _authority(folder: Path) -> tuple[Ed25519PrivateKey, Holder]:
    path = folder / "ca.key"
    if not path.exists():
        raise InputError(f"{path}: is needed to issue certificates: copy it back for that")
    return read_key(path), read_certificate(folder / "ca.crt")


def _enrol(folder: Path, name: str, key: bytes, days: int) -> bytes:
    """Issue the certificate of a site, and put it on the list."""
    ca, top = _authority(folder)
    issued = _issue(name, Ed25519PublicKey.from_public_bytes(key), ca, top, days)
    coordinator = read_certificate(folder / "coordinator.crt")
    _write(folder / "members" / f"{name}.crt", _pem(issued))
    return b"".join(map(_pem, (issued, coordinator.certificate, top.certificate)))


def _issue(
    name: str,
    public: Ed25519PublicKey,
    ca: Ed25519PrivateKey,
    top: Holder | None,
    days: int,
    hosts: Sequence[x509.GeneralName] | None = None,
) -> x509.Certificate:
    """Issue a certificate: an authority's (no ``top``), a coordinator's (hosts), or a site's."""
    if count("days", days) > _MOST_DAYS:
        raise InputError(f"days must be at most {_MOST_DAYS}, not {days}")
    now, alone = datetime.now(UTC), top is None
    issuer = subject = _common_name(name)
    ends = now + timedelta(days=days)
    if top is not None:
        issuer, ends = top.certificate.subject, min(ends, top.ends)
    begins = now - timedelta(days=1)  # clocks differ
    serial = x509.random_serial_number()
    # For signatures on other things, or on certificates and lists of revoked ones.
    usage = x509.KeyUsage(not alone, False, False, False, False, alone, alone, False, False)
    builder = (
        x509.CertificateBuilder(issuer, subject, public, serial, begins, ends)
        .add_extension(x509.BasicConstraints(alone, 0 if alone else None), critical=True)
        .add_extension(usage, critical=True)
        # OpenSSL finds the issuer by these two, and strict versions insist on them.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()), critical=False
        )
    )
    if top is not None:  # a site's cannot serve as the coordinator's, nor the other way round
        use = _USES["site" if hosts is None else "coordinator"]
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if hosts is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(ca, None)


def _check(what: str, held: Holder, key: bytes, role: Role, ca: Holder) -> None:
    """Raise an error unless a certificate can be used now, by the holder of a key, in a role."""
    if held.key != key:
        raise InputError(f"{what}: does not belong to the key in its folder")
    try:
        held.certificate.verify_directly_issued_by(ca.certificate)
        uses = held.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        raise InputError(f"{what}: was not issued by the authority of ca.crt") from None
    if list(uses) != [_USES[role]]:
        raise InputError(f"{what}: is not the certificate of a {role}")
    now, begins = datetime.now(UTC), held.certificate.not_valid_before_utc
    if not begins <= now <= held.ends:
        raise NotAuthorised(
            f"{what}: is valid from {begins:%Y-%m-%d} to {held.ends:%Y-%m-%d}, and here it is "
            f"{now:%Y-%m-%d}: it has to be renewed, or the clock set"
        )


def _names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def _general_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Return names and addresses of a host as certificates hold them."""
    found: list[x509.GeneralName] = []
    for host in hosts:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
                raise InputError(
                    f"host {host!r}: use a name or an address without port, as fit.example.org"
                ) from None
            found.append(x509.DNSName(host))
    if not found:
        raise InputError("hosts: name at least one under which sites reach the coordinator")
    return found


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(forms.Encoding.PEM)


def _write_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a new file, which its owner alone can read from its creation on."""
    form = forms.PrivateFormat.PKCS8
    pem = key.private_bytes(forms.Encoding.PEM, form, forms.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)


def _write(path: Path, content: bytes) -> None:
    """Write a file that is never seen half written."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
