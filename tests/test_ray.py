"""On Ray: the bits of this process, and what happens to workers that die, lag or cannot start."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from threadpoolctl import threadpool_info

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.channels.ray import workers as engine
from fedsplit.channels.ray.ray_clients import ARRAYS, RayClients, read_cohort
from fedsplit.channels.ray.workers import RayChannel
from fedsplit.clients.questions import Value
from fedsplit.commands import app as cli
from fedsplit.loop.trace import Row
from fedsplit.methods import METHODS, parse
from fedsplit.methods.method import Method
from hospitals import FORMULA, RANDHIE, people, write
from problems import clients, loss, problem

pytestmark = pytest.mark.xdist_group("ray")  # one cluster for all of them

BRIEF = fs.Patience(round_timeout=30, give_up=60)
PATIENT = fs.Patience(round_timeout=200, give_up=400)
"""With time for a new worker on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # Ray does not wait for all of the processes that it ends
        ray.shutdown()
        gc.collect()


def leaves(state: Any) -> Iterator[Any]:
    """The arrays and numbers of a method's state, whatever tuples they are in."""
    if isinstance(state, tuple):
        for each in state:
            yield from leaves(each)
    elif isinstance(state, np.ndarray | float | int):
        yield state


def same(ours: fs.Result, expected: fs.Result) -> None:
    """Every bit, but for the seconds."""
    np.testing.assert_array_equal(ours.x, expected.x)
    for one, other in zip(leaves(ours.state.inner), leaves(expected.state.inner), strict=True):
        np.testing.assert_array_equal(one, other)
    for column in ("objective", "residual", "error", "floats_up", "floats_down", "answered"):
        np.testing.assert_array_equal(
            getattr(ours.trace, column), getattr(expected.trace, column), column
        )
    assert ours.certificate == expected.certificate
    assert (ours.rounds, ours.stopped_by, ours.notes) == (
        expected.rounds,
        expected.stopped_by,
        expected.notes,
    )


def outcome(
    asked: fs.Problem | RayClients, method: Method[Any] | None, **settings: Any
) -> fs.Result | str:
    """A result, or the line that says why there is none."""
    try:
        return fs.solve(asked, method, **settings)
    except (fs.Diverged, fs.InputError) as error:
        return str(error)


def both(
    p: fs.Problem, on_ray: RayClients, method: Method[Any] | None = None, **settings: Any
) -> None:
    """The run on Ray is that of this process."""
    ours, expected = outcome(on_ray, method, **settings), outcome(p, method, **settings)
    if isinstance(ours, fs.Result) and isinstance(expected, fs.Result):
        same(ours, expected)
    else:
        assert ours == expected


def smooth() -> fs.Problem:
    """A loss of the user's own, log(1 + e^x) and a quadratic, for four clients."""
    own = fs.CustomLoss(
        value=lambda x, a: float(np.logaddexp(0.0, x @ a) + 0.5 * x @ x),
        gradient=lambda x, a: a / (1.0 + np.exp(-(x @ a))) + x,
        d=3,
    )
    return fs.Problem(own, list(np.random.default_rng(0).standard_normal((4, 3))), ridge=0.5)


def unequal() -> fs.Problem:
    """Seven clients whose rows are padded in another way in every share."""
    return problem("logistic", [40, 12, 40, 25, 12, 33, 8], 4, ridge=0.1)


@pytest.mark.parametrize("make", [unequal, pytest.param(smooth, marks=pytest.mark.slow)])
def test_every_bit_is_that_of_this_process(make: Callable[[], fs.Problem]) -> None:
    # That an answer does not depend on who shares the block holds for every loss: test_prox.py.
    p = make()
    with RayClients(p, cohorts=3, measured=True) as on_ray:
        both(p, on_ray)
        both(p, on_ray, fs.FedSplit(prox=fs.GradientProx(3)), rounds=15)
        both(p, on_ray, penalty=fs.L1(0.5), rounds=40)
        both(p, on_ray, participation=0.6, seed=3, rounds=25)
        for method in METHODS:
            both(p, on_ray, parse(method), rounds=8)
        if make is unequal:
            both(p, on_ray, fs.FedAvg(0.01, 3, batch=5), seed=1, rounds=10, participation=0.6)
            both(p, on_ray, fs.FedAvg(0.01, batch=5, clients=0.6, epochs=1), seed=1, rounds=10)


