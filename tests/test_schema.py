"""One schema for all clients: the answer of the pooled column, or a refusal in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.data.sources import sources

ROWS = 24
"""Of each site."""


def column(values: Sequence[Any], rows: int = ROWS) -> list[Any]:
    """The values again and again."""
    return [values[i % len(values)] for i in range(rows)]


def target(seed: int) -> list[float]:
    return [float(y) for y in np.random.default_rng(seed).standard_normal(ROWS)]


def write_csv(path: Path, **columns: Sequence[Any]) -> Path:
    pd.DataFrame(columns, dtype=object).to_csv(path, index=False)
    return path


def write_parquet(path: Path, sql_type: str, **columns: Sequence[Any]) -> Path:
    frame = pd.DataFrame({name: [str(v) for v in values] for name, values in columns.items()})
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        connection.execute(
            f"copy (select y::double y, g::{sql_type} g from frame) to '{path}' (format parquet)"
        )
    return path


def sites(folder: Path, **values: Sequence[Any]) -> Path:
    """One CSV file for each site, with a target y and a column g."""
    for i, (name, own) in enumerate(values.items()):
        write_csv(folder / f"{name}.csv", y=target(i), g=column(own))
    return folder


def levels(model: Any, name: str = "g") -> list[str]:
    return list(model.plan.levels[name])


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(fs.InputError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    return message


def group_means(model: Any) -> dict[str, float]:
    """The mean of the target in each level, from the coefficients of y ~ C(g)."""
    first, *others = levels(model)
    found = {first: model.params["Intercept"]}
    for level in others:
        found[level] = model.params["Intercept"] + model.params[f"C(g)[T.{level}]"]
    return found


def pooled_means(forms: Mapping[Any, str], *own: Sequence[Any]) -> dict[str, float]:
    """The same from the values themselves."""
    pool = pd.DataFrame(
        {
            "y": [y for i in range(len(own)) for y in target(i)],
            "g": [forms[value] for values in own for value in column(values)],
        }
    )
    return {str(level): float(mean) for level, mean in pool.groupby("g").y.mean().items()}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["01", "02"], ["01", "02", "2A"], ["01", "02", "2A"]),
        (["1.0", "2.0"], ["1", "2"], ["1", "2"]),
        (["1.50", "2"], ["1.5", "2"], ["1.5", "2"]),
        (["1e1", "9"], ["10", "9"], ["9", "10"]),
        (["01", "1"], ["1.0", "2"], ["1", "2"]),
        (["TRUE", "FALSE"], ["TRUE", "FALSE", "UNKNOWN"], ["FALSE", "TRUE", "UNKNOWN"]),
        (["TRUE", "FALSE"], ["true", "False"], ["False", "True"]),
        (["TRUE", "FALSE"], ["1", "0"], ["0", "1"]),
        (["2020-01-02", "2020-01-01"], ["2020-01-01 00:00:00", "2020-01-02T00:00Z"], None),
        ([" a", "b "], ["a", "b"], ["a", "b"]),
    ],
)
def test_levels_are_those_of_the_pooled_column(
    tmp_path: Path, a: list[str], b: list[str], expected: list[str] | None
) -> None:
    expected = expected or ["2020-01-01", "2020-01-02"]
    model = fs.fit(sites(tmp_path, a=a, b=b), "y ~ C(g)")
    assert levels(model) == expected
    same = {
        **{value: value.strip() for value in [*a, *b]},
        **{"1.0": "1", "2.0": "2", "1.50": "1.5", "1e1": "10"},
        **{"2020-01-01 00:00:00": "2020-01-01", "2020-01-02T00:00Z": "2020-01-02"},
    }
    if "2A" not in b and "01" in a:
        same["01"] = "1"
    if "UNKNOWN" not in b and "TRUE" in a:
        yes, no = expected[1], expected[0]
        same |= {"TRUE": yes, "true": yes, "FALSE": no, "False": no}
    means = pooled_means(same, a, b)
    assert group_means(model) == pytest.approx(means, rel=1e-9)


@pytest.mark.parametrize(
    ("a", "b", "forms"),
    [
        (["01", "02"], ["1", "2", "2A"], "01, 1"),
        (["1.0", "x"], ["1", "2"], "1, 1.0"),
        (["1e1", "x"], ["10", "2"], "10, 1e1"),
        (["TRUE", "FALSE"], ["true", "UNKNOWN"], "TRUE, true"),
        (["2020-01-01", "never"], ["2020-01-01 00:00", "2020-01-02"], "2020-01-01"),
    ],
)
def test_one_value_written_in_two_ways_beside_words_is_refused(
    tmp_path: Path, a: list[str], b: list[str], forms: str
) -> None:
    folder = sites(tmp_path, a=a, b=b)
    message = refusal(lambda: fs.fit(folder, "y ~ C(g)"))
    assert message.startswith("column g holds ")
    assert forms in message
    assert "types={'g': 'text'}" in message
    apart = fs.fit(folder, "y ~ C(g)", types={"g": "text"})
    assert levels(apart) == sorted({*a, *b})
    assert group_means(apart) == pytest.approx(pooled_means({v: v for v in [*a, *b]}, a, b))


def test_a_declared_type_merges_or_is_refused_with_the_row(tmp_path: Path) -> None:
    folder = sites(tmp_path, a=["01", "02"], b=["1", "2", "2A"])
    message = refusal(lambda: fs.fit(folder, "y ~ C(g)", types={"g": "number"}))
    assert "client b: column 'g', row 3: '2A' is no number" in message
    folder = sites(tmp_path, a=["01", "02"], b=["1", "2"])
    assert levels(fs.fit(folder, "y ~ C(g)", types={"g": "number"})) == ["1", "2"]
    assert levels(fs.fit(folder, "y ~ g", types={"g": "text"})) == ["01", "02", "1", "2"]


def test_types_are_declared_on_the_command_line_and_in_a_toml_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites(tmp_path, a=["01", "02"], b=["1", "2", "2A"])
    paths = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert run(["fit", *paths, "--formula", "y ~ C(g)"]) == 2
    message = capsys.readouterr().err
    assert "--types g=text to keep them apart, or write them alike" in message
    assert run(["fit", *paths, "--formula", "y ~ C(g)", "--types", "g=text"]) == 0
    assert "C(g)[T.2A]" in capsys.readouterr().out
    toml = tmp_path / "clients.toml"
    listed = "\n".join(f'[clients.{name}]\npath = "{name}.csv"' for name in "ab")
    toml.write_text(f'{listed}\n[types]\ng = "text"\nother = "number"\n', encoding="utf-8")
    assert "no column other" in refusal(lambda: fs.fit(toml, "y ~ C(g)"))
    toml.write_text(f'{listed}\n[types]\ng = "text"\n', encoding="utf-8")
    assert levels(fs.fit(toml, "y ~ C(g)")) == ["01", "02", "1", "2", "2A"]
    message = refusal(lambda: fs.fit(toml, "y ~ C(g)", types={"g": "number"}))
    assert "'2A' is no number" in message
    toml.write_text(f'{listed}\n[types]\ng = "word"\n', encoding="utf-8")
    assert "g must be one of number, boolean, date, text" in refusal(lambda: fs.fit(toml, "y ~ g"))


@pytest.mark.parametrize("types", [{"g": "word"}, {1: "text"}, ["g"]])
def test_types_that_are_none_are_refused(types: Any) -> None:
    frame = pd.DataFrame({"y": target(0), "g": column([1, 2])})
    assert "types" in refusal(lambda: fs.fit(frame, "y ~ g", types=types))


def test_text_in_parquet_beside_a_csv_file_is_one_category(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", y=target(0), g=column(["1", "2"]))
    write_parquet(tmp_path / "b.parquet", "varchar", y=target(1), g=column(["1", "2", "3"]))
    model = fs.fit(tmp_path, "y ~ C(g)")
    assert levels(model) == ["1", "2", "3"]
    same = {"1": "1", "2": "2", "3": "3"}
    assert group_means(model) == pytest.approx(pooled_means(same, ["1", "2"], ["1", "2", "3"]))
    write_csv(tmp_path / "a.csv", y=target(0), g=column(["01", "02"]))
    message = refusal(lambda: fs.fit(tmp_path, "y ~ C(g)"))
    assert "01, 1" in message
    assert "or types={'g': 'number'} to merge them" in message
    message = refusal(lambda: fs.fit(tmp_path, "y ~ g"))
    assert "column g holds numbers at client a and text at client b" in message
    assert fs.fit(tmp_path, "y ~ g", types={"g": "number"}).estimates.names == ["Intercept", "g"]


def test_the_classes_of_a_multinomial_target_are_one_set(tmp_path: Path) -> None:
    for i, values in enumerate((["01", "02", "03"], ["1", "2", "3"])):
        rng = np.random.default_rng(i)
        frame = pd.DataFrame({"g": rng.choice(values, 200), "x": rng.standard_normal(200)})
        frame.to_csv(tmp_path / f"{i}.csv", index=False)
    model = fs.fit(tmp_path, "g ~ x", family="multinomial")
    assert list(model.plan.classes) == ["1", "2", "3"]
    second = fs.fit(tmp_path, "g ~ x", family="multinomial", reference={"g": "02"})
    assert list(second.plan.classes) == ["2", "1", "3"]
    difference = model.params["2:x"] - model.params["3:x"]
    assert -second.params["3:x"] == pytest.approx(difference, rel=1e-6)
    pd.read_csv(tmp_path / "1.csv").assign(g="2A").to_csv(tmp_path / "2.csv", index=False)
    assert "01, 1" in refusal(lambda: fs.fit(tmp_path, "g ~ x", family="multinomial"))


def test_a_prediction_reads_a_file_as_the_fit_did(tmp_path: Path) -> None:
    model = fs.fit(sites(tmp_path, a=["01", "02"], b=["01", "02", "2A"]), "y ~ C(g)")
    new = write_csv(tmp_path / "new.csv", g=["01", "02", "01"])
    expected = [group_means(model)[level] for level in ("01", "02", "01")]
    assert model.predict(new).tolist() == pytest.approx(expected)
    folder = tmp_path / "numbers"
    folder.mkdir()
    numbers = fs.fit(sites(folder, a=["1.0", "2"], b=["1", "2", "10"]), "y ~ C(g)")
    new = write_csv(tmp_path / "new.csv", g=["01", "1e1"])
    expected = [group_means(numbers)[level] for level in ("1", "10")]
    assert numbers.predict(new).tolist() == pytest.approx(expected)
    assert numbers.predict(pd.DataFrame({"g": [1.0, 10.0]})).tolist() == pytest.approx(expected)
    write_csv(new, g=["1", "x"])
    assert "row 2: 'x' is no number" in refusal(lambda: numbers.predict(new))


def test_a_site_that_is_left_out_adds_no_level() -> None:
    rng = np.random.default_rng(0)
    frames = {
        name: pd.DataFrame(
            {
                "y": rng.standard_normal(30),
                "x": rng.normal(5, 1, 30),
                "g": rng.choice(["a", "b"], 30),
            }
        )
        for name in ("one", "two", "out")
    }
    frames["out"]["x"] = np.nan
    frames["out"]["g"] = "c"
    model = fs.fit(frames, "y ~ x + g")
    assert model.clients["n"]["out"] == 0
    rest = fs.fit([frames["one"], frames["two"]], "y ~ x + g")
    assert levels(model) == ["a", "b"]
    np.testing.assert_allclose(model.params, rest.params, rtol=1e-9)


BIG = [9007199254740992, 9007199254740993, 9007199254740994]


def big_frames(make: Callable[[list[int]], Any]) -> list[pd.DataFrame]:
    return [pd.DataFrame({"y": target(i), "g": make(column(BIG[: 2 + i]))}) for i in range(2)]


@pytest.mark.parametrize(
    "make",
    [
        lambda values: values,
        lambda values: np.array(values, dtype=np.uint64),
        lambda values: pd.array(values, dtype="Int64"),
        lambda values: pd.array(values, dtype="UInt64"),
        lambda values: [Decimal(value) for value in values],
        lambda values: np.array(values, dtype=object),
        lambda values: pd.Categorical(values),
    ],
)
def test_whole_numbers_beyond_float64_stay_apart_in_frames(make: Callable[..., Any]) -> None:
    model = fs.fit(big_frames(make), "y ~ C(g)")
    assert levels(model) == [str(value) for value in BIG]
    means = pooled_means({value: str(value) for value in BIG}, BIG[:2], BIG)
    assert group_means(model) == pytest.approx(means)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "decimal", "query"])
def test_whole_numbers_beyond_float64_stay_apart_in_files(tmp_path: Path, kind: str) -> None:
    for i in range(2):
        y, g = target(i), column(BIG[: 2 + i])
        path = tmp_path / f"{i}.{kind}"
        if kind == "jsonl":
            lines = [json.dumps({"y": a, "g": b}) for a, b in zip(y, g, strict=True)]
            path.write_text("\n".join(lines), encoding="utf-8")
        elif kind in ("parquet", "query"):
            write_parquet(path.with_suffix(".parquet"), "bigint", y=y, g=g)
        elif kind == "decimal":
            write_parquet(path.with_suffix(".parquet"), "decimal(38, 0)", y=y, g=g)
        else:
            write_csv(path, y=y, g=g)
    data = tmp_path
    if kind == "query":
        data = tmp_path / "clients.toml"
        data.write_text(
            "".join(f"[clients.c{i}]\nquery = \"from '{i}.parquet'\"\n" for i in range(2))
        )
    model = fs.fit(data, "y ~ C(g)")
    assert levels(model) == [str(value) for value in BIG]
    means = pooled_means({value: str(value) for value in BIG}, BIG[:2], BIG)
    assert group_means(model) == pytest.approx(means)


DAYS = ["2020-01-30", "2020-02-03", "2020-03-01"]


def test_a_date_is_a_number_of_days_in_every_format(tmp_path: Path) -> None:
    days = column(DAYS)
    write_csv(tmp_path / "a.csv", y=target(0), g=days)
    write_parquet(tmp_path / "b.parquet", "timestamp", y=target(1), g=days)
    write_parquet(tmp_path / "c.parquet", "date", y=target(2), g=days)
    lines = [json.dumps({"y": a, "g": b}) for a, b in zip(target(3), days, strict=True)]
    (tmp_path / "d.jsonl").write_text("\n".join(lines), encoding="utf-8")
    files = [tmp_path / name for name in ("a.csv", "b.parquet", "c.parquet")]
    frame = pd.DataFrame({"y": target(3), "g": pd.to_datetime(days).tz_localize("UTC")})
    model = fs.fit([*files, frame], "y ~ g")
    x = np.tile((pd.to_datetime(days) - pd.Timestamp("1970-01-01")).days.to_numpy(float), 4)
    y = np.concatenate([target(i) for i in range(4)])
    slope = np.polyfit(x - x.mean(), y, 1)[0]
    assert model.params["g"] == pytest.approx(slope, rel=1e-9)
    assert levels(fs.fit([*files, frame], "y ~ C(g)")) == DAYS
    # JSON has no dates but text that looks like them
    of_json = fs.fit([*files, tmp_path / "d.jsonl"], "y ~ g")
    assert of_json.params["g"] == pytest.approx(slope, rel=1e-9)


def test_a_timestamp_is_a_fraction_of_a_day_and_utc_unless_it_says_otherwise(
    tmp_path: Path,
) -> None:
    path = write_csv(
        tmp_path / "a.csv", g=["1970-01-02", "1970-01-02T12:00:00", "1970-01-02 12:00+06:00"]
    )
    [source] = sources(path)
    assert source.read({"g": "date"})["g"].tolist() == [1.0, 1.5, 1.25]
    texts = ["1970-01-02", "1970-01-02 12:00:00", "1970-01-02 06:00:00"]
    frame = pd.DataFrame({"g": pd.to_datetime(texts, format="ISO8601")})
    [table] = sources(frame)
    assert table.read({"g": "date"})["g"].tolist() == [1.0, 1.5, 1.25]
    assert table.read({"g": "text"})["g"].tolist() == texts


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1,5", "2,25", "3"], ["looks like numbers, such as '1,5'", "decimal=',' if that is"]),
        (["1,234", "12,345", "7"], ["looks like numbers", "'1,234'", "separate thousands"]),
        (["1 234", "1.234,5", "7,5"], ["looks like numbers"]),
        (["5%", "10%", "7%"], ["looks like numbers, such as '5%'"]),
        (["1", "2", "3", "4", "5", "6", "x"], ["row 7: 'x' is no number", "na=['x']"]),
        (["31/01/2020", "2/1/2020"], ["looks like dates, such as '31/01/2020'", "2020-01-31"]),
        (["2020/01/31 10:00", "2020/02/01 11:30"], ["looks like dates"]),
        (["31-Jan-2020", "1 Feb 20"], ["looks like dates"]),
        (
            [f"2020-01-0{i}" for i in range(1, 9)] + ["soon"],
            ["holds dates, but 'soon'", "na=['soon']"],
        ),
    ],
)
def test_numbers_and_dates_that_arrive_as_text_are_no_categories(
    tmp_path: Path, values: list[str], words: list[str]
) -> None:
    folder = sites(tmp_path, a=values, b=values)
    message = refusal(lambda: fs.fit(folder, "y ~ g"))
    for word in words:
        assert word in message
    assert set(levels(fs.fit(folder, "y ~ C(g)"))) == set(values)


def test_numbers_stored_as_text_are_refused_until_they_are_declared(tmp_path: Path) -> None:
    for i in range(2):
        write_parquet(tmp_path / f"{i}.parquet", "varchar", y=target(i), g=column([31, 42, 58]))
    message = refusal(lambda: fs.fit(tmp_path, "y ~ g"))
    assert "stored as text" in message
    assert "types={'g': 'number'}" in message
    assert fs.fit(tmp_path, "y ~ g", types={"g": "number"}).estimates.names == ["Intercept", "g"]
    assert levels(fs.fit(tmp_path, "y ~ C(g)")) == ["31", "42", "58"]


def test_levels_that_differ_only_in_case_are_warned_of(tmp_path: Path) -> None:
    model = fs.fit(sites(tmp_path, a=["North", "south"], b=["north", "south"]), "y ~ g")
    assert "column g has levels that differ only in case: North and north" in model.warnings


def test_levels_that_look_the_same_are_warned_of(tmp_path: Path) -> None:
    model = fs.fit(
        sites(tmp_path, a=["Z\u00fcrich", "a b"], b=["Zu\u0308rich", "a\u00a0b"]), "y ~ g"
    )
    [warning] = [each for each in model.warnings if "look the same" in each]
    assert "Zu\\u0308rich and Z\\xfcrich, a b and a\\xa0b" in warning


@pytest.mark.parametrize("name", ["e\u0301", "\u00e9\u200b"])
def test_a_name_that_only_looks_like_that_of_a_column_is_pointed_out(name: str) -> None:
    frame = pd.DataFrame({"y": target(0), "\u00e9": target(1)})
    message = refusal(
        lambda: fs.fit([frame, frame.rename(columns={"\u00e9": name})], "y ~ `\u00e9`")
    )
    assert f"{name!a} looks the same but has other characters" in message


def test_the_reference_is_chosen_by_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sites(tmp_path, a=["a", "b"], b=["a", "b", "c"])
    paths = [str(folder / "a.csv"), str(folder / "b.csv")]
    model = fs.fit(folder, "y ~ g", reference={"g": "b"})
    assert model.estimates.names == ["Intercept", "g[T.a]", "g[T.c]"]
    plain = fs.fit(folder, "y ~ g")
    assert model.params["g[T.a]"] == pytest.approx(-plain.params["g[T.b]"], rel=1e-9)
    assert run(["fit", *paths, "--formula", "y ~ g", "--reference", "g=c"]) == 0
    assert "g[T.b]" in capsys.readouterr().out
    assert run(["fit", *paths, "--formula", "y ~ g", "--reference", "g=d"]) == 2
    assert "reference of g: d is none of the levels a, b, c" in capsys.readouterr().err
    assert "y is no category" in refusal(lambda: fs.fit(folder, "y ~ g", reference={"y": "1"}))
    assert run(["fit", *paths, "--formula", "y ~ g", "--reference", "g"]) == 2


def test_levels_of_no_category_are_refused() -> None:
    frame = pd.DataFrame(
        {"x": np.arange(40.0), "ward": list("pq") * 20, "site": np.arange(40) // 20}
    )
    frame["y"] = frame.x % 7

    def fitted(formula: str, **levels: list[str]) -> Any:
        return fs.fit(frame, formula, group="site", levels=levels)

    assert refusal(lambda: fitted("y ~ ward", wrad=["p", "q"])) == (
        "levels: there is no column wrad at any client, did you mean ward?"
    )
    assert refusal(lambda: fitted("y ~ x + ward", x=["1", "2"])) == (
        "levels: x is no category of this model, ward is: write C(x)"
    )
    assert fitted("y ~ x", ward=["p", "q"]).converged  # those of other models of the study


def test_the_reference_of_a_logistic_target_is_the_class_that_is_not_modelled() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "state": rng.choice(["alive", "died"], 200),
            "code": rng.choice([1, 2], 200),
            "x": rng.standard_normal(200),
            "site": np.arange(200) % 2,
        }
    )

    def slope(name: str, **options: Any) -> float:
        return float(
            fs.fit(frame, f"{name} ~ x", family="logistic", group="site", **options).params["x"]
        )

    assert slope("state", reference={"state": "died"}) == pytest.approx(-slope("state"), rel=1e-6)
    assert "needs 0 and 1" in refusal(lambda: slope("code"))
    assert slope("code", reference={"code": "1"}) == pytest.approx(
        -slope("code", reference={"code": "2"}), rel=1e-6
    )


def test_classes_that_are_written_as_decimals_are_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        frame = pd.DataFrame({"y": rng.choice([0.0, 1.0], 60), "x": rng.standard_normal(60)})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    assert list(fs.fit(tmp_path, "y ~ x", family="logistic").plan.classes) == ["0", "1"]


def ordered(values: Sequence[str], order: Sequence[str], meant: bool = True) -> pd.DataFrame:
    g = pd.Categorical(column(values), categories=list(order), ordered=meant)
    return pd.DataFrame({"y": target(len(values)), "g": g})


def test_the_order_of_categories_decides_the_reference() -> None:
    a = ordered(["high", "mid", "low"], ["low", "mid", "high"])
    b = ordered(["mid", "high"], ["low", "mid", "high"])
    model = fs.fit([a, b], "y ~ g")
    assert levels(model) == ["low", "mid", "high"]
    assert model.estimates.names == ["Intercept", "g[T.mid]", "g[T.high]"]
    plain = pd.DataFrame({"y": target(9), "g": column(["high", "low"])})
    assert levels(fs.fit([a, b, plain], "y ~ g")) == ["low", "mid", "high"]
    assert levels(fs.fit([a, b], "y ~ g", types={"g": "text"})) == ["high", "low", "mid"]
    assert levels(fs.fit([a, b], "y ~ g", reference={"g": "mid"})) == ["mid", "low", "high"]


def test_orders_that_contradict_each_other_are_refused() -> None:
    a = ordered(["high", "low"], ["low", "high"])
    b = ordered(["high", "low"], ["high", "low"])
    message = refusal(lambda: fs.fit([a, b], "y ~ g"))
    assert "column g: its levels are in different orders" in message
    assert "low < high" in message


def test_only_levels_that_rows_have_travel() -> None:
    a = ordered(["mid", "low"], ["secret", "low", "mid", "high"])
    b = ordered(["mid", "high"], ["secret", "low", "mid", "high"])
    assert levels(fs.fit([a, b], "y ~ g")) == ["low", "mid", "high"]
    b = ordered(["none", "high"], ["none", "high"])
    model = fs.fit([a, b], "y ~ g")
    assert any("no client has an order of" in text for text in model.warnings)


def test_an_order_without_a_meaning_is_used_where_all_agree() -> None:
    a = ordered(["x", "b", "c"], ["x", "b", "c"], meant=False)
    b = ordered(["x", "c"], ["x", "c"], meant=False)
    assert levels(fs.fit([a, b], "y ~ g")) == ["x", "b", "c"]
    c = ordered(["x", "c"], ["c", "x"], meant=False)
    assert levels(fs.fit([a, b, c], "y ~ g")) == ["b", "c", "x"]
    sorted_ones = [
        ordered(["b", "c"], ["b", "c"], meant=False),
        pd.DataFrame({"y": target(9), "g": column(["a", "b"])}),
    ]
    assert levels(fs.fit(sorted_ones, "y ~ g")) == ["a", "b", "c"]


def test_a_categorical_of_numbers_is_a_category_and_not_beside_numbers() -> None:
    frames = [
        pd.DataFrame({"y": target(i), "g": pd.Categorical(column([3, 10, 2]))}) for i in range(2)
    ]
    model = fs.fit(frames, "y ~ g")
    assert model.estimates.names == ["Intercept", "g[T.3]", "g[T.10]"]
    frames[1]["g"] = frames[1]["g"].astype(int)
    message = refusal(lambda: fs.fit(frames, "y ~ g"))
    assert "column g is a category at client client 0 and holds numbers" in message
    assert levels(fs.fit(frames, "y ~ C(g)")) == ["2", "3", "10"]
    assert fs.fit(frames, "y ~ g", types={"g": "number"}).estimates.names == ["Intercept", "g"]


def test_a_number_that_is_also_a_category_has_the_numbers_of_its_levels(tmp_path: Path) -> None:
    folder = sites(tmp_path, a=["01", "2.0", "4"], b=["1", "2", "4"])
    model = fs.fit(folder, "y ~ g + {g > 3}")
    both = fs.fit(folder, "y ~ g + C(g, Treatment('1')):I(g > 3)", aliased="report")
    assert model.plan.types["g"] == both.plan.types["g"] == "number"
    assert list(both.plan.levels["g"]) == ["1", "2", "4"]


ORDERED = Path(__file__).parent / "data" / "ordered.parquet"
"""Written by pandas with pyarrow: y, the ordered category stage, low < mid < high, and grade.

    stage = pd.Categorical(["high", "low", "mid"] * 8, ["low", "mid", "high"], ordered=True)
    grade = pd.Categorical([3, 10, 2] * 8)
    y = np.round(np.random.default_rng(5).standard_normal(24), 3)
    pd.DataFrame({"y": y, "stage": stage, "grade": grade}).to_parquet("ordered.parquet")
"""


def test_an_ordered_category_in_parquet_keeps_its_order() -> None:
    pytest.importorskip("pyarrow")
    model = fs.fit([ORDERED], "y ~ stage")
    assert model.estimates.names == ["Intercept", "stage[T.mid]", "stage[T.high]"]


def test_an_order_that_cannot_be_read_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "install pyarrow" in refusal(lambda: fs.fit([ORDERED], "y ~ stage"))
    assert fs.fit([ORDERED], "y ~ grade").estimates.names == [
        "Intercept",
        "grade[T.3]",
        "grade[T.10]",
    ]
