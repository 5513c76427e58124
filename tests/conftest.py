from pathlib import Path

import pytest
from hypothesis import settings

from hospitals import people, write

settings.register_profile("fedsplit", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("fedsplit")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return write(people(), tmp_path)
