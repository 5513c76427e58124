"""Checkpoints: what is kept, what a crash can do to it, and that a resumed run has equal bits."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from faulty import FAULTS, Fault, Moment, Script, channel_of, faulty, fit, silent, well
from fedsplit.arrays import Array
from fedsplit.channels.checkpoint import ANSWERS, HEADER
from fedsplit.channels.cohort import same_data
from fedsplit.channels.log import HEAD
from fedsplit.local.solver import Start
from fedsplit.methods.method import Method
from fedsplit.penalties.coordinatewise import L1
from fedsplit.regression.server import minimise
from hospitals import people
from problems import clients, problem

SIZES, D = [30, 25, 40, 35], 4
FORMULA = "visits ~ age + ward"

METHODS: list[Method[Any]] = [fs.FedSplitInformation(), fs.QuasiNewton()]
"""The defaults: few questions with Hessians, and more of them with vectors only."""

NAMES = ["information", "quasi-newton"]

of_both_methods = pytest.mark.parametrize("method", METHODS, ids=NAMES)

from_question = pytest.mark.parametrize(
    ("method", "since"), list(zip(METHODS, (3, 6), strict=True)), ids=NAMES
)
"""Something happens in the midst of the rounds of each."""


@pytest.fixture
def p() -> fs.Problem:
    return problem("logistic", SIZES, D, ridge=1.0)


class Killed(BaseException):
    """In the place of a signal."""


def after(rounds: int) -> Callable[..., None]:
    """A callback that ends the process, as it were, after so many rounds."""
    seen: list[object] = []

    def count(*told: object) -> None:
        seen.append(told)
        if len(seen) == rounds:
            raise Killed

    return count


def leaves(value: Any) -> list[Any]:
    """The numbers and arrays in a result, but for times, and for factors that clients kept."""
    if isinstance(value, fs.Result):
        rows = [
            row._replace(seconds=0.0, latency=None, factorisations=0) for row in value.trace.rows
        ]
        return leaves(
            [
                value.x,
                value.rounds,
                value.converged,
                value.state,
                value.trace.start,
                rows,
                value.incidents,
            ]
        )
    if is_dataclass(value) and not isinstance(value, type):
        return leaves(astuple(value))
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


def assert_same(one: fs.Result, other: fs.Result) -> None:
    first, second = leaves(one), leaves(other)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def records(folder: Path) -> list[bytes]:
    """The records of a checkpoint."""
    content, found = (folder / ANSWERS).read_bytes(), []
    while content:
        length = HEAD + int.from_bytes(content[4:12], "little")
        found.append(content[:length])
        content = content[length:]
    return found


def copied(folder: Path, to: Path, content: bytes | None = None) -> Path:
    """The checkpoint in another folder, with other answers."""
    shutil.copytree(folder, to)
    if content is not None:
        (to / ANSWERS).write_bytes(content)
    return to


RUNS: dict[str, tuple[str, Method[Any], dict[str, Any]]] = {
    "information and a penalty": ("logistic", fs.FedSplitInformation(), {"penalty": L1(2.0)}),
    "vectors of some clients": (
        "logistic",
        fs.QuasiNewton(),
        {"participation": 0.5, "seed": 3},
    ),
    "scaffnew": ("logistic", fs.Scaffnew(), {"rounds": 40}),
    "lbfgs": ("poisson", fs.LBFGS(), {}),
}
"""Answers are replayed without regard to the method; these differ in what they keep and draw."""


@pytest.mark.parametrize(("elsewhere", "every"), [(False, 3), (True, 1)])
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_ends_in_the_same_bits(
    tmp_path: Path, name: str, elsewhere: bool, every: int
) -> None:
    family, method, settings = RUNS[name]
    p = problem(family, SIZES, D, ridge=0.5)
    whole = fs.solve(faulty(p) if elsewhere else p, method, **settings)
    last = int(np.sum(whole.trace.kind == "round"))
    assert last >= 3
    folder, resume = tmp_path / "kept", False
    for rounds in (1, last // 2, last - 1):
        kept = fs.Checkpoint(folder, every=every, resume=resume)
        with pytest.raises(Killed):
            fs.solve(
                faulty(p) if elsewhere else p,
                method,
                **settings,
                callbacks=[kept, after(rounds)],
            )
        resume = True
    kept = fs.Checkpoint(folder, resume=True)
    assert_same(
        fs.solve(faulty(p) if elsewhere else p, method, **settings, callbacks=[kept]), whole
    )
    again = fs.Checkpoint(folder, resume=True)  # of a run that has ended
    assert_same(
        fs.solve(faulty(p) if elsewhere else p, method, **settings, callbacks=[again]), whole
    )


FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("score ~ age + ward", {}),
    "poisson": (FORMULA, {"family": "poisson"}),
    "poisson by vectors": (FORMULA, {"family": "poisson", "method": "quasi-newton"}),
    "multinomial": ("ward ~ age + hours", {"family": "multinomial", "ridge": 0.5}),
    "lasso": ("score ~ age + ward + hours", {"l1": 1.0}),
    "huber": ("score ~ age + ward", {"family": "huber"}),
    "newton": (FORMULA, {"family": "poisson", "method": "quasi-newton"}),
    "firth": ("ill ~ age + ward", {"family": "logistic", "firth": True}),
}
"""Fits that ask different questions."""

ELSEWHERE = ("poisson", "newton", "firth")


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [*((name, False) for name in FITS), *((name, True) for name in ELSEWHERE)],
)
def test_a_resumed_fit_ends_in_the_same_table(
    tmp_path: Path, name: str, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "newton":  # takes over at once
        patient = partial(minimise.minimise, patience=4)
        monkeypatch.setattr("fedsplit.regression.server.glm.minimise", patient)
        rule = partial(minimise.ProvedDistance, caution=1e9)
        monkeypatch.setattr(minimise, "ProvedDistance", rule)
    formula, settings = FITS[name]

    def run(
        checkpoint: fs.Checkpoint | None, progress: Callable[..., None] | None = None
    ) -> fs.Model:
        if elsewhere:
            return fit(people(), formula, checkpoint=checkpoint, progress=progress, **settings)
        return fs.fit(people(), formula, checkpoint=checkpoint, progress=progress, **settings)

    seen: list[object] = []
    whole = run(None, seen.append).to_dict()
    last = len(seen)
    resume = False
    for rounds in (1, (last + 1) // 2, last):
        with pytest.raises(Killed):
            run(fs.Checkpoint(tmp_path / "kept", every=2, resume=resume), after(rounds))
        resume = True
    model = run(fs.Checkpoint(tmp_path / "kept", resume=True))
    assert model.to_dict() == whole
    if not elsewhere and not {"l1", "firth"} & settings.keys():
        assert model.bias_of("fedprox").worst >= 0  # its clients answer still


@pytest.mark.parametrize(
    ("method", "least"), [(fs.FedSplitInformation(), 5), (fs.QuasiNewton(), 10)], ids=NAMES
)
def test_a_run_goes_on_from_every_record(
    p: fs.Problem, tmp_path: Path, method: Method[Any], least: int
) -> None:
    whole = fs.solve(p, method, callbacks=[fs.Checkpoint(tmp_path / "whole")])
    parts = records(tmp_path / "whole")
    assert len(parts) >= least
    for number in range(len(parts) + 1):
        folder = copied(tmp_path / "whole", tmp_path / str(number), b"".join(parts[:number]))
        assert_same(fs.solve(p, method, callbacks=[fs.Checkpoint(folder, resume=True)]), whole)
        assert records(folder) == parts or number < len(parts)


def test_only_the_last_record_may_be_cut_off_and_it_may_be_at_any_byte(
    p: fs.Problem, tmp_path: Path
) -> None:
    fs.solve(p, rounds=4, tol=0, callbacks=[fs.Checkpoint(tmp_path / "whole")])
    *parts, last = records(tmp_path / "whole")
    for size in {*range(HEAD + 1), *range(0, len(last), 7), len(last) - 1}:
        folder = copied(tmp_path / "whole", tmp_path / "cut", b"".join([*parts, last[:size]]))
        assert _places(folder) == len(parts)
        assert (folder / ANSWERS).read_bytes() == b"".join(parts)
        shutil.rmtree(folder)


def _places(folder: Path) -> int:
    """How many records a resumed run finds."""
    checkpoint = fs.Checkpoint(folder, resume=True)
    with checkpoint.over(channel_of(problem("logistic", SIZES, D)), checkpoint.about()) as journal:
        return len(journal._records)


def test_a_flipped_byte_is_found_wherever_it_is(p: fs.Problem, tmp_path: Path) -> None:
    fs.solve(p, rounds=3, tol=0, callbacks=[fs.Checkpoint(tmp_path / "whole")])
    parts = records(tmp_path / "whole")
    content, sizes = b"".join(parts), np.cumsum([len(part) for part in parts])
    rng = np.random.default_rng(0)
    heads = [int(begin) + i for begin in (0, *sizes[:-1]) for i in range(HEAD)]
    for place in [*heads, *rng.integers(0, len(content), 100)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        folder = copied(tmp_path / "whole", tmp_path / "flipped", bytes(damaged))
        number = int(np.searchsorted(sizes, place, side="right"))
        if number < len(parts) - 1:
            with pytest.raises(
                fs.InputError, match=f"{ANSWERS}: record {number + 1} is damaged: start again"
            ):
                _places(folder)
        elif place >= sizes[-2] + HEAD:  # as a crash may have left it
            assert _places(folder) == len(parts) - 1
        shutil.rmtree(folder)


def header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        told = json.loads((folder / HEADER).read_text())
        change(told)
        (folder / HEADER).write_text(json.dumps(told))

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no header": (
        lambda folder: (folder / HEADER).unlink(),
        "there is no checkpoint to resume",
    ),
    "an empty header": (
        lambda folder: (folder / HEADER).write_text(""),
        "is not a checkpoint, or is damaged",
    ),
    "half a header": (
        lambda folder: (folder / HEADER).write_text('{"format": 1, "ver'),
        "not a checkpoint, or is damaged",
    ),
    "bytes": (
        lambda folder: (folder / HEADER).write_bytes(b"\xff\xfe\x00"),
        "not a checkpoint, or is damaged",
    ),
    "a list": (
        lambda folder: (folder / HEADER).write_text("[1, 2]"),
        "not a checkpoint, or is damaged",
    ),
    "no run": (header(lambda told: told.pop("run")), "not a checkpoint, or is damaged"),
    "another format": (
        header(lambda told: told.update(format=99)),
        "has format 99, this version reads format 8",
    ),
    "another version": (
        header(lambda told: told.update(version="0.0.1")),
        r"written by fedsplit 0\.0\.1",
    ),
    "another run": (
        header(lambda told: told["run"].update(tol=0.5)),
        r"belongs to another run: its tol is 0\.5, not 1e-09",
    ),
    "a setting less": (
        header(lambda told: told["run"].pop("seed")),
        "belongs to another run: its seed is null, not 0",
    ),
    "no answers": (
        lambda folder: (folder / ANSWERS).unlink(),
        f"{ANSWERS} is missing: start again",
    ),
    "a folder of answers": (
        lambda folder: (folder / ANSWERS).rename(folder / "other").with_name(ANSWERS).mkdir(),
        f"{ANSWERS} is missing",
    ),
    "other answers": (
        lambda folder: (folder / ANSWERS).write_bytes(bytes(1000)),
        "record 1 is damaged",
    ),
    "text": (lambda folder: (folder / ANSWERS).write_text("hello " * 100), "record 1 is damaged"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_damage_to_a_checkpoint_is_one_clear_line(
    p: fs.Problem, tmp_path: Path, name: str
) -> None:
    damage, message = DAMAGES[name]
    with pytest.raises(Killed):
        fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "kept"), after(3)])
    damage(tmp_path / "kept")
    with pytest.raises(fs.InputError, match=message) as caught:
        fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "kept", resume=True)])
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "kept") in str(caught.value)


@of_both_methods
def test_other_settings_and_other_data_are_refused_and_harm_nothing(
    p: fs.Problem, tmp_path: Path, method: Method[Any]
) -> None:
    whole = fs.solve(p, method)
    with pytest.raises(Killed):
        fs.solve(p, method, callbacks=[fs.Checkpoint(tmp_path / "kept"), after(2)])

    def resumed(other: fs.Problem = p, method: Method[Any] = method, **settings: Any) -> fs.Result:
        kept = fs.Checkpoint(tmp_path / "kept", resume=True)
        return fs.solve(other, method, callbacks=[kept], **settings)

    data = clients("logistic", SIZES, D)
    data[3][1][0] *= -1.0
    changed = fs.Problem(fs.Logistic(), data, 1.0)
    for settings, message in [
        ({"method": fs.FedGD()}, "its method is"),
        ({"rounds": 100}, "its rounds is 200, not 100"),
        ({"participation": 0.5}, "its participation is"),
        ({"x0": np.ones(D)}, "question 2 of this run differs from the checkpoint"),
        ({"other": changed}, "its data changed since the run began"),
        ({"other": problem("logistic", SIZES, D, ridge=2.0)}, "its data changed"),
        ({"other": problem("logistic", SIZES, D + 1)}, "its coordinates is 4, not 5"),
    ]:
        with pytest.raises(fs.InputError, match=message):
            resumed(**settings)  # type: ignore[arg-type]  # of several kinds
    assert_same(resumed(), whole)


@pytest.mark.parametrize(
    ("method", "asked"),
    [("auto", 1), ("auto", 3), ("auto", 6), ("quasi-newton", 9), ("gd", 9)],
)
def test_a_fit_on_other_data_is_refused_wherever_it_stopped(
    tmp_path: Path, method: str, asked: int
) -> None:
    """Also in the handshake, of which only a part has been told."""
    settings: dict[str, Any] = {"family": "poisson", "method": method}

    def stop(moment: Moment) -> Fault | None:
        if moment.number > asked:
            raise Killed
        return None

    with pytest.raises(Killed):
        fit(people(), FORMULA, stop, checkpoint=fs.Checkpoint(tmp_path / "kept"), **settings)

    def resumed(frames: dict[str, pd.DataFrame]) -> fs.Model:
        kept = fs.Checkpoint(tmp_path / "kept", resume=True)
        return fit(frames, FORMULA, checkpoint=kept, **settings)

    others = people()
    others["hospital1"] = others["hospital1"].iloc[1:].assign(more=1.0)
    with pytest.raises(fs.InputError, match="client hospital1: its data changed"):
        resumed(others)
    assert resumed(people()).to_dict() == fit(people(), FORMULA, **settings).to_dict()


def test_a_checkpoint_is_not_written_over_and_not_resumed_where_there_is_none(
    p: fs.Problem, tmp_path: Path
) -> None:
    early = fs.Checkpoint(tmp_path / "kept")
    first = fs.Checkpoint(tmp_path / "kept")
    fs.solve(p, callbacks=[first])
    before = records(tmp_path / "kept")
    with pytest.raises(
        fs.InputError, match="already holds a checkpoint: continue that run with --resume"
    ):
        fs.Checkpoint(tmp_path / "kept")
    for late in (early, first):
        with pytest.raises(fs.InputError, match="already holds a checkpoint"):
            fs.solve(p, callbacks=[late])
    assert records(tmp_path / "kept") == before
    with pytest.raises(fs.InputError, match="there is no checkpoint to resume: start without"):
        fs.Checkpoint(tmp_path / "nowhere", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(fs.InputError, match="is a file, not a folder"):
        fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "file" / "kept")])
    for every in (0, 1.5):
        with pytest.raises(fs.InputError, match="every must be a whole number of at least 1"):
            fs.Checkpoint(tmp_path / "every", every=every)  # type: ignore[arg-type]  # wrong values are the point


HOLD = """
import sys, fedsplit as fs
from faulty import channel_of
from problems import problem
checkpoint = fs.Checkpoint(sys.argv[1], resume=True)
with checkpoint.over(channel_of(problem("logistic", [9], 2)), checkpoint.about()):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs from a checkpoint."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other


