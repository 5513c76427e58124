"""A whole federation on one machine, for tests, tutorials and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsplit.federation.coordinator import Coordinator, Interruption, StudyResult
from fedsplit.federation.keys import public_bytes
from fedsplit.federation.regression import RegressionStudy
from fedsplit.federation.site.policy import Policy, policy_of
from fedsplit.federation.site.site import Site
from fedsplit.federation.study import Analysis, Study
from fedsplit.federation.transport import Transport
from fedsplit.federation.transport.direct import DirectTransport
from fedsplit.regression.options import FitOptions


class Federation:
    """A coordinator and sites with keys, policies and rows, each in a folder of its own.

    Parameters
    ----------
    folder : Path
        Empty.
    data : mapping of str to DataFrame or path
        The rows of each site.
    **policy
        Keys of every site's ``site.toml``; without any, sites are strict, and approve all studies
        that they may.
    """

    def __init__(self, folder: Path, data: Mapping[str, Any], **policy: Any) -> None:
        self.folder = folder
        self.names = tuple(data)
        self.key = Ed25519PrivateKey.generate()
        self.keys = {name: Ed25519PrivateKey.generate() for name in data}
        self.members = {name: public_bytes(key).hex() for name, key in self.keys.items()}
        self._policy = {"approve": "always", "partners": self.members, **policy}
        self._data: dict[str, str] = {}
        for name, rows in data.items():
            (folder / name).mkdir(mode=0o700, parents=True)
            path = folder / name / "rows.csv"
            if isinstance(rows, pd.DataFrame):
                rows.to_csv(path, index=False)
            self._data[name] = str(path if isinstance(rows, pd.DataFrame) else rows)

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
        """The study of a regression, with the options of ``fit``."""
        return self.study(RegressionStudy.of(FitOptions(None, formula, **options)), secure=secure)

    def site(self, name: str, **settings: Any) -> Site:
        """Open a site; its folder may be open elsewhere, as after a restart."""
        disclosed = self.folder / "disclosed.db"
        return Site(self.folder / name, self.keys[name], self.policy(name), disclosed, **settings)

    def coordinator(self, transport: Transport, **settings: Any) -> Coordinator:
        return Coordinator(self.folder / "coordinator", self.key, transport, **settings)

    def direct(self, **settings: Any) -> DirectTransport:
        """All sites in this process."""
        return DirectTransport({name: self.site(name, **settings).reply for name in self.names})

    def run(self, study: Study, **chosen: Any) -> StudyResult | Interruption:
        """Run a study with all sites in this process."""
        return self.coordinator(self.direct()).run(study, **chosen)