def saved(data: Sequence[tuple[Array, ...]], folder: Path) -> list[Path]:
    paths = [folder / f"client{j}.npz" for j in range(len(data))]
    for path, arrays in zip(paths, data, strict=True):
        named: dict[str, Any] = dict(zip(ARRAYS, arrays, strict=False))
        np.savez(path, **named)
    return paths


@pytest.mark.slow
def test_files_that_workers_read_give_the_bits_of_arrays(tmp_path: Path) -> None:
    data, softmax = clients("multinomial", [60, 40, 50], 4), loss("multinomial", 4)
    with RayClients(
        saved(data, tmp_path), loss=softmax, ridge=0.2, cohorts=2, measured=True
    ) as on_ray:
        both(fs.Problem(softmax, data, ridge=0.2), on_ray)


FITS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "group": lambda folder: {
        "data": together(folder),
        "group": "site",
        "formula": "score ~ age + ward",
    },
    "secure": lambda folder: {
        "data": people(),
        "formula": "visits ~ poly(age, 2) + ward",
        "family": "poisson",
        "secure": True,
    },
    "toml": lambda folder: {
        "data": named(folder),
        "formula": "stay ~ age",
        "family": "gamma",
        "l1": 0.5,
    },
    "noise": lambda folder: {**noisy(), "secure": True},
}
"""What a fit is given, of data in a folder."""


def noisy() -> dict[str, Any]:
    """With noise that follows from a seed."""
    return {
        "data": people(),
        "formula": "ill ~ age + ward",
        "family": "logistic",
        "types": {"ill": "number", "age": "number", "ward": "text"},
        "levels": {"ill": ["0", "1"], "ward": ["north", "south", "west"]},
        "dp": fs.Privacy(8.0, 1e-6, 2.0, 3, ranges={"age": (0, 100)}, seed=3),
    }


def together(folder: Path) -> str:
    """All hospitals in one file."""
    write({"all": pd.concat([frame.assign(site=name) for name, frame in people().items()])}, folder)
    return str(folder / "all.csv")


def named(folder: Path) -> str:
    """A TOML file that names one file a hospital."""
    write(people(), folder)
    lines = [f'[clients.{name}]\npath = "{name}.csv"\n' for name in people()]
    (folder / "clients.toml").write_text("".join(lines))
    return str(folder / "clients.toml")