def test_a_folder_in_use_by_another_process_is_refused_until_that_ends(
    p: fs.Problem, tmp_path: Path
) -> None:
    fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "kept")])
    with held(tmp_path / "kept") as other:
        with pytest.raises(fs.InputError, match="another process is running from this checkpoint"):
            fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "kept", resume=True)])
        other.kill()
    fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "kept", resume=True)])


def test_a_run_that_was_refused_its_checkpoint_deletes_nothing(
    p: fs.Problem, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    late = fs.Checkpoint(folder)
    with pytest.raises(Killed):
        fs.solve(p, callbacks=[fs.Checkpoint(folder), after(3)])
    before = records(folder)
    another = fs.Checkpoint(folder, resume=True)
    for refused, settings, message in (
        (late, {}, "already holds a checkpoint"),
        (another, {"rounds": 7}, "belongs to another run"),
    ):
        with pytest.raises(fs.InputError, match=message):
            fs.solve(p, callbacks=[refused], **settings)  # type: ignore[arg-type]  # of solve
        refused.discard()
        assert records(folder) == before
    with held(folder) as other:
        with pytest.raises(fs.InputError, match="another process is running"):
            fs.solve(p, callbacks=[another])
        another.discard()
        assert records(folder) == before
        other.kill()
    assert fs.solve(p, callbacks=[another]).converged
    another.discard()  # it is done
    assert not folder.exists()


def test_a_disk_that_is_full_before_the_first_round_leaves_something_to_resume_from(
    tmp_path: Path,
) -> None:
    whole = fit(people(), FORMULA)
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = fs.Checkpoint(tmp_path / "kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, most))
    try:
        with pytest.raises(fs.InputError, match="make room, then resume"):
            fit(people(), FORMULA, checkpoint=kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    kept = fs.Checkpoint(tmp_path / "kept", resume=True)
    assert fit(people(), FORMULA, checkpoint=kept).to_dict() == whole.to_dict()


def test_a_disk_that_is_full_from_the_start_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = fs.Checkpoint(tmp_path / "kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, most))
    try:
        with pytest.raises(fs.InputError, match="nothing was kept there"):
            fit(people(), FORMULA, checkpoint=kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert not fs.Checkpoint(tmp_path / "kept").begun


def test_a_folder_that_cannot_be_written_to_is_refused(p: fs.Problem) -> None:
    with pytest.raises(
        fs.InputError, match=r"/proc.*: cannot be (used|written to).*choose another folder"
    ):
        fs.solve(p, callbacks=[fs.Checkpoint("/proc/fedsplit")])


@of_both_methods
def test_after_a_full_disk_a_run_goes_on_once_there_is_room(
    p: fs.Problem, tmp_path: Path, method: Method[Any]
) -> None:
    whole = fs.solve(p, method, callbacks=[fs.Checkpoint(tmp_path / "whole")])
    size = (tmp_path / "whole" / ANSWERS).stat().st_size
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for i, limit in enumerate((size // 7, size // 2, size - size // 10)):
        kept = fs.Checkpoint(tmp_path / str(i))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        try:
            with pytest.raises(
                fs.InputError, match=r"cannot be written \(.*\): make room, then resume"
            ):
                fs.solve(p, method, callbacks=[kept])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        kept = fs.Checkpoint(tmp_path / str(i), resume=True)
        assert_same(fs.solve(p, method, callbacks=[kept]), whole)


def from_then_on(client: str, number: int, fault: Fault) -> Script:
    return lambda moment: fault if moment.client == client and moment.number >= number else None


@pytest.mark.parametrize(
    ("name", "method", "since"),
    [
        ("silent", fs.FedSplitInformation(), 3),
        ("NaN", fs.FedSplit(), 6),
        ("lost", fs.FedSplitInformation(), 3),
    ],
)
def test_a_run_that_stopped_for_want_of_a_client_goes_on_when_it_is_back(
    p: fs.Problem, tmp_path: Path, name: str, method: Method[Any], since: int
) -> None:
    fault, _ = FAULTS[name]

    def run(script: Script, resume: bool = True) -> fs.Result:
        kept = fs.Checkpoint(tmp_path / "kept", resume=resume)
        return fs.solve(faulty(p, script), method, tol=1e-12, callbacks=[kept])

    with pytest.raises(fs.TooFewClients, match="client 2"):
        run(from_then_on("2", since, fault), resume=False)
    still_away, back = from_then_on("2", 0, fault), well
    with pytest.raises(fs.TooFewClients, match="client 2"):
        run(still_away)
    result = run(back)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-6)
    assert {each.client for each in result.incidents} == {"2"}


@pytest.mark.parametrize(
    ("method", "number"),
    [("auto", 1), ("auto", 4), ("auto", 7), ("quasi-newton", 9)],
)
def test_a_fit_that_stopped_for_want_of_a_client_goes_on_when_it_is_back(
    tmp_path: Path, method: str, number: int
) -> None:
    settings: dict[str, Any] = {"family": "poisson", "method": method}
    away = from_then_on("hospital1", number, FAULTS["died"][0])
    with pytest.raises(fs.TooFewClients, match="client hospital1"):
        fit(people(), FORMULA, away, checkpoint=fs.Checkpoint(tmp_path / "kept"), **settings)
    kept = fs.Checkpoint(tmp_path / "kept", resume=True)
    model = fit(people(), FORMULA, checkpoint=kept, **settings)
    assert model.converged
    np.testing.assert_allclose(
        model.params,
        fs.fit(people(), FORMULA, family="poisson").params,
        rtol=1e-9,
    )


@from_question
def test_a_run_that_was_killed_when_it_stopped_goes_on_too(
    p: fs.Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: Method[Any],
    since: int,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("fedsplit.channels.log.Records.drop", lambda records: None)
        with pytest.raises(fs.TooFewClients):
            fs.solve(
                faulty(p, from_then_on("2", since, silent)),
                method,
                callbacks=[fs.Checkpoint(tmp_path / "kept")],
            )
    kept = fs.Checkpoint(tmp_path / "kept", resume=True)
    assert fs.solve(faulty(p), method, callbacks=[kept]).converged


def test_a_mistake_in_a_clients_file_can_be_mended_and_the_fit_resumed(tmp_path: Path) -> None:
    wrong = people()
    wrong["hospital1"] = wrong["hospital1"].rename(columns={"age": "years"})
    with pytest.raises(fs.InputError, match="there is no column age"):
        fit(wrong, FORMULA, checkpoint=fs.Checkpoint(tmp_path / "kept"), family="poisson")
    model = fit(
        people(),
        FORMULA,
        checkpoint=fs.Checkpoint(tmp_path / "kept", resume=True),
        family="poisson",
    )
    assert model.converged


@from_question
def test_what_the_clock_decided_is_decided_again_at_the_same_place(
    p: fs.Problem, tmp_path: Path, method: Method[Any], since: int
) -> None:
    def run(script: Script, *kept: fs.Checkpoint) -> fs.Result:
        return fs.solve(faulty(p, script, fs.Patience(min_clients=3)), method, callbacks=kept)

    whole = run(from_then_on("2", since, silent), fs.Checkpoint(tmp_path / "whole"))
    assert whole.removed == ("2",)
    # so that the run waits between its questions
    quick = from_then_on("2", since, FAULTS["died"][0])
    assert_same(run(quick, fs.Checkpoint(tmp_path / "quick")), run(quick))
    parts = records(tmp_path / "whole")
    for number in range(0, len(parts), 2):
        folder = copied(tmp_path / "whole", tmp_path / str(number), b"".join(parts[:number]))
        # settling is asked again
        later = from_then_on("2", since - number + (number > 0), silent)
        resumed = run(later, fs.Checkpoint(folder, resume=True))
        assert_same(resumed, whole)
        assert resumed.removed == whole.removed


@pytest.mark.parametrize(("method", "since"), [("auto", 6), ("quasi-newton", 9)])
def test_a_fit_with_a_removal_is_the_same_after_a_resumption(
    tmp_path: Path, method: str, since: int
) -> None:
    def run(number: int, checkpoint: fs.Checkpoint) -> fs.Model:
        patience, away = fs.Patience(min_clients=2), from_then_on("hospital1", number, silent)
        return fit(people(), FORMULA, away, patience, checkpoint, family="poisson", method=method)

    whole = run(since, fs.Checkpoint(tmp_path / "whole"))
    assert list(whole.removed) == ["hospital1"]
    parts = records(tmp_path / "whole")
    for number in range(0, len(parts), 5):
        folder = copied(tmp_path / "whole", tmp_path / str(number), b"".join(parts[:number]))
        resumed = run(since - number + (number > 0), fs.Checkpoint(folder, resume=True))
        assert resumed.to_dict() == whole.to_dict()


@pytest.mark.parametrize(
    "name", ["slow", "lost", "NaN", "short", "float32", "text", "another kind", "nothing"]
)
def test_bad_answers_are_kept_too_and_heard_again(p: fs.Problem, tmp_path: Path, name: str) -> None:
    fault, _ = FAULTS[name]
    method, since = fs.FedSplitInformation(), 3

    def script(moment: Moment) -> Fault | None:
        return fault if moment.client == "1" and since <= moment.number < since + 6 else None

    whole = fs.solve(faulty(p, script), method, callbacks=[fs.Checkpoint(tmp_path / "kept")])
    assert whole.converged
    assert {each.client for each in whole.incidents} == {"1"}
    kept = fs.Checkpoint(tmp_path / "kept", resume=True)
    assert_same(fs.solve(faulty(p), method, callbacks=[kept]), whole)


class Tilted:
    """A user's own penalty, which says nothing of itself."""

    def value(self, x: Array) -> float:
        return float(np.sum(x))

    def prox(self, v: Array, s: float | Array) -> Array:
        return v - s


@of_both_methods
def test_a_users_own_penalty_is_the_same_in_the_next_process(
    p: fs.Problem, tmp_path: Path, method: Method[Any]
) -> None:
    def run(*callbacks: Any) -> fs.Result:
        return fs.solve(p, method, penalty=Tilted(), callbacks=callbacks)

    with pytest.raises(Killed):
        run(fs.Checkpoint(tmp_path / "kept"), after(2))
    assert_same(run(fs.Checkpoint(tmp_path / "kept", resume=True)), run())


def test_a_solver_that_cannot_be_kept_is_refused(p: fs.Problem, tmp_path: Path) -> None:
    class Own:
        start: ClassVar[Start] = "argument"

        def solve(self, *question: Any) -> Any:
            return fs.ExactProx().solve(*question)

    method = fs.FedSplit(prox=Own())
    with pytest.raises(
        fs.InputError, match=r"a checkpoint keeps plain values, and a value of type .*Own cannot be"
    ):
        fs.solve(p, method, callbacks=[fs.Checkpoint(tmp_path / "kept")])


def test_numbers_of_numpy_are_settings_like_any_other(p: fs.Problem, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fs.solve(p, rounds=np.int64(50), callbacks=[fs.Checkpoint(tmp_path / "kept"), after(3)])  # type: ignore[arg-type]  # a whole number all the same
    assert fs.solve(
        p, rounds=50, callbacks=[fs.Checkpoint(tmp_path / "kept", resume=True)]
    ).converged


def test_a_checkpoint_is_private_and_no_answer_is_lost_at_the_end(
    p: fs.Problem, tmp_path: Path
) -> None:
    fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "some", every=1000)])
    fs.solve(p, callbacks=[fs.Checkpoint(tmp_path / "all")])
    assert len(records(tmp_path / "some")) == len(records(tmp_path / "all"))
    assert (tmp_path / "all").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "all" / ANSWERS).stat().st_mode & 0o777 == 0o600


def kill(what: str, folder: Path, every: int, kills: int) -> dict[str, Any]:
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, str(script), what, str(folder), str(every), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.slow
@pytest.mark.parametrize(("what", "every"), [("solve", 1), ("fit", 5)])
def test_a_run_that_is_killed_fifty_times_loses_no_more_than_an_interval_each_time(
    tmp_path: Path, what: str, every: int
) -> None:
    figures = kill(what, tmp_path, every, kills=50)
    assert figures["kills"] == 50, figures
    assert figures["same bits"], figures
    assert figures["most lost"] <= every, figures
    assert figures["at work"] >= 25, figures


def test_a_client_that_forgot_its_last_model_is_known_by_its_gradient_at_x() -> None:
    slope = np.array([[3.0, -1.0]])
    before = fs.Answer.of(point=np.zeros((1, 2)), slope=slope)
    forgot = fs.Answer.of(point=np.ones((1, 2)), slope=slope * (1 + 1e-12))
    changed = fs.Answer.of(point=np.zeros((1, 2)), slope=slope + np.array([0.0, 1e-3]))
    assert same_data(before, forgot)
    assert not same_data(before, changed)
