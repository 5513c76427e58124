"""The options of ``fedsplit client`` that are about its connection and its owner's rules."""

# No `from __future__ import annotations` here: Typer needs the types of the fields.

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsplit.checks import count
from fedsplit.commands.options import NO_TLS
from fedsplit.errors import InputError
from fedsplit.regression.fields import option

if TYPE_CHECKING:
    from fedsplit.regression.client.guards.rules import Rules
    from fedsplit.remote.https.endpoint import Endpoint


def absolute(text: str) -> Path:
    """The path of a file, also for a process in another folder."""
    return Path(text).absolute()


@dataclass(frozen=True, kw_only=True)
class ClientNetwork:
    """How a client connects to its server."""

    key: Path | None = option(
        None, "Private key of this client, NAME.key.", "network", metavar="FILE", read=absolute
    )
    ca: Path | None = option(
        None,
        "Certificate of the federation's CA, ca.crt, which is needed with --key. It must have "
        "issued the certificates of the server and of the coordinator.",
        "network",
        metavar="FILE",
        read=absolute,
    )
    certificate: Path | None = option(
        None,
        "Certificate of the key; by default NAME.crt beside it.",
        "network",
        metavar="FILE",
        read=absolute,
    )
    proxy: str | None = option(
        None,
        "HTTP proxy to connect through; by default that of HTTPS_PROXY and NO_PROXY.",
        "network",
        metavar="URL",
    )
    insecure: bool = option(False, NO_TLS, "network")

    def endpoint(self, server: str, name: str) -> "Endpoint":
        """The server at this address, for a client of this name."""
        from fedsplit.remote.https.endpoint import Endpoint  # takes a while to import

        return Endpoint(
            server,
            key=self.key,
            ca=self.ca,
            certificate=self.certificate,
            proxy=self.proxy,
            insecure=self.insecure,
            name=name,
        )


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a client's owner allows."""

    approve: str = option(
        "ask",
        "Which studies this client takes part in: ask at the terminal, or wait for fedsplit "
        "approve; always; or the one with this hash, and wait with any other.",
        "privacy",
        metavar="ask|always|HASH",
    )
    max_rounds: int | None = option(
        None,
        "Maximum number of questions to answer, until this command is started again.",
        "privacy",
        metavar="N",
    )
    strict: bool = option(
        False,
        "Refuse requests that could disclose single rows, whatever the server asks for.",
        "privacy",
    )
    policy: Path | None = option(
        None,
        "Rules of this client, policy.toml; those of --strict hold as well. fedsplit policy check "
        "says what they allow.",
        "privacy",
        metavar="FILE",
        read=absolute,
    )
    vectors: bool = option(
        False,
        "Tell matrices for proofs only: the rounds of the whole fit then use vectors.",
        "privacy",
    )
    log: Path | None = option(
        None,
        "Log with one line per question; by default questions.jsonl in the folder.",
        "privacy",
        metavar="FILE",
        read=absolute,
    )

    def __post_init__(self) -> None:
        if self.max_rounds is not None:
            count("max_rounds", self.max_rounds)
        if self.policy is not None and not self.policy.is_file():
            raise InputError(f"--policy {self.policy}: there is no such file")

    def rules(self) -> "Rules":
        """The rules in the policy; without one, those that only warn."""
        from fedsplit.regression.client.guards.rules import WARN
        from fedsplit.sites.studies.policy import read_policy

        if self.policy is None:
            return WARN
        return read_policy(self.policy)
