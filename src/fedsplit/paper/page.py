"""The page of the reproduced paper: figures, claims and settings, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedsplit import html as pages
from fedsplit.paper.record import Claim, Experiment, Record


class Section(NamedTuple):
    """One experiment on the page."""

    experiment: Experiment
    record: Record
    figures: Mapping[str, bytes]
    claims: Sequence[Claim]


def page(sections: Sequence[Section], command: str) -> str:
    """The page as HTML."""
    claims = [claim for section in sections for claim in section.claims]
    return pages.render(
        "reproduction.html",
        sections=sections,
        command=command,
        held=sum(claim.holds for claim in claims),
        total=len(claims),
        seconds=sum(section.record.seconds for section in sections),
        versions=pages.versions("fedsplit", "numpy", "scipy", "matplotlib"),
    )
