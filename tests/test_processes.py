"""Real processes: as many exchanges as in one, and hundreds of kills that lose nothing."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from carried import HOST, PROMPT, keys_for_https
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.study import Study
from fedsplit.federation.transport.files import FileTransport, answer_files
from fedsplit.federation.transport.https.coordinator import HttpsTransport
from fedsplit.federation.transport.https.site import serve
from fedsplit.testing import Federation
from hospitals import FORMULA, RANDHIE
from test_site_and_coordinator import Mode, made, study_of

pytestmark = pytest.mark.slow


def started(work: Callable[[], object]) -> int:
    """A process that does some work, and nothing else of what this one would."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def killed(pid: int) -> bool:
    """Kill a process; whether it was still at work."""
    os.kill(pid, signal.SIGKILL)
    return bool(os.waitpid(pid, 0)[1] == signal.SIGKILL)


def checked(federation: Federation, study: Study, mode: Mode, found: StudyResult) -> None:
    """What is recorded is that of one undisturbed run."""
    for name in federation.names:
        site = federation.site(name)
        assert site.record.count("answer", study.digest) == found.questions
        assert site.record.first_wrong_entry() == 0
        if mode != "noise":
            assert not site.audit().wrong


@pytest.mark.parametrize("mode", ["open", "files", "noise"])
def test_a_study_by_files_survives_a_hundred_kills_of_its_processes(
    tmp_path: Path, mode: Mode
) -> None:
    rng = random.Random(mode)
    federation = made(tmp_path / "killed")
    post = federation.folder / "post"
    kills = studies = 0
    usual = dict.fromkeys(("coordinator", *federation.names), 0.2)
    while kills < 100:
        studies += 1
        study = study_of(federation, "secure" if mode == "files" else mode, title=f"no {studies}")

        def ask(study: Study = study) -> object:
            transport = FileTransport(post, federation.key, federation.members)
            return federation.coordinator(transport).run(study)

        def reply(name: str) -> object:
            return answer_files(federation.site(name), federation.keys[name], post / name)

        works: dict[str, Callable[[], object]] = {"coordinator": ask}
        works |= {name: partial(reply, name) for name in federation.names}
        while not isinstance(found := ask(), StudyResult):
            for role, work in works.items():
                while kills < 100 and rng.random() < 0.8:
                    pid = started(work)
                    time.sleep(rng.uniform(0, usual[role]))
                    kills += killed(pid)
                began = time.monotonic()
                work()
                usual[role] = time.monotonic() - began
        whole = made(tmp_path / f"whole{studies}")
        undisturbed = whole.by_files(study)
        assert isinstance(undisturbed, StudyResult)
        assert found.questions == undisturbed.questions
        if mode != "noise":
            assert found.result.params.to_numpy().tobytes() == (
                undisturbed.result.params.to_numpy().tobytes()
            )
        checked(federation, study, mode, found)


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_a_study_by_https_survives_fifty_kills_of_its_processes(tmp_path: Path, mode: Mode) -> None:
    rng = random.Random(mode)
    federation = made(tmp_path)
    home = keys_for_https(federation)
    with HttpsTransport(home / "hub", HOST, 0) as free:
        port = free.port
    kills = studies = 0
    points: list[np.ndarray] = []
    while kills < 50:
        studies += 1
        study = study_of(federation, mode, title=f"no {studies}")

        def coordinate(study: Study = study) -> None:
            with HttpsTransport(home / "hub", HOST, port) as transport:
                found = federation.coordinator(transport, wait=60.0).run(study)
                assert isinstance(found, StudyResult)

        def answer(name: str) -> None:
            url, stop = f"https://{HOST}:{port}", threading.Event()
            serve(federation.site(name).reply, home / name, url, limits=PROMPT, stop=stop)

        works: dict[str, Callable[[], object]] = {"coordinator": coordinate}
        works |= {name: partial(answer, name) for name in federation.names}
        running = {role: started(work) for role, work in works.items()}
        try:
            while True:
                time.sleep(rng.uniform(0.05, 0.5))
                done, status = os.waitpid(running["coordinator"], os.WNOHANG)
                if done:
                    assert status == 0
                    del running["coordinator"]
                    break
                role = rng.choice(list(works))
                if kills < 50:
                    kills += killed(running.pop(role))
                    running[role] = started(works[role])
        finally:
            for pid in running.values():
                killed(pid)
        found = federation.coordinator(federation.direct()).run(study)  # from its journal
        assert isinstance(found, StudyResult)
        points.append(found.result.params.to_numpy())
        checked(federation, study, mode, found)
    for each in points:
        assert np.allclose(each, points[0], rtol=1e-10)


@pytest.mark.parametrize("secure", [False, True], ids=["open", "secure"])
@pytest.mark.parametrize("rules", ["warn", "refuse"])
def test_rand_over_six_processes_takes_as_many_exchanges_as_in_one(
    tmp_path: Path, secure: bool, rules: str
) -> None:
    data = {path.stem: str(path) for path in sorted(Path(RANDHIE).parent.glob("*.csv"))}
    own: dict[str, Any] = {
        "family": "poisson",
        "types": {
            **dict.fromkeys(["mdvis", "logc", "idp", "fmde", "physlm"], "number"),
            "health": "text",
        },
        "levels": {"health": ["excellent", "fair", "good", "poor"]},
        "secure": secure,
    }
    here = fs.fit(data, FORMULA, **own)
    policy: dict[str, Any] = {"secure_sums_only": False, "rules": rules}
    in_one = Federation(tmp_path / "one", data, seed=1, **policy)
    federation = Federation(tmp_path / "six", data, seed=1, **policy)
    study = federation.regression(FORMULA, **own)
    expected = in_one.run(study)
    home = keys_for_https(federation)
    with HttpsTransport(home / "hub", HOST, 0) as transport:
        url = f"https://{HOST}:{transport.port}"

        def answer(name: str) -> None:
            serve(federation.site(name).reply, home / name, url, limits=PROMPT)

        running = [started(partial(answer, name)) for name in data]
        try:
            found = federation.coordinator(transport, wait=120.0).run(study)
        finally:
            for pid in running:
                killed(pid)
    assert isinstance(expected, StudyResult)
    assert isinstance(found, StudyResult)
    assert found.questions == expected.questions
    assert found.result.params.to_numpy().tobytes() == expected.result.params.to_numpy().tobytes()
    assert (np.abs(found.result.params - here.params) / here.bse).max() < 1e-9
    if rules == "warn":  # strict sites round, which costs one or two
        assert found.questions == here.exchanges
