import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from hospitals import people, write

if TYPE_CHECKING:
    from fedsplit.remote.https.server import HttpsServer

settings.register_profile("fedsplit", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("fedsplit")


@pytest.fixture(scope="session", autouse=True)
def powered() -> Iterator[None]:
    """No test loses power: what is written need not reach the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which takes a file's descriptor as well
        yield


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return write(people(), tmp_path)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of the clients ada and bob, and of a stranger."""
    from fedsplit.remote import issuing

    folder = tmp_path_factory.mktemp("keys")
    issuing.make_keys(folder / "ours", ["ada", "bob"], ["127.0.0.1"], 90)
    issuing.make_keys(folder / "theirs", ["eve"], ["127.0.0.1"], 90)
    return folder


@pytest.fixture
def server(made: Path) -> "Iterator[HttpsServer]":
    """A server with these keys."""
    from fedsplit.remote.https.server import HttpsServer

    with HttpsServer("127.0.0.1", 0, made / "ours") as server:
        yield server


@pytest.fixture
def plain() -> "Iterator[HttpsServer]":
    """A server that lets anybody in, without TLS."""
    from fedsplit.remote.https.server import HttpsServer

    with HttpsServer("127.0.0.1", 0) as server:
        yield server
