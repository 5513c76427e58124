"""Secure sums between organisations as their users start them: real processes, TLS and keys."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import fedsplit as fs
from federation import Processes, until
from fedsplit.commands.app import run
from fedsplit.remote.issuing import make_keys, request_certificate, sign_request
from fedsplit.sites.studies.store import Studies
from test_federation import FORMULA, SITES, ended, pooled

pytestmark = pytest.mark.slow

COLUMNS = ["mdvis", *FORMULA.partition("~")[2].replace(" ", "").split("+")]
MODEL = (
    "--formula", FORMULA, "--family", "poisson", "--secure",
    "--types", ",".join(f"{column}=number" for column in COLUMNS),
)  # fmt: skip


class SecureProcesses(Processes):
    """Clients whose keys were made by themselves."""

    def make_keys(self, names: Sequence[str]) -> None:
        make_keys(self.folder / "keys", ["spare"], ["127.0.0.1"], 2)
        for name in names:
            request, _ = request_certificate(self.folder / "own", name)
            sign_request(self.folder / "keys", request, 2)
            certificate = self.folder / "keys" / "clients" / f"{name}.crt"
            shutil.copy(certificate, self.key(name).with_suffix(".crt"))

    def key(self, name: str) -> Path:
        return self.folder / "own" / f"{name}.key"

    def approve(self, *more: str) -> None:
        """Have every owner approve the study that waits."""
        for name in self.clients:
            studies = Studies(self.kept(name))
            until(lambda: bool(studies.pending()), 120)  # noqa: B023  # it is called at once
            [study] = studies.pending()
            assert run(["approve", study[:16], "--folder", str(self.kept(name)), *more]) == 0


def test_six_organisations_give_the_pooled_table_by_sums_alone(tmp_path: Path) -> None:
    here = fs.fit(list(SITES.values()), FORMULA, family="poisson", secure=True)
    with SecureProcesses(tmp_path, list(SITES)) as federation:
        for name, data in SITES.items():
            federation.client(name, data)
        server = federation.server("--clients", "6", "--out", str(tmp_path / "out"), *MODEL)
        federation.approve()
        status, out, err = ended(server)
        assert status == 0, err
        for name in SITES:
            assert run(["audit", str(federation.kept(name))]) == 0
    there = fs.load(tmp_path / "out")
    assert "over 6 clients by secure sums" in out
    np.testing.assert_allclose(there.params, here.params, rtol=1e-11)  # the last digits are random
    coef, se = pooled(list(SITES))
    assert (
        (there.params - coef[list(there.estimates.names)]) / se[list(there.estimates.names)]
    ).abs().max() < 1e-9
    assert sorted(there.run.logs) == sorted(SITES)


def test_a_client_and_the_server_are_killed_and_the_result_is_the_same(tmp_path: Path) -> None:
    names = list(SITES)[:4]
    here = fs.fit([SITES[name] for name in names], FORMULA, family="poisson", secure=True)
    out = tmp_path / "out"
    with SecureProcesses(tmp_path, names) as federation:
        for name in names:
            federation.client(name, SITES[name])
        server = federation.server("--clients", "4", "--out", str(out), *MODEL)
        federation.approve()
        until(lambda: federation.asked("site1") >= 2, 120)
        federation.kill("site2", with_supervisor=False)
        server.kill()
        server.communicate(timeout=30)
        resume = ("--resume", str(out / "checkpoint"))
        status, _, err = ended(
            federation.server("--clients", "4", "--out", str(out), *resume, *MODEL)
        )
        assert status == 0, err
    np.testing.assert_allclose(fs.load(out).params, here.params, rtol=1e-10)


def test_the_run_goes_on_without_a_client_whose_owner_allows_that(tmp_path: Path) -> None:
    names = list(SITES)[:4]
    with SecureProcesses(tmp_path, names) as federation:
        for name in names:
            federation.client(name, SITES[name])
        server = federation.server(
            "--clients", "4", "--min-clients", "3", "--give-up", "4", "--out",
            str(tmp_path / "out"), *MODEL,
        )  # fmt: skip
        federation.approve("--allow-removal")
        until(lambda: federation.asked("site4") >= 2, 120)
        federation.kill("site4", with_supervisor=True)
        status, _, err = ended(server)
        assert status == 1, err
        assert "the table is without site4" in err
    there = fs.load(tmp_path / "out")
    coef, se = pooled(names[:3])
    assert (
        (there.params - coef[list(there.estimates.names)]) / se[list(there.estimates.names)]
    ).abs().max() < 1e-9
