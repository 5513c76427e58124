"""What a client knows about itself and its federation."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Credentials(NamedTuple):
    """What a client knows about itself and the federation.

    Attributes
    ----------
    fingerprint : str
        Of its own key.
    ca : bytes
        The certificate (PEM) of the federation's authority.
    key : Path or None
        The file of its own key; without it there are no secure sums.
    """

    fingerprint: str
    ca: bytes
    key: Path | None = None
