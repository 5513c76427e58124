"""HTTPS between organisations, at a server: messages go there and back, or are dropped."""

import os
import shutil
import threading
from http.client import HTTPSConnection
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("aiohttp")

import fedsplit.remote.https.client as clients
from federation import until
from fedsplit.channels import folder_lock
from fedsplit.errors import InputError
from fedsplit.remote.https import exchange, logs, protocol
from fedsplit.remote.https.server import HttpsServer
from fedsplit.remote.https.tls import ClientTls
from https_clients import PLAIN, Hand, joined, keys_of, refusal, running, sending


def test_messages_go_there_and_back(
    server: HttpsServer, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = {"ada": b"", "bob": os.urandom(3 * protocol.PART_BYTES + 1)}
    with joined(server, made, "ada") as told, joined(server, made, "bob"):
        assert list(server.present()) == ["ada", "bob"]
        for _ in range(3):
            found = server.send(messages, 60)
            assert {name: reply for name, (reply, _, _) in found.items()} == {
                "ada": b"",
                "bob": messages["bob"][::-1],
            }
    assert told == [f"connected to 127.0.0.1:{server.port}"]
    assert server.present() == {}
    assert capfd.readouterr() == ("", "")


def test_an_old_answer_and_a_second_one_are_dropped(server: HttpsServer, made: Path) -> None:
    hand = Hand(server, made, "ada")
    assert hand.post(protocol.JOIN)[0] == 204
    with sending(server, {"ada": b"one"}) as first:
        status, number, message = hand.post(protocol.NEXT)
        assert (status, message) == (200, b"one")
        assert hand.post(protocol.REPLY, b"first", Fedsplit_Message=number)[0] == 204
    assert hand.post(protocol.REPLY, b"again", Fedsplit_Message=number)[0] == 410
    hand = Hand(server, made, "ada")  # a refusal closes its connection
    with sending(server, {"ada": b"two"}) as second:
        _, later, _ = hand.post(protocol.NEXT)
        for wrong in (number, "", "x" * 32):
            other = Hand(server, made, "ada")
            assert other.post(protocol.REPLY, b"old", Fedsplit_Message=wrong)[0] == 410
            other.close()
        assert hand.post(protocol.REPLY, b"good", Fedsplit_Message=later)[0] == 204
        assert hand.post(protocol.REPLY, b"bad", Fedsplit_Message=later)[0] == 410
    assert (first["ada"][0], second["ada"][0]) == (b"first", b"good")
    hand.close()


def test_an_answer_that_comes_late_is_dropped(server: HttpsServer, made: Path) -> None:
    go = threading.Event()

    def slow(message: bytes) -> bytes:
        if message == b"one":
            go.wait(20)
        return message

    with joined(server, made, "ada", slow) as told:
        assert server.send({"ada": b"one"}, 0.2)["ada"][:2] == (None, "no answer in time")
        go.set()
        assert server.send({"ada": b"two"}, 30)["ada"][0] == b"two"
    assert len(told) == 1


def test_a_client_that_comes_back_gets_its_message_again(server: HttpsServer, made: Path) -> None:
    first = Hand(server, made, "ada", "a" * 32)
    with sending(server, {"ada": b"one"}) as found:
        _, number, _ = first.post(protocol.NEXT)
        first.close()  # its process died
        until(lambda: "ada" not in server.present(), 10)
        second = Hand(server, made, "ada", "b" * 32)
        status, again, message = second.post(protocol.NEXT)
        assert (status, again, message) == (200, number, b"one")
        assert second.post(protocol.REPLY, b"two", Fedsplit_Message=number)[0] == 204
    assert found["ada"][:2] == (b"two", "")
    second.close()


def test_an_answer_that_is_too_large_is_refused(made: Path) -> None:
    sizes = {b"a": 2**20, b"b": 2**20 + 1, b"c": 2**24}
    with (
        HttpsServer("127.0.0.1", 0, made / "ours", largest=2**20) as server,
        joined(server, made, "ada", lambda word: bytes(sizes[word])),
    ):
        for word in (*sizes, b"a"):
            reply, what, _ = server.send({"ada": word}, 30)["ada"]
            assert (reply is None, "too large" in what) == (word != b"a", word != b"a")


def test_a_body_without_a_length_is_refused_before_it_is_read(
    server: HttpsServer, made: Path
) -> None:
    for path, headers, status in [
        (protocol.REPLY, {"Transfer_Encoding": "chunked"}, 411),
        (protocol.REPLY, {"Content_Encoding": "gzip", "Content_Length": "5"}, 411),
        (protocol.JOIN, {"Content_Length": "5"}, 413),
        (protocol.NEXT, {"Content_Length": str(2**40)}, 413),
    ]:
        hand = Hand(server, made, "ada")
        assert hand.post(path, b"", **headers)[0] == status
        hand.close()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_five_paths_is_served(server: HttpsServer, made: Path, method: str) -> None:
    context = ClientTls(**keys_of(made, "ada")).context
    paths = ["/", "/health", "/metrics", "/v1", "/v1/", "//v1/join", "/v1/join/", "/v1/%6aoin"]
    paths += ["/v1/../v1/join", "/v1/join?a=1", "/v1/fleet/pull-messages", "/v1/control/start-run"]
    if method != "POST":
        paths += [protocol.JOIN, protocol.NEXT, protocol.REPLY]
    connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=10)
    for path in paths:
        connection.request(method, path, headers={protocol.INSTANCE: "a" * 32})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (404, b""), path
        connection.close()
    assert server.present() == {}


