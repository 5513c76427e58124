"""The partners that the owner of a site knows: names, and fingerprints of their long-term keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedsplit import files
from fedsplit.errors import RequestError


class Pins:
    """The fingerprints of partners that an owner has approved, in a file of the site.

    Parameters
    ----------
    folder : Path
        Of the client.
    given : mapping of str to str
        Those of the owner's policy, which hold in any case.
    """

    def __init__(self, folder: Path, given: Mapping[str, str]) -> None:
        self._path = folder / "partners.json"
        self._given = given

    def known(self) -> dict[str, str]:
        """By name, the fingerprints, separated by spaces where a partner has several."""
        kept: dict[str, str] = {}
        try:
            kept = dict(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            pass
        except ValueError:
            raise RequestError("its record of the partners' keys cannot be read") from None
        return kept | dict(self._given)

    def strangers(self, members: Mapping[str, str], name: str) -> list[str]:
        """The members of a study, beside this site, with a key that is not known."""
        known = self.known()
        return [
            each
            for each, keys in members.items()
            if each != name and not set(keys.split()) <= set(known.get(each, "").split())
        ]

    def keep(self, members: Mapping[str, str]) -> None:
        """Take note of the keys of a study that the owner has approved."""
        known = self.known()
        if {**known, **members} != known:
            content = json.dumps({**known, **members}, indent=2, sort_keys=True)
            files.write_private(self._path, content)