def said(model: fs.Model) -> dict[str, Any]:
    """All that a model says, without seconds and objectives, which remote clients are not asked."""
    return model.to_dict() | {
        "covariance": None
        if model.estimates.covariance is None
        else model.estimates.covariance.tolist(),
        "robust": None
        if model.estimates.robust is None
        else model.estimates.robust.matrix.tolist(),
        "trace": [
            row._replace(seconds=0.0, latency=None, objective=0.0) for row in model.trace.rows
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", FITS)
def test_a_fit_on_ray_is_the_fit_of_this_process_to_the_bit(kind: str, tmp_path: Path) -> None:
    given = FITS[kind](tmp_path)
    ours, expected = fs.fit(**given, engine="ray", workers=2), fs.fit(**given)
    np.testing.assert_equal(said(ours), said(expected))


def after(rounds: int, do: Callable[[], object]) -> Callable[[Row, Any], None]:
    """A callback that does something once, after so many rounds."""
    seen: list[Row] = []

    def watch(row: Row, state: Any) -> None:
        seen.append(row)
        if len(seen) == rounds:
            do()

    return watch


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "rounds"),
    [("arrays", fs.FedSplitInformation(), (1, 2)), ("files", fs.QuasiNewton(), (2, 3))],
    ids=["arrays, information", "files, vectors"],
)
def test_a_run_whose_worker_is_killed_goes_on_to_the_same_bits(
    kind: str, method: Method[Any], rounds: tuple[int, int], tmp_path: Path
) -> None:
    data = [
        (A, b, w, np.linspace(-1.0, 1.0, len(b)))
        for A, b, w in clients("logistic", [30, 20, 25], 4)
    ]
    p = fs.Problem(fs.Logistic(), data, ridge=0.2)
    source: Any = p if kind == "arrays" else saved(data, tmp_path)
    made: dict[str, Any] = {} if kind == "arrays" else {"loss": fs.Logistic(), "ridge": 0.2}
    with RayClients(source, cohorts=2, patience=PATIENT, measured=True, **made) as on_ray:
        one, other = on_ray.channel.pids()
        strikes = [after(rounds[0], lambda: kill(one)), after(rounds[1], lambda: kill(other))]
        result = fs.solve(on_ray, method, callbacks=strikes)
        assert not {one, other} & set(on_ray.channel.pids())
    same(result, fs.solve(p, method))


@pytest.mark.slow
def test_a_fit_whose_worker_is_killed_goes_on_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[RayChannel] = []

    def remembered(*args: Any) -> RayChannel:
        made.append(RayChannel(*args))
        return made[0]

    monkeypatch.setattr(engine, "RayChannel", remembered)
    killed: list[int] = []

    def watch(now: Any) -> None:
        if now.round == 2 and not killed:
            killed.append(made[0].pids()[1])
            kill(killed[0])

    ours = fs.fit(
        RANDHIE,
        FORMULA,
        family="poisson",
        engine="ray",
        workers=3,
        patience=PATIENT,
        progress=watch,
    )
    assert killed
    np.testing.assert_equal(said(ours), said(fs.fit(RANDHIE, FORMULA, family="poisson")))
    # by secure sums the others' last models are all that is lost: the next round is Newton's
    made.clear()
    killed.clear()
    options: dict[str, Any] = {"family": "poisson", "secure": True}
    secure = fs.fit(
        RANDHIE, FORMULA, engine="ray", workers=3, patience=PATIENT, progress=watch, **options
    )
    assert killed
    assert secure.converged
    np.testing.assert_allclose(secure.params, ours.params, rtol=1e-9)


@pytest.mark.parametrize("what", ["gone", pytest.param("others", marks=pytest.mark.slow)])
def test_a_worker_that_is_not_made_again_as_it_was_ends_the_run_in_one_line(
    what: str, tmp_path: Path
) -> None:
    paths = saved(clients("logistic", [30, 20, 25], 4), tmp_path)

    def strike(pid: int) -> None:
        if what == "gone":
            paths[0].unlink()
        else:
            saved(clients("logistic", [30], 4, seed=1), tmp_path)
        kill(pid)

    with RayClients(paths, loss=fs.Logistic(), ridge=0.2, cohorts=2, patience=BRIEF) as on_ray:
        pid = on_ray.channel.pids()[0]
        with pytest.raises(fs.InputError) as caught:
            fs.solve(on_ray, callbacks=[after(3, lambda: strike(pid))])
    assert "\n" not in str(caught.value)
    assert (str(paths[0]) if what == "gone" else "its data changed since the run began") in str(
        caught.value
    )


def held_up(flag: Path, most: float) -> fs.Problem:
    """Quadratics of four clients; the third waits while there is a file, up to so many seconds."""

    def gradient(x: Array, data: tuple[int, Array]) -> Array:
        end = time.monotonic() + most
        while data[0] == 2 and flag.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return x - data[1]

    own = fs.CustomLoss(
        lambda x, data: 0.5 * float(np.sum((x - data[1]) ** 2)),
        gradient,
        3,
        lambda x, data: np.eye(3),
    )
    return fs.Problem(own, list(enumerate(np.random.default_rng(0).standard_normal((4, 3)))))


