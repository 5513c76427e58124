"""The command as a user types it."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedsplit as fs
from fedsplit.commands.app import run
from fedsplit.commands.help import Command, Group, application
from fedsplit.methods import parse
from fedsplit.paper.comparison import DEFAULT_METHODS

SMALL = ["compare", "-m", "5", "-d", "6", "-n", "20", "--seed", "3", "--rounds", "60"]


def test_the_default_problem_shows_the_papers_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--json"]) == 0
    methods = {entry["method"]: entry for entry in json.loads(capsys.readouterr().out)["methods"]}
    assert list(methods) == [*DEFAULT_METHODS, "information"]
    for wrong in ("fedgd:local_steps=10", "fedgd:local_steps=100", "fedprox"):
        assert methods[wrong]["outcome"] == "floor"
        assert methods[wrong]["floor"] > 0.1
        assert methods[wrong]["rounds_to"] == {"1e-03": None, "1e-06": None, "1e-09": None}
    for right in ("fedgd", "lbfgs", "fedsplit", "fedsplit:steps=5", "quasi-newton", "information"):
        assert methods[right]["outcome"] == "reached"
        assert methods[right]["floor"] is None
        reached = list(methods[right]["rounds_to"].values())
        assert reached == sorted(reached)
        assert reached[-1] == methods[right]["rounds"] <= 20


def test_the_table_has_a_line_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run([*SMALL, "--method", "fedsplit", "--method", "fedprox", "--method", "fedgd:step=10"])
        == 0
    )
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("isotropic: m = 5 clients, d = 6, n = 20 per client, seed 3")
    assert lines[1].split() == ["method", "1e-03", "1e-06", "1e-09", "end", "floats", "sent"]
    assert re.match(r"fedsplit +\d+ +\d+ +\d+ +optimum +[\d,]+", lines[2])
    assert re.match(r"fedprox +never +never +never +floor ", lines[3])
    assert re.match(r"fedgd:step=10 +– +– +– +diverged, round \d+ ", lines[4])
    assert captured.err == ""  # no progress where there is no terminal


def test_a_table_has_80_columns_and_breaks_neither_words_nor_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    method = "fedsplit:steps=50,start=iterate"
    assert (
        run(["compare", "-m", "100", "-d", "9", "--method", method, "--method", "fedgd:step=10"])
        == 0
    )
    title, _, long, numbers, _ = capsys.readouterr().out.splitlines()
    assert long == method
    assert re.match(r" {20,} \d+ +\d+ +\d+  optimum +[\d,]+$", numbers)
    assert max(map(len, (title, long, numbers))) <= 80


def test_the_same_seed_prints_the_same_numbers_and_another_seed_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = []
    for seed in ("1", "1", "2"):
        run([*SMALL, "--seed", seed, "--json"])
        printed.append(json.loads(capsys.readouterr().out)["methods"])
    assert printed[0] == printed[1] != printed[2]


@pytest.mark.parametrize("ensemble", ["spiked", "logistic"])
def test_every_ensemble_is_solved_by_fedsplit(
    ensemble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                *SMALL,
                "-n",
                "60",
                "--rounds",
                "400",
                "--ensemble",
                ensemble,
                "--method",
                "fedsplit",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["methods"][0]["outcome"] == "reached"


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_plot_is_drawn(suffix: str, magic: bytes, tmp_path: Path) -> None:
    target = tmp_path / f"gap.{suffix}"
    assert run([*SMALL, "--plot", str(target)]) == 0
    assert target.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [target]  # nothing half-written beside it


def test_a_plot_shows_every_method_by_name(tmp_path: Path) -> None:
    target = tmp_path / "gap.svg"
    assert run([*SMALL, "--plot", str(target)]) == 0
    drawn = target.read_text()
    for label in (
        "FedGD, e = 1",
        "FedGD, e = 10",
        "FedGD, e = 100",
        "FedProx",
        "L-BFGS",
        "FedSplit, Algorithm 1",
        "FedSplit, 5 local steps",
        "QuasiNewton",
        "FedSplitInformation",
    ):
        assert f"<!-- {label} -->" in drawn


BAD = {
    "unknown command": (
        ["compete"],
        "there is no command 'compete': did you mean compare? (see fedsplit --help)",
    ),
    "unknown option": (["compare", "--colour"], "No such option"),
    "not a number": (["compare", "--clients", "many"], "'--clients'"),
    "too small": (["compare", "--rounds", "1"], "'--rounds'"),
    "too large": (["compare", "-n", "1000000000000"], "not enough memory"),
    "unknown ensemble": (
        ["compare", "--ensemble", "real"],
        "ensemble 'real' is not known: use one of isotropic",
    ),
    "unknown method": (
        ["compare", "--method", "fednova"],
        "method 'fednova' is not known: use one of fedsplit",
    ),
    "unknown setting": (
        ["compare", "--method", "fedgd:steps=3"],
        "'fedgd' has no setting 'steps': use step, local_steps",
    ),
    "bad value": (["compare", "--method", "fedgd:step=big"], "'big' is no value for step"),
    "bad start": (
        ["compare", "--method", "fedsplit:start=there"],
        "use one of broadcast",
    ),
    "bad step": (["compare", "--method", "fedgd:step=-1"], "step must be a finite number above 0"),
    "no such LIBSVM file": (["compare", "--libsvm", "none.svm"], "none.svm: cannot be read"),
    "a split without a file": (
        ["compare", "--split", "label"],
        "--split is for the rows of --libsvm: leave it out",
    ),
    "a precision without a device": (
        ["compare", "--dtype", "float32"],
        "--dtype is for clients on a --device: leave it out",
    ),
    "a file and a random problem": (
        ["compare", "--libsvm", "none.svm", "-d", "3"],
        "--features is for random problems: leave it out",
    ),
    "a file on a device": (
        ["compare", "--libsvm", "none.svm", "--device", "cuda"],
        "--device is for dense rows, and those of --libsvm stay sparse: leave it out",
    ),
    "spiked needs n >= d": (["compare", "--ensemble", "spiked", "-n", "20"], "needs n >= d"),
    "kappa below one": (["compare", "--ensemble", "spiked", "--kappa", "0.5"], "kappa >= 1"),
    "separable": (
        ["compare", "--ensemble", "logistic", "-m", "1", "-n", "20", "-d", "30"],
        "add a ridge",
    ),
    "no such folder": (
        ["compare", "--plot", "/no/such/folder/gap.png"],
        "the folder /no/such/folder does not exist",
    ),
    "no such format": (["compare", "--plot", "gap.gif"], "a figure is .png, .svg or .pdf"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_gives_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fedsplit: error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_the_nearest_command_and_option_are_named_once_with_the_help_of_their_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, nearest, help_of in (
        (["fti"], "did you mean fit?", "fedsplit"),
        (["repotr", "x"], "did you mean report?", "fedsplit"),
        (["fit", "x", "--formla", "y ~ x"], "--formula", "fedsplit fit"),
        (["compare", "--ensembel", "real"], "--ensemble", "fedsplit compare"),
    ):
        assert run(words) == 2
        error = capsys.readouterr().err
        assert nearest in error
        assert error.lower().count("did you mean") == 1
        assert error.endswith(f"(see {help_of} --help)\n")


def test_a_noun_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    noun = application(cls=Group, help="What can be said.")

    @noun.command("hello", cls=Command)
    def _() -> None:
        """Say hello."""

    @noun.command("goodbye", cls=Command)
    def _() -> None:
        """Say goodbye, at more length than a terminal of eighty columns has room for in a line."""

    noun(["--help"], prog_name="fedsplit say", standalone_mode=False)
    whole = capsys.readouterr().out
    assert noun([], prog_name="fedsplit say", standalone_mode=False) == 0
    assert capsys.readouterr().out == whole
    assert "Usage: fedsplit say" in whole
    assert "  goodbye  Say goodbye, at" in whole


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["fit", "--help"], ["compare", "--help"]]
)
def test_the_command_starts_without_what_takes_long_to_import(words: list[str]) -> None:
    code = "import sys, fedsplit.commands.app as app; app.run(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "fedsplit" in loaded
    slow = {"numpy", "scipy", "pandas", "matplotlib", "duckdb", "sklearn", "msgspec", "jinja2"}
    assert not loaded & (slow | {"ray", "flwr", "aiohttp", "cryptography"})


def test_it_starts_and_fits_where_there_is_neither_termios_nor_fcntl(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{i % 5}\n" for i in range(40))
    for name in ("north", "south"):
        (tmp_path / f"{name}.csv").write_text(f"y,x\n{rows}")
    blocked = dict.fromkeys(("termios", "fcntl", "pwd", "grp", "resource", "tty", "pty"))
    code = (
        f"import sys; sys.modules.update({blocked}); import fedsplit.commands.app as app\n"
        "app.print_warnings(); sys.exit(app.run(sys.argv[1:]))"
    )
    fit = ["fit", str(tmp_path), "--formula", "y ~ x"]
    for words, shown, said in (
        (["--version"], "fedsplit ", ""),
        (["fit", "--help"], "Usage: fedsplit fit", ""),
        (fit, "Intercept", ""),
        ([*fit, "--checkpoint", str(tmp_path / "kept")], "Intercept", "has no locks of files"),
    ):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout
        assert said in done.stderr
        assert done.stderr.count("\n") == bool(said)


def test_a_command_names_the_extra_that_it_needs_and_the_others_do_without() -> None:
    blocked = dict.fromkeys(("cryptography", "aiohttp", "yarl"))
    code = (
        f"import sys; sys.modules.update({blocked}); import fedsplit.commands.app as app\n"
        "sys.exit(app.run(sys.argv[1:]))"
    )
    for words, status, said in (
        (["--help"], 0, ""),
        (["fit", "--help"], 0, ""),
        (["keys", "list", "federation"], 2, "pip install 'fedsplit[sites]'\n"),
    ):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == status
        assert done.stderr.endswith(said)
        assert done.stderr.count("\n") == bool(said)


@pytest.mark.parametrize(
    ("typed", "offered"), [("c", "compare"), ("fit --sec", "--secure"), ("compare --ka", "--kappa")]
)
def test_the_shell_completes_commands_and_options(typed: str, offered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from fedsplit.commands.app import main; main()"],
        env=os.environ
        | {
            "_FEDSPLIT_COMPLETE": "complete_bash",
            "COMP_WORDS": f"fedsplit {typed}",
            "COMP_CWORD": str(len(typed.split())),
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [offered]


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(figure: object, content: io.BytesIO, **kwargs: object) -> None:
        content.write(b"half")
        raise OSError(28, "No space left on device", "gap.png")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    assert run([*SMALL, "--plot", str(tmp_path / "gap.png")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_help_is_shown_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["compare", "--help"]):
        assert run(arguments) == 0
        assert "Usage: fedsplit" in capsys.readouterr().out


def test_on_a_terminal_progress_is_live_on_stderr_and_the_result_alone_on_stdout() -> None:
    command = [
        sys.executable,
        "-c",
        "from fedsplit.commands.app import main; main()",
        *SMALL,
        "--rounds",
        "400",
        "--json",
    ]
    terminal, inside = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=inside, env=environment) as child:
        os.close(inside)
        shown = b"".join(iter(lambda: _read(terminal), b""))  # until the child closes its end
        assert child.stdout is not None
        result = json.loads(child.stdout.read())
    os.close(terminal)
    assert child.returncode == 0
    assert result["clients"] == 5
    assert b"fedprox" in shown
    assert b"gap" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_methods_are_compared_on_the_rows_of_a_libsvm_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{(-1) ** i} {1 + i % 3}:{1 + i / 7} 4:1\n" for i in range(20)))
    command = ["compare", "--libsvm", str(rows), "--clients", "4", "--split", "label"]
    assert run([*command, "--method", "fedsplit", "--method", "lbfgs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["clients"], told["features"], told["split"]) == (4, 4, "label")
    assert [run["outcome"] for run in told["methods"]] == ["reached", "reached"]


def test_methods_that_would_send_large_hessians_are_compared_only_if_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "wide.svm"
    rows.write_text("".join(f"{(-1) ** i} {1 + i % 3}:{1 + i / 7} 501:1\n" for i in range(20)))
    assert run(["compare", "--libsvm", str(rows), "--clients", "4", "--rounds", "5", "--json"]) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    assert [each["method"] for each in methods] == list(DEFAULT_METHODS)


def test_newtons_method_takes_no_reach() -> None:
    with pytest.raises(fs.InputError, match="'newton' has no setting 'reach'"):
        parse("newton:reach=1")
    assert parse("information:reach=0.5") == fs.FedSplitInformation(reach=0.5)
