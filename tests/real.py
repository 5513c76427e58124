"""Real data, split into clients; DATA.md says where they come from."""

from pathlib import Path

import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

EXAMPLES = Path(__file__).parent.parent / "examples"
FLIGHTS = EXAMPLES / "data" / "flights"
UNEVEN = (220, 150, 40, 32)


def split(table: pd.DataFrame, sizes: tuple[int, ...]) -> dict[str, pd.DataFrame]:
    """Give each client so many of the rows, in their order."""
    assert sum(sizes) == len(table)
    ends = [sum(sizes[: j + 1]) for j in range(len(sizes))]
    return {
        f"client {j}": table.iloc[end - sizes[j] : end].reset_index(drop=True)
        for j, end in enumerate(ends)
    }


def randhie() -> dict[str, pd.DataFrame]:
    """The RAND Health Insurance Experiment by site, with a few columns that the tests need."""
    sites = {path.stem: pd.read_csv(path) for path in sorted((EXAMPLES / "randhie").glob("*.csv"))}
    return {
        name: site.assign(
            visited=(site["mdvis"] > 0).astype(int),
            shift=0.1 * site["year"],
            weight=0.5 + 0.5 * site["plan"] / 19,
        )
        for name, site in sites.items()
    }


def diabetes(sizes: tuple[int, ...] = UNEVEN) -> dict[str, pd.DataFrame]:
    """442 patients, not scaled; ``high``: above the median; ``score``: in units of 50."""
    table = load_diabetes(as_frame=True, scaled=False).frame.astype({"sex": int})
    target = table["target"]
    return split(table.assign(high=(target > 140.5).astype(int), score=target / 50), sizes)


def wine() -> pd.DataFrame:
    """178 wines, sorted by their three cultivars."""
    table = load_wine(as_frame=True).frame
    table = table.rename(columns={"od280/od315_of_diluted_wines": "od280"})
    return table.assign(cultivar=table["target"].map({0: "a", 1: "b", 2: "c"})).drop(
        columns="target"
    )


def breast_cancer() -> dict[str, pd.DataFrame]:
    """569 tumours in four clients; columns have mean 0 and variance 1 in the pool."""
    table = load_breast_cancer(as_frame=True).frame
    table.columns = [name.replace(" ", "_") for name in table.columns]
    columns = table.drop(columns="target")
    scaled = (columns - columns.mean()) / columns.std(ddof=0)
    return split(scaled.assign(benign=table["target"]), (300, 200, 40, 29))


def flights() -> dict[str, pd.DataFrame]:
    """Flights of 2013 by carrier, after ``make data``."""
    return {path.stem: pd.read_csv(path) for path in sorted(FLIGHTS.glob("*.csv"))}
