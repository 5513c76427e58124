"""``fedsplit server`` with clients in threads of this process."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from federation import free_port
from fedsplit.commands import server as command
from fedsplit.commands.app import run
from fedsplit.commands.gathering import gather
from fedsplit.commands.studies import approved_by_all
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site
from https_clients import running


def test_the_model_is_written_before_the_approvals_end(files: list[str], tmp_path: Path) -> None:
    port = free_port()
    out = tmp_path / "o"
    site = Site("ada", files[0], folder=tmp_path / "ada", options=SiteOptions(approve="always"))
    written = []

    def reply(message: bytes) -> bytes:
        if message.startswith(b"finish"):
            written.append((out / "model.json").exists())
        return site.reply(message)

    with running(port, reply, name="ada", insecure=True):
        options = ["--insecure", "--port", str(port), "--clients", "1", "--out", str(out)]
        assert run(["server", *options, "--formula", "stay ~ age"]) == 0
    assert written == [True]


def test_a_client_that_is_away_when_the_study_is_proposed_is_asked_once_it_is_back(
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()
    always = SiteOptions(approve="always")
    ada = Site("ada", files[0], folder=tmp_path / "ada", options=always)
    bob = Site("bob", files[1], folder=tmp_path / "bob", options=always)
    first = ExitStack()
    first.enter_context(running(port, bob.reply, name="bob", insecure=True))
    with ExitStack() as stack:
        stack.enter_context(running(port, ada.reply, name="ada", insecure=True))

        def gathered(*arguments: Any) -> list[str]:
            found = gather(*arguments)
            first.close()  # bob is away
            return found

        def approved(*arguments: Any) -> Any:
            stack.enter_context(running(port, bob.reply, name="bob", insecure=True))
            return approved_by_all(*arguments)

        monkeypatch.setattr(command, "gather", gathered)
        monkeypatch.setattr(command, "approved_by_all", approved)
        options = [
            "--insecure",
            "--port",
            str(port),
            "--clients",
            "2",
            "--out",
            str(tmp_path / "o"),
        ]
        status = run(["server", *options, "--formula", "stay ~ age"])
        told = capsys.readouterr().err
    assert status == 0, told
    assert "approved by 2 of 2" in told
