"""Columns of text that look like numbers or dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedsplit.data.types import MOSTLY, Type, declaration, is_date, is_number
from fedsplit.errors import RowError

WRITTEN = re.compile(
    r"[-+]?[€$£]? ?[-+]?([0-9]+|[0-9]{1,3}([ .,'\u00a0\u202f][0-9]{3})+|(?=[.,]))([.,][0-9]+)?"
    r"([eE][-+]?[0-9]+)? ?[€$£%]?"
)
"""A number as people write it, with a decimal comma, separated thousands, a currency or percent."""

THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(,[0-9]{3})+")
"""A whole number whose thousands are separated, or a number of three decimals: nobody can tell."""

DAY = "(0?[1-9]|[12][0-9]|3[01])"
MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
WRITTEN_DATE = re.compile(
    rf"([0-9]{{4}}[-/.]{DAY}[-/.]{DAY}|{DAY}[-/.]{DAY}[-/.]([0-9]{{2}}|[0-9]{{4}})"
    rf"|{DAY}[-/. ]*{MONTH}[-/. ]*([0-9]{{2}}|[0-9]{{4}}))([ T,]+[0-9]{{1,2}}:[0-9]{{2}}.*)?"
)
"""A date as people write it: 31/1/2020, 2020.01.31 or 31-Jan-2020, also with a time."""


def check_looks(where: str, column: str, counts: Mapping[str, int]) -> None:
    """Raise RowError if most values of a column of text look like numbers, or like dates.

    It would be a category of as many levels, where a few mistakes, a decimal comma or the type in
    which it is stored have made it text.

    Parameters
    ----------
    where, column : str
        For the message.
    counts : mapping of str to int
        The rows of each value.
    """
    here = f"{where}: column {column}"
    rules: Sequence[tuple[Type, str, Callable[[str], bool], Callable[[str], bool], str]] = (
        ("number", "numbers", _looks_like_number, is_number, advice_on_number(counts)),
        (
            "date",
            "dates",
            _looks_like_date,
            is_date,
            "write them as 2020-01-31, or give their format as dates in a TOML list of clients",
        ),
    )
    for kind, words, looks, reads, advice in rules:
        if not _most(looks, counts):
            continue
        if not _most(reads, counts):
            example = next(text for text in counts if looks(text) and not reads(text))
            what = f"{here} holds text that looks like {words}"
            advice = f"{advice}, or write C({column}) if it is a category"
            raise RowError(f"{what}, such as {example!r}: {advice}", f"{what}: {advice}")
        if all(map(reads, counts)):
            message = (
                f"{here} holds {words} that are stored as text: declare it by "
                f"{declaration(column, kind)}, or write C({column}) if it is a category"
            )
            raise RowError(message, message)
        other = next(text for text in counts if not reads(text))
        category = f"or write C({column}) if it is a category"
        raise RowError(
            f"{here} holds {words}, but {other!r} is none: correct the file, give na={[other]} if "
            f"it stands for a missing value, {category}",
            f"{here} holds {words}, but also other text: correct the file, name in na= what stands "
            f"for a missing value, {category}",
        )


def advice_on_number(texts: Iterable[str]) -> str:
    """Return what to do about texts, some of which look like numbers; nothing if none does."""
    written = [text for text in texts if _looks_like_number(text) and not is_number(text)]
    with_comma = [text for text in written if "," in text]
    if with_comma and all(map(THOUSANDS.fullmatch, with_comma)):
        return (
            "remove the commas if they separate thousands, or read the file by a query, as in "
            "read_csv('x.csv', thousands=','); give decimal=',' only if they are decimal marks"
        )
    if written:
        return (
            "give decimal=',' if that is the decimal mark, else remove what is no part of a number"
        )
    return ""


def _most(test: Callable[[str], bool], counts: Mapping[str, int]) -> bool:
    """Return whether most rows pass a test of their text."""
    return sum(n for text, n in counts.items() if test(text)) > MOSTLY * sum(counts.values())


def _looks_like_number(text: str) -> bool:
    return WRITTEN.fullmatch(text) is not None


def _looks_like_date(text: str) -> bool:
    return WRITTEN_DATE.fullmatch(text) is not None
