"""What is worth a warning, and the lines that say it: one for each kind, however many there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedsplit.errors import listed

SHOWN = 3
"""How many of a kind are named."""

LONGEST = 1_000
"""Characters of a line."""


class Finding(NamedTuple):
    """Something about one client, or one of several fits.

    Attributes
    ----------
    name : str
        Of what it is about.
    one : str
        The whole sentence, where it is the only one of its kind.
    many : str
        What follows the number of those that it is said of, where there are several.
    detail : str
        How it is named among several.
    rule : str
        The key of a policy that it breaks, if it breaks one.
    """

    name: str
    one: str
    many: str
    detail: str
    rule: str = ""


def in_lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each kind, with a count and the first few names, in the order of the first."""
    kinds: dict[str, list[Finding]] = {}
    for each in dict.fromkeys(findings):  # a rare level is found twice
        kinds.setdefault(each.many, []).append(each)
    lines = []
    for many, alike in kinds.items():
        details: dict[str, str] = {}
        for each in alike:
            details.setdefault(each.name, each.detail)  # the count is that of names
        if len(details) == 1:
            lines += [each.one for each in alike]
        else:
            lines.append(f"{len(details):,} {many}: {listed(details.values(), SHOWN)}")
    # levels can have line breaks, and clients of other organisations send what they like
    return [" ".join(line.split())[:LONGEST] for line in lines]
