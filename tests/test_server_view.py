"""What ``fedsplit server`` shows: a table on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from rich.console import Console

pytest.importorskip("aiohttp")

from fedsplit.commands import server_view
from fedsplit.commands.server_view import ServerView
from fedsplit.commands.studies import approved_by_all, signed_study
from fedsplit.regression.options import FitOptions
from fedsplit.regression.server.federation import Progress
from fedsplit.remote.https.server import Presence


def drawn(view: ServerView) -> list[str]:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(view.table())
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_the_table_says_who_is_there_who_has_approved_and_how_far() -> None:
    here = {"ada": Presence("", True, 1.0), "bob": Presence("", True, 12.0)}
    view = ServerView(lambda: here)
    view.gathered(["ada", "bob"], 3, ["carl"])
    assert drawn(view) == [
        "client connection study",
        "ada answering",
        "bob answering, silent for 12 s",
        "carl away",
        "waiting for clients, 2 of 3",
    ]
    here["carl"] = Presence("", False, 0.0)
    view.decided({"ada": "approved", "bob": "pending", "carl": "\x1b[31mred"})
    assert drawn(view)[1:] == [
        "ada answering approved",
        "bob answering, silent for 12 s pending",
        "carl connected \ufffd[31mred",
        "waiting for approval, 1 of 3",
    ]
    view.fits(["ada", "bob"])
    assert drawn(view)[-1] == "agreeing on columns and categories"
    view.progress(Progress(4, 1e-3, 2, 3, 100, True))
    assert drawn(view)[-1] == "round 4, gap at most 1.0e-03, 2 of 3 answered"


def test_where_there_is_no_terminal_each_change_is_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ServerView(dict) as view:
        assert not view.draws
        view.gathered([], 2, ["ada", "bob"])
        view.gathered([], 2, ["ada", "bob"])
        view.gathered(["ada"], 2, ["bob"])
        view.gathered(["ada", "bob", "carl"], 2, [])
        view.progress(Progress(1, 1.0, 2, 2, 100))
    assert capsys.readouterr().err.splitlines() == [
        "clients 0 of 2: nobody yet; missing: ada, bob",
        "clients 1 of 2: ada; missing: bob",
        "3 clients connected, 2 wanted: the study is with ada, bob",
    ]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_view, "live", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


def test_on_a_terminal_the_table_is_drawn_and_taken_away(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerView(dict) as view:
        view.gathered(["ada"], 2, ["bob"])
        view.stop()
        drawn = capsys.readouterr().err
        view.gathered(["ada", "bob"], 2, [])
    assert "waiting for clients, 1 of 2" in drawn
    assert "clients 1 of 2:" not in drawn  # which is the line for where there is no terminal
    assert capsys.readouterr().err == ""


class Interrupted:
    """A transport during whose first message somebody presses ctrl-C."""

    def send(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        raise KeyboardInterrupt


def test_what_is_said_after_an_interrupt_stays_at_the_end_of_the_screen(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    study, signature = signed_study(FitOptions(None, "y ~ x"), ["ada"], None, None)
    with pytest.raises(KeyboardInterrupt), ServerView(dict) as view:
        approved_by_all(Interrupted(), study, signature, ["ada"], view)
    assert capsys.readouterr().err.endswith("what they decided is kept\n")
