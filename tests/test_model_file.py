"""A model in a TOML file: the options of ``fit`` by name."""

from pathlib import Path

import pytest

import fedsplit as fs
from fedsplit.regression.model_file import read_model
from hospitals import people

WHOLE = """
[study]
title = "whatever a study says"

[model]
formula = "visits ~ age + ward"
family = "poisson"
ridge = 1
columns = ["visits", "age", "ward", "score"]

[model.types]
ward = "text"

[model.levels]
ward = ["north", "south"]

[model.dp]
epsilon = 1.0
delta = 1e-6
clip = 2
rounds = 5
ranges = { age = [18, 90] }
"""


def test_the_table_of_a_model_has_the_options_of_fit(tmp_path: Path) -> None:
    file = tmp_path / "visits.toml"
    file.write_text(WHOLE)
    options = read_model(file)
    dp = options.pop("dp")
    assert dp == fs.Privacy(1.0, 1e-6, 2, 5, ranges={"age": (18, 90)})
    assert options == {
        "formula": "visits ~ age + ward",
        "family": "poisson",
        "ridge": 1,
        "columns": ["visits", "age", "ward", "score"],
        "types": {"ward": "text"},
        "levels": {"ward": ["north", "south"]},
    }
    given = {**options, "levels": None}
    assert fs.fit(people(), **given).settings.ridge == 1.0


BAD = {
    'formla = "y ~ x"': "there is no option 'formla': did you mean formula?",
    "zzz = 1": "there is no option 'zzz': there are formula, target, group, family",
    "formula = 3": "formula must be text, not 3",
    "formula = 2020-01-31": "formula must be text, not datetime.date",
    'family = "cox"': "family 'cox' is not known: use one of gaussian",
    "family = 1": "family must be a name, as in 'poisson', not 1",
    'ridge = "much"': "ridge must be a finite number of at least 0, not 'much'",
    "ridge = -1": "ridge must be a finite number of at least 0, not -1",
    "l1 = inf": "l1 must be a finite number of at least 0, not inf",
    'firth = "yes"': "firth must be True or False, not 'yes'",
    'columns = "age"': "columns must be a list of names of columns, not 'age'",
    'missing = "keep"': "missing 'keep' is not known: use one of drop, fail",
    "rounds = 1": "rounds must be a whole number of at least 10, not 1",
    'types = "text"': "types must be a dict with names of columns as keys, not 'text'",
    'types = { ward = "words" }': "types of ward 'words' is not known: use one of number",
    'levels = { ward = "south" }': "levels of ward must be a list of texts",
    "dp = 3": "dp must be a table, as in [model.dp]",
    "dp = {}": "dp needs epsilon, delta, clip, rounds too",
    "dp = { epsilom = 1 }": "dp has no 'epsilom': did you mean epsilon?",
    "dp = { epsilon = 0, delta = 1e-6, clip = 1, rounds = 5 }": "dp epsilon must be a finite",
    'progress = "bar"': "there is no option 'progress'",
    'data = "north.csv"': "there is no option 'data'",
}


@pytest.mark.parametrize(("line", "message"), BAD.items())
def test_a_key_that_cannot_be_used_is_named_in_one_line(
    line: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "visits.toml"
    file.write_text(f"[model]\n{line}\n")
    with pytest.raises(fs.InputError) as refused:
        read_model(file)
    assert str(refused.value).startswith(f"{file}: [model] {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there is no table [model]"),
        ("model = 3", "there is no table [model]"),
        ("[model", "is not TOML"),
        ("[model]\nridge = 1\nridge = 2", "is not TOML"),
    ],
)
def test_a_file_without_a_model_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "visits.toml"
    file.write_text(content)
    with pytest.raises(fs.InputError) as refused:
        read_model(file)
    assert str(refused.value).startswith(f"{file}: {message}")
