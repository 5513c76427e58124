"""Keys and certificates of a federation: who gets which, and who is refused."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsplit.commands.app import run
from fedsplit.errors import InputError
from fedsplit.remote import issuing
from fedsplit.remote.allowed import AllowedKeys
from fedsplit.remote.certificates import check_certificate, may_be_used_for, read_certificate
from fedsplit.remote.key_folder import entries
from fedsplit.remote.keys import (
    PrivateKey,
    fingerprint,
    new_key,
    read_private_key,
    read_public_keys,
)

Told = pytest.CaptureFixture[str]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Keys of the clients ada and bob."""
    issuing.make_keys(tmp_path / "keys", ["ada", "bob"], ["127.0.0.1"], 2)
    return tmp_path / "keys"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_keys_are_for_their_owners_alone(tmp_path: Path, capsys: Told) -> None:
    folder = tmp_path / "made"
    hosts = ["--host", "fit.example.org", "--host", "10.0.0.7"]
    assert run(["keys", str(folder), "--clients", "ada, bob", *hosts]) == 0
    assert "fit.example.org, 10.0.0.7, valid for 365 days" in capsys.readouterr().out
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    private = {"ca.key", "server.key", "coordinator.key", "ada.key", "bob.key"}
    assert {name for name, mode in modes.items() if mode == 0o600} == private
    public = {"ca.crt", "server.crt", "coordinator.crt", "ada.pub", "ada.crt", "bob.pub", "bob.crt"}
    assert {name for name, mode in modes.items() if mode != 0o600} == public
    assert AllowedKeys(folder).names == ["ada", "bob"] == AllowedKeys(folder / "clients").names
    before = contents(folder)
    assert run(["keys", str(folder), "--clients", "carl"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert before == contents(folder)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/b", "/a", "a\0", "a\n", "-a", ".a", "a.", "a b", "x" * 65]
)
def test_names_that_are_no_safe_names_of_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="client"):
        issuing.make_keys(tmp_path / "made", [name], ["localhost"], 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("clients", "hosts", "days", "why"),
    [
        (["a", "A"], ["localhost"], 1, "each only once"),
        (["a"], [], 1, "name at least one"),
        (["server"], ["localhost"], 1, "reserved"),
        (["a"], ["host:80"], 1, "without port"),
        (["a"], ["https://host"], 1, "without port"),
        (["a"], ["localhost"], 0, "days must be"),
        (["a"], ["localhost"], 10**6, "days must be"),
    ],
)
def test_keys_that_cannot_be_meant_are_refused(
    clients: list[str], hosts: list[str], days: int, why: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=why):
        issuing.make_keys(tmp_path / "made", clients, hosts, days)
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_is_for_one_use(made: Path) -> None:
    uses = {"server": "server", "coordinator": "coordinator", "clients/ada": "client"}
    for name, use in uses.items():
        certificate = read_certificate(made / f"{name}.crt")
        found = [each for each in uses.values() if may_be_used_for(certificate, each)]  # type: ignore[arg-type]
        assert found == [use]
        assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)


def test_a_client_is_added_listed_and_revoked(made: Path, capsys: Told) -> None:
    allowed = AllowedKeys(made)
    assert run(["keys", str(made), "--add", "carl", "--days", "40"]) == 0
    mark = fingerprint(read_public_keys(made / "clients/carl.pub")[0])
    assert f"carl may join, with the key {mark}" in capsys.readouterr().out
    assert allowed.name(mark) == "carl"
    assert run(["keys", str(made), "--list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == [
        "name",
        "server",
        "coordinator",
        "ada",
        "bob",
        "carl",
    ]
    assert f"(39 days)  {mark}" in listed
    assert run(["keys", str(made), "--revoke", "carl"]) == 0
    assert "carl is revoked" in capsys.readouterr().out
    assert allowed.name(mark) is None
    assert not list(made.rglob("carl*"))
    for line, why in [
        (["--revoke", "carl"], "there is no client carl, only ada, bob"),
        (["--add", "ADA"], "there is a client ada already"),
        (["--renew", "carl"], "there is no client carl"),
        ([], "give one of --clients, --add"),
        (["--list", "--add", "x"], "give one of"),
        (["--add", "x", "--overlap"], "--overlap is for --sign"),
    ]:
        assert run(["keys", str(made), *line]) == 2
        assert why in capsys.readouterr().err


def test_a_deleted_file_revokes_its_client_at_once_and_nobody_else(made: Path) -> None:
    allowed = AllowedKeys(made)
    marks = {entry.name: entry.fingerprints[0] for entry in entries(made)}
    assert (allowed.name(marks["ada"]), allowed.name(marks["bob"])) == ("ada", "bob")
    assert allowed.name(marks["server"]) is None
    (made / "clients/ada.pub").unlink()
    assert (allowed.name(marks["ada"]), allowed.name(marks["bob"])) == (None, "bob")
    (made / "clients/bob.pub").write_text("nothing")
    assert allowed.name(marks["bob"]) is None


@pytest.mark.parametrize("kind", ["made here", "ed25519", "p-256"])
def test_a_client_makes_its_own_key_and_the_coordinator_signs_it(
    made: Path, tmp_path: Path, capsys: Told, kind: str
) -> None:
    there = tmp_path / "hospital"
    there.mkdir()
    own: dict[str, PrivateKey] = {
        "ed25519": Ed25519PrivateKey.generate(),
        "p-256": new_key(),
    }
    if kind in own:
        text = own[kind].private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
        )
        (there / "carl.key").write_bytes(text)
    assert run(["keys", str(there), "--request", "carl"]) == 0
    mark = fingerprint(read_private_key(there / "carl.key").public_key())
    assert mark in capsys.readouterr().out
    assert b"PRIVATE" not in (there / "carl.csr").read_bytes()
    assert run(["keys", str(made), "--sign", str(there / "carl.csr")]) == 0
    assert f"carl may join, with the key {mark}" in capsys.readouterr().out
    shutil.copy(made / "clients/carl.crt", there)
    key = read_private_key(there / "carl.key")
    check_certificate(there / "carl.crt", key, "client", made / "ca.crt", "ask")
    assert AllowedKeys(made).name(mark) == "carl"
    assert run(["keys", str(there), "--request", "carl"]) == 2
    assert "delete it to make another" in capsys.readouterr().err


