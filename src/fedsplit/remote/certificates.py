"""Certificates of a federation, which its own authority issues."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsplit.errors import InputError, NotAuthorised
from fedsplit.remote.keys import PrivateKey, PublicKey, fingerprint

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")

MARGIN = timedelta(days=1)
"""How far back a certificate begins: clocks differ."""

AUTHORITY_DAYS = 3650
"""Validity of a CA's certificate, at least: those that it issued are renewed meanwhile."""

WARNING = timedelta(days=30)
"""How long before it expires a certificate is warned of."""

Use = Literal["server", "client", "coordinator"]

USES = {
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
    # RFC 9336, signatures on documents: TLS refuses a certificate with no other use
    "coordinator": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.36"),
}


@dataclass(frozen=True)
class Authority:
    """A federation's authority: its certificate, and the key that signs others."""

    certificate: x509.Certificate
    key: PrivateKey

    @classmethod
    def new(cls, name: str, key: PrivateKey, days: int) -> Authority:
        """A new authority, whose certificate it signs itself."""
        subject = _common_name(name)
        builder = _builder(subject, key.public_key(), subject, key.public_key())
        now = datetime.now(UTC)
        ends = now + timedelta(days=max(days, AUTHORITY_DAYS))
        builder = builder.not_valid_before(now - MARGIN).not_valid_after(ends)
        # this authority signs servers, clients and the coordinator, not other authorities
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_key_usage(authority=True), True)
        return cls(builder.sign(key, _digest(key)), key)

    def issue(
        self, name: str, key: PublicKey, use: Use, days: int, hosts: Sequence[str] = ()
    ) -> x509.Certificate:
        """Issue a certificate, valid for a number of days and no longer than the authority's.

        Parameters
        ----------
        name : str
            Whose it is.
        key : PublicKey
        use : str
            What it may be used for, and nothing else.
        days : int
        hosts : sequence of str
            Names and addresses of a server.
        """
        issuer = self.certificate.subject
        builder = _builder(_common_name(name), key, issuer, self.key.public_key())
        now = datetime.now(UTC)
        ends = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        builder = builder.not_valid_before(now - MARGIN).not_valid_after(ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(authority=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([USES[use]]), critical=False)
        if hosts:
            names = [general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, _digest(self.key))


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate in PEM."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise InputError(f"{path}: is not a certificate") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate in PEM."""
    return certificate.public_bytes(forms.Encoding.PEM)


def check_certificate(
    path: Path, key: PrivateKey, use: Use, ca: Path, renewal: str
) -> x509.Certificate:
    """Read the certificate of a key, and check that it can be used now.

    Parameters
    ----------
    path : Path
        Of the certificate.
    key : PrivateKey
        The key that it must belong to.
    use : str
        What it must be for.
    ca : Path
        The certificate of the CA that must have issued it.
    renewal : str
        How to get a new certificate, for errors.

    Raises
    ------
    NotAuthorised
        If it has expired, or is not valid yet.
    InputError
        If it is the wrong file.
    """
    certificate = read_certificate(path)
    if certificate.public_key() != key.public_key():
        mine = fingerprint(key.public_key())
        raise InputError(
            f"{path}: does not belong to the key with the fingerprint {mine}: check both files, "
            f"or {renewal}"
        )
    if not issued_by(certificate, read_certificate(ca)):
        raise InputError(f"{path}: was not issued by {ca}: check both files, or {renewal}")
    if not may_be_used_for(certificate, use):
        raise InputError(f"{path}: is not the certificate of a {use}: {renewal}")
    now = datetime.now(UTC)
    begins = certificate.not_valid_before_utc
    if now < begins:
        raise NotAuthorised(
            f"{path}: is not valid before {begins:%Y-%m-%d}, and it is {now:%Y-%m-%d} by the clock "
            f"of this machine: set the clock, or {renewal}"
        )
    ends = certificate.not_valid_after_utc
    if now > ends:
        raise NotAuthorised(f"{path}: expired on {ends:%Y-%m-%d}: {renewal}")
    return certificate


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def may_be_used_for(certificate: x509.Certificate, use: Use) -> bool:
    """Whether a certificate states this use."""
    try:
        stated = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return False
    return USES[use] in stated.value


def expiry_warning(path: Path, certificate: x509.Certificate, renewal: str) -> str:
    """A warning if a certificate expires within a month; otherwise an empty text."""
    ends = certificate.not_valid_after_utc
    left = ends - datetime.now(UTC)
    if left > WARNING:
        return ""
    return f"{path} expires on {ends:%Y-%m-%d}, in {max(0, left.days)} days: {renewal}"


def expired(certificate: x509.Certificate) -> bool:
    """Whether a certificate is no longer valid."""
    return datetime.now(UTC) > certificate.not_valid_after_utc


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The names and addresses of a server's certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = names.get_values_for_type(x509.DNSName)
    return hosts + [str(each) for each in names.get_values_for_type(x509.IPAddress)]


def common_name(subject: x509.Name) -> str:
    """The name in a certificate or a request; empty if there is none."""
    found = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not found:
        return ""
    return str(found[0].value)


def make_request(name: str, key: PrivateKey) -> bytes:
    """A request for a certificate of this key, in PEM."""
    builder = x509.CertificateSigningRequestBuilder(_common_name(name))
    return builder.sign(key, _digest(key)).public_bytes(forms.Encoding.PEM)


def general_name(host: str) -> x509.GeneralName:
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


def _digest(key: PrivateKey) -> hashes.SHA256 | None:
    """What a signature by this key needs: Ed25519 brings its own hash."""
    match key:
        case Ed25519PrivateKey():
            return None
    return hashes.SHA256()


def _builder(
    subject: x509.Name, key: PublicKey, issuer: x509.Name, issuer_key: PublicKey
) -> x509.CertificateBuilder:
    own_id = x509.SubjectKeyIdentifier.from_public_key(key)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .add_extension(own_id, critical=False)
        .add_extension(issuer_id, critical=False)
    )


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