@pytest.mark.slow
def test_a_round_closes_on_a_slow_worker_and_names_its_clients(tmp_path: Path) -> None:
    flag = tmp_path / "slow"
    p = held_up(flag, 60.0)
    with RayClients(p, cohorts=2, patience=fs.Patience(round_timeout=2.0, give_up=60)) as on_ray:
        heard: list[int] = []

        def watch(row: Row, state: Any) -> None:
            heard.append(row.answered)
            if len(heard) == 1:
                flag.touch()
            elif row.answered == 2:
                flag.unlink(missing_ok=True)

        result = fs.solve(on_ray, fs.FedSplit(0.7), tol=1e-12, callbacks=[watch])
    assert 2 in heard
    assert heard[-1] == 4
    assert {incident.client for incident in result.incidents} == {"2", "3"}
    assert {incident.what for incident in result.incidents} == {"no answer in time"}
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


@pytest.mark.slow
def test_an_asynchronous_run_does_not_wait_for_a_worker_that_is_held_up(tmp_path: Path) -> None:
    flag = tmp_path / "slow"
    p = held_up(flag, 60.0)
    heard: list[list[str]] = []

    def watch(row: Row, state: Any) -> None:
        assert row.latency is not None
        heard.append(sorted(row.latency))
        if len(heard) == 1:
            flag.touch()
        elif heard[-5:] == [["0", "1"]] * 5:  # the other worker goes on by itself
            flag.unlink(missing_ok=True)

    with RayClients(p, cohorts=2, patience=BRIEF) as on_ray:
        kept = fs.Checkpoint(tmp_path / "run")
        settings: dict[str, Any] = {"asynchronous": True, "tol": 1e-12, "rounds": 2000}
        result = fs.solve(on_ray, fs.DAvePG(0.5), callbacks=[kept, watch], **settings)
        again = fs.Checkpoint(tmp_path / "run", resume=True)
        replayed = fs.solve(on_ray, fs.DAvePG(0.5), callbacks=[again], **settings)
    assert not flag.exists()
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)
    np.testing.assert_array_equal(replayed.x, result.x)
    np.testing.assert_array_equal(replayed.trace.residual, result.trace.residual)


@pytest.mark.slow
def test_clients_that_are_not_drawn_compute_nothing_on_ray(tmp_path: Path) -> None:
    def gradient(x: Array, data: tuple[int, Array]) -> Array:
        with (tmp_path / str(data[0])).open("ab") as calls:
            calls.write(b".")
        return x - data[1]

    own = fs.CustomLoss(
        lambda x, data: 0.5 * float(np.sum((x - data[1]) ** 2)),
        gradient,
        3,
        curvature=lambda data: (1.0, 1.0),
    )
    centres = np.random.default_rng(0).standard_normal((10, 3))
    with RayClients(fs.Problem(own, list(enumerate(centres))), cohorts=2) as on_ray:
        before = [(tmp_path / str(j)).stat().st_size for j in range(10)]  # what identifies the data
        fs.solve(on_ray, fs.FedGD(step=0.5), rounds=20, tol=0, participation=0.1)
        after = [(tmp_path / str(j)).stat().st_size for j in range(10)]
    np.testing.assert_array_equal(np.subtract(after, before), np.full(10, 2))