def test_a_request_in_anothers_name_does_not_replace_its_key(
    made: Path, tmp_path: Path, capsys: Told
) -> None:
    before = contents(made)
    issuing.request_certificate(tmp_path / "eve", "ada")
    assert run(["keys", str(made), "--sign", str(tmp_path / "eve/ada.csr")]) == 2
    assert "ada has another key already" in capsys.readouterr().err
    assert contents(made) == before
    assert run(["keys", str(made), "--sign", str(tmp_path / "eve/ada.csr"), "--overlap"]) == 0
    assert len(read_public_keys(made / "clients/ada.pub")) == 2  # both may be used


@pytest.mark.parametrize(
    "action", ["--list", "--add x", "--revoke x", "--renew all", "--sign x.csr"]
)
def test_a_folder_without_keys_of_a_federation_is_named(
    action: str, tmp_path: Path, capsys: Told
) -> None:
    issuing.request_certificate(tmp_path, "x")
    words = [word.replace("x.csr", str(tmp_path / "x.csr")) for word in action.split()]
    assert run(["keys", str(tmp_path / "nokeys"), *words]) == 2
    assert "nokeys: has no keys of a federation; make them with" in capsys.readouterr().err
    assert not (tmp_path / "nokeys").exists()


def test_keys_that_may_be_read_only_are_listed(made: Path, capsys: Told) -> None:
    made.chmod(0o500)
    assert run(["keys", str(made), "--list"]) == 0
    assert "coordinator" in capsys.readouterr().out
    made.chmod(0o700)


def test_what_is_no_request_is_refused(made: Path, tmp_path: Path, capsys: Told) -> None:
    wrong = tmp_path / "wrong.csr"
    for content in (b"nothing", (made / "ca.crt").read_bytes()):
        wrong.write_bytes(content)
        assert run(["keys", str(made), "--sign", str(wrong)]) == 2
        assert "is not a request for a certificate" in capsys.readouterr().err
    issuing.request_certificate(tmp_path, "carl")
    (made / "ca.key").unlink()
    assert run(["keys", str(made), "--sign", str(tmp_path / "carl.csr")]) == 2
    assert "ca.key: is needed to issue certificates" in capsys.readouterr().err


def test_certificates_are_renewed_for_the_same_keys(made: Path, capsys: Told) -> None:
    before = {entry.name: entry for entry in entries(made)}
    assert run(["keys", str(made), "--renew", "ada,server", "--days", "100"]) == 0
    assert "clients/ada.crt, server.crt" in capsys.readouterr().out
    after = {entry.name: entry for entry in entries(made)}
    for name in ("ada", "bob", "server"):
        assert before[name].fingerprints == after[name].fingerprints
        assert (before[name].ends != after[name].ends) == (name != "bob")
    assert run(["keys", str(made), "--renew", "all"]) == 0
    assert all(entry.ends is not None for entry in entries(made))


def test_a_folder_from_before_there_were_certificates_gets_them(made: Path) -> None:
    for name in ("coordinator.key", "coordinator.crt", "clients/ada.crt", "clients/bob.crt"):
        (made / name).unlink()
    issuing.renew(made, ["all"], 5)
    assert {entry.name for entry in entries(made) if entry.ends} == {
        "server",
        "coordinator",
        "ada",
        "bob",
    }


def test_public_keys_that_cannot_be_used_are_refused(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    with pytest.raises(InputError, match="has no public keys"):
        AllowedKeys(folder)
    ada = (made / "clients/ada.pub").read_bytes()
    for name in ("ada", "twin"):
        (folder / f"{name}.pub").write_bytes(ada)
    with pytest.raises(InputError, match="clients ada, twin have the same key"):
        AllowedKeys(folder)
    weak = rsa.generate_private_key(65537, 2048).public_key()
    (folder / "ada.pub").write_bytes(
        weak.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    )
    with pytest.raises(InputError, match="is not an Ed25519 or ECDSA P-256 key"):
        AllowedKeys(folder)
    (folder / "ada.pub").write_text("nothing")
    with pytest.raises(InputError, match="is not a public key"):
        AllowedKeys(folder)


def test_a_fingerprint_is_that_of_openssl(made: Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    path = made / "clients/ada.key"
    told = subprocess.run(
        [program, "pkey", "-in", str(path), "-pubout", "-outform", "DER"],
        capture_output=True,
        check=True,
    )
    mark = fingerprint(read_private_key(path).public_key())
    assert hashlib.sha256(told.stdout).hexdigest() == mark


def test_a_federation_may_begin_without_clients_that_sign_up_later(
    tmp_path: Path, capsys: Told
) -> None:
    assert run(["keys", str(tmp_path / "keys"), "--host", "localhost"]) == 0
    assert "--sign" in capsys.readouterr().out
    assert run(["keys", str(tmp_path), "--request", "north"]) == 0
    assert run(["keys", str(tmp_path / "keys"), "--sign", str(tmp_path / "north.csr")]) == 0
    assert [entry.name for entry in entries(tmp_path / "keys") if entry.name == "north"]
    assert run(["keys", str(tmp_path / "keys"), "--add", "b", "--host", "localhost"]) == 2
