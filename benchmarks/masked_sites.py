"""Sites in this process as between organisations, but for the network: keys, logs and ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedsplit.channels.channel import Channel
from fedsplit.channels.members import Patience
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.regression.result.model import Model
from fedsplit.remote.issuing import make_keys, request_certificate, sign_request
from fedsplit.remote.keys import fingerprint, read_private_key
from fedsplit.remote.messages import MessageChannel
from fedsplit.remote.signatures import Signer
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.service import Site
from fedsplit.sites.studies.credentials import Credentials
from fedsplit.sites.studies.key_exchange import KeyExchange
from fedsplit.sites.studies.proposing import Proposal, make_study
from fedsplit.sites.studies.store import Studies


class MaskedSites:
    """Sites, and the server that asks them by messages.

    Parameters
    ----------
    folder : Path
        For their files, keys and folders.
    data : mapping of str to DataFrame
        The rows by site.
    """

    def __init__(self, folder: Path, data: Mapping[str, pd.DataFrame]) -> None:
        self._folder = folder
        self._names = list(data)
        make_keys(folder / "keys", ["spare"], ["127.0.0.1"], 2)
        self._signer = Signer(folder / "keys")
        self._members = {}
        self._sites = {}
        ca = (folder / "keys" / "ca.crt").read_bytes()
        for name, rows in data.items():
            rows.to_csv(folder / f"{name}.csv", index=False)
            request, _ = request_certificate(folder / "own", name)
            sign_request(folder / "keys", request, 2)
            key = folder / "own" / f"{name}.key"
            self._members[name] = fingerprint(read_private_key(key).public_key())
            options = SiteOptions(
                approve="ask", credentials=Credentials(self._members[name], ca, key)
            )
            self._sites[name] = Site(
                name, str(folder / f"{name}.csv"), folder=self._kept(name), options=options
            )

    def send(
        self, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        """By site, its reply."""
        return {name: (self._sites[name].reply(each), "", 0.0) for name, each in messages.items()}

    def fit(self, options: FitOptions) -> Model:
        """Propose a study, have it approved by all, and fit."""
        study = make_study(options, self._members, self._signer.fingerprint, None)
        proposal = Proposal(self, study, self._signer.sign(study.canonical))
        proposal.ask(self._names)
        for name in self._names:
            Studies(self._kept(name)).decide(study.hash, "approved", "fedsplit approve")
        decisions = proposal.ask(self._names)
        channel: Channel = MessageChannel(self, self._names, study.hash)
        if options.secure:
            keys = KeyExchange(self._folder / "keys.json", study)
            keys.take(decisions)
            keys.share(self, self._names)
            channel = keys.channel(channel, Patience())
        return fit_over(channel, options)

    def _kept(self, name: str) -> Path:
        return self._folder / f"kept {name}"
