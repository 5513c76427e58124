"""Which clients a server waits for, and who they say they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from fedsplit.channels.channel import Reply
from fedsplit.commands.gathering import check_enough, gather, identified, wanted_clients
from fedsplit.errors import InputError, TooFewClients
from fedsplit.remote.messages import PROTOCOL, Identity, write_reply


class Answers:
    """A transport whose clients have one answer each."""

    def __init__(self, replies: Mapping[str, Reply | None]) -> None:
        self._replies = replies

    def send(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        found: dict[str, tuple[bytes | None, str, float]] = {}
        for name in messages:
            reply = self._replies[name]
            found[name] = (None if reply is None else write_reply(reply), "", 0.0)
        return found


def identity(name: str, protocol: int = PROTOCOL) -> Reply:
    return Reply("answer", Identity(name, "9.0", protocol))


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (identity("bob"), "client ada calls itself bob: start it with --name ada"),
        (identity("bob", 3), "client ada runs fedsplit 9.0 (protocol 3)"),
        (Reply("refused", text="client bob: no"), "client ada: client bob: no"),
    ],
)
def test_what_is_wrong_with_a_client_is_said_of_that_client(
    reply: Reply, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Answers({"ada": reply, "bob": identity("bob"), "carl": None})
    names = ["ada", "bob", "carl"]
    for least in (None, 3):
        with pytest.raises(InputError) as caught:
            identified(server, names, least)
        assert str(caught.value).startswith(what)
    assert identified(server, names, 2) == ["bob", "carl"]
    assert capsys.readouterr().err.startswith(f"fedsplit: warning: left out: {what}")


def test_who_is_there_and_who_is_missing_is_reported() -> None:
    steps = iter([["bob"], ["bob"], ["ada", "bob"]])
    told = []

    def report(there: Sequence[str], wanted: int, missing: Sequence[str]) -> None:
        told.append((list(there), wanted, list(missing)))

    assert gather(lambda: next(steps), ["ada", "bob"], 2, 60.0, None, report) == ["ada", "bob"]
    assert told[0] == (["bob"], 2, ["ada"])
    assert told[-1] == (["ada", "bob"], 2, [])
    with pytest.raises(TooFewClients, match=r"1 of 2 clients came .* \(ada did not\): start fedsp"):
        gather(lambda: ["bob"], ["ada", "bob"], 2, 1e-9, None, report)
    assert gather(lambda: ["bob"], ["ada", "bob"], 2, 1e-9, 1, report) == ["bob"]


def test_a_run_that_needs_more_clients_than_it_waits_for_is_refused() -> None:
    check_enough(2, None)
    check_enough(2, 2)
    with pytest.raises(InputError, match="--min-clients 5 is more than the 2 of --clients"):
        check_enough(2, 5)


def test_clients_are_a_number_or_names() -> None:
    assert wanted_clients("2", ["a", "b", "c"]) == (["a", "b", "c"], 2)
    assert wanted_clients("a,b", ["a", "b", "c"]) == (["a", "b"], 2)
    for text, what in [
        ("4", "there are keys for 3"),
        ("a,x", "there is no key for x"),
        ("a,a", "different names"),
        ("-1", "must be a number"),
    ]:
        with pytest.raises(InputError, match=what):
            wanted_clients(text, ["a", "b", "c"])
