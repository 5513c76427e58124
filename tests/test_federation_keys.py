"""Keys and certificates of a federation: who gets which, and who is refused."""

from __future__ import annotations

import hmac
import shutil
import ssl
import struct
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsplit.errors import InputError, NotAuthorised
from fedsplit.federation import authority, keys


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a coordinator."""
    authority.create(tmp_path / "home", ["127.0.0.1"], 90)
    return tmp_path / "home"


def enrolled(home: Path, name: str) -> Path:
    """The folder of a site whose request the coordinator has signed."""
    site = home.parent / name
    authority.accept(site, authority.sign(home, name, authority.request(site, name), 90))
    return site


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refusal(work: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The line with which something is refused."""
    with pytest.raises(InputError) as refused:
        work(*arguments, **options)
    assert str(refused.value).isprintable()
    return str(refused.value)


def shift(days: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of the authority."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=days)

    monkeypatch.setattr(authority, "datetime", Shifted)


# ---------------------------------------------------------------------- signatures and secrets


def test_a_signature_is_of_one_key_one_purpose_and_one_body() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = keys.public_bytes(key)
    signed = keys.sign(key, "response", b"body")
    assert keys.verify(public, "response", signed) == b"body"
    for public_key, purpose, data in (
        (keys.public_bytes(other), "response", signed),
        (public, "message", signed),
        (public, "response", signed[:-1] + b"Y"),
        (public, "response", b"body"),
        (public[:31], "response", signed),
        # A purpose and a body that are the same bytes one after the other.
        (public, "message", keys.sign(key, "response", b"messagebody")),
    ):
        with pytest.raises(keys.NotAuthentic, match=f"this {purpose} is not signed by"):
            keys.verify(public_key, purpose, data)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", range(0, 90, 3))
def test_no_byte_of_a_signed_statement_can_be_changed(at: int) -> None:
    key = Ed25519PrivateKey.generate()
    signed = bytearray(keys.sign(key, "response", b"body"))
    signed[at % len(signed)] ^= 1
    with pytest.raises(keys.NotAuthentic):
        keys.verify(keys.public_bytes(key), "response", bytes(signed))


def test_any_bytes_are_no_signed_statement() -> None:
    public = keys.public_bytes(Ed25519PrivateKey.generate())
    for data in (b"", b"\x00" * 100, b"x" * 64):
        with pytest.raises(keys.NotAuthentic):
            keys.verify(public, "response", data)


def test_a_digest_is_of_the_parts_with_their_lengths() -> None:
    framed = struct.pack("<Q", 2) + b"ab" + struct.pack("<Q", 0)
    assert keys.digest(b"ab", b"") == sha256(framed).digest()
    assert (
        len(
            {
                keys.digest(b"ab"),
                keys.digest(b"a", b"b"),
                keys.digest(b"", b"ab"),
                keys.digest(b"ab", b""),
            }
        )
        == 4
    )


def test_two_keys_agree_on_a_secret_that_a_third_has_not() -> None:
    a, b, c = (X25519PrivateKey.generate() for _ in range(3))
    secret = keys.agree(a.private_bytes_raw(), keys.public_bytes(b))
    assert secret == keys.agree(b.private_bytes_raw(), keys.public_bytes(a))
    assert secret != keys.agree(c.private_bytes_raw(), keys.public_bytes(b))
    assert secret == a.exchange(X25519PublicKey.from_public_bytes(keys.public_bytes(b)))


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), b"short", b"x" * 33])
def test_a_key_with_which_everybody_would_know_the_secret_is_refused(point: bytes) -> None:
    with pytest.raises(keys.NotAuthentic, match="cannot be used"):
        keys.agree(X25519PrivateKey.generate().private_bytes_raw(), point)


def test_a_stream_is_derived_as_documented() -> None:
    """By other code: HKDF by hand, and ChaCha20 from block 0."""
    extracted = hmac.digest(bytes(32), b"secret", "sha256")
    key = hmac.digest(extracted, b"about\x01", "sha256")
    expected = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(100))
    assert keys.stream(b"secret", b"about", 100) == expected
    assert len({keys.stream(s, a, 32) for s in (b"s", b"t") for a in (b"a", b"b")}) == 4
    read = keys.reader(b"secret", b"about")
    assert read(10) + read(60) + read(30) == expected


