"""HTTPS between organisations: who is let in, by which certificate and key."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from federation import until
from fedsplit.remote import certificates, issuing
from fedsplit.remote.https import exchange, protocol
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.key_folder import read_authority
from fedsplit.remote.keys import read_private_key
from https_clients import PLAIN, Hand, joined, keys_of, refusal, running, sending


def dated(made: Path, path: Path, shift: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate of bob that was issued some days ago, or in some days."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=shift)

    key = read_private_key(made / "ours/clients/bob.key").public_key()
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Shifted)
        issued = read_authority(made / "ours").issue("bob", key, "client", 2)
    path.write_bytes(certificates.certificate_pem(issued))
    return path


OURS = {"key": "ours/clients/bob.key", "ca": "ours/ca.crt"}


@pytest.fixture(scope="module")
def guarded(made: Path) -> Iterator[HttpsServer]:
    """A server that nobody gets to, for all who try."""
    with HttpsServer("127.0.0.1", 0, made / "ours") as server:
        yield server


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({**OURS, "key": "theirs/clients/eve.key"}, "was not issued by "),
        ({**OURS, "certificate": "ours/clients/ada.crt"}, "does not belong to the key"),
        ({**OURS, "certificate": "ours/nosuch.crt"}, "nosuch.crt: is missing"),
        ({**OURS, "key": "ours/server.key"}, "is not the certificate of a client"),
        ({**OURS, "key": "ours/coordinator.key"}, "is not the certificate of a client"),
        ({"ca": "ours/ca.crt"}, "give both --key and --ca"),
        ({"key": "ours/clients/bob.key"}, "give both --key and --ca"),
        (PLAIN, "uses TLS: give --key and --ca"),
        ({**OURS, **PLAIN}, "leave out --key, --ca, or --insecure"),
        (
            {"key": "theirs/clients/eve.key", "ca": "theirs/ca.crt"},
            "a proxy that inspects TLS has to let this address pass",
        ),
        ({**OURS, "key": "ours/ca.crt"}, "ca.crt: is not a private key"),
        ({**OURS, "ca": "ours/server.key"}, "server.key: is not a certificate"),
        ({**OURS, "ca": "ours/nosuch.crt"}, "nosuch.crt: there is no such file"),
        ({**OURS, "key": "ours/nosuch.key"}, "nosuch.key: there is no such file"),
    ],
)
def test_who_has_not_the_right_keys_is_refused_in_one_line(
    guarded: HttpsServer,
    made: Path,
    options: dict[str, Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "ABSENT_SECONDS", 0.1)
    options = {
        name: made / value if isinstance(value, str) else value for name, value in options.items()
    }
    assert why in refusal(guarded.port, name="x", **options)
    assert guarded.present() == {}
    assert guarded.send({"bob": b"hello"}, 60)["bob"][:2] == (None, "its client is not connected")


@pytest.mark.parametrize(
    ("shift", "why"), [(-30, "expired on"), (30, "is not valid before"), (-62, "expired on")]
)
def test_a_certificate_that_is_not_valid_now_is_refused_before_it_is_used(
    server: HttpsServer,
    made: Path,
    tmp_path: Path,
    shift: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = dated(made, tmp_path / "bob.crt", shift, monkeypatch)
    assert why in refusal(server.port, **keys_of(made, "bob"), certificate=own)


@pytest.mark.parametrize("shift", [-30, 30, None])
def test_the_handshake_refuses_what_a_client_should_not_have_sent(
    server: HttpsServer,
    made: Path,
    tmp_path: Path,
    shift: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, key = made / "theirs/clients/eve.crt", made / "theirs/clients/eve.key"
    if shift is not None:
        own, key = (
            dated(made, tmp_path / "bob.crt", shift, monkeypatch),
            keys_of(made, "bob")["key"],
        )
    tls = "fedsplit.remote.https.tls.check_certificate"
    monkeypatch.setattr(tls, lambda path, *_: certificates.read_certificate(path))
    options: dict[str, Any] = {"key": key, "certificate": own, "ca": made / "ours/ca.crt"}
    with running(server.port, **options) as told:
        until(lambda: "the server may not accept this certificate" in "".join(told), 20)
        assert server.present() == {}


def test_an_expiry_is_warned_of_a_month_before(
    server: HttpsServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = dated(made, tmp_path / "bob.crt", 0, monkeypatch)
    with running(server.port, certificate=soon, **keys_of(made, "bob")) as told:
        until(lambda: "bob" in server.present(), 20)
    assert "bob.crt expires on" in told[0]
    assert "ask the coordinator for a new one" in told[0]
    assert server.warning == ""
    issuing.make_keys(tmp_path / "short", ["a"], ["localhost"], 20)
    assert "server.crt expires on" in HttpsServer("127.0.0.1", 0, tmp_path / "short").warning


def test_a_renewed_certificate_and_the_old_one_are_both_accepted(
    server: HttpsServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = dated(made, tmp_path / "bob.crt", 0, monkeypatch)
    for certificate in (None, new):
        options = keys_of(made, "bob") | {"certificate": certificate}
        with running(server.port, **options):
            until(lambda: "bob" in server.present(), 20)
            assert server.send({"bob": b"one"}, 30)["bob"][0] == b"eno"


def test_a_certificate_that_ends_meanwhile_is_named_and_a_new_one_is_used_at_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dated(made, tmp_path / "bob.crt", 0, monkeypatch)
    options = keys_of(made, "bob") | {"certificate": own}
    with ExitStack() as stack, HttpsServer("127.0.0.1", 0, made / "ours") as server:
        told = stack.enter_context(running(server.port, **options))
        until(lambda: "bob" in server.present(), 20)
        dated(made, own, -30, monkeypatch)
        server._service.boxes["bob"]._connections[0].abort()  # type: ignore[attr-defined]
        until(lambda: "bob.crt: expired on" in told[-1], 20)
        dated(made, own, 0, monkeypatch)
        until(lambda: "bob" in server.present(), 20)
        assert server.send({"bob": b"one"}, 30)["bob"][0] == b"eno"


def test_a_certificate_that_expires_on_an_open_connection_is_refused_at_the_next_request(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(server, made, "ada")
    assert hand.post(protocol.JOIN)[0] == 204

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=91)

    monkeypatch.setattr(certificates, "datetime", Later)
    status, _, text = hand.post(protocol.NEXT)
    assert (status, text[:40]) == (401, b"the certificate of this client expired o")
    hand.close()


def test_an_ed25519_key_in_openssh_format_is_accepted(made: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    ours = tmp_path / "ours"
    shutil.copytree(made / "ours", ours)
    text = Ed25519PrivateKey.generate().private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()
    )
    (tmp_path / "carl.key").write_bytes(text)
    path, _ = issuing.request_certificate(tmp_path, "carl")
    with HttpsServer("127.0.0.1", 0, ours) as server:
        issuing.sign_request(ours, path, 90)  # while the server runs
        shutil.copy(ours / "clients/carl.crt", tmp_path)
        with running(server.port, key=tmp_path / "carl.key", ca=ours / "ca.crt"):
            until(lambda: "carl" in server.present(), 20)
            assert server.send({"carl": b"one"}, 30)["carl"][0] == b"eno"


@pytest.mark.parametrize("at_work", [False, True])
def test_a_key_that_is_revoked_shuts_its_client_out_at_once(
    made: Path, tmp_path: Path, at_work: bool
) -> None:
    ours = tmp_path / "ours"
    shutil.copytree(made / "ours", ours)
    go = threading.Event()

    def answer(message: bytes) -> bytes:
        go.wait(20)
        return message

    with (
        HttpsServer("127.0.0.1", 0, ours) as server,
        joined(server, tmp_path, "ada", answer) as told,
        joined(server, tmp_path, "bob"),
    ):
        if at_work:
            with sending(server, {"ada": b"one"}) as found:
                until(lambda: server.clients()["ada"].answering, 20)
                issuing.revoke_client(ours, "ada")
            assert found["ada"][:2] == (None, "its key was revoked")
        else:
            issuing.revoke_client(ours, "ada")
        assert list(server.present()) == ["bob"]
        go.set()
        until(lambda: "revoked)" in told[-1], 20)
        assert told[-1].startswith("refused: ")
        assert server.send({"bob": b"one"}, 30)["bob"][0] == b"eno"


def test_a_certificate_for_another_host_is_refused(server: HttpsServer, made: Path) -> None:
    told = refusal(server.port, "localhost", **keys_of(made, "ada"))
    assert "its certificate is not accepted" in told
    assert "localhost" in told


def test_tls_is_not_given_up_for_a_server_without_it(plain: HttpsServer, made: Path) -> None:
    assert "does not use TLS" in refusal(plain.port, **keys_of(made, "ada"))
    assert plain.present() == {}
