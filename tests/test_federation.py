"""A fit between organisations, as its users start it: real processes, TLS and keys, on loopback."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedsplit as fs
from federation import Processes, until
from fedsplit.commands.app import run
from fedsplit.sites.studies.store import Studies

pytestmark = pytest.mark.slow

SITES = {f"site{j}": Path(f"examples/randhie/site{j}.csv").absolute() for j in range(1, 7)}
FORMULA = "mdvis ~ logc + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"
MODEL = ("--formula", FORMULA, "--family", "poisson")


def ended(server: subprocess.Popen[str], seconds: float = 180.0) -> tuple[int, str, str]:
    out, err = server.communicate(timeout=seconds)
    return server.returncode, out, err


def pooled(names: list[str]) -> tuple[pd.Series, pd.Series]:
    """Coefficients and standard errors of the pooled fit, by another program."""
    data = pd.concat([pd.read_csv(SITES[name]) for name in names])
    columns = FORMULA.partition("~")[2].replace(" ", "").split("+")
    found = sm.GLM(data["mdvis"], sm.add_constant(data[columns]), family=sm.families.Poisson()).fit(
        tol=1e-14
    )
    return found.params.rename({"const": "Intercept"}), found.bse.rename({"const": "Intercept"})


def test_in_process_ray_and_six_organisations_give_the_same_bits(tmp_path: Path) -> None:
    here = fs.fit(list(SITES.values()), FORMULA, family="poisson")
    on_ray = fs.fit(list(SITES.values()), FORMULA, family="poisson", engine="ray", cohorts=2)
    with Processes(tmp_path, list(SITES)) as federation:
        for name, data in SITES.items():
            federation.client(name, data)
        server = federation.server("--clients", "6", "--out", str(tmp_path / "out"), *MODEL)
        status, out, err = ended(server)
        assert (status, err.splitlines()[-1]) == (0, "approved by 6 of 6")
        assert f"clients 6 of 6: {', '.join(SITES)}" in err.splitlines()
    assert not list((tmp_path / "out").rglob("checkpoint.json"))  # it is done
    there = fs.load(tmp_path / "out")
    assert np.array_equal(here.params, on_ray.params)
    assert np.array_equal(here.params, there.params)
    assert here.estimates.covariance is not None
    assert there.estimates.covariance is not None
    assert np.array_equal(here.estimates.covariance, there.estimates.covariance)
    assert here.llf == on_ray.llf == there.llf
    assert here.rounds == on_ray.rounds == there.rounds
    assert "converged yes" in out
    assert list(there.run.attendance["answered"]) == [there.rounds] * 6
    assert not there.run.incidents


def test_two_clients_are_killed_one_returns_one_is_removed_and_a_third_sends_nan(
    tmp_path: Path,
) -> None:
    with Processes(tmp_path, list(SITES)) as federation:
        for name, data in SITES.items():
            if name == "site3":
                federation.tampered(name, data, nth=3)
            else:
                federation.client(name, data)
        server = federation.server(
            "--clients", "6", "--out", str(tmp_path / "out"), *MODEL, "--json",
            "--round-timeout", "10", "--give-up", "15", "--min-clients", "5",
        )  # fmt: skip
        until(lambda: federation.asked("site2") >= 1, 90)
        federation.kill("site2", with_supervisor=False)
        until(lambda: federation.asked("site5") >= 2, 90)
        federation.kill("site5", with_supervisor=True)
        status, out, err = ended(server, 240)
    assert status == 1, err
    told = json.loads(out)
    others = [name for name in SITES if name != "site5"]
    assert told["converged"] is True
    assert list(told["removed"]) == ["site5"]
    assert [row["client"] for row in told["clients"]] == others
    troubles = {(each["client"], each["what"]) for each in told["incidents"]}
    assert ("site3", "an answer that is not finite") in troubles
    assert any(client == "site5" for client, _ in troubles)
    coef, errors = pooled(others)
    assert np.abs((pd.Series(told["coef"]) - coef) / errors).max() < 1e-7
    assert np.allclose(pd.Series(told["se"]), errors[list(told["se"])], rtol=1e-8)
    assert told["certificate"]["standard_errors"] < 1e-9
    text = str(fs.load(tmp_path / "out").summary())
    assert "removed: client site5" in text
    assert "all numbers are those of the other clients" in text


@pytest.mark.parametrize(
    ("number", "vectors"),
    [(signal.SIGTERM, False), (signal.SIGKILL, True)],
)
def test_a_server_that_is_stopped_goes_on_to_the_same_bits(
    tmp_path: Path, number: signal.Signals, vectors: bool
) -> None:
    sites = {name: SITES[name] for name in ("site3", "site4")}
    # far enough that more is saved than the first question, which confirms the data again
    enough = 3
    method, question = "information", "local_model"
    if vectors:
        method, question = "quasi-newton", "trials"
    here = fs.fit(list(sites.values()), FORMULA, family="poisson", method=method)
    out = tmp_path / "out"
    with Processes(tmp_path, list(sites)) as federation:
        for name, data in sites.items():
            federation.client(name, data, *["--vectors"] * vectors)
        server = federation.server("--clients", "2", "--out", str(out), *MODEL)
        until(lambda: federation.asked("site3", question) >= enough, 90)
        server.send_signal(number)
        status, _, err = ended(server)
        before = federation.asked("site3", question)
        assert status == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
        if number != signal.SIGKILL:
            assert f"resume it with the same command and --resume {out / 'checkpoint'}" in err
            assert "Traceback" not in err
        server = federation.server(
            "--clients",
            "2",
            "--out",
            str(out),
            *MODEL,
            "--resume",
            str(out / "checkpoint"),
            "--json",
        )
        status, text, err = ended(server)
        assert status == 0, err
        rounds = federation.asked("site3", question)
    told = json.loads(text)
    assert list(told["coef"].values()) == here.params.to_numpy().tolist()
    assert told["rounds"] == here.rounds
    assert (
        before + int((here.trace.kind == "round").sum()) > rounds
    )  # old answers were not asked for again


def test_a_study_waits_for_its_owners_and_its_log_comes_out_again(tmp_path: Path) -> None:
    sites = {name: SITES[name] for name in ("site3", "site4")}
    model = ["--formula", "mdvis ~ logc + idp + disea", "--family", "poisson"]
    with Processes(tmp_path, list(sites)) as federation:
        for name, data in sites.items():
            federation.client(name, data, "--approve", "ask", "--strict")
        server = federation.server("--clients", "2", "--out", str(tmp_path / "out"), *model)
        studies = {name: Studies(federation.kept(name)) for name in sites}
        for each in studies.values():
            until(lambda each=each: len(each.pending()) == 1, 90)  # type: ignore[misc]  # its own
        assert federation.asked("site3", "survey") == 0
        server.send_signal(signal.SIGINT)
        status, _, err = ended(server)
        assert (status, "what they decided is kept" in err) == (130, True)
        [name] = studies["site3"].pending()
        for client in sites:
            folder = str(federation.kept(client))
            assert run(["approve", name[:16], "--folder", folder]) == 0
        server = federation.server("--clients", "2", "--out", str(tmp_path / "out"), *model)
        status, _, err = ended(server)
        assert (status, name[:4] in err) == (0, True)
    found = fs.load(tmp_path / "out")
    for client in sites:
        folder = str(federation.kept(client))
        assert run(["audit", folder, "--head", found.run.logs[client]]) == 0
    log = (tmp_path / "site3.log").read_text(encoding="utf-8")
    assert "is pending: fedsplit approve --folder" in log
    assert "has ended, with this result" in log
    assert "disea" in log


def test_too_few_clients_are_an_end_with_names(tmp_path: Path) -> None:
    with Processes(tmp_path, ["site1", "site2"]) as federation:
        federation.client("site1", SITES["site1"])
        server = federation.server(
            "--clients", "2", "--out", str(tmp_path / "out"), *MODEL, "--wait", "12"
        )
        status, out, err = ended(server)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == (
        "fedsplit: error: 1 of 2 clients came within 12 seconds (site2 did not): "
        "start fedsplit client there, "
        "or wait longer with --wait"
    )


def test_a_model_that_a_client_refuses_ends_the_run_in_one_line(tmp_path: Path) -> None:
    with Processes(tmp_path, ["site1", "site2"]) as federation:
        for name in ("site1", "site2"):
            federation.client(name, SITES[name])
        server = federation.server(
            "--clients", "site1,site2", "--out", str(tmp_path / "out"), "--formula", "mdvis ~ logk"
        )
        status, out, err = ended(server)
    assert (status, out) == (2, "")
    assert "client site1: there is no column logk" in err.splitlines()[-1]
    assert "logc" not in err  # names of other columns do not leave
    assert not list((tmp_path / "out").rglob("checkpoint.json"))  # the next model may go there