def test_a_key_is_shown_as_openssl_has_it(home: Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    path = home / "coordinator.key"
    line = [program, "pkey", "-in", str(path), "-pubout", "-outform", "DER"]
    der = subprocess.run(line, capture_output=True, check=True).stdout
    public = keys.public_bytes(authority.read_key(path))
    assert keys.in_groups(public).replace(" ", "") == der[-32:].hex()
    assert authority.read_certificate(home / "coordinator.crt").key == public


# ---------------------------------------------------------------------- a federation


def test_keys_are_for_their_owners_alone_and_are_never_overwritten(home: Path) -> None:
    site = enrolled(home, "ada")
    modes = {path.name: path.stat().st_mode & 0o777 for path in home.rglob("*") if path.is_file()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {"ca.key", "coordinator.key"}
    assert set(modes) == {"ca.key", "ca.crt", "coordinator.key", "coordinator.crt", "ada.crt"}
    assert (site / "site.key").stat().st_mode & 0o777 == 0o600
    assert set(contents(site)) == {"site.key", "site.crt", "ca.crt", "coordinator.crt"}
    before = contents(home)
    assert "has an authority already" in refusal(authority.create, home, ["127.0.0.1"])
    assert contents(home) == before


def test_no_private_key_of_a_site_is_ever_at_the_coordinator(home: Path) -> None:
    site = home.parent / "ada"
    request = authority.request(site, "ada")
    answer = authority.sign(home, "ada", request)
    private = (site / "site.key").read_bytes().splitlines()[1]
    assert all(private not in each for each in (request, answer, *contents(home).values()))
    assert list(contents(site)) == ["site.key"]
    assert authority.request(site, "ada") != b""  # which was lost on its way: the same key again
    assert (site / "site.key").read_bytes().splitlines()[1] == private


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "/a",
            "a\0",
            "a\n",
            "-a",
            ".a",
            "a.b",
            "a b",
            "x" * 64,
            "é",
        ),
        *("all", "coordinator", "Coordinator", "con", "NUL", "com1"),
    ],
)
def test_names_that_are_no_safe_parts_of_paths_are_refused(name: str, home: Path) -> None:
    before = contents(home.parent)
    request = authority.request(home.parent / "eve", "eve")
    assert "site" in refusal(authority.request, home.parent / "x", name)
    assert "site" in refusal(authority.sign, home, name, request)
    assert not authority.is_member(home, name, keys.public_bytes(Ed25519PrivateKey.generate()))
    assert "no site" in refusal(authority.revoke, home, name)
    shutil.rmtree(home.parent / "eve")
    assert contents(home.parent) == before


def test_a_name_is_no_way_to_a_certificate_elsewhere(home: Path) -> None:
    enrolled(home, "ada")
    key = authority.read_certificate(home / "members/ada.crt").key
    assert authority.is_member(home, "ada", key)
    for name in ("../members/ada", "./ada", "x/../ada"):
        assert not authority.is_member(home, name, key)


