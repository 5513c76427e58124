"""Signatures of a coordinator: whose are taken, and what a refusal says."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fedsplit.commands.app import run
from fedsplit.errors import InputError
from fedsplit.remote import certificates
from fedsplit.remote.certificates import USES, may_be_used_for
from fedsplit.remote.issuing import make_keys, renew, sign_request
from fedsplit.remote.messages import Signature
from fedsplit.remote.signatures import Signer, check_signature


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        make_keys(folder / name, ["a"], ["127.0.0.1"], 2)
    return folder


def test_a_study_is_signed_by_the_coordinator_of_the_federation_alone(
    folder: Path, client: str
) -> None:
    ours, theirs = Signer(folder / "ours"), Signer(folder / "theirs")
    ca = (folder / "ours" / "ca.crt").read_bytes()
    content = b"a study"
    signed = ours.sign(content)
    check_signature(content, signed, ours.fingerprint, ca)
    server = (folder / "ours" / "server.crt").read_text(encoding="ascii")
    for words, signature, who, what in (
        (content, Signature(), ours.fingerprint, "is not signed"),
        (b"another", signed, ours.fingerprint, "does not belong to the study"),
        (content, signed, theirs.fingerprint, "names another coordinator"),
        (content, theirs.sign(content), theirs.fingerprint, "issued by another CA"),
        (content, Signature(signed.value, server), ours.fingerprint, "is not the coordinator's"),
        (content, Signature(signed.value, client), ours.fingerprint, "is not the coordinator's"),
        (content, Signature("zz", "-"), ours.fingerprint, "cannot be read"),
        (content, Signature("00" * 64, signed.certificate), ours.fingerprint, "does not belong"),
    ):
        with pytest.raises(InputError, match=what):
            check_signature(words, signature, who, ca)


@pytest.fixture(scope="module")
def client(folder: Path) -> str:
    """That of a client whose request asks for the coordinator's use."""
    key = Ed25519PrivateKey.generate()
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "eve")])
    )
    wanted = x509.ExtendedKeyUsage([USES["coordinator"]])
    request = builder.add_extension(wanted, critical=False).sign(key, None)
    path = folder / "eve.csr"
    path.write_bytes(request.public_bytes(Encoding.PEM))
    sign_request(folder / "ours", path, 2)
    return (folder / "ours/clients/eve.crt").read_text(encoding="ascii")


def test_a_request_for_the_coordinators_use_gets_a_clients_certificate(client: str) -> None:
    issued = x509.load_pem_x509_certificate(client.encode())
    assert may_be_used_for(issued, "client")
    assert not may_be_used_for(issued, "coordinator")


def reissued(folder: Path, days_ago: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew the coordinator's certificate for two days, some days ago."""

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) - timedelta(days=days_ago)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Earlier)
        renew(folder, ["coordinator"], 2)


def damaged(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the coordinator's key, or its certificate."""
    theirs = folder.parent / "theirs"
    match kind:
        case "no key":
            (folder / "coordinator.key").unlink()
        case "no certificate":
            (folder / "coordinator.crt").unlink()
        case "damaged":
            (folder / "coordinator.key").write_text("-----BEGIN PRIVATE KEY-----\nx\n")
        case "of a client":
            shutil.copy(folder / "clients/a.key", folder / "coordinator.key")
        case "another certificate":
            shutil.copy(theirs / "coordinator.crt", folder)
        case "another federation":
            for name in ("coordinator.crt", "coordinator.key"):
                shutil.copy(theirs / name, folder)
        case "expired":
            reissued(folder, 30, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no key", "coordinator.key: is missing"),
        ("no certificate", "coordinator.crt: is missing"),
        ("damaged", "coordinator.key: is not a private key"),
        ("of a client", "coordinator.key: is not an Ed25519 key"),
        ("another certificate", "coordinator.crt: does not belong to the key"),
        ("another federation", "coordinator.crt: was not issued by "),
        ("expired", "coordinator.crt: expired on "),
    ],
)
def test_a_coordinator_whose_signatures_clients_would_refuse_is_told_at_the_start(
    folder: Path,
    tmp_path: Path,
    kind: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    keys = tmp_path / "ours"
    damaged(keys, kind, monkeypatch)
    out = tmp_path / "out"
    command = ["server", "--keys", str(keys), "--clients", "1", "--out", str(out)]
    assert run([*command, "--formula", "y ~ x"]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1
    assert not out.exists()


def test_the_end_of_the_coordinators_certificate_is_warned_of(folder: Path) -> None:
    assert "coordinator.crt expires on" in Signer(folder / "ours").warning
    make_keys(folder / "long", ["a"], ["127.0.0.1"], 90)
    assert Signer(folder / "long").warning == ""
