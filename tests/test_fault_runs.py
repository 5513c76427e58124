"""One federation for each fault of ``make bench-faults``: real processes, TLS, a random moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from fault_kinds import KINDS


@pytest.mark.slow
def test_no_fault_loses_a_result_or_hangs() -> None:
    program = Path(__file__).parent.parent / "benchmarks" / "faults.py"
    done = subprocess.run(
        [sys.executable, str(program), "--scale", "0"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in rows[0]]
    wrong, hung = names.index("wrong"), names.index("hung")
    kinds = [(kind.__doc__ or "").strip().rstrip(".") for kind in KINDS]
    assert [cells[1].strip() for cells in rows[2:]] == [*kinds, "all"]
    for cells in rows[2:]:
        assert not cells[wrong].strip(), cells
        assert not cells[hung].strip(), cells
