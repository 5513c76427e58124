"""Columns of text: what they can be read as, and which look like numbers or dates by mistake."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.reading import Reading, ValueClass
from fedsplit.data.tables import DTYPES, one_line
from fedsplit.data.types import MOSTLY, ColumnProfile, Type, declaration, is_date, is_number, share
from fedsplit.errors import RowError

WRITTEN_NUMBER = re.compile(
    r"[-+]?[€$£]? ?[-+]?([0-9]+|[0-9]{1,3}([ .,'\u00a0\u202f][0-9]{3})+|(?=[.,]))([.,][0-9]+)?"
    r"([eE][-+]?[0-9]+)? ?[€$£%]?"
)
"""A number as people write it, with a decimal comma, separated thousands, a currency or percent."""

THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(,[0-9]{3})+")
"""A whole number whose thousands are separated, or a number of three decimals: nobody can tell."""

DAY_OF_MONTH = "(0?[1-9]|[12][0-9]|3[01])"
MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
WRITTEN_DATE = re.compile(
    rf"([0-9]{{4}}[-/.]{DAY_OF_MONTH}[-/.]{DAY_OF_MONTH}"
    rf"|{DAY_OF_MONTH}[-/.]{DAY_OF_MONTH}[-/.]([0-9]{{2}}|[0-9]{{4}})"
    rf"|{DAY_OF_MONTH}[-/. ]*{MONTH}[-/. ]*([0-9]{{2}}|[0-9]{{4}}))"
    r"([ T,]+[0-9]{1,2}:[0-9]{2}.*)?"
)
"""A date as people write it: 31/1/2020, 2020.01.31 or 31-Jan-2020, also with a time."""


class Texts(NamedTuple):
    """The texts of a column, each distinct one once.

    Attributes
    ----------
    distinct : sequence of str
        In the order in which they first appear.
    codes : (n,) array of int
        The place of every row's text among them, -1 where it is missing.
    """

    distinct: Sequence[str]
    codes: NDArray[Any]

    @classmethod
    def of(cls, values: Any) -> Texts:
        """Return the texts of a column, (n,): objects, None where missing, or a categorical."""
        if isinstance(values, pd.Categorical):
            return cls(list(values.categories), values.codes)
        # For few values a dictionary is faster than pandas, and there are many small clients.
        if len(values) > 1000:
            codes, texts = pd.factorize(np.asarray(values, dtype=object))
            return cls(list(texts), codes)
        places: dict[str | None, int] = {None: -1}
        numbers = [places.setdefault(text, len(places) - 1) for text in values]
        del places[None]
        return cls(list(places), np.array(numbers, dtype=np.intp))  # type: ignore[arg-type]  # None is out

    def counts(self) -> Iterable[tuple[str, int]]:
        """Return each text with its number of rows."""
        counts = np.bincount(self.codes + 1, minlength=len(self.distinct) + 1)[1:]
        return zip(self.distinct, counts.tolist(), strict=True)

    def read(self, where: str, column: str, kind: Type, reading: Reading, start: int = 0) -> Any:
        """Return the values as a type, as ``Source.take`` does.

        ``where`` and ``column`` are what messages call the table and the column, in which there are
        ``start`` rows before these.
        """
        known: list[Any] = []
        for code, text in enumerate(self.distinct):
            try:
                known.append(reading.read(text, kind))
            except ValueError:
                row = start + int(np.argmax(self.codes == code)) + 1
                raise unreadable(where, column, kind, text.strip(), row) from None
        known.append(None if kind == "text" else np.nan)
        return np.array(known, dtype=DTYPES[kind])[self.codes]


def class_counts(texts: Iterable[tuple[str, int]], reading: Reading) -> Counter[ValueClass]:
    """Return how many rows are of each class, from the rows of each text."""
    counts: Counter[ValueClass] = Counter()
    for text, count in texts:
        counts[reading.class_of(text.strip())] += count
    return counts


def profile_of(counts: Counter[ValueClass], stored_texts: int | None = None) -> ColumnProfile:
    """Return what a column can be read as, from how many of its rows are of each class.

    Parameters
    ----------
    stored_texts : int, optional
        How many of the rows are stored as text, if the table says what they are stored as.
    """
    total = sum(counts.values()) - counts["missing"]
    return ColumnProfile(
        integer=share(counts["integer"], total),
        decimal=share(counts["integer"] + counts["decimal"], total),
        date=share(counts["date"], total),
        boolean=share(counts["boolean"], total),
        text=share(counts["text"] if stored_texts is None else stored_texts, total),
    )


def unreadable(where: str, column: str, kind: Type, text: str, row: int) -> RowError:
    """Return the error that a row of a column, counted from 1, has a value not of its type."""
    everywhere = f"or have the column read as text everywhere, by {declaration(column, 'text')}"
    own = f"correct it, give na={[text]} if it stands for a missing value, {everywhere}"
    # What is said to others has no value of a row in it.
    public = f"correct it, name in na= what stands for a missing value, {everywhere}"
    if kind == "number" and "," in text:
        own = public = advice_on_number([text]) or public
    return RowError(
        one_line(where, f"column {column!r}, row {row}: {text!r} is no {kind}: {own}"),
        one_line(where, f"column {column!r} has a value that is no {kind}: {public}"),
    )


def appearance(text: str) -> str:
    """Return what a text looks like: accents in one form, plain spaces, nothing invisible."""
    visible = "".join(mark for mark in text if unicodedata.category(mark) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", visible).split())


def check_looks(where: str, column: str, counts: Mapping[str, int]) -> None:
    """Raise RowError if most values of a column of text look like numbers, or like dates.

    It would be a category of as many levels, where a few mistakes, a decimal comma or the type in
    which it is stored have made it text. ``counts`` has the rows of each value.
    """
    here = f"{where}: column {column}"
    category = f"or write C({column}) if it is a category"
    of_dates = "write them as 2020-01-31, or give their format as dates in a TOML list of clients"
    rules: Sequence[tuple[Type, re.Pattern[str], Callable[[str], bool], str]] = (
        ("number", WRITTEN_NUMBER, is_number, advice_on_number(counts)),
        ("date", WRITTEN_DATE, is_date, of_dates),
    )

    def most(test: Callable[[str], object]) -> bool:
        return sum(n for text, n in counts.items() if test(text)) > MOSTLY * sum(counts.values())

    for kind, pattern, reads, advice in rules:
        if not most(pattern.fullmatch):
            continue
        others = [text for text in counts if not reads(text)]
        if not most(reads):
            what = f"{here} holds text that looks like {kind}s"
            example = next(text for text in others if pattern.fullmatch(text))
            advice = f"{advice}, {category}"
            raise RowError(f"{what}, such as {example!r}: {advice}", f"{what}: {advice}")
        if not others:
            message = (
                f"{here} holds {kind}s that are stored as text: declare it by "
                f"{declaration(column, kind)}, {category}"
            )
            raise RowError(message, message)
        raise RowError(
            f"{here} holds {kind}s, but {others[0]!r} is none: correct the file, give "
            f"na={[others[0]]} if it stands for a missing value, {category}",
            f"{here} holds {kind}s, but also other text: correct the file, name in na= what stands "
            f"for a missing value, {category}",
        )


def advice_on_number(texts: Iterable[str]) -> str:
    """Return what to do about texts, some of which look like numbers; nothing if none does."""
    written = [text for text in texts if WRITTEN_NUMBER.fullmatch(text) and not is_number(text)]
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