@pytest.mark.parametrize(
    ("hosts", "days", "why"),
    [
        ([], 1, "name at least one"),
        (["host:80"], 1, "without port"),
        (["https://host"], 1, "without port"),
        (["a host"], 1, "without port"),
        (["localhost"], 0, "days must be"),
        (["localhost"], 10**6, "days must be"),
    ],
)
def test_a_federation_that_cannot_be_meant_is_refused_before_anything_is_written(
    hosts: list[str], days: int, why: str, tmp_path: Path
) -> None:
    assert why in refusal(authority.create, tmp_path / "home", hosts, days)
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_is_for_one_use_and_begins_a_day_before(home: Path) -> None:
    site = enrolled(home, "ada")
    for path, use in (
        (home / "coordinator.crt", ExtendedKeyUsageOID.SERVER_AUTH),
        (site / "site.crt", ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        certificate = authority.read_certificate(path).certificate
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(uses) == [use]
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        assert (limits.ca, usage.key_cert_sign, usage.digital_signature) == (False, False, True)
        now = datetime.now(UTC)
        assert certificate.not_valid_before_utc < now - timedelta(hours=23)
        assert now + timedelta(days=89) < certificate.not_valid_after_utc
        assert certificate.not_valid_after_utc < now + timedelta(days=91)


def test_a_request_for_more_than_a_sites_certificate_gets_a_sites_certificate(home: Path) -> None:
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
    wanted = (
        x509.CertificateSigningRequestBuilder(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, None)
    )
    sent = authority.sign(home, "eve", wanted.public_bytes(forms.Encoding.PEM))
    issued = authority.Holder.of(x509.load_pem_x509_certificate(sent))
    assert issued.name == "eve"
    extensions = issued.certificate.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    with pytest.raises(x509.ExtensionNotFound):
        extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_what_is_no_request_is_refused(home: Path) -> None:
    request = authority.request(home.parent / "eve", "eve")
    weak = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "eve")])
    from cryptography.hazmat.primitives.hashes import SHA256

    other = x509.CertificateSigningRequestBuilder(name).sign(weak, SHA256())
    damaged = bytearray(x509.load_pem_x509_csr(request).public_bytes(forms.Encoding.DER))
    damaged[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(damaged)).public_bytes(forms.Encoding.PEM)
    certificate = (home / "ca.crt").read_bytes()
    before = contents(home)
    for wrong in (
        b"",
        b"nothing",
        certificate,
        other.public_bytes(forms.Encoding.PEM),
        forged,
    ):
        assert "is not a request" in refusal(authority.sign, home, "eve", wrong)
    assert contents(home) == before


def test_a_request_in_anothers_name_or_with_anothers_key_replaces_nothing(home: Path) -> None:
    ada = enrolled(home, "ada")
    before = contents(home)
    eve = authority.request(home.parent / "eve", "ada")
    for name in ("ada", "ADA", "Ada"):
        told = refusal(authority.sign, home, name, eve)
        assert "there is a site ada, with the key" in told
    again = authority.request(ada, "ada")
    assert "ada has this key already" in refusal(authority.sign, home, "twin", again)
    assert contents(home) == before
    authority.sign(home, "ada", again)  # the same name and key: a renewal


def test_the_authority_is_needed_to_issue_and_for_nothing_else(home: Path) -> None:
    enrolled(home, "ada")
    (home / "ca.key").unlink()
    request = authority.request(home.parent / "eve", "eve")
    for work in (
        lambda: authority.sign(home, "eve", request),
        lambda: authority.renew(home, "ada"),
        lambda: authority.renew(home, "coordinator"),
    ):
        assert "ca.key: is needed to issue certificates" in refusal(work)
    assert [each.name for each in authority.members(home)] == ["ada"]
    authority.tls_context(home, "coordinator")
    authority.revoke(home, "ada")


def test_a_folder_without_a_federation_is_named(tmp_path: Path) -> None:
    for work in (
        lambda: authority.members(tmp_path),
        lambda: authority.renew(tmp_path, "ada"),
        lambda: authority.tls_context(tmp_path, "coordinator"),
    ):
        assert str(tmp_path) in refusal(work)
    assert "no site 'ada'" in refusal(authority.revoke, tmp_path, "ada")
    assert list(tmp_path.iterdir()) == []


def test_members_are_listed_revoked_and_may_come_back_with_another_key(home: Path) -> None:
    ada, bob = enrolled(home, "ada"), enrolled(home, "bob")
    public = {each.name: each.key for each in authority.members(home)}
    assert list(public) == ["ada", "bob"]
    assert public["ada"] == keys.public_bytes(authority.read_key(ada / "site.key"))
    authority.revoke(home, "ada")
    assert [each.name for each in authority.members(home)] == ["bob"]
    assert not authority.is_member(home, "ada", public["ada"])
    assert authority.is_member(home, "bob", public["bob"])
    assert not authority.is_member(home, "bob", public["ada"])
    assert "no site 'ada', only bob" in refusal(authority.revoke, home, "ada")
    (ada / "site.key").unlink()
    authority.accept(ada, authority.sign(home, "ada", authority.request(ada, "ada")))
    assert not authority.is_member(home, "ada", public["ada"])
    (home / "members/bob.crt").write_text("nothing")  # shuts out bob, and nobody else
    assert not authority.is_member(home, "bob", public["bob"])
    assert "bob.crt: is not a certificate" in refusal(authority.members, home)
    assert bob.is_dir()