@pytest.mark.slow
def test_a_cohort_that_stays_away_is_removed_where_enough_are_left(tmp_path: Path) -> None:
    flag = tmp_path / "slow"
    p = held_up(flag, 60.0)
    data = [each for _, each in enumerate(np.random.default_rng(0).standard_normal((4, 3)))]
    patience = fs.Patience(round_timeout=1.0, give_up=2.0, min_clients=2)
    with RayClients(p, cohorts=2, patience=patience) as on_ray:
        method, strike = fs.FedSplit(0.7), after(2, flag.touch)
        result = fs.solve(on_ray, method, tol=1e-12, callbacks=[strike])
    assert result.removed == ("2", "3")
    np.testing.assert_allclose(result.x, np.mean(data[:2], axis=0), atol=1e-6)


@pytest.mark.slow
def test_a_run_on_ray_is_resumed_from_its_checkpoint_with_the_same_bits(tmp_path: Path) -> None:
    p, method = problem("logistic", [30, 20, 25], 4, ridge=0.2), fs.QuasiNewton()

    def stop() -> None:
        raise KeyboardInterrupt

    with RayClients(p, cohorts=2, measured=True) as on_ray:
        kept = fs.Checkpoint(tmp_path / "kept")
        with pytest.raises(KeyboardInterrupt):
            fs.solve(on_ray, method, callbacks=[kept, after(5, stop)])
        kept = fs.Checkpoint(tmp_path / "kept", resume=True)
        result = fs.solve(on_ray, method, callbacks=[kept])
    same(result, fs.solve(p, method))


