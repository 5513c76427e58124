"""An option of ``fit`` is one field: signature, docstring, commands and tables follow from it."""

import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

import fedsplit as fs
from fedsplit.commands.app import COMMANDS, app, run
from fedsplit.commands.docs import updated
from fedsplit.commands.help import Group
from fedsplit.commands.options import CORE, spelled
from fedsplit.data.splitting import SPLITS
from fedsplit.methods import METHODS
from fedsplit.paper.comparison import CONDITIONED, ENSEMBLES
from fedsplit.paper.experiments import EXPERIMENTS
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.fields import assigned, options_of, settable
from fedsplit.regression.options import FitOptions, PathOptions, Settings, check_value
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


def commands_and_nouns(command: Any, path: tuple[str, ...] = ()) -> Iterator[Any]:
    """Every command and noun, with the words by which a user calls it."""
    context = typer.Context(command)
    yield " ".join(path), command, context
    if isinstance(command, Group):
        for name in command.list_commands(context):
            yield from commands_and_nouns(command.get_command(context, name), (*path, name))


EVERYTHING = [*commands_and_nouns(typer.main.get_command(app))]


def commands() -> list[Any]:
    """Every command."""
    return [each for each in EVERYTHING if not isinstance(each[1], Group)]


def options_in(command: Any, context: typer.Context) -> list[str]:
    """The options of a command, but for --help, which all have."""
    found = [each for each in command.get_params(context) if each.param_type_name == "option"]
    return [each.opts[0] for each in found if each.opts[0] != "--help"]


def test_there_are_few_options() -> None:
    counts = {path: len(options_in(command, context)) for path, command, context in commands()}
    root: Any = typer.main.get_command(app)
    counts["(fedsplit)"] = len(options_in(root, typer.Context(root)))
    sys.stdout.write("".join(f"{count:4} {path}\n" for path, count in counts.items()))
    assert max(counts["fit"], counts["compare"]) <= 25
    assert all(count <= 12 for path, count in counts.items() if path not in ("fit", "compare"))
    assert sum(counts.values()) <= 110


def test_every_option_of_fit_is_one_of_the_command_or_a_key_of_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    sections = dict(re.findall(r"^(\w+):\n((?:  .*\n)+)", shown, re.M))
    words = " ".join(shown.split())
    for name, about in settable(FitOptions).items():
        if name in CORE:
            listed = sections[about.group.capitalize()]
            assert re.search(rf"^  {spelled(about)}\b", listed, re.M)
            assert " ".join(about.text.split()) in " ".join(listed.split())
        else:
            assert re.search(rf"[ ,]{name}[.,]", words), name
    for key in ("dp.epsilon", "dp.ranges", "patience.give_up"):
        assert f" {key}," in words


def test_the_names_that_help_texts_list_are_those_of_the_tables() -> None:
    found = {path: command.help for path, command, _ in commands()}
    texts = {each.name: each.help for _, command, _ in commands() for each in command.params}
    listed = re.findall(r"[a-z-]+", found["compare"].partition("Methods: ")[2])
    assert set(METHODS) <= set(listed)
    assert f"problem: {', '.join(ENSEMBLES)}." in texts["ensemble"]
    assert f"of {', '.join(CONDITIONED)}." in texts["kappa"]
    assert f": {', '.join(SPLITS)}." in texts["split"]
    assert f": {', '.join(FAMILIES)}." in options_of(FitOptions)["family"].text
    assert set(ENGINES) <= set(re.findall(r"\w+", options_of(FitOptions)["engine"].text))
    assert all(name in found["reproduce"] for name in EXPERIMENTS)


