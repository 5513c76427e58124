"""A secure study between processes that round differently, as on other machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("cryptography")

from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.transport.https.coordinator import HttpsTransport
from fedsplit.testing import Federation

SITES = {f"site{j}": Path(f"examples/randhie/site{j}.csv").absolute() for j in (1, 2, 3)}
FORMULA = "mdvis ~ logc + idp + linc + xage + disea + C(health)"
TYPES = dict.fromkeys(("mdvis", "logc", "idp", "linc", "xage", "disea"), "number")
LEVELS = {"health": ["excellent", "fair", "good", "poor"]}

KERNELS = ("Prescott", "Nehalem", "Haswell")
"""Processors whose instructions OpenBLAS can be told to use: the sums of each end differently."""

SITE = """
import json, sys, threading
from pathlib import Path
from typing import Any
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fedsplit.federation.site.policy import policy_of
from fedsplit.federation.site.site import Site
from fedsplit.federation.transport.https.site import serve
folder, key, policy, url, seed = sys.argv[1:]
key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key))
policy = policy_of(json.loads(policy), "policy")
draw = np.random.default_rng([1, *seed.encode()]).bytes
site = Site(Path(folder), key, policy, Path(folder) / "disclosed.db", draw=draw)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
serve(site.reply, None, url, name=policy.name, stop=stop)
"""

SUMS = """
import numpy as np
A = np.random.default_rng(0).normal(size=(999, 7))
print((A.T @ A).tobytes().hex())
"""


def environment(kernel: str) -> dict[str, str]:
    return {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def processes(federation: Federation, url: str) -> Iterator[None]:
    """A process for each site, with another kernel in each."""
    with ExitStack() as stack:
        for name, kernel in zip(federation.names, KERNELS, strict=True):
            policy = json.dumps(msgspec.to_builtins(federation.policy(name)))
            key = federation.keys[name].private_bytes_raw().hex()
            # the last digits of rounded answers depend on what a site draws: as in one process
            own = [str(federation.folder / name), key, policy, url, f"{name} keys"]
            line = [sys.executable, "-c", SITE, *own]
            process = stack.enter_context(
                subprocess.Popen(line, stdin=subprocess.PIPE, env=environment(kernel))
            )
            assert process.stdin is not None
            stack.callback(process.stdin.close)
        yield


@pytest.mark.slow
def test_questions_are_the_same_on_machines_that_round_differently(tmp_path: Path) -> None:
    sums = {
        subprocess.run(
            [sys.executable, "-c", SUMS], env=environment(kernel), capture_output=True, check=True
        ).stdout
        for kernel in KERNELS
    }
    if len(sums) == 1:
        pytest.skip("this NumPy has one kernel for all of these processors")
    here = Federation(tmp_path / "here", SITES, seed=1)
    options: dict[str, Any] = {
        "family": "poisson",
        "types": {**TYPES, "health": "text"},
        "levels": LEVELS,
    }
    study = here.regression(FORMULA, **options)
    apart = Federation(tmp_path / "apart", SITES, seed=1)
    with ExitStack() as stack:
        transport = stack.enter_context(HttpsTransport(None, "127.0.0.1", 0))
        stack.enter_context(processes(apart, f"http://127.0.0.1:{transport.port}"))
        found = apart.coordinator(transport, wait=60.0).run(study)
    alone = here.run(study)
    assert isinstance(found, StudyResult)
    assert isinstance(alone, StudyResult)
    assert found.questions == alone.questions
    distance = np.abs(found.result.params - alone.result.params) / alone.result.bse
    assert distance.max() < 1e-9
