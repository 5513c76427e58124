"""Messages over Flower: who is let in, what comes back, and what happens when something dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")

from flwr.app import Message, Metadata
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.node_pb2 import Node

import fedsplit.remote.flower.node as nodes
from federation import free_port
from fedsplit.commands.app import run
from fedsplit.errors import InputError
from fedsplit.remote.checkpoint import FORMAT
from fedsplit.remote.flower import chunks, keys
from fedsplit.remote.flower import filter as request_filter
from fedsplit.remote.flower import server as servers
from fedsplit.remote.flower.node import run_node
from fedsplit.remote.flower.probe import tls
from fedsplit.remote.flower.server import FleetServer
from fedsplit.remote.messages import HELLO, read_identity
from fedsplit.version import __version__

NODE = """
import os, sys, threading, time
from pathlib import Path
from fedsplit.remote.flower.node import run_node
from fedsplit.commands.supervisor import lifeline
from fedsplit.errors import InputError

server, key, ca, folder, supervised = sys.argv[1:]
_, stop = lifeline() if supervised == "yes" else (b"", threading.Event())

def answer(message):
    word, _, number = message.partition(b" ")
    if word == b"sleep":
        time.sleep(float(number))
    if word == b"die" and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), 9)
    return message[::-1]

try:
    options = dict(key=Path(key), ca=Path(ca), folder=Path(folder), status=print, stop=stop)
    run_node(server, answer, **options)
except InputError as error:
    sys.exit(2)
