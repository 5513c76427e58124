"""The options of ``fedsplit client``, most of which ``fedsplit answer`` has, too."""

# No `from __future__ import annotations` here: Typer needs the types of the fields.

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsplit.checks import count
from fedsplit.commands.options import NO_TLS
from fedsplit.errors import InputError
from fedsplit.regression.fields import option, options_of
from fedsplit.regression.options import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedsplit.data.reading import Reading
    from fedsplit.regression.client.guards.rules import Rules
    from fedsplit.remote.https.endpoint import Endpoint
    from fedsplit.sites.events import Event
    from fedsplit.sites.service import Site
    from fedsplit.sites.studies.credentials import Credentials


Data = Annotated[
    str, typer.Option(metavar="FILE", help="This client's rows, as fedsplit fit takes them.")
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name in the federation; by default that of the key, or of the file."
    ),
]
Na = Annotated[str, typer.Option(metavar="CODE,...", help=options_of(Settings)["na"].text)]
Decimal = Annotated[str, typer.Option(metavar="MARK", help=options_of(Settings)["decimal"].text)]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for the client's state; by default ~/.local/state/fedsplit/NAME.",
    ),
]


def absolute(text: str) -> Path:
    """The path of a file, also for a process in another folder."""
    return Path(text).absolute()


@dataclass(frozen=True, kw_only=True)
class SiteKeys:
    """Whom a client trusts, and who it is."""

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
    insecure: bool = option(False, NO_TLS, "network")

    def name(self, given: str | None, data: str) -> str:
        """The client's name: the one that is given, or that of the key, or of the file."""
        from fedsplit.remote.keys import check_name  # needs cryptography

        name = Path(data).name.split(".")[0]
        if self.key is not None:
            name = self.key.stem
        if given is not None:
            name = given
        check_name(name)
        return name

    def credentials(self) -> "Credentials | None":
        """What studies are verified with: the client's own key, and the federation's CA."""
        if self.key is None or self.ca is None:
            return None
        from fedsplit.remote.keys import fingerprint, read_private_key
        from fedsplit.sites.studies.credentials import Credentials

        own = read_private_key(self.key).public_key()
        return Credentials(fingerprint(own), self.ca.read_bytes(), self.key)


@dataclass(frozen=True, kw_only=True)
class ClientNetwork(SiteKeys):
    """How a client connects to its server."""

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
        "Refuse, whatever the server asks for, answers about fewer than 10 rows, levels and "
        "conditions of fewer than 3, more parameters than a third of the rows, maxima, margins and "
        "minibatches; round sums. Who keeps many answers can still work out single rows: how much "
        "can rest on one is reported to you, and refused by largest_leverage of a policy.",
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

    def site(
        self,
        name: str,
        data: str,
        folder: Path,
        reading: "Reading",
        credentials: "Credentials | None",
        watch: "Callable[[Event], object]",
        fresh: bool = False,
    ) -> "Site":
        """The client with these rules; the parameters are those of ``Site``."""
        from fedsplit.sites.options import SiteOptions
        from fedsplit.sites.service import Site  # takes a while to import

        options = SiteOptions(
            max_rounds=self.max_rounds,
            strict=self.strict,
            rules=self.rules(),
            vectors=self.vectors,
            log=self.log,
            fresh=fresh,
            reading=reading,
            approve=self.approve,
            credentials=credentials,
        )
        return Site(name, data, folder=folder, options=options, watch=watch)
