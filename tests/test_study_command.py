"""``fedsplit keys`` and ``fedsplit study``: what a coordinator types, and mistakes there."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("cryptography")

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.federation import authority
from fedsplit.federation.regression import RegressionStudy
from fedsplit.federation.site.policy import Policy
from fedsplit.federation.site.site import Site
from fedsplit.federation.transport.files import answer_files

SITES = {f"site{j}": Path(f"examples/randhie/site{j}.csv").absolute() for j in (1, 2, 3)}
FORMULA = "mdvis ~ logc + disea + C(health)"
NEW = ["--from", str(SITES["site1"]), "--formula", FORMULA, "--family", "poisson"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a coordinator whose federation has three sites."""
    home = tmp_path / "federation"
    assert run(["keys", "init", str(home)]) == 0
    requests = []
    for name in SITES:
        assert run(["keys", "request", str(tmp_path / name)]) == 0
        requests.append(str(tmp_path / name / f"{name}.csr"))
    assert run(["keys", "sign", str(home), *requests]) == 0
    return home


def open_sites(folder: Path) -> dict[str, Site]:
    """The sites, which approve what their strict rules allow."""
    keys = {each.name: each.key.hex() for each in authority.members(folder)}
    coordinator = authority.read_certificate(folder / "coordinator.crt").key.hex()
    found = {}
    for name, data in SITES.items():
        home = folder.parent / name
        policy = Policy(name, str(data), coordinator, partners=keys, approve="always")
        key = authority.read_key(home / "site.key")
        found[name] = Site(home, key, policy, folder.parent / "disclosed.db")
    return found


def answer(folder: Path) -> int:
    """Have all sites answer the files that wait for them, and return how many did."""
    answered = 0
    for name, site in open_sites(folder).items():
        key = authority.read_key(folder.parent / name / "site.key")
        answered += bool(answer_files(site, key, folder / "post" / name))
    return answered


