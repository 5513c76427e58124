"""Make ``randhie/site1.csv`` to ``site6.csv``, the data of the RAND Health Insurance Experiment.

``python examples/make_randhie.py [FOLDER]``. The cells of the table in statsmodels are copied as
text, so the files are the same bytes every time.
"""

import csv
import sys
from importlib.resources import files
from pathlib import Path

COLUMNS = (
    *("year", "time", "plan", "coins", "logc", "idp", "lpi", "fmde"),
    *("xage", "female", "child", "fchild", "black", "linc", "lfam", "educdec"),
    *("physlm", "disea", "hlthg", "hlthf", "hlthp"),
    *("mdvis", "totadm"),
)
HEALTH = {
    ("0", "0", "0"): "excellent",
    ("1", "0", "0"): "good",
    ("0", "1", "0"): "fair",
    ("0", "0", "1"): "poor",
}
"""The three columns of health as one word."""


def make(folder: Path) -> None:
    """Write one file per site into the folder: ``COLUMNS``, and health as one word."""
    source = files("statsmodels.datasets.randhie").joinpath("src", "randhie.csv")
    rows = list(csv.DictReader(source.read_text(encoding="utf-8").splitlines()))
    folder.mkdir(parents=True, exist_ok=True)
    for site in sorted({row["site"] for row in rows}):
        with (folder / f"site{site}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMNS, "health"])
            for row in rows:
                if row["site"] == site:
                    health = HEALTH[row["hlthg"], row["hlthf"], row["hlthp"]]
                    writer.writerow([*(row[column] for column in COLUMNS), health])


if __name__ == "__main__":
    target = Path(__file__).parent / "randhie"
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
    try:
        make(target)
    except ModuleNotFoundError as error:
        sys.exit(f"the data are part of {error.name}, which is missing: pip install statsmodels")
