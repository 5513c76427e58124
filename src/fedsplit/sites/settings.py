"""How a client was set up when it answered: kept beside its log, so that it can be audited."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from fedsplit import files
from fedsplit.data.reading import Reading
from fedsplit.errors import InputError
from fedsplit.regression.client.guards.rules import Rules


@dataclass(frozen=True)
class SiteSettings:
    """What a client's answers depend on beside its rows and the questions.

    Attributes
    ----------
    name : str
        Of the client.
    data : str
        Its file.
    na, decimal
        How that is read.
    vectors : bool
        Whether matrices are sent for proofs only.
    rules : Rules
    """

    name: str
    data: str
    na: tuple[str, ...]
    decimal: str
    vectors: bool
    rules: Rules

    @property
    def reading(self) -> Reading:
        """How the file is read."""
        return Reading(self.na, self.decimal)

    def keep(self, folder: Path) -> str:
        """Keep them in the folder of a client, and return the name by which they are found."""
        text = json.dumps(asdict(self), indent=2, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        within = folder / "settings"
        within.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = within / f"{name}.json"
        if not path.exists():
            files.write_private(path, text)
        return name


def read_settings(folder: Path, name: str) -> SiteSettings:
    """The settings of this name in the folder of a client."""
    path = folder / "settings" / f"{name}.json"
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest()[:16] != name:
            raise InputError(f"{path}: was changed since answers were given with it")
        return msgspec.json.decode(content, type=SiteSettings)
    except FileNotFoundError:
        raise InputError(f"{path}: is missing, so that answers cannot be computed again") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
