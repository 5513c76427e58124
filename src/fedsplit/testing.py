"""A whole federation on one machine, for tests, tutorials and measurements."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsplit.channels.patience import Patience
from fedsplit.errors import TooFewClients
from fedsplit.federation.coordinator import Coordinator, Interruption, StudyResult
from fedsplit.federation.keys import public_bytes
from fedsplit.federation.regression import RegressionStudy
from fedsplit.federation.site.policy import Policy, policy_of
from fedsplit.federation.site.site import Site
from fedsplit.federation.study import Analysis, Study
from fedsplit.federation.transport import Transport
from fedsplit.federation.transport.direct import DirectTransport
from fedsplit.federation.transport.files import FileTransport, answer_files
from fedsplit.regression.options import FitOptions


class Federation:
    """A coordinator and sites with keys, policies and rows, each in a folder of its own.

    Parameters
    ----------
    folder : Path
        Empty.
    data : mapping of str to DataFrame or path
        The rows of each site.
    seed : int, optional
        Of all keys, so that two federations have the same bits; without it they are secret.
    disclosed : Path, optional
        The record of what was disclosed, if the sites are on one machine; by default each has one.
    **policy
        Keys of every site's ``site.toml``; without any, sites are strict, and approve all studies
        that they may.
    """

    def __init__(
        self,
        folder: Path,
        data: Mapping[str, Any],
        *,
        seed: int | None = None,
        disclosed: Path | None = None,
        **policy: Any,
    ) -> None:
        self.folder = folder
        self.names = tuple(data)
        self._seed = seed
        self._disclosed = disclosed
        self.key = Ed25519PrivateKey.from_private_bytes(self._draw("")(32))
        self.keys = {
            name: Ed25519PrivateKey.from_private_bytes(self._draw(name)(32)) for name in data
        }
        self.members = {name: public_bytes(key).hex() for name, key in self.keys.items()}
        self._policy = {"approve": "always", "partners": self.members, **policy}
        self._data: dict[str, str] = {}
        for name, rows in data.items():
            (folder / name).mkdir(mode=0o700, parents=True)
            path = folder / name / "rows.csv"
            if isinstance(rows, pd.DataFrame):
                rows.to_csv(path, index=False)
            self._data[name] = str(path if isinstance(rows, pd.DataFrame) else rows)

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs to open a site; keys travel as their bytes."""
        raw = {name: key.private_bytes_raw() for name, key in self.keys.items()}
        return {**vars(self), "key": self.key.private_bytes_raw(), "keys": raw}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        read = Ed25519PrivateKey.from_private_bytes
        self.key = read(state["key"])
        self.keys = {name: read(raw) for name, raw in state["keys"].items()}

    def _draw(self, name: str) -> Callable[[int], bytes]:
        """What gives random bytes to a site, or to the coordinator by an empty name."""
        if self._seed is None:
            return secrets.token_bytes
        return np.random.default_rng([self._seed, *name.encode()]).bytes

    def policy(self, name: str) -> Policy:
        """The policy of a site."""
        coordinator = public_bytes(self.key).hex()
        own = {"name": name, "data": self._data[name], "coordinator": coordinator}
        return policy_of({**own, **self._policy}, name)

    def study(self, analysis: Analysis, **terms: Any) -> Study:
        """A study of all sites."""
        own = {"title": "a study", "questions": analysis.usual, **terms}
        coordinator = public_bytes(self.key).hex()
        return Study(analysis=analysis, members=self.members, coordinator=coordinator, **own)

    def regression(self, formula: str, *, secure: bool = True, **options: Any) -> Study:
        """The study of a regression, with terms of a study and options of ``fit``."""
        names = {each.name for each in fields(Study)}
        terms = {name: options.pop(name) for name in names & options.keys()}
        analysis = RegressionStudy.of(FitOptions(None, formula, secure=secure, **options))
        return self.study(analysis, secure=secure, **terms)

    def site(self, name: str, **settings: Any) -> Site:
        """Open a site; its folder may be open elsewhere, as after a restart."""
        own = {"draw": self._draw(f"{name} keys"), **settings}
        folder = self.folder / name
        disclosed = self._disclosed or folder / "disclosed.db"
        return Site(folder, self.keys[name], self.policy(name), disclosed, **own)

    def coordinator(self, transport: Transport, **settings: Any) -> Coordinator:
        return Coordinator(self.folder / "coordinator", self.key, transport, **settings)

    def direct(self, **settings: Any) -> DirectTransport:
        """All sites in this process."""
        return DirectTransport({name: self.site(name, **settings).reply for name in self.names})

    def by_files(self, study: Study, **chosen: Any) -> StudyResult | Interruption:
        """Run a study by files, until nobody answers any more."""
        post = self.folder / "post"
        while True:
            transport = FileTransport(post, self.key, self.members)
            result = self.coordinator(transport).run(study, **chosen)
            if isinstance(result, StudyResult):
                return result
            answered = [
                answer_files(self.site(name), self.keys[name], post / name) for name in self.names
            ]
            if not any(answered):
                return result

    def run_once(self, study: Study) -> StudyResult | Interruption | None:
        """Run a study without patience; None if sites are absent."""
        patience = Patience(round_timeout=0.01, give_up=1e-9)
        try:
            return self.coordinator(self.direct(), patience=patience).run(study)
        except TooFewClients:
            return None

    def run(self, study: Study, **chosen: Any) -> StudyResult | Interruption:
        """Run a study with all sites in this process."""
        return self.coordinator(self.direct()).run(study, **chosen)
