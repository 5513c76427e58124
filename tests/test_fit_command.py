"""``fedsplit fit`` as a user types it."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.regression.families import FAMILIES
from hospitals import FORMULA, RANDHIE, people, write


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which the command refuses these arguments."""
    assert run(["fit", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fedsplit: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_the_command_prints_the_table_and_the_proof(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", *files, "--formula", "visits ~ age + ward", "--family", "poisson"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in (
        "Intercept",
        "ward[T.south]",
        "std err",
        "P>|z|",
        "[0.025",
        "AIC",
        "hospital2",
        "within",
        "rounds",
    ):
        assert word in out


def test_json_is_one_object_with_the_same_numbers(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["fit", *files, "--formula", "visits ~ age + ward", "--family", "poisson", "--json"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    model = fs.fit(files, "visits ~ age + ward", family="poisson")
    assert told["coef"] == model.params.to_dict()
    assert told["se"] == model.bse.to_dict()  # type: ignore[union-attr]  # there are standard errors
    assert told["rounds"] == model.rounds
    assert told["converged"] is True
    assert told["certificate"]["standard_errors"] <= 1e-9


def test_the_tolerance_not_reached_is_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--rounds", "10", "--method", "quasi-newton"]
    assert run(["fit", RANDHIE, "--formula", FORMULA, "--family", "poisson", *few]) == 1
    assert "converged NO" in capsys.readouterr().out


def test_out_has_the_model_the_trace_and_the_page(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result"
    assert (
        run(["fit", *files, "--formula", "ill ~ age", "--family", "logistic", "--out", str(out)])
        == 0
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "model.json",
        "report.html",
        "trace.csv",
    ]
    model = fs.load(out)
    trace = pd.read_csv(out / "trace.csv")
    assert trace["questions"].sum() == model.exchanges
    before = trace["kind"].isin(["handshake", "setup"])
    assert (trace["round"][before] == 0).all()
    assert trace["round"][~before].tolist() == list(range(1, model.rounds + 1))
    assert str(out / "report.html") in capsys.readouterr().out
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert run(["report", str(out)]) == 0
    assert (out / "report.html").read_bytes() == page


def test_one_file_and_a_group_or_a_folder_or_toml_are_the_same_clients(tmp_path: Path) -> None:
    frames = people()
    write(frames, tmp_path)
    pooled = pd.concat([frame.assign(site=name) for name, frame in frames.items()])
    other = tmp_path / "elsewhere"
    other.mkdir()
    with duckdb.connect() as connection:
        connection.register("pooled", pooled)
        connection.execute(f"copy pooled to '{other / 'all.parquet'}' (format parquet)")
    whole = next(iter(other.iterdir()))
    toml = "".join(f'[clients.{name}]\npath = "{name}.csv"\n' for name in frames)
    (other / "clients.toml").write_text(toml.replace('path = "', 'path = "../'))
    models = [
        fs.fit(tmp_path, "score ~ age + ward"),
        fs.fit(str(tmp_path / "hosp*.csv"), "score ~ age + ward"),
        fs.fit(whole, "score ~ age + ward", group="site"),
        fs.fit(other / "clients.toml", "score ~ age + ward"),
        fs.fit(list(frames.values()), "score ~ age + ward"),
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.params, models[0].params, rtol=1e-10)
        assert model.clients["n"].to_list() == models[0].clients["n"].to_list()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nosuch.csv", "--formula", "y ~ x"], "nosuch.csv"),
        (["*.nothing", "--formula", "y ~ x"], "nothing"),
        (["{0}", "--formula", "score ~ age +"], "formula"),
        (["{0}", "--formula", "score ~ age", "--family", "cox"], "family 'cox' is not known"),
        (["{0}", "--formula", "score ~ age", "--ridge", "much"], "--ridge"),
        (["{0}", "--formula", "score ~ age", "--set", "elastic_net=1"], "must be two numbers"),
        (["{0}", "--formula", "score ~ age", "--out", "{0}"], "is a file, not a folder"),
        (["{0}"], "give a formula"),
        (["--formula", "y ~ x"], "Missing argument"),
        (["{0}", "--formula", "score ~ age", "--rounds", "-1"], "rounds must be"),
        (["{0}", "--formula", "score ~ age", "--tol", "nan"], "tol must be"),
    ],
)
def test_the_command_refuses_in_one_line(
    files: list[str], arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in refused(capsys, *(argument.format(files[0]) for argument in arguments))


MODEL = """
[study]
title = "Visits by age"

[model]
formula = "score ~ age"
ridge = 2.0

[model.types]
age = "number"
"""

MISTAKES = {
    "--types score": "--types takes COLUMN=..., as in ward=text, not 'score'",
    "--types score=": "--types takes COLUMN=..., as in ward=text, not 'score='",
    "--types score=words": "types of score 'words' is not known: use one of number",
    "--levels ward=south|south": "levels of ward must be one or more levels that differ",
    "--reference age=1": "reference: age is no category of this model",
    "--set": "Option '--set' requires an argument (see fedsplit fit --help)",
    "--strict=1": "Option '--strict' does not take a value (see fedsplit fit --help)",
    "--set =1": "--set: there is no option '': there are formula",
    "--set ridgee=1": "--set: there is no option 'ridgee': did you mean ridge?",
    "--set data=x.csv": "--set: there is no option 'data'",
    "--set progress=bar": "--set: there is no option 'progress'",
    "--set checkpoint=run": "--set: there is no option 'checkpoint'",
    "--set dp=1": "--set dp is a table: its keys are dp.epsilon, dp.delta",
    "--set dp.epsilom=1": "there is no option 'dp.epsilom': did you mean dp.epsilon?",
    "--set dp.epsilon=1": "dp needs delta, clip, rounds too",
    "--set epsilon=a": "--set dp.epsilon must be a number, not 'a'",
    "--set dp.ranges=age": "--set dp.ranges takes COLUMN=...",
    "--set dp.ranges=age=a:b": "--set dp.ranges of age must be a number, not 'a'",
    "--set firth": "--set firth needs a value, as in --set firth=VALUE",
    "--set firth=maybe": "--set firth must be true or false, not 'maybe'",
    "--set firth=true": "firth is for the family logistic, not gaussian",
    "--set seed=1.5": "--set seed must be a whole number, not '1.5'",
    "--set seed=1 --set seed=2": "--set seed is given twice",
    "--tol 0.1 --set tol=0.2": "tol is given twice, by --tol and by --set",
    "--set give_up=-1": "give_up must be a finite number above 0, not -1.0",
    "--set workers=2": "workers and an address need a cluster: use the engine ray",
    "--ridge 1 --set elastic_net=1,1": "elastic_net sets both l1 and ridge: leave those out",
    "--set nonnegative=agee": "nonnegative: there is no coefficient agee; there are Intercept, age",
    "--set decimal=;": "decimal ';' is not known: use one of ., ,",
    "--rounds 1e3": "Invalid value for '--rounds': '1e3' is not a valid integer",
    "--engine gpu": "engine 'gpu' is not known: use one of local, ray",
    "--method newtn": "method 'newtn' is not known: use one of auto, fedsplit",
    "--family huber:delta=x": "family 'huber:delta=x': 'x' is no number",
    "--exposure age": "exposure needs a log link (poisson, gamma), gaussian has none",
    "--target score": "give a formula such as 'y ~ x', or a target column",
    "--resume nowhere": "there is no checkpoint to resume: start without --resume",
    "--checkpoint a --resume b": "--checkpoint and --resume name two folders",
    "{model} {model}": "all describe a model: name one",
    "{mixed}": "has both [model] and [clients]: make two files of them",
    "{wrong}": "[model] there is no option 'formla': did you mean formula?",
}


@pytest.mark.parametrize(("words", "why"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_named_in_one_line_before_anything_is_written(
    files: list[str],
    tmp_path: Path,
    words: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    clients = '[clients.a]\npath = "a.csv"\n'
    content = {"model": MODEL, "mixed": MODEL + clients, "wrong": '[model]\nformla = "y ~ x"'}
    for name, text in content.items():
        Path(f"{name}.toml").write_text(text)
    before = sorted(tmp_path.iterdir())
    given = words.format(**{name: f"{name}.toml" for name in content}).split()
    assert why in refused(capsys, *files, "--formula", "score ~ age", "--out", "out", *given)
    assert sorted(tmp_path.iterdir()) == before


def test_a_model_file_gives_options_and_those_of_the_command_line_come_first(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.toml"
    model.write_text(MODEL)

    def coefficients(*words: str) -> dict[str, float]:
        assert run(["fit", str(model), *files, *words, "--json"]) == 0
        found: dict[str, float] = json.loads(capsys.readouterr().out)["coef"]
        return found

    assert coefficients() == fs.fit(files, "score ~ age", ridge=2.0).params.to_dict()
    assert coefficients("--ridge", "0") == fs.fit(files, "score ~ age").params.to_dict()
    other = fs.fit(files, "score ~ age + ward", ridge=1.0, intercept=False)
    words = ["--formula", "score ~ age + ward", "--set", "ridge=1", "--set", "intercept=no"]
    assert coefficients(*words) == other.params.to_dict()
    assert f"{model} describes a model: name the files of the clients" in refused(
        capsys, str(model)
    )


def test_the_live_lines_go_to_a_terminal_only(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fit", *files, "--formula", "visits ~ age", "--family", "poisson"]
    assert run(words) == 0
    done = capsys.readouterr()
    assert done.err == ""
    assert "certificate" in done.out
    command = [sys.executable, "-m", "fedsplit", *words]
    leader, follower = pty.openpty()
    watched = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=follower, text=True, check=True, timeout=120
    )
    os.close(follower)
    lines = os.read(leader, 100_000).decode().splitlines()
    os.close(leader)
    assert watched.stdout == done.out
    assert re.match(r"\d\d:\d\d:\d\d round    1   gap at most", lines[0])
    assert "clients 3/3" in lines[1]
    assert "gap at most" in lines[-1]


def test_a_terminal_of_80_columns_breaks_neither_words_nor_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fit", RANDHIE, "--formula", FORMULA, "--family", "poisson"]
    assert run(words) == 0
    plain = capsys.readouterr().out
    assert max(map(len, plain.splitlines())) > 80
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == plain.split()
    assert re.search(r"^ *AIC [\d,]+$", shown, re.M)


def test_the_guide_has_every_family() -> None:
    guide = (Path(__file__).parent.parent / "docs" / "fit.md").read_text()
    for name in FAMILIES:
        assert f"\n| `{name}` |" in guide