def test_a_certificate_is_renewed_for_the_same_key_and_the_old_one_stays_valid(home: Path) -> None:
    ada = enrolled(home, "ada")
    before = authority.read_certificate(ada / "site.crt")
    authority.accept(ada, authority.renew(home, "ada", days=200))
    after = authority.read_certificate(ada / "site.crt")
    assert after.key == before.key
    assert after.ends - before.ends > timedelta(days=109)
    assert authority.is_member(home, "ada", before.key)
    assert "no site 'eve', only ada" in refusal(authority.renew, home, "eve")


def test_the_host_of_a_coordinator_can_change_and_its_certificate_be_lost(home: Path) -> None:
    def hosts() -> list[str]:
        found = authority.read_certificate(home / "coordinator.crt").certificate.extensions
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(each.value) for each in names]

    key = authority.read_certificate(home / "coordinator.crt").key
    authority.renew(home, "coordinator", ["fit.example.org", "::1"])
    assert hosts() == ["fit.example.org", "::1"]
    authority.renew(home, "coordinator")
    assert hosts() == ["fit.example.org", "::1"]
    (home / "coordinator.crt").unlink()
    assert "coordinator.crt: cannot be read" in refusal(authority.renew, home, "coordinator")
    authority.renew(home, "coordinator", ["10.0.0.7"])
    assert hosts() == ["10.0.0.7"]
    assert authority.read_certificate(home / "coordinator.crt").key == key
    before = contents(home)
    assert "without port" in refusal(authority.renew, home, "coordinator", ["host:80"])
    assert "days must be" in refusal(authority.renew, home, "coordinator", days=0)
    assert contents(home) == before