TEXTS: dict[str, tuple[str, object]] = {
    "ridge=0.5": ("ridge", 0.5),
    "rounds=20": ("rounds", 20),
    "firth=true": ("firth", True),
    "intercept=No": ("intercept", False),
    "formula=y ~ x = 3": ("formula", "y ~ x = 3"),
    "family=huber:delta=2": ("family", "huber:delta=2"),
    "na=-9, .": ("na", ["-9", "."]),
    "elastic_net=1,0.5": ("elastic_net", [1.0, 0.5]),
    "types=ward=text, age=number": ("types", {"ward": "text", "age": "number"}),
    "reference=size=<=5": ("reference", {"size": "<=5"}),
    "levels=size=<=5|>5": ("levels", {"size": ["<=5", ">5"]}),
    'levels="size=a, b|c",ward=x': ("levels", {"size": ["a, b", "c"], "ward": ["x"]}),
    "workers=2": ("workers", 2),
    "patience.give_up=5": ("patience", fs.Patience(give_up=5.0)),
    "give_up=5": ("patience", fs.Patience(give_up=5.0)),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_a_key_of_set_is_read_by_the_type_of_its_field(
    text: str, expected: tuple[str, object]
) -> None:
    name, value = expected
    assert assigned(FitOptions, [text]) == {name: value}
    check_value(settable(FitOptions)[name], value)


def test_keys_of_a_record_make_one() -> None:
    pairs = ["epsilon=1", "dp.delta=1e-6", "dp.clip=2", "dp.rounds=5", "ranges={a = 1}=-1:1,b=0:2"]
    ranges = {"{a = 1}": (-1.0, 1.0), "b": (0.0, 2.0)}
    assert assigned(FitOptions, pairs) == {"dp": fs.Privacy(1.0, 1e-6, 2.0, 5, ranges=ranges)}


def test_the_tables_of_the_guide_are_what_make_docs_writes() -> None:
    page = (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")
    assert updated(page) == page


def numbers(text: str) -> set[str]:
    return {word for word in text.split() if re.search(r"\d", word)}


@pytest.mark.parametrize("path", [path for path, _, _ in EVERYTHING])
def test_the_help_of_every_command_begins_with_an_example_and_has_80_columns(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = path.split()
    [command] = [command for other, command, _ in EVERYTHING if other == path]
    assert run([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "[default: None]" not in text
    shown, usage, _ = re.split(r"(^Usage: .*)", text, maxsplit=1, flags=re.M)
    assert usage.startswith(f"Usage: fedsplit {path}".rstrip())
    assert shown.startswith("Example:\n  fedsplit ")
    for line in shown.replace("\\\n", "").splitlines()[1:]:
        if line:
            typed = shlex.split(line)[1:]
            assert typed[: len(words)] == words
            name, found, rest = path, command, typed[len(words) :]
            while isinstance(found, Group):
                name, found, rest = found.resolve_command(typer.Context(found), rest)
            found.make_context(name, rest)
    about = [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
    assert numbers(" ".join(about)) <= numbers(text)  # none is broken


def test_the_list_of_commands_has_the_first_sentence_of_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    context = typer.Context(typer.main.get_command(app))
    for name, sentence in COMMANDS.items():
        found: Any = typer.main.get_command(app)
        assert found.get_command(context, name).get_short_help_str() == sentence
        assert sentence.endswith(".")


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
        ("workers", 0, "workers must be a whole number of at least 1, not 0"),
        ("workers", "2", "workers must be a whole number of at least 1, not '2'"),
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


@pytest.mark.parametrize("name", ["weights", "formula", "family", "levels", "l1", "rounds", "dp"])
@pytest.mark.parametrize("value", [pd.Series(range(50)), pd.DataFrame({"w": range(50)})])
def test_a_series_or_a_frame_in_the_place_of_an_option_is_refused_in_one_line(
    name: str, value: object
) -> None:
    arguments: dict[str, Any] = {"formula": "y ~ x"} | {name: value}
    with pytest.raises(fs.InputError) as error:
        fs.fit([pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 0.0, 1.0]})], **arguments)
    assert str(error.value).startswith(name)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("dp", "message"),
    [
        ({}, "dp needs epsilon, delta, clip, rounds"),
        ({"epsilon": 1, "delta": 1e-6, "clip": 2}, "dp needs rounds"),
        ({"epsilonn": 1}, "dp has no 'epsilonn': did you mean epsilon?"),
        ({1: 2}, "dp has no 1: there are epsilon, delta"),
    ],
)
def test_a_mapping_of_dp_that_lacks_a_field_or_has_another_is_refused(
    dp: Any, message: str
) -> None:
    with pytest.raises(fs.InputError, match=re.escape(message)):
        fs.fit([pd.DataFrame({"x": [1.0], "y": [1.0]})], "y ~ x", dp=dp)
