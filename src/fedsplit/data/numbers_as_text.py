"""Columns of text that look like numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fedsplit.data.types import MOSTLY, is_number
from fedsplit.errors import RowError

WRITTEN = re.compile(
    r"[-+]?[€$£]? ?[-+]?([0-9]+|[0-9]{1,3}([ .,'\u00a0\u202f][0-9]{3})+|(?=[.,]))([.,][0-9]+)?"
    r"([eE][-+]?[0-9]+)? ?[€$£%]?"
)
"""A number as people write it, with a decimal comma, separated thousands, a currency or percent."""


def check_numbers(where: str, column: str, counts: Mapping[str, int]) -> None:
    """Raise RowError if most values of a column of text look like numbers.

    It would be a category of as many levels, where a few mistakes, a decimal comma or the type in
    which it is stored have made it text.

    Parameters
    ----------
    where, column : str
        For the message.
    counts : mapping of str to int
        The rows of each value.
    """
    total = sum(counts.values())
    looks = {text: WRITTEN.fullmatch(text) is not None for text in counts}
    if sum(n for text, n in counts.items() if looks[text]) <= MOSTLY * total:
        return
    plain = {text: is_number(text) for text in counts}
    if sum(n for text, n in counts.items() if plain[text]) <= MOSTLY * total:
        example = next(text for text in counts if looks[text] and not plain[text])
        what = f"{where}: column {column} holds text that looks like numbers"
        advice = (
            "give --decimal ',' if that is the decimal mark, else remove what is no part of a "
            f"number, or write C({column}) if it is a category"
        )
        raise RowError(f"{what}, such as {example!r}: {advice}", f"{what}: {advice}")
    if all(plain.values()):
        message = (
            f"{where}: column {column} holds numbers that are stored as text: declare it, as in "
            f"--types {column}=number, or write C({column}) if it is a category"
        )
        raise RowError(message, message)
    other = next(text for text in counts if not plain[text])
    what = f"{where}: column {column} holds numbers, but"
    advice = (
        "correct the file, name it with --na if it stands for a missing value, or write "
        f"C({column}) if it is a category"
    )
    raise RowError(f"{what} {other!r} is none: {advice}", f"{what} also other text: {advice}")
