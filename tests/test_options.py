"""An option of ``fit`` is one field: signature, docstring, commands and tables follow from it."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import fedsplit as fs
from fedsplit.commands.app import app, run
from fedsplit.commands.docs import updated
from fedsplit.commands.options import Resilience, on_command_line, spelled
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.fields import options_of
from fedsplit.regression.options import FitOptions, PathOptions, Settings
from hospitals import people

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("function", "record"), [(fs.fit, FitOptions), (fs.path, PathOptions)])
def test_the_signature_and_the_docstring_have_every_option(function: object, record: type) -> None:
    assert callable(function)
    parameters = inspect.signature(function).parameters
    assert list(parameters)[:2] == ["data", "formula"]
    assert set(parameters) == set(options_of(record))
    for name, about in options_of(record).items():
        found = re.search(rf"^{name} : .*\n((    .*\n)+)", inspect.getdoc(function) or "", re.M)
        assert found is not None
        assert " ".join(found[1].split()) == " ".join(about.text.split())


def test_the_defaults_of_settings_are_those_of_fit() -> None:
    options = FitOptions([], "y ~ x")
    assert options.settings == Settings()
    assert type(options.settings) is Settings  # nothing else is saved with a model


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"^fit\(\) got an unexpected keyword argument 'famly'"):
        fs.fit(people(), "score ~ age", famly="poisson")  # type: ignore[call-arg]  # the test
    with pytest.raises(TypeError, match=r"^path\(\) got an unexpected keyword argument 'ridge'"):
        fs.path(people(), "score ~ age", ridge=1.0)  # type: ignore[call-arg]  # the test
    with pytest.raises(TypeError, match=r"^fit\(\) missing a required argument: 'data'"):
        fs.fit()  # type: ignore[call-arg]  # the test


def test_the_command_has_every_option_of_fit_in_its_group(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["fit", "--help"]) == 0
    sections = dict(re.findall(r"^(\w+):\n((?:  .*\n)+)", capsys.readouterr().out, re.M))
    for field in (*fields(FitOptions), *fields(Resilience)):
        about = field.metadata["option"]
        if on_command_line(field):
            listed = sections[about.group.capitalize()]
            assert re.search(rf"^  {spelled(field).split('/')[0]}\b", listed, re.M)
            assert " ".join(about.text.split()) in " ".join(listed.split())


def test_the_tables_of_the_guide_are_what_make_docs_writes() -> None:
    page = (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")
    assert updated(page) == page


def test_the_help_of_every_command_is_whole_sentences_without_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [command.name for command in app.registered_commands]
    assert run(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "..." not in shown.split("Commands:")[1]
    for name in names:
        assert re.search(rf" {name} [A-Z][^.]*\.", shown)
        assert run([str(name), "--help"]) == 0
        text = capsys.readouterr().out
        assert "\\" not in text
        assert "[default: None]" not in text
        assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_in_the_help(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "--help"]) == 0
    assert family in options_of(FitOptions)["family"].text
    assert family in capsys.readouterr().out


def test_the_command_line_starts_without_what_takes_long_to_import() -> None:
    slow = (
        "matplotlib",
        "pandas",
        "duckdb",
        "formulaic",
        "sklearn",
        "ray",
        "flwr",
        "aiohttp",
        "cryptography",
    )
    code = f"import sys, fedsplit.commands.app; print([n for n in {slow} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--formula", "score ~ ward", "--reference", "ward=a,ward=b"], "ward is twice"),
        (["--formula", "score ~ ward", "--types", "ward=text,ward=number"], "ward is twice"),
        (["--formula", ""], "it is empty; it needs a target and terms"),
        (["--formula", "score ~ C(ward, Sum('a'))"], "n must be a whole number"),
    ],
)
def test_an_option_that_says_two_things_or_nothing_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, frame in people().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    assert run(["fit", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("codes", [1, None, "NA", {"x": 1}, [1], 0.5])
def test_codes_of_missing_values_are_a_list_of_texts(codes: object) -> None:
    with pytest.raises(fs.InputError, match="na must be a list of texts"):
        fs.fit(people(), "score ~ age", na=codes)  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize("name", ["firth", "intercept", "standardize", "strict", "secure"])
@pytest.mark.parametrize("value", ["no", 1, None])
def test_a_switch_is_true_or_false(name: str, value: object) -> None:
    with pytest.raises(fs.InputError, match=f"{name} must be True or False, not {value!r}"):
        FitOptions([], "y ~ x", **{name: value})  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("patience", 3, "patience must be a Patience, as in fs.Patience\\(\\), not 3"),
        ("checkpoint", "run", "checkpoint must be a Checkpoint, as in .*, not 'run'"),
        ("progress", 3, "progress must be a function of a Progress, not 3"),
        ("cohorts", 0, "cohorts must be a whole number of at least 1, not 0"),
        ("cohorts", "2", "cohorts must be a whole number of at least 1, not '2'"),
        ("address", 3, "address must be text, not 3"),
    ],
)
def test_an_option_of_the_run_of_another_type_is_refused_before_anything_is_asked(
    name: str, value: object, message: str
) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.fit(people(), "score ~ age", **{name: value})  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"types": {"ward": "words"}}, "types of ward 'words' is not known: use one of number"),
        ({"types": ["ward"]}, "types must be a dict with names of columns as keys"),
        ({"reference": {"ward": 3}}, "reference of ward must be text, not 3"),
        ({"levels": {"ward": "south"}}, "levels of ward must be a list of texts"),
        ({"levels": {"ward": []}}, "levels of ward must be one or more levels that differ"),
        ({"levels": {"ward": ["a", "a"]}}, "levels of ward must be one or more levels that differ"),
        ({"elastic_net": (1.0, 1.0), "firth": True, "family": "logistic"}, "leave out a ridge"),
    ],
)
def test_options_by_column_say_which_column_is_wrong(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(fs.InputError, match=message):
        FitOptions([], "y ~ x", **options)  # type: ignore[arg-type]  # the test


def test_every_model_of_a_path_has_the_penalties_of_its_lambda() -> None:
    options = PathOptions(people(), "score ~ age", l1_ratio=0.25)
    settings = options.settings_at(8.0)
    assert type(settings) is Settings
    assert (settings.l1, settings.ridge, settings.standardize) == (2.0, 6.0, True)
    assert not {"l1", "ridge", "firth", "dp", "method"} & {each.name for each in fields(options)}
    model = fs.path(people(), "score ~ age", l1_ratio=0.25, n_lambdas=3).model(8.0)
    assert (model.settings.l1, model.settings.ridge) == (2.0, 6.0)
    assert (
        model.settings
        == fs.fit(people(), "score ~ age", l1=2.0, ridge=6.0, standardize=True).settings
    )
