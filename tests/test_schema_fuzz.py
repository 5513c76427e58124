"""Random columns in every format, split over sites: the pooled answer, or a refusal in one line.

What a value is, is worked out here from what was written, without the code that is tested.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pytest

import fedsplit as fs

MARKS = ["", "NA", " ", "NULL", "#N/A", "NaN", "null", "N/A", " NA "]
"""Texts for a missing value."""

WORDS = [
    *("north", "North", "söuth", 'say "hi"', "a b", "x,y", "a;b", "tab\there", "it's", "🙂"),
    *(
        "1/2",
        "3 apples",
        "None",
        "-",
        "?",
        "2A",
        "01-02",
        "n/a",
        "two\nlines",
        "日本",
        "0x10",
        "1_0",
    ),
]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?", re.ASCII)

Key = tuple[str, Any]
"""What a value is: equal keys are one value, however they are written."""


def key_of(value: Any) -> Key | None:
    """The key of a value of any type, None if it is missing."""
    match value:
        case None:
            return None
        case bool():
            return "boolean", value
        case int() | float() | Decimal():
            if value != value:
                return None
            return "number", int(value) if value == int(value) else float(value)
        case datetime():
            return "date", value if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return "date", datetime(value.year, value.month, value.day, tzinfo=UTC)
    text = str(value).strip()
    if text in {mark.strip() for mark in MARKS}:
        return None
    if NUMBER.fullmatch(text):
        return key_of(Decimal(text))
    if DATE.fullmatch(text):
        return key_of(datetime.fromisoformat(text))
    if text.lower() in ("true", "false"):
        return "boolean", text.lower() == "true"
    return "text", text


class Kind(NamedTuple):
    """A kind of column.

    Attributes
    ----------
    draw : callable
        Some distinct values, of one type of Python.
    write : callable
        A value as text, in one of the ways in which people write it.
    sql, dtypes : list of str
        Types of SQL and of pandas that can hold the values.
    """

    draw: Callable[[Random], list[Any]]
    write: Callable[[Random, Any], str]
    sql: list[str]
    dtypes: list[str]


def write_integer(rng: Random, value: int) -> str:
    return rng.choice([str(value)] * 3 + [f"{value:+d}", f"{value:04d}", f"{value}.0", f"{value}."])


def write_decimal(rng: Random, value: Decimal) -> str:
    return rng.choice(
        [str(value)] * 3 + [f"{value}0", f"{value:e}", f"{value:+}", f"0{abs(value)}"]
    )


def write_code(rng: Random, value: str) -> str:
    return value


def write_date(rng: Random, value: datetime) -> str:
    whole = value.isoformat(rng.choice([" ", "T"]))
    forms = [whole, whole + "Z", whole + "+00:00"]
    if value.time() == datetime.min.time():
        forms += [value.date().isoformat()] * 6
    return rng.choice(forms)


def write_boolean(rng: Random, value: bool) -> str:
    return rng.choice([str(value), str(value).upper(), str(value).lower()])


def decimals(rng: Random) -> list[Decimal]:
    return [Decimal(rng.randrange(1, 400)) / 8 for _ in range(rng.randrange(2, 6))]


def dates(rng: Random) -> list[datetime]:
    start = datetime(2019, 12, 30) + timedelta(days=rng.randrange(400))
    return [start + timedelta(days=i) for i in range(rng.randrange(2, 6))]


def timestamps(rng: Random) -> list[datetime]:
    return [day + timedelta(minutes=rng.choice([0, 90, 375])) for day in dates(rng)]


def big(rng: Random) -> list[int]:
    return [2**53 + rng.randrange(12) for _ in range(rng.randrange(2, 6))]


FLOATS = ["float64", "Float64", "object", "category"]
WHOLE = ["int64", "Int64", "UInt64", "decimals", *FLOATS]
EXACT = ["Int64", "UInt64", "decimals", "object", "category"]
TEXTS = ["string", "str", "object", "category"]
CODES = ["01", "02", "1", "2", "10", "2A", "1e1", "1.0"]
NUMERALS = ["7", "07", "7.0", "8", "2020-01-01"]

KINDS = {
    "integers": Kind(
        lambda rng: rng.sample(range(12), rng.randrange(2, 6)),
        write_integer,
        ["bigint", "double", "decimal(38, 0)", "varchar"],
        WHOLE,
    ),
    "big": Kind(big, write_integer, ["bigint", "decimal(38, 0)"], EXACT),
    "decimals": Kind(
        decimals, write_decimal, ["decimal(18, 6)", "double", "varchar"], ["decimals", *FLOATS]
    ),
    "codes": Kind(lambda rng: rng.sample(CODES, 4), write_code, ["varchar"], TEXTS),
    "dates": Kind(
        dates,
        write_date,
        ["date", "timestamp", "timestamptz"],
        ["datetime64[ns]", "object", "string"],
    ),
    "timestamps": Kind(
        timestamps,
        write_date,
        ["timestamp", "timestamptz", "varchar"],
        ["datetime64[us]", "object", "str"],
    ),
    "booleans": Kind(
        lambda rng: [True, False], write_boolean, ["boolean"], ["bool", "boolean", "object", "str"]
    ),
    "words": Kind(
        lambda rng: rng.sample(WORDS, rng.randrange(2, 7)), write_code, ["varchar"], TEXTS
    ),
    "mixed": Kind(
        lambda rng: [*rng.sample(WORDS, 2), *rng.sample(NUMERALS, 2)],
        write_code,
        ["varchar"],
        TEXTS,
    ),
}

FILES = ["csv", "csv", "csv", "tsv", "jsonl", "json", "parquet", "frame", "frame"]


class Site(NamedTuple):
    """The rows of one site: what was meant, and what the file holds."""

    y: list[float]
    g: list[Any]
    keys: list[Key | None]


def as_text(rng: Random, kind: Kind, value: Any) -> str:
    if value is None:
        return rng.choice(MARKS)
    text = kind.write(rng, value)
    return rng.choice([text] * 8 + [f" {text}", f"{text} "])


def write_delimited(rng: Random, path: Path, names: list[str], columns: list[list[Any]]) -> None:
    delimiter = "\t" if path.suffix == ".tsv" else rng.choice(",;\t|")
    quoting: Any = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    with path.open("w", encoding=rng.choice(["utf-8", "utf-8-sig"]), newline="") as file:
        writer = csv.writer(
            file, delimiter=delimiter, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"])
        )
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))


def write_json(path: Path, names: list[str], columns: list[list[Any]]) -> None:
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


def plain(value: Any) -> Any:
    """A value as JSON has it, which knows neither dates nor decimals."""
    match value:
        case datetime():
            return value.isoformat()
        case Decimal():
            return float(value)
    return value


def write_parquet(path: Path, store: str, names: list[str], columns: list[list[Any]]) -> None:
    types = {"y": "double", "g": store, "site": "varchar"}
    frame = pd.DataFrame(
        {
            name: pd.Series([None if v is None else str(v) for v in column], dtype=object)
            for name, column in zip(names, columns, strict=True)
        }
    )
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("frame", frame)
        selected = ", ".join(f"cast({name} as {types[name]}) {name}" for name in names)
        connection.execute(f"copy (select {selected} from frame) to '{path}' (format parquet)")


def as_series(rng: Random, store: str, values: list[Any]) -> Any:
    """A column of a frame of some dtype."""
    present = list(dict.fromkeys(value for value in values if value is not None))
    match store:
        case "object":
            return np.array([*values, None], dtype=object)[:-1]
        case "category":
            rng.shuffle(present)
            return pd.Categorical(values, categories=present, ordered=False)
        case "decimals":
            return [value if value is None else Decimal(value) for value in values]
        case "float64" | "Float64":
            numbers = [np.nan if value is None else float(value) for value in values]
            return pd.array(numbers, dtype=store)
        case "int64" | "bool" if None in values:
            return pd.array(values, dtype={"int64": "Int64", "bool": "boolean"}[store])
        case "datetime64[ns]" | "datetime64[us]":
            series = pd.Series(values, dtype=store)
            return rng.choice([series, series.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")])
    return pd.array(values, dtype=store)


def make_site(
    rng: Random, folder: Path, name: str, kind: Kind, values: list[Any], owners: list[str] | None
) -> tuple[Any, Site]:
    """Write the rows of a site, or of all if they have owners, in some way."""
    y = [rng.gauss(0, 1) for _ in values]
    file = rng.choice(FILES)
    if file == "json" or file == "jsonl":
        g = [plain(value) for value in values]
        if rng.random() < 0.5:
            g = [as_text(rng, kind, value) for value in values]
    elif file in ("csv", "tsv"):
        g = [as_text(rng, kind, value) for value in values]
    else:
        store = rng.choice(kind.sql if file == "parquet" else kind.dtypes)
        g = list(values)
        if store in ("varchar", "string", "str"):
            g = [as_text(rng, kind, value) for value in values]
    names, columns = ["y", "g"], [y, g]
    if owners is not None:
        names, columns = ["y", "g", "site"], [y, g, owners]
    keys = [key_of(value) for value in g]
    path = folder / f"{name}.{file}"
    match file:
        case "csv" | "tsv":
            write_delimited(rng, path, names, columns)
        case "json" | "jsonl":
            write_json(path, names, columns)
        case "parquet":
            write_parquet(path, store, names, columns)
        case "frame":
            made = [y, as_series(rng, store, g), *columns[2:]]
            return pd.DataFrame(dict(zip(names, made, strict=True))), Site(y, g, keys)
    return path, Site(y, g, keys)


def attempt(seed: int, folder: Path) -> str:
    """Fit one random column; what became of it."""
    rng = Random(seed)
    kind = KINDS[rng.choice(list(KINDS))]
    drawn = list(dict.fromkeys(kind.draw(rng)))
    missing = rng.choice([0.0, 0.0, 0.1])
    count = rng.randrange(1, 5)

    def rows(n: int) -> list[Any]:
        own = rng.sample(drawn, rng.randrange(1, len(drawn) + 1))
        return [None if rng.random() < missing else rng.choice(own) for _ in range(n)]

    options: dict[str, Any] = {}
    if rng.random() < 0.2:
        owners = [f"s{rng.randrange(count)}" for _ in range(60)]
        data, site = make_site(rng, folder, "all", kind, rows(60), owners)
        made, options["group"] = [site], "site"
    else:
        pairs = [
            make_site(rng, folder, f"s{i}", kind, rows(rng.randrange(12, 40)), None)
            for i in range(count)
        ]
        data = {f"s{i}": item for i, (item, _) in enumerate(pairs)}
        made = [site for _, site in pairs]
    formula = rng.choice(["y ~ C(g)", "y ~ C(g)", "y ~ g"])
    try:
        model = fs.fit(data, formula, **options)
    except fs.InputError as error:
        assert "\n" not in str(error), error  # noqa: PT017  # or it is fitted
        return "refused"
    pool = [(y, key) for site in made for y, key in zip(site.y, site.keys, strict=True) if key]
    check(model, formula, pool)
    return "fitted"


def check(model: Any, formula: str, pool: Sequence[tuple[float, Key]]) -> None:
    """Compare a model with what the pooled rows give."""
    y = np.array([value for value, _ in pool])
    keys = [key for _, key in pool]
    assert model.nobs == len(pool)
    kinds = {kind for kind, _ in keys}
    if "g" in model.plan.levels:
        levels = model.plan.levels["g"]
        of_level = [key_of(level) for level in levels]
        if kinds == {"boolean"} and model.plan.types["g"] == "number":
            of_level = [("boolean", level == "1") for level in levels]
        assert sorted(map(str, of_level)) == sorted(map(str, set(keys)))
        means = [y[[key == own for key in keys]].mean() for own in of_level]
        expected = [means[0], *(mean - means[0] for mean in means[1:])]
    else:
        # A number is no category of its own accord, and no word is a number.
        assert formula == "y ~ g"
        assert kinds <= {"number", "boolean"} or kinds == {"date"}
        x = np.array([number(key) for key in keys])
        away = x - x.mean()
        if np.ptp(x) < 1e-10 * max(np.abs(x).max(), 1.0):  # as good as a constant
            assert np.isnan(model.params.iloc[1])
            return
        slope = away @ y / (away @ away)
        np.testing.assert_allclose(model.params.iloc[1], slope, rtol=1e-6, atol=1e-9 / np.ptp(x))
        middle = model.params.iloc[0] + model.params.iloc[1] * x.mean()
        np.testing.assert_allclose(middle, y.mean(), rtol=1e-6, atol=1e-6)
        return
    np.testing.assert_allclose(model.params, expected, rtol=1e-7, atol=1e-9)


def number(key: Key) -> float:
    match key:
        case "date", moment:
            return float((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86_400)
        case _, value:
            return float(value)


def run(seeds: Sequence[int], folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        inside = folder / str(seed)
        inside.mkdir()
        try:
            found[attempt(seed, inside)] += 1
        except fs.InputError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    return found


def test_a_random_column_has_the_fit_of_the_pool_or_is_refused(tmp_path: Path) -> None:
    found = run(range(30), tmp_path)
    assert found["fitted"] > 10


@pytest.mark.slow
def test_a_thousand_random_columns_have_the_fit_of_the_pool_or_are_refused(tmp_path: Path) -> None:
    found = run(range(30, 1030), tmp_path)
    assert found["fitted"] > 400