def test_a_study_by_files_has_the_pooled_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(folder / "visits.toml")
    assert run(["study", "new", file, *NEW, "--set", "until=2999-12-31"]) == 0
    assert run(["study", "combine", file]) == 1
    assert "the study waits for site1, site2, site3" in capsys.readouterr().err
    asked = 0
    while run(["study", "ask", file, "--post", str(folder / "post")]) == 1:
        asked += 1
        assert asked < 20
        if asked == 3:
            capsys.readouterr()
            assert run(["study", "status", file]) == 0
            told = capsys.readouterr().out
            assert "site1: takes part" in told
            assert "exchange 2 waits for site1, site2, site3" in told
        assert answer(folder) == 3
    assert "study combine" in capsys.readouterr().out
    out = folder.parent / "result"
    assert run(["study", "combine", file, "--out", str(out), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    pooled = fs.fit(list(map(str, SITES.values())), FORMULA, family="poisson")
    assert table["coef"] == pytest.approx(dict(pooled.params), rel=1e-9)
    assert dict(fs.load(out).params) == table["coef"]
    assert run(["study", "status", file]) == 0
    assert re.search(r"has its result, after \d+ exchanges", capsys.readouterr().out)


def test_a_study_file_says_what_the_data_are(folder: Path) -> None:
    file = folder / "visits.toml"
    chosen = ["--title", 'a "title"', "--sites", "site1,site2", "--open", "--set", "ridge=0.5"]
    assert run(["study", "new", str(file), *NEW, *chosen, "--set", "purpose=care"]) == 0
    study = fs.Coordinator.open(folder).study("visits.toml")
    assert (study.title, study.purpose, study.secure) == ('a "title"', "care", False)
    assert set(study.members) == {"site1", "site2"}
    assert study.analysis.columns == {
        "mdvis": "number", "logc": "number", "disea": "number", "health": "text"
    }  # fmt: skip
    private = ["dp.epsilon=1", "dp.delta=1e-6", "clip=4", "dp.rounds=4", "ranges=disea=0:60"]
    noise = ["--from", NEW[1], "--formula", "{mdvis > 0} ~ disea", "--family", "logistic"]
    for each in private:
        noise += ["--set", each]
    assert run(["study", "new", str(folder / "noise.toml"), *noise]) == 0
    analysis = fs.Coordinator.open(folder).study("noise.toml").analysis
    assert isinstance(analysis, RegressionStudy)
    assert analysis.privacy == fs.Privacy(1.0, 1e-6, 4.0, 4, ranges={"disea": (0.0, 60.0)})
    text = file.read_text()
    assert 'health = ["excellent", "fair", "good", "poor"]' in text.replace('"health"', "health")
    assert 'sites = ["site1", "site2"]' in text
    assert "ridge = 0.5" in text


def test_why_a_site_declines_is_shown_in_80_columns(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(folder / "open.toml")
    assert run(["study", "new", file, *NEW, "--open", "--title", "visits " * 20]) == 0
    assert run(["study", "ask", file, "--post", str(folder / "post")]) == 1
    assert answer(folder) == 3
    assert run(["study", "ask", file, "--post", str(folder / "post")]) == 1
    capsys.readouterr()
    assert run(["study", "status", file]) == 0
    shown = capsys.readouterr().out
    assert "secure_sums_only: the coordinator would learn" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_a_study_stays_the_same_when_another_site_joins_the_federation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "visits.toml"
    assert run(["study", "new", str(file), *NEW]) == 0
    assert "its purpose, contact and last day" in capsys.readouterr().out
    before = fs.Coordinator.open(folder).study(file.name).hash
    late = folder.parent / "late"
    assert run(["keys", "request", str(late)]) == 0
    assert run(["keys", "sign", str(folder), str(late / "late.csr")]) == 0
    assert fs.Coordinator.open(folder).study(file.name).hash == before


STUDY = '[study]\ntitle = "t"\n[model]\nformula = "mdvis ~ logc"\n'
TYPES = '[model.types]\nmdvis = "number"\nlogc = "number"\n'

MISTAKES = [
    ("", "there is no table [study]"),
    ("title = 3", "unknown table 'title': there are [study] and [model]"),
    ("[study]", "[study]: object missing required field `title`"),
    ('[study]\ntitle = "t"', "there is no table [model]"),
    ('[study]\ntitel = "t"', "there is no key 'titel': did you mean title"),
    (STUDY.replace('"t"', "3"), "[study]: title: expected `str`, got `int`"),
    (STUDY.replace("formula", "formulae") + TYPES, "did you mean formula"),
    (STUDY + 'weights = 3\n' + TYPES, "[model] weights"),
    (STUDY, "types"),
    (STUDY + TYPES.replace("logc", "logd"), "logd"),
    (STUDY.replace('"t"', '"t"\nsites = ["site1", "site9", "site2"]') + TYPES, "site9 is none of"),
    (STUDY.replace('"t"', '"t"\nsites = ["site1", "site2"]') + TYPES, "secure sums are for 3 to"),
    (STUDY.replace('"t"', '"t"\nleast = 2') + TYPES, "secure sums are of all members"),
    (STUDY.replace('"t"', '"t"\nuntil = "tomorrow"') + TYPES, "until"),
    (STUDY.replace('"t"', '"t"\nquestions = 0') + TYPES, "questions: must be at least 1"),
    (STUDY + 'engine = "ray"\n' + TYPES, "[model] engine is no part of a study"),
    (STUDY + 'family = "posson"\n' + TYPES, "posson"),
    (STUDY.replace('"t"', f'"{"t" * 2**16}"') + TYPES, "sites read at most 65536"),
    ("[study", "is not TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what"), MISTAKES, ids=[what for _, what in MISTAKES])
def test_a_study_file_that_cannot_be_meant_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, what: str
) -> None:
    file = folder / "wrong.toml"
    file.write_text(text)
    assert run(["study", "check", str(file)]) == 2
    check_one_line(capsys, what)


WRONG: list[tuple[Sequence[str], str]] = [
    (["keys", "init", "federation"], "has an authority already"),
    (["keys", "init", "new", "--days", "0"], "days"),
    (["keys", "init", "new", "--host", "a b"], "a b"),
    (["keys", "request", "new", "--name", "a/b"], "use letters, digits, - and _"),
    (["keys", "request", "new", "--name", "all"], "no name that is reserved"),
    (["keys", "sign", "federation", "none.csr"], "none.csr: cannot be read"),
    (["keys", "sign", "federation", "site1/site.key"], "is not a request for a certificate"),
    (["keys", "sign", "site1", "site1/site1.csr"], "cannot be read"),
    (["keys", "renew", "federation", "site9"], "there is no site 'site9', only site1"),
    (["keys", "renew", "federation", "site1", "--host", "a"], "--host is for the coordinator"),
    (["keys", "revoke", "federation", "site9"], "there is no site 'site9'"),
    (["keys", "list", "none"], "none/coordinator.crt: cannot be read"),
    (["study", "run", "federation/none.toml"], "none.toml"),
    (["study", "run", "site1/study.toml"], "here is no coordinator.key"),
    (["study", "run", "federation/v.toml", "--listen", "8000"], "give HOST:PORT"),
    (["study", "run", "federation/v.toml", "--listen", "a:99999"], "give HOST:PORT"),
    (["study", "run", "federation/v.toml", "--method", "x"], "in a secure study nobody chooses"),
    (["study", "run", "federation/v.toml", "--without", "site1"], "nobody chooses"),
    (["study", "run", "federation/v.toml", "--give-up", "-1"], "give_up"),
    (["study", "run", "federation/v.toml", "--out", "site1/site1.csr"], "site1.csr"),
    (["study", "new", "federation/v.toml", *NEW], "is there already, choose another name"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "ridg=1"], "did you mean ridge"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "ridge"], "needs a value"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "ridge=-1"], "ridge"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "weights=w"], "there is no column w"),
    (["study", "new", "federation/w.toml", *NEW, "--sites", "site1"], "secure sums are for 3"),
    (["study", "new", "federation/w.toml", "--from", "x.csv", "--formula", "y ~ x"], "x.csv"),
    (["study", "new", "federation", *NEW], "federation: is a folder: name a study file in it"),
    (
        ["study", "new", "w.toml", *NEW],
        "w.toml: a study file lies in the folder that",
    ),
    (["study", "new", "federation/w.toml", *NEW, "--set", "purpos=x"], "did you mean purpose?"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "titel=x"], "did you mean title?"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "until=soon"], "must be a date, as 2030"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "until=2020-01-01"], "is over: choose"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "questions=0"], "w.toml: [study] quest"),
    (["study", "new", "federation/w.toml", *NEW, "--open", "--set", "least=5"], "w.toml: [study]"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "formula=y ~ x"], "is given twice"),
    (["study", "new", "federation/w.toml", *NEW, "--title", "a", "--set", "title=b"], "twice"),
    (["study", "new", "federation/w.toml", *NEW, "--set", "least=3", "--set", "least=4"], "twice"),
    (["study", "new", "federation/w.toml", *NEW, "--sites", "site1,site1"], "site1 is there twice"),
    (["study", "check", "federation"], "federation: is a folder: name a study file in it"),
    (["study", "status", "none/v.toml"], "none/v.toml: a study file lies in the folder"),
    (["study", "run", "federation/v.toml", "--wait", "-1"], "wait must be a finite number"),
    (["study", "run", "federation/v.toml", "--wait", "nan"], "wait must be a finite number"),
    (["study", "ask", "federation/v.toml", "--post", "site1/site.key"], "name another folder"),
    (["keys", "init", "site1/site.key"], "a part of this path is a file, name another folder"),
    (["keys", "request", "site1/site.key"], "site.key"),
    (["keys", "sign", "none", "site1/site1.csr"], "error: none/ca.crt: cannot be read"),
    (["keys", "revoke", "none", "site1"], "none: there is no site 'site1'"),
]


