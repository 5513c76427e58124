import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from hospitals import people, write

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # tests import ray before fedsplit does
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