@pytest.mark.slow
def test_a_problem_too_large_for_one_worker_runs_over_four(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = saved(
        [(rng.standard_normal((40_000, 100)), rng.standard_normal(40_000)) for _ in range(4)],
        tmp_path,
    )
    size, memory = sum(path.stat().st_size for path in paths), 112 * 2**20
    assert memory < size
    with pytest.raises(
        fs.InputError, match="a worker's memory of 112 MiB is too small for its share: use more"
    ):
        RayClients(paths, loss=fs.LeastSquares(), cohorts=1, memory=memory)
    with RayClients(paths, loss=fs.LeastSquares(), cohorts=4, memory=memory) as on_ray:
        assert fs.solve(on_ray).converged


def test_arrays_larger_than_a_workers_memory_are_refused_before_they_travel() -> None:
    p = problem("huber", [2000, 2000], 50)
    with pytest.raises(fs.InputError, match="a worker's memory of 1 MiB is too small"):
        RayClients(p, cohorts=1, memory=2**20)


@pytest.mark.slow
def test_compare_prints_the_same_on_ray(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "-m", "5", "-d", "6", "-n", "20", "--rounds", "12", "--json"]
    assert cli.run(asked) == 0
    expected = capsys.readouterr().out
    assert json.loads(expected)["methods"]
    assert cli.run([*asked, "--engine", "ray", "--workers", "2"]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.slow
def test_ray_is_the_users_too_and_several_clients_share_it() -> None:
    p, other = problem("least-squares", [9] * 6, 3), problem("huber", [9] * 2, 3)
    more = 1 + len(os.sched_getaffinity(0))
    with (
        RayClients(p, cohorts=more, measured=True) as one,
        RayClients(other, cohorts=99, measured=True) as two,
    ):
        assert len(two.channel.names) == 2
        both(p, one)
        both(other, two)
        assert ray.get(ray.remote(lambda: 7).remote(), timeout=60) == 7
    assert ray.is_initialized()
    with pytest.raises(fs.InputError, match="are closed"):
        fs.solve(one)


@pytest.mark.slow
def test_workers_use_one_thread() -> None:
    def threads(x: Array, data: object) -> float:
        x @ np.eye(2)
        return float(
            max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        )

    # at x = 0 a client is asked for its value when the problem is made, here
    p = fs.Problem(fs.CustomLoss(threads, lambda x, data: x, 2), [0, 1])
    with RayClients(p, cohorts=2) as on_ray:
        np.testing.assert_array_equal(on_ray.ask(Value(np.zeros(2))).rows, [1.0, 1.0])


@pytest.mark.slow
def test_what_goes_wrong_in_a_users_loss_is_said_in_one_line() -> None:
    def value(x: Array, data: object) -> float:
        if x.any():
            raise KeyError("the price\nof eggs")
        return 0.0

    p = fs.Problem(fs.CustomLoss(value, lambda x, data: x, 2), ["a", "b"])
    with pytest.raises(fs.InputError, match=r"client 0, 1: KeyError: 'the price\\nof eggs'"):
        RayClients(p, cohorts=1)
    lock = threading.Lock()  # which cannot be sent
    with pytest.raises(fs.InputError, match="cannot send the clients to a worker") as caught:
        RayClients(
            fs.Problem(fs.CustomLoss(lambda x, data: 0.0, lambda x, data: x, 2), [lock]), cohorts=1
        )
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_worker_that_keeps_dying_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RESTARTS", 1)

    def value(x: Array, data: object) -> float:
        if x.any():
            os._exit(1)
        return 0.0

    p = fs.Problem(fs.CustomLoss(value, lambda x, data: x, 2), [0])
    with pytest.raises(fs.TooFewClients, match="client 0: its worker keeps dying"):
        RayClients(p, cohorts=1, patience=BRIEF)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def bent(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[300] ^= 255  # among the numbers of A
    path.write_bytes(content)


def lone(path: Path) -> None:
    np.save(path.with_suffix(".npy"), np.eye(2))
    path.with_suffix(".npy").rename(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("A,b\n1,2\n"),
    "cut off": cut,
    "bent": bent,
    "one array": lone,
    "without b": lambda path: np.savez(path, A=np.eye(2)),
    "more": lambda path: np.savez(path, A=np.eye(2), b=np.ones(2), c=np.ones(2)),
    "objects": lambda path: np.savez(path, A=np.array([[object()]]), b=np.ones(1)),
    "too short": lambda path: np.savez(path, A=np.eye(4), b=np.ones(3)),
    "other columns": lambda path: np.savez(path, A=np.eye(3), b=np.ones(3)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_cannot_be_used_is_named(damage: str, tmp_path: Path) -> None:
    paths = saved(clients("least-squares", [30, 20, 25], 4), tmp_path)
    DAMAGE[damage](paths[1])
    with pytest.raises(fs.InputError, match=f"{paths[1]}"):
        read_cohort(range(3), [str(path) for path in paths], fs.LeastSquares(), 0.0)


@pytest.mark.slow
def test_files_of_different_widths_in_two_workers_are_named(tmp_path: Path) -> None:
    paths = saved([*clients("least-squares", [9], 4), *clients("least-squares", [9], 3)], tmp_path)
    with pytest.raises(
        fs.InputError, match=f"{paths[1]}: x has 3 entries here, and 4 in {paths[0]}"
    ):
        RayClients(paths, loss=fs.LeastSquares(), cohorts=2)


@pytest.mark.parametrize(
    ("source", "settings", "what"),
    [
        ([], {}, "a problem or a list of .npz files, not list"),
        ("a.npz", {"loss": fs.LeastSquares()}, "a problem or a list of .npz files, not str"),
        ([1, 2], {"loss": fs.LeastSquares()}, "a problem or a list of .npz files, not list"),
        (["a.npz"], {}, "files need a loss"),
        (["a.npz"], {"loss": fs.LeastSquares}, "pass an object"),
        (["a.npz"], {"loss": fs.LeastSquares(), "cohorts": 0}, "cohorts must be a whole number"),
        (["a.npz"], {"loss": fs.LeastSquares(), "memory": 0.5}, "memory must be a whole number"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    source: Any, settings: dict[str, Any], what: str
) -> None:
    with pytest.raises(fs.InputError, match=what) as caught:
        RayClients(source, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1",
        "ray://127.0.0.1:1",
        "no-such-host.invalid:6379",
        "nonsense",
        "ftp://host:1",
        " ",
    ],
)
def test_an_address_without_ray_is_refused_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(fs.InputError, match=r"Ray cannot be reached at|address must be") as caught:
        RayClients(problem("huber", [9], 2), address=address)
    assert "\n" not in str(caught.value)


def test_without_ray_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], files: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in (
        "fedsplit.channels.ray.cluster",
        "fedsplit.channels.ray.workers",
        "fedsplit.channels.ray.ray_clients",
        "fedsplit.regression.engines",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(vars(fs), "RayClients", raising=False)  # a name is imported once
    line = r"pip install 'fedsplit\[ray\]'"
    with pytest.raises(ImportError, match=line):
        fs.RayClients  # noqa: B018  # looking at it is what fails
    with pytest.raises(fs.InputError, match=line):
        fs.fit(files, "ill ~ age", family="logistic", engine="ray")
    assert cli.run(["compare", "-m", "2", "-d", "2", "-n", "4", "--engine", "ray"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


SCRIPT = """
import os, signal, sys, time
import fedsplit as fs
p = fs.Problem(fs.LeastSquares(), fs.ensembles.isotropic(4, 3, 9).rows)
clients = fs.RayClients(p, cohorts=2)
fs.solve(clients)
pids = clients.channel.pids()
os.kill(pids[0], signal.SIGKILL)
fs.solve(clients)
import ray
running = ray._private.worker._global_node.live_processes()
pids = [*clients.channel.pids(), *(each.pid for _, each in running)]
open(sys.argv[1], "w").write(" ".join(map(str, pids)))
time.sleep(1)  # time for Ray to say something
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_is_printed_and_no_process_is_left_behind(end: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + end, tmp_path / "pids"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == done.stderr == ""
    left = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(left) >= 4
    for _ in range(300):
        left = [pid for pid in left if Path(f"/proc/{pid}").exists()]
        if not left:
            break
        time.sleep(0.1)
    assert not left


LISTENING = "0A"
"""The state of a socket that listens, in /proc/net."""


def addresses_that_listen() -> set[str]:
    """The addresses of this machine where something listens, with ports, as /proc/net has them."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text(encoding="utf-8").splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == LISTENING:
                found.add(local)
    return found


LOCAL = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")

LISTENS = """
import sys
sys.path.insert(0, "tests")
from fedsplit.channels.ray.cluster import connect, ray
from test_ray import LOCAL, addresses_that_listen
before = addresses_that_listen()
connect(None)
@ray.remote
class Worker:
    def work(self):
        return 1
worker = Worker.remote()
ray.get(worker.work.remote())
print(sorted({each for each in addresses_that_listen() - before if not each.startswith(LOCAL)}))
ray.shutdown()
"""


@pytest.mark.slow
def test_ray_that_is_started_here_listens_to_this_machine_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTENS], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


EARLIER = """
import ray
import warnings
from fedsplit.channels.ray.cluster import connect
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    connect(None)
print([str(each.message) for each in found if "listens at" in str(each.message)])
ray.shutdown()
"""


@pytest.mark.slow
def test_ray_that_was_imported_before_and_listens_to_others_is_warned_of() -> None:
    own = {k: v for k, v in os.environ.items() if k != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}
    done = subprocess.run(
        [sys.executable, "-c", EARLIER],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=own,
    )
    assert "Ray was imported before fedsplit, and listens at" in done.stdout


def test_nothing_of_rays_private_modules_is_used() -> None:
    for path in Path(fs.__file__).parent.rglob("*.py"):
        assert "ray._private" not in path.read_text(encoding="utf-8"), path


def test_a_cluster_without_authentication_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsplit.channels.ray import cluster

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(cluster, "_check_reachable", lambda address: None)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)  # newer versions set it
    with pytest.warns(UserWarning, match=r"at host:6379 accepts anybody .* RAY_AUTH_MODE=token"):
        cluster.connect("host:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    cluster.connect("host:6379")  # a warning would be an error here