def test_no_certificate_outlives_its_authority(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shift(1000, monkeypatch)
    authority.renew(home, "coordinator", days=3650)
    ends = authority.read_certificate(home / "ca.crt").ends
    assert authority.read_certificate(home / "coordinator.crt").ends == ends


# ---------------------------------------------------------------------- at a site


def test_what_a_coordinator_sent_is_taken_for_the_own_key_alone(home: Path) -> None:
    ada, bob = enrolled(home, "ada"), enrolled(home, "bob")
    before = contents(ada)
    own, coordinator, ca = (
        each.public_bytes(forms.Encoding.PEM)
        for each in x509.load_pem_x509_certificates(authority.renew(home, "ada"))
    )
    bobs = (bob / "site.crt").read_bytes()
    for wrong, why in (
        (b"", "three certificates"),
        (own, "three certificates"),
        (own + ca, "three certificates"),
        (bobs + coordinator + ca, "does not belong to the key"),
        (own + bobs + ca, "coordinator.crt: has another key"),
        (own + coordinator + bobs, "ca.crt: has another key"),
        (own + ca + coordinator, "has another key"),
    ):
        assert why in refusal(authority.accept, ada, wrong)
    assert contents(ada) == before
    shutil.rmtree(bob)  # bob has accepted nothing yet
    request = authority.request(bob, "bob")
    authority.revoke(home, "bob")
    sent = authority.sign(home, "bob", request)
    own_end = sent.index(b"-----END CERTIFICATE-----\n") + len(b"-----END CERTIFICATE-----\n")
    assert "is not the certificate of a coordinator" in refusal(
        authority.accept, bob, sent[:own_end] + sent[:own_end] + ca
    )
    assert list(contents(bob)) == ["site.key"]


def test_another_coordinator_is_not_taken_for_the_one_that_was_accepted(home: Path) -> None:
    ada = enrolled(home, "ada")
    other = home.parent / "other"
    authority.create(other, ["127.0.0.1"])
    sent = authority.sign(other, "ada", authority.request(ada, "ada"))
    assert "ca.crt: has another key" in refusal(authority.accept, ada, sent)
    # The same authority, but the coordinator's key is another one.
    for name in ("ca.key", "ca.crt"):
        shutil.copy(home / name, other)
    authority.renew(other, "coordinator")
    sent = authority.sign(other, "ada", authority.request(ada, "ada"))
    assert "coordinator.crt: has another key" in refusal(authority.accept, ada, sent)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no certificate", "site.crt: is missing, the coordinator has to issue it"),
        ("no key", "site.key: cannot be read"),
        ("damaged key", "site.key: is not an Ed25519 key"),
        ("key with a password", "site.key: is not an Ed25519 key in PEM without a password"),
        ("weak key", "site.key: is not an Ed25519 key"),
        ("another's certificate", "site.crt: does not belong to the key"),
        ("another authority", "site.crt: was not issued by"),
        ("the coordinator's", "site.crt: is not the certificate of a site"),
        ("expired", "it has to be renewed"),
        ("not yet valid", "or the clock set"),
    ],
)
def test_a_site_says_what_is_wrong_with_its_certificate_before_it_connects(
    home: Path, kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = enrolled(home, "ada")
    private = forms.PrivateFormat.PKCS8
    match kind:
        case "no certificate":
            (ada / "site.crt").unlink()
        case "no key":
            (ada / "site.key").unlink()
        case "damaged key":
            (ada / "site.key").write_text("-----BEGIN PRIVATE KEY-----\nx\n")
        case "key with a password":
            key = authority.read_key(ada / "site.key")
            secret = forms.BestAvailableEncryption(b"secret")
            pem = key.private_bytes(forms.Encoding.PEM, private, secret)
            (ada / "site.key").write_bytes(pem)
        case "weak key":
            weak = rsa.generate_private_key(65537, 2048)
            pem = weak.private_bytes(forms.Encoding.PEM, private, forms.NoEncryption())
            (ada / "site.key").write_bytes(pem)
        case "another's certificate":
            shutil.copy(enrolled(home, "bob") / "site.crt", ada)
        case "another authority":
            authority.create(home.parent / "other", ["127.0.0.1"])
            shutil.copy(home.parent / "other/ca.crt", ada)
        case "the coordinator's":
            shutil.copy(home / "coordinator.crt", ada / "site.crt")
            shutil.copy(home / "coordinator.key", ada / "site.key")
        case "expired":
            shift(91, monkeypatch)
        case "not yet valid":
            shift(-2, monkeypatch)
    told = refusal(authority.tls_context, ada, "site")
    assert why in told
    assert str(ada) in told
    later = kind in ("no certificate", "expired", "not yet valid")
    with pytest.raises(NotAuthorised if later else InputError) as refused:
        authority.tls_context(ada, "site")
    assert isinstance(refused.value, NotAuthorised) == later


def test_the_end_of_a_certificate_is_said_a_month_before(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = enrolled(home, "ada")
    assert authority.expiring(home, "coordinator") == authority.expiring(ada, "site") == []
    shift(59, monkeypatch)
    assert authority.expiring(ada, "site") == []
    shift(60.5, monkeypatch)
    assert len(authority.expiring(ada, "site")) == 1
    shift(70.5, monkeypatch)
    [line] = authority.expiring(ada, "site")
    assert "site.crt ends on" in line
    assert "in 19 days: it has to be renewed" in line
    lines = authority.expiring(home, "coordinator")
    assert [Path(each.split()[0]).name for each in lines] == ["coordinator.crt", "ada.crt"]
    shift(365, monkeypatch)
    assert "in 0 days" in authority.expiring(ada, "site")[0]
    shift(3640, monkeypatch)
    assert "ca.crt ends on" in authority.expiring(home, "coordinator")[0]


def test_certificates_pass_the_strict_rules_of_x509(home: Path) -> None:
    ada = enrolled(home, "ada")
    server, client = authority.tls_context(home, "coordinator"), authority.tls_context(ada, "site")
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[1].version() == "TLSv1.3"
    assert ends[1].getpeercert() is not None