"""
"""A node in a process of its own, which answers with the message from behind."""

SUPERVISOR = """
import sys
from fedsplit.commands.supervisor import supervise
sys.exit(supervise(sys.argv[1:], b"first", b"again", lambda text: print(text, flush=True)))
"""


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are told to end do so at once."""
    monkeypatch.setattr(request_filter, "HOLD", 0.1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of the clients ada and bob, and of a stranger."""
    folder = tmp_path_factory.mktemp("keys")
    keys.make_keys(folder / "ours", ["ada", "bob"], ["127.0.0.1"], 2)
    keys.make_keys(folder / "theirs", ["eve"], ["127.0.0.1"], 2)
    return folder


@contextmanager
def opened(made: Path, port: int = 0, **options: Any) -> Iterator[FleetServer]:
    ours = made / "ours"
    known = keys.read_public_keys(ours)
    with FleetServer(
        "127.0.0.1", port, ours / "server.crt", ours / "server.key", known, **options
    ) as fleet:
        yield fleet


@pytest.fixture
def fleet(made: Path) -> Iterator[FleetServer]:
    with opened(made) as fleet:
        yield fleet


@pytest.fixture
def plain() -> Iterator[FleetServer]:
    """A fleet that lets anybody in, without TLS."""
    with FleetServer("127.0.0.1", 0) as fleet:
        yield fleet


def until(true: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def backwards(message: bytes) -> bytes:
    return message[::-1]


@contextmanager
def joined(
    fleet: FleetServer,
    made: Path,
    name: str,
    folder: Path,
    answer: Callable[[bytes], bytes] = backwards,
) -> Iterator[list[str]]:
    """A node in a thread of this process; what it says."""
    told: list[str] = []
    stop = threading.Event()
    ours = made / "ours"
    options: dict[str, Any] = {
        "key": ours / f"clients/{name}.key",
        "ca": ours / "ca.crt",
        "folder": folder / name,
    }
    options |= {"status": told.append, "stop": stop}
    thread = threading.Thread(
        target=run_node, args=(f"127.0.0.1:{fleet.port}", answer), kwargs=options
    )
    thread.start()
    try:
        until(lambda: name in fleet.present())
        yield told
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def process(
    fleet: FleetServer, made: Path, name: str, folder: Path, supervised: bool = False
) -> list[str]:
    """The command of a node in a process of its own."""
    ours = made / "ours"
    arguments = [
        f"127.0.0.1:{fleet.port}",
        ours / "clients" / f"{name}.key",
        ours / "ca.crt",
        folder / name,
    ]
    return [sys.executable, "-c", NODE, *map(str, arguments), "yes" if supervised else "no"]


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, text=True, **options) as child:
        try:
            yield child
        finally:
            child.kill()


def refusal(port: int, folder: Path, **options: Any) -> str:
    """The line with which a node gives up."""
    stop = threading.Event()
    timer = threading.Timer(30, stop.set)
    timer.start()
    try:
        with pytest.raises(InputError) as refused:
            run_node(
                f"127.0.0.1:{port}",
                backwards,
                folder=folder,
                status=lambda _: None,
                stop=stop,
                **options,
            )
    finally:
        timer.cancel()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_messages_go_there_and_back(
    fleet: FleetServer, made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = {"ada": b"", "bob": os.urandom(chunks.PART + 1)}
    with joined(fleet, made, "ada", tmp_path) as told, joined(fleet, made, "bob", tmp_path):
        assert list(fleet.present()) == ["ada", "bob"]
        for _ in range(3):
            found = fleet.send(messages, 60)
            assert {name: reply for name, (reply, _, _) in found.items()} == {
                "ada": b"",
                "bob": messages["bob"][::-1],
            }
    assert told == [f"connected to 127.0.0.1:{fleet.port}"]
    assert fleet.present() == {}
    assert (fleet._state.num_message_ins(), len(fleet._state.object_store)) == (0, 0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "theirs/clients/eve.key", "ca": "ours/ca.crt"}, "does not know the key"),
        ({"ca": "ours/ca.crt"}, "only accepts clients with a key, give yours with --key"),
        ({"insecure": True}, "uses TLS: give --ca"),
        ({"key": "ours/clients/ada.key", "insecure": True}, "uses TLS: give --ca"),
        ({"key": "ours/clients/ada.key", "ca": "theirs/ca.crt"}, "its certificate is not accepted"),
        ({"key": "ours/clients/ada.key"}, "its certificate is not accepted"),
    ],
)
def test_who_has_not_the_right_keys_is_refused_in_one_line(
    fleet: FleetServer,
    made: Path,
    tmp_path: Path,
    options: dict[str, Any],
    why: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "GRACE", 0.1)
    options = {
        name: made / value if isinstance(value, str) else value for name, value in options.items()
    }
    assert why in refusal(fleet.port, tmp_path, **options)
    assert fleet.present() == {}
    assert {node.name for node in fleet._state.get_node_info()} == {"ada", "bob"}
    assert fleet.send({"ada": b"hello"}, 60)["ada"][:2] == (None, "its node is not connected")
    assert capfd.readouterr() == ("", "")


def test_files_that_are_no_keys_are_named(made: Path, tmp_path: Path) -> None:
    ours = made / "ours"
    assert "ca.crt: is not a private key" in refusal(
        9, tmp_path, key=ours / "ca.crt", ca=ours / "ca.crt"
    )
    assert "server.key: is not a certificate" in refusal(9, tmp_path, ca=ours / "server.key")
    assert "nosuch.crt: cannot be read" in refusal(9, tmp_path, ca=ours / "nosuch.crt")


def test_a_certificate_for_another_host_is_refused(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    stop = threading.Event()
    with pytest.raises(InputError, match=r"its certificate is not accepted .*localhost"):
        run_node(
            f"localhost:{fleet.port}",
            backwards,
            key=made / "ours/clients/ada.key",
            ca=made / "ours/ca.crt",
            folder=tmp_path,
            status=lambda _: None,
            stop=stop,
        )


def test_tls_is_not_given_up_for_a_server_without_it(
    plain: FleetServer, made: Path, tmp_path: Path
) -> None:
    assert "does not use TLS" in refusal(plain.port, tmp_path, ca=made / "ours/ca.crt")
    assert plain.present() == {}


def test_a_clock_that_is_wrong_is_named(
    fleet: FleetServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flwr.supernode.node_auth_http_interceptor as interceptor

    now = interceptor.now
    monkeypatch.setattr(interceptor, "now", lambda: now() + timedelta(hours=1))
    refused = refusal(
        fleet.port, tmp_path, key=made / "ours/clients/ada.key", ca=made / "ours/ca.crt"
    )
    assert "is this machine's clock right?" in refused


def test_another_web_server_is_not_taken_for_ours(tmp_path: Path) -> None:
    class Nothing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "is not a fedsplit server" in refusal(server.server_port, tmp_path, insecure=True)
        server.shutdown()


@pytest.mark.parametrize(
    "server", ["host", "host:", ":80", "host:x", "http://host:80", "host:80/path", "a@host:80", ""]
)
def test_an_address_without_host_or_port_is_refused(server: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give HOST:PORT"):
        run_node(
            server,
            backwards,
            insecure=True,
            folder=tmp_path,
            status=lambda _: None,
            stop=threading.Event(),
        )


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_the_fleet_is_served(fleet: FleetServer, made: Path, method: str) -> None:
    paths = [
        "/",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/health",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
    ]
    paths += [
        "/v1/fleet/get-fab",
        "/v1/fleet/get-run",
        "//v1/fleet/pull-messages",
        "/v1/fleet/pull-messages/",
    ]
    paths += [
        f"/v1/control/{name}"
        for name in ("register-node", "start-run", "list-nodes", "stream-logs")
    ]
    paths += [
        f"/v1/runtime/{name}"
        for name in ("acquire-task", "push-messages", "pull-messages", "push-object")
    ]
    paths += ["/v1/fleet/../control/list-nodes", "/v1/fleet/%2e%2e/control/list-nodes"]
    before = len(fleet._state.nodes), len(fleet._state.run_ids)
    with httpx.Client(verify=tls(made / "ours/ca.crt"), trust_env=False) as client:
        for path in paths:
            answer = client.request(method, f"https://127.0.0.1:{fleet.port}{path}", content=b"")
            assert (answer.status_code, answer.content) == (404, b""), path
    assert (len(fleet._state.nodes), len(fleet._state.run_ids)) == before


def test_strangers_cannot_send_much(fleet: FleetServer, made: Path) -> None:
    with httpx.Client(verify=tls(made / "ours/ca.crt"), trust_env=False) as client:
        url = f"https://127.0.0.1:{fleet.port}/v1/fleet/push-object"
        kind = {"content-type": "application/protobuf"}
        assert client.post(url, content=b"x" * 2**17, headers=kind).status_code == 413
        assert client.post(url, content=iter([b"x"]), headers=kind).status_code == 413
        assert client.post(url, content=b"", headers=kind).status_code == 401


def fleet_node(fleet: FleetServer, made: Path, name: str, folder: Path) -> Any:
    """A node that does what the test wants."""
    folder.mkdir(exist_ok=True)
    ours = made / "ours"
    node = nodes._FleetNode(
        f"127.0.0.1:{fleet.port}",
        ours / f"clients/{name}.key",
        ours / "ca.crt",
        False,
        folder,
        name,
    )
    node.join()
    return node


@contextmanager
def sending(
    fleet: FleetServer, messages: dict[str, bytes], timeout: float
) -> Iterator[dict[str, Any]]:
    """Send in another thread; what came back is there at the end."""
    found: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: found.update(fleet.send(messages, timeout)))
    thread.start()
    yield found
    thread.join(60)
    assert not thread.is_alive()


def pulled(node: Any) -> Any:
    """The next message for a node."""
    for _ in range(30):
        if message := node._pull():
            return message
    raise AssertionError("it did not come")


def test_an_old_answer_and_a_second_one_are_dropped(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    node = fleet_node(fleet, made, "ada", tmp_path / "ada")
    with sending(fleet, {"ada": b"one"}, 30) as first:
        message = pulled(node)
        reply = nodes._answered(message, lambda _: b"first")
        node._push(reply)
    node._push(reply)
    with sending(fleet, {"ada": b"two"}, 30) as second:
        late = pulled(node)
        node._push(reply)
        node._push(Message(chunks.pack(b"first", chunks.unpack(message.content)[1]), reply_to=late))
    with sending(fleet, {"ada": b"three"}, 30) as third:
        message = pulled(node)
        node._push(nodes._answered(message, lambda _: b"good"))
        node._push(nodes._answered(message, lambda _: b"bad"))
    node.close()
    assert first["ada"][0] == b"first"
    assert second["ada"][:2] == (None, "an answer to another message")
    assert third["ada"][0] == b"good"


def test_an_answer_that_comes_late_is_dropped(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    go = threading.Event()

    def slow(message: bytes) -> bytes:
        if message == b"one":
            go.wait(20)
        return message

    with joined(fleet, made, "ada", tmp_path, slow):
        assert fleet.send({"ada": b"one"}, 0.2)["ada"][:2] == (None, "no answer in time")
        assert fleet._state.num_message_ins() == 0
        go.set()
        assert fleet.send({"ada": b"two"}, 30)["ada"][0] == b"two"


def test_an_answer_that_is_too_large_is_refused_and_not_kept(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {b"a": 2**20, b"b": 2**20 + 1, b"c": 2**22, b"d": 10 * chunks.PART}
    with (
        opened(made, largest=2**20) as fleet,
        joined(fleet, made, "ada", tmp_path, lambda word: bytes(sizes[word])),
    ):
        store = fleet._state.object_store
        put, held = store.put, [0]

        def watched(object_id: str, content: bytes) -> None:
            put(object_id, content)
            held.append(sum(len(each.content) for each in store.store.values()))

        monkeypatch.setattr(store, "put", watched)
        for word in sizes:
            reply, what, _ = fleet.send({"ada": word}, 30)["ada"]
            assert (reply is None, "too large" in what) == (word != b"a", word != b"a")
            assert len(store) == 0
        assert max(held) < 2**21
        monkeypatch.setattr(chunks, "PART", 2**16)
        assert "too large" in fleet.send({"ada": b"a"}, 30)["ada"][1]  # in too many parts


def test_a_client_that_fails_says_of_what_kind_only(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    def fails(message: bytes) -> bytes:
        raise KeyError("a patient's name")

    with joined(fleet, made, "ada", tmp_path, fails):
        assert fleet.send({"ada": b"one"}, 30)["ada"][:2] == (
            None,
            "its client failed ('KeyError')",
        )


def test_a_client_cannot_write_to_another_or_read_its_messages(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    def note(message: bytes) -> bytes:
        asked.append(message)
        return message

    with joined(fleet, made, "bob", tmp_path, note):
        node = fleet_node(fleet, made, "ada", tmp_path / "ada")
        bob = next(each for each in fleet._state.get_node_info() if each.name == "bob")
        metadata = Metadata(
            run_id=fleet._run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=bob.node_id,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=60.0,
            message_type="query",
        )
        with suppress(httpx.HTTPStatusError):
            node._push(make_message(metadata, chunks.pack(b"tell me", bytes(16))))
        assert fleet._state.num_message_ins() == 0
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            node._client.PullMessages(PullMessagesRequest(node=Node(node_id=bob.node_id)))
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            node._client.PushMessages(PushMessagesRequest(node=Node(node_id=bob.node_id)))
        assert fleet.send({"bob": b"from the fleet"}, 30)["bob"][0] == b"from the fleet"
        node.close()
    assert asked == [b"from the fleet"]


def test_without_keys_a_client_has_the_name_that_it_gives_itself(
    plain: FleetServer, tmp_path: Path
) -> None:
    stops = [threading.Event() for _ in range(2)]

    def start(at: int, name: str) -> threading.Thread:
        options: dict[str, Any] = {
            "insecure": True,
            "folder": tmp_path / str(at),
            "status": lambda _: None,
        }
        options |= {"stop": stops[at], "name": name}
        thread = threading.Thread(
            target=run_node, args=(f"127.0.0.1:{plain.port}", backwards), kwargs=options
        )
        thread.start()
        return thread

    threads = [start(0, "St Mary’s"), start(1, "b")]
    until(lambda: set(plain.present()) == {"St Mary’s", "b"})
    assert plain.send({"b": b"one", "St Mary’s": b"two"}, 30)["St Mary’s"][0] == b"owt"
    for stop, thread in zip(stops, threads, strict=True):
        stop.set()
        thread.join(20)


def test_a_name_that_is_taken_is_not_given_twice(
    plain: FleetServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "IN_USE", 0.3)
    first = nodes._FleetNode(f"127.0.0.1:{plain.port}", None, None, True, tmp_path, "ada")
    first.join()
    assert "has another client ada" in refusal(
        plain.port, tmp_path / "other", insecure=True, name="ada"
    )
    assert list(plain.present()) == ["ada"]
    first.close()


def test_a_key_that_is_in_use_is_told_apart_from_one_that_is_not_known(
    fleet: FleetServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "IN_USE", 0.3)
    node = fleet_node(fleet, made, "ada", tmp_path / "ada")
    key, ca = made / "ours/clients/ada.key", made / "ours/ca.crt"
    told = refusal(fleet.port, tmp_path / "other", key=key, ca=ca)
    assert "another process uses this key" in told
    with joined(
        fleet, made, "ada", tmp_path
    ):  # the process before it died: it is signed off by the same folder
        assert fleet.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
    node.close()


def test_one_folder_is_for_one_process(
    fleet: FleetServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "ENDING", 0.2)
    with joined(fleet, made, "ada", tmp_path):
        assert "is used by another client" in refusal(fleet.port, tmp_path / "ada", insecure=True)


def test_who_is_not_there_holds_nobody_up_for_long(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    with joined(fleet, made, "ada", tmp_path):
        found = fleet.send({"ada": b"one", "bob": b"two", "eve": b"three"}, 30)
    assert found["ada"][0] == b"eno"
    assert [found[name][:2] for name in ("bob", "eve")] == [(None, "its node is not connected")] * 2


def test_a_hub_says_where_it_cannot_listen(fleet: FleetServer, made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot listen there"):
        FleetServer("127.0.0.1", fleet.port).open()
    with pytest.raises(InputError, match="clients' keys need TLS"):
        FleetServer("127.0.0.1", 0, public_keys={})
    with pytest.raises(InputError, match="cannot be used for TLS"):
        FleetServer("127.0.0.1", 0, made / "ours/server.crt", made / "theirs/server.key")
    with pytest.raises(InputError, match="cannot be used for TLS"):
        FleetServer("127.0.0.1", 0, tmp_path / "none.crt", made / "theirs/server.key")


def test_a_node_finds_a_hub_that_was_started_anew(made: Path, tmp_path: Path) -> None:
    with opened(made) as fleet:
        port = fleet.port
        stack = joined(fleet, made, "ada", tmp_path)
        told = stack.__enter__()
    with opened(made, port) as fleet:
        until(lambda: "ada" in fleet.present())
        assert fleet.send({"ada": b"one"}, 30)["ada"][0] == b"eno"
        stack.__exit__(None, None, None)
    assert [text.split(" ")[0] for text in told] == ["connected", "no", "connected"]


@pytest.mark.slow
def test_a_node_that_is_killed_is_started_again_and_asked_again(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    command = process(fleet, made, "ada", tmp_path, supervised=True)
    with started([sys.executable, "-c", SUPERVISOR, *command], stdout=subprocess.PIPE) as child:
        until(lambda: "ada" in fleet.present())
        assert fleet.send({"ada": b"one"}, 60)["ada"][0] == b"eno"
        assert fleet.send({"ada": b"die"}, 60)["ada"][0] == b"eid"
        assert fleet.send({"ada": b"two"}, 60)["ada"][0] == b"owt"
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=30)
    assert child.returncode == 143
    assert "its process ended (signal 9), starting it again" in out


@pytest.mark.slow
def test_a_node_that_is_killed_for_good_holds_nobody_up_for_long(
    fleet: FleetServer, made: Path, tmp_path: Path
) -> None:
    with (
        started(process(fleet, made, "ada", tmp_path), stdout=subprocess.DEVNULL),
        joined(fleet, made, "bob", tmp_path),
    ):
        until(lambda: "ada" in fleet.present())
        found = fleet.send({"ada": b"die", "bob": b"one"}, 600)
    assert found["bob"][0] == b"eno"
    assert found["ada"][:2] == (None, "its node disconnected")
    assert found["ada"][2] < 40


@pytest.mark.slow
def test_two_processes_answer_over_tls(fleet: FleetServer, made: Path, tmp_path: Path) -> None:
    names = ("ada", "bob")
    with (
        started(process(fleet, made, "ada", tmp_path), stdout=subprocess.DEVNULL),
        started(process(fleet, made, "bob", tmp_path), stdout=subprocess.DEVNULL),
    ):
        until(lambda: len(fleet.present()) == 2)
        for number in range(20):
            message = f"message {number}".encode()
            found = fleet.send(dict.fromkeys(names, message), 60)
            assert [found[name][0] for name in names] == [message[::-1]] * 2


CALLS = """
import sys, threading
outside = []

def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        host = address[0] if isinstance(address, tuple) else address
        if host not in ("127.0.0.1", None):
            outside.append((event, str(host)))

sys.addaudithook(hook)
from pathlib import Path
from fedsplit.remote.flower import keys
from fedsplit.remote.flower.probe import tls
from fedsplit.remote.flower.server import FleetServer
from fedsplit.remote.flower.node import run_node

folder = Path(sys.argv[1])
keys.make_keys(folder, ["ada"], ["127.0.0.1"], 2)
stop = threading.Event()
known = keys.read_public_keys(folder)
with FleetServer("127.0.0.1", 0, folder / "server.crt", folder / "server.key", known) as fleet:
    options = dict(
        key=folder / "clients/ada.key",
        ca=folder / "ca.crt",
        folder=folder,
        status=print,
        stop=stop,
    )
    server = f"127.0.0.1:{fleet.port}"
    thread = threading.Thread(target=run_node, args=(server, bytes.upper), kwargs=options)
    thread.start()
    while not fleet.present():
        stop.wait(0.05)
    print(fleet.send({"ada": b"one"}, 30)["ada"][0])
    stop.set()
    thread.join()
print(outside)
"""


def test_nothing_is_called_but_the_server_and_nothing_left_behind(tmp_path: Path) -> None:
    proxies = dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"),
        "http://192.0.2.1:9",
    )
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(tmp_path / "keys")],
        env={**os.environ, **proxies, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    connected, reply, outside = done.stdout.splitlines()
    assert connected.startswith("connected")
    assert (reply, outside, done.stderr) == ("b'ONE'", "[]", "")
    assert list(home.iterdir()) == []


CHILD = """
import os, sys, time
from fedsplit.commands.supervisor import lifeline
line, stop = lifeline()
print(line.decode().strip(), os.getpid(), flush=True)
{}
"""


def supervised(body: str) -> list[str]:
    return [sys.executable, "-c", SUPERVISOR, sys.executable, "-c", CHILD.format(body)]


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0]
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "body"),
    [
        (signal.SIGTERM, 143, "stop.wait()"),
        (signal.SIGINT, 130, "stop.wait()"),
        (signal.SIGTERM, 143, "time.sleep(600)"),
        (signal.SIGKILL, -9, "stop.wait()"),
        (signal.SIGKILL, -9, "time.sleep(600)"),
    ],
)
def test_a_process_does_not_outlive_its_supervisor(number: int, status: int, body: str) -> None:
    with started(supervised(body), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        word, pid = child.stdout.readline().split()
        assert word == "first"
        assert alive(int(pid))
        child.send_signal(number)
        assert child.wait(20) == status
        until(lambda: not alive(int(pid)), 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "why"),
    [(70, "status 70"), (-signal.SIGSEGV, "signal 11"), (-signal.SIGTERM, "status 0")],
)
def test_a_process_that_ends_is_started_again_and_one_with_bad_input_is_not(
    status: int, why: str
) -> None:
    body = f"sys.exit({status})" if status >= 0 else f"os.kill(os.getpid(), {-status})"
    body = "if line == b'again\\n': sys.exit(2)\n" + body + "\nstop.wait(); sys.exit(0)"
    done = subprocess.run(supervised(body), capture_output=True, text=True, timeout=60)
    first, told, again = done.stdout.splitlines()
    assert (first.split()[0], again.split()[0], done.returncode) == ("first", "again", 2)
    assert told == f"its process ended ({why}), starting it again in 0.5 s"
    assert done.stderr == ""


@pytest.mark.slow
def test_the_command_says_what_leaves_and_answers(
    made: Path, tmp_path: Path, files: list[str]
) -> None:
    ours, home = made / "ours", {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with opened(made) as fleet:
        arguments = [
            "--server",
            f"127.0.0.1:{fleet.port}",
            "--data",
            files[0],
            "--ca",
            str(ours / "ca.crt"),
        ]
        command = [
            sys.executable,
            "-m",
            "fedsplit",
            "client",
            *arguments,
            "--key",
            str(ours / "clients/ada.key"),
        ]
        with started(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            until(lambda: "ada" in fleet.present())
            message = fleet.send({"ada": HELLO}, 60)["ada"][0]
            assert message is not None
            assert read_identity(message).name == "ada"
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=30)
        assert child.returncode == 143
        assert fleet.present() == {}
    assert "Rows never leave" in out
    assert err == f"fedsplit client: connected to 127.0.0.1:{fleet.port}\n"
    assert (tmp_path / "state/fedsplit/ada").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ["--key", "{made}/theirs/clients/eve.key", "--ca", "{made}/ours/ca.crt"],
            "does not know the key",
        ),
        (
            ["--key", "{made}/nosuch.key", "--ca", "{made}/ours/ca.crt"],
            "nosuch.key: No such file or directory",
        ),
        (["--insecure", "--data", "nosuch.csv"], "nosuch.csv"),
    ],
)
def test_the_command_gives_up_in_one_line(
    fleet: FleetServer, made: Path, tmp_path: Path, files: list[str], options: list[str], why: str
) -> None:
    arguments = [
        "--server",
        f"127.0.0.1:{fleet.port}",
        "--data",
        files[0],
        "--folder",
        str(tmp_path / "state"),
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "fedsplit",
            "client",
            *arguments,
            *(each.format(made=made) for each in options),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fedsplit: error: ")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"format": 1}, "has format 1, this version reads format 3"),
        ({"run": {"clients": ["ada"], "formula": "z ~ x"}}, "belongs to another run"),
    ],
)
def test_a_checkpoint_that_cannot_be_resumed_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: dict[str, Any], why: str
) -> None:
    about = {"format": FORMAT, "version": __version__, "run": {"clients": ["ada"]}, **header}
    kept = {"checkpoint.json": json.dumps(about).encode(), "answers": b"what was answered"}
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    options = ["--host", "127.0.0.1", "--port", str(free_port()), "--wait", "0.1"]
    options += ["--out", str(tmp_path / "out")]
    model = ["--formula", "y ~ x", "--family", "poisson", "--clients", "ada"]
    assert run(["server", "--insecure", *options, *model, "--resume", str(tmp_path)]) == 2
    assert why in capsys.readouterr().err
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            [],
            "give --key and --ca, as the server's owner has them, or --insecure for a test "
            "on one machine",
        ),
        (["--insecure", "--ca", "ca.crt"], "leave one of them out"),
        (["--insecure", "--max-rounds", "0"], "max_rounds must be"),
        (["--insecure", "--name", "../up"], "client '../up'"),
    ],
)
def test_the_command_refuses_what_cannot_be_meant(
    options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["client", "--server", "127.0.0.1:9", "--data", "x.csv", *options]) == 2
    assert why in capsys.readouterr().err