@pytest.mark.parametrize(("arguments", "what"), WRONG, ids=[" ".join(a[:4]) for a, _ in WRONG])
def test_bad_input_is_one_line_and_nothing_is_half_written(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    what: str,
) -> None:
    assert run(["study", "new", str(folder / "v.toml"), *NEW]) == 0
    monkeypatch.chdir(folder.parent)
    before = contents(folder.parent)
    capsys.readouterr()
    assert run(list(arguments)) == 2
    check_one_line(capsys, what)
    assert contents(folder.parent) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "journal.db" not in path.name
    }


def check_one_line(capsys: pytest.CaptureFixture[str], what: str) -> None:
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("fedsplit: error: ")]
    assert not out
    assert len(lines) == 1
    assert what in lines[0]
    assert "Traceback" not in err
    assert "a fault of fedsplit" not in err


def test_certificates_are_renewed_listed_and_revoked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "renew", str(folder), "site1", "--days", "30"]) == 0
    assert run(["keys", "renew", str(folder), "coordinator", "--host", "127.0.0.1"]) == 0
    assert run(["keys", "revoke", str(folder), "site3"]) == 0
    capsys.readouterr()
    assert run(["keys", "list", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert [line.split(",")[0] for line in shown.splitlines()[::3]] == [
        "coordinator", "site1", "site2"
    ]  # fmt: skip
    own = authority.read_key(folder.parent / "site1" / "site.key").public_key()
    assert own.public_bytes_raw().hex(" ", 2) in " ".join(shown.split())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_study_that_is_interrupted_says_that_the_same_command_goes_on(
    folder: Path, number: signal.Signals, status: int
) -> None:
    file = folder / "visits.toml"
    assert run(["study", "new", str(file), *NEW]) == 0
    command = [sys.executable, "-m", "fedsplit", "study", "run", str(file)]
    out = folder.parent / "out"
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "is proposed on 127.0.0.1:" in process.stderr.readline()
        process.send_signal(number)
        printed, said = process.communicate(timeout=60)
    assert process.returncode == status
    assert (printed, said.count("\n")) == ("", 1)
    assert "interrupted: the same command goes on from here" in said
    assert not out.exists()
