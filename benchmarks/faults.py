"""Break a federation on purpose, hundreds of times, and print what happened.

``python benchmarks/faults.py [--scale X] [--kind NAME]``. Every run is a fit of three clients with
TLS, and one fault at a random moment. A run may end with the bits of an undisturbed one, with the
same numbers to the tolerance (a client that was away missed a round), without a client that was to
be left out, or with one line that says what to do; nothing else. Full disks are limits on the size
of files; wrong clocks are set in the process, where certificates are judged.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fault_kinds import EXPECTED, KINDS, OUTCOMES, Wrong, free_port
from fault_processes import NAMES, Federation, make_data, reference
from fedsplit.threads import one_blas_thread
from measuring import head, row


def run(kind: Callable[[Federation], str], folder: Path) -> str:
    """One run, in a new folder, which is kept where something went wrong."""
    try:
        with Federation(folder, free_port()) as federation:
            found = kind(federation)
    except Wrong as wrong:
        print(f"{kind.__name__} in {folder}: {wrong}", file=sys.stderr, flush=True)
        return "wrong"
    if found not in ("wrong", "hung"):
        shutil.rmtree(folder)
    return found


def fit_in_one_process(folder: Path) -> None:
    """Fit all clients, and all but one, for comparison."""
    data = make_data(folder)
    for gone in ("", *NAMES):
        who = [name for name in NAMES if name != gone]
        EXPECTED[frozenset(who)] = reference([data[name] for name in who])


def runs_of(kind: Callable[[Federation], str], number: int, folder: Path) -> Counter[str]:
    """Runs with one kind of fault; prints their row of the table."""
    found = Counter(run(kind, folder / f"{kind.__name__} {at}") for at in range(number))
    print_counts((kind.__doc__ or "").strip().rstrip("."), found)
    return found


def print_counts(text: str, found: Counter[str]) -> None:
    """Print a row of the table."""
    row(text, str(found.total()), *(str(found[outcome] or "") for outcome in OUTCOMES))


def main() -> None:
    """Break everything, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of runs")
    parser.add_argument("--kind", help="run this kind of fault alone, such as kill_server")
    chosen = parser.parse_args()
    began = time.perf_counter()
    total: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="fedsplit-faults-"))
    with one_blas_thread():
        fit_in_one_process(folder)
        head("fault, at a random moment", "runs", *OUTCOMES)
        for kind, number in KINDS.items():
            if chosen.kind in (None, kind.__name__):
                total += runs_of(kind, max(1, round(number * chosen.scale)), folder)
    print_counts("all", total)
    print(f"\n{time.perf_counter() - began:.0f} s in all", file=sys.stderr)
    if total["wrong"] or total["hung"]:
        raise SystemExit(f"something went wrong; the runs are kept in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