def test_a_client_speaks_for_itself_alone(server: HttpsServer, made: Path) -> None:
    go = threading.Event()

    def answer(message: bytes) -> bytes:
        go.wait(20)
        return message

    with joined(server, made, "bob", answer):
        ada = Hand(server, made, "ada")
        with sending(server, {"bob": b"for bob", "ada": b"for ada"}) as found:
            _, number, message = ada.post(protocol.NEXT, Fedsplit_Name="bob")
            assert message == b"for ada"
            posted = server._service.boxes["bob"].posted
            assert posted is not None
            other = Hand(server, made, "ada")
            assert other.post(protocol.REPLY, b"x", Fedsplit_Message=posted.number)[0] == 410
            ada.post(protocol.REPLY, b"from ada", Fedsplit_Message=number)
            go.set()
        for hand in (ada, other):
            hand.close()
    assert found["bob"][0] == b"for bob"
    assert found["ada"][0] == b"from ada"


def test_without_keys_a_client_has_the_name_that_it_gives_itself(plain: HttpsServer) -> None:
    with (
        running(plain.port, name="St Mary’s", **PLAIN),
        running(plain.port, name="b", **PLAIN),
    ):
        until(lambda: set(plain.present()) == {"St Mary’s", "b"}, 30)
        assert plain.send({"b": b"one", "St Mary’s": b"two"}, 30)["St Mary’s"][0] == b"owt"


def test_a_name_or_key_that_is_in_use_is_not_given_twice(
    plain: HttpsServer,
    server: HttpsServer,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "IN_USE", 0.3)
    with running(plain.port, name="ada", **PLAIN):
        until(lambda: bool(plain.present()), 30)
        told = refusal(plain.port, name="ada", **PLAIN)
        assert (
            "another process is connected as ada already: stop it, or choose another --name" in told
        )
        assert list(plain.present()) == ["ada"]
    with joined(server, made, "ada"):
        told = refusal(server.port, **keys_of(made, "ada"))
        assert "another process is connected as ada already: stop it, or use another key" in told
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
    with joined(server, made, "ada"):  # the process before it is gone
        assert server.send({"ada": b"one"}, 30)["ada"][0] == b"eno"


def test_a_client_that_says_nothing_is_given_up_and_another_process_takes_its_place(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Hand(server, made, "ada", "a" * 32)
    assert first.post(protocol.JOIN)[0] == 204
    second = Hand(server, made, "ada", "b" * 32)
    assert second.post(protocol.JOIN)[0] == 409
    monkeypatch.setattr("fedsplit.remote.https.mailbox.SILENCE_SECONDS", 0.05)
    until(lambda: server.present() == {}, 10)
    monkeypatch.undo()
    server._service.boxes["ada"]._seen -= protocol.SILENCE_SECONDS
    second = Hand(server, made, "ada", "b" * 32)
    assert second.post(protocol.JOIN)[0] == 204
    first.close()
    second.close()


def test_one_folder_is_for_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "ENDING", 0.2)
    with (
        folder_lock.alone(tmp_path),
        pytest.raises(InputError, match="is used by another command"),
        folder_lock.alone(tmp_path),
    ):
        pass


def test_who_is_not_there_holds_nobody_up_for_long(
    server: HttpsServer, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ABSENT_SECONDS", 0.1)
    with joined(server, made, "ada"):
        found = server.send({"ada": b"one", "bob": b"two", "eve": b"three"}, 30)
    assert found["ada"][0] == b"eno"
    gone = (None, "its client is not connected")
    assert [found[name][:2] for name in ("bob", "eve")] == [gone] * 2


def test_a_server_says_where_it_cannot_listen_and_which_keys_cannot_be_used(
    server: HttpsServer, made: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot listen there"):
        HttpsServer("127.0.0.1", server.port).open()
    with pytest.raises(InputError, match="cannot listen there"):
        HttpsServer("127.0.0.1", 0, metrics=server.port).open()
    folder = tmp_path / "mixed"
    shutil.copytree(made / "ours", folder)
    shutil.copy(made / "theirs/server.key", folder)
    with pytest.raises(InputError, match=r"server.crt: does not belong to the key"):
        HttpsServer("127.0.0.1", 0, folder)
    (folder / "server.key").unlink()
    with pytest.raises(InputError, match=r"server.key: cannot be read"):
        HttpsServer("127.0.0.1", 0, folder)


def test_health_and_metrics_are_served_on_this_machine_alone(made: Path) -> None:
    with (
        HttpsServer("127.0.0.1", 0, made / "ours", metrics=0) as server,
        joined(server, made, "ada"),
    ):
        server.send({"ada": b"one"}, 30)
        base = f"http://127.0.0.1:{server.metrics}"
        assert urlopen(f"{base}/health").read() == b'{"status": "ok", "clients": 1}'
        text = urlopen(f"{base}/metrics").read().decode()
        for line in (
            "fedsplit_questions_total 1",
            "fedsplit_received_bytes_total 3",
            "fedsplit_clients 1",
            'fedsplit_silent_seconds{client="ada"}',
            "fedsplit_certificate_expiry_seconds",
        ):
            assert line in text
        for url, headers in ((base, {}), (f"{base}/metrics", {"Host": "evil.example"})):
            with pytest.raises(OSError, match=r"HTTP Error (404|403)"):
                urlopen(Request(url, headers=headers))
    assert server.metrics != server.port


def test_a_fault_of_the_server_itself_is_logged(
    plain: HttpsServer, caplog: pytest.LogCaptureFixture
) -> None:
    logs.log.addHandler(caplog.handler)
    try:
        plain._loop.call_soon_threadsafe(lambda: 1 / 0)
        until(lambda: bool(caplog.records), 10)
    finally:
        logs.log.removeHandler(caplog.handler)
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
