"""Columns of text: what they can be read as, the levels of categories, and likely mistakes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.tables import DTYPES, Values, one_line
from fedsplit.data.types import (
    LEADING_ZERO,
    MOSTLY,
    ColumnProfile,
    Reading,
    Type,
    ValueClass,
    as_number,
    declaration,
    is_date,
    is_number,
    level_form,
    share,
)
from fedsplit.errors import RowError, listed

Level: TypeAlias = str
"""A value of a category: a trimmed text, of a number, date or boolean its only form."""

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
    """The texts of a column, each distinct one once, in the order in which they first appear.

    ``codes``, (n,), has the place of every row's text among them, -1 where it is missing.
    """

    distinct: Sequence[str]
    codes: NDArray[Any]

    @classmethod
    def of(cls, values: Values) -> Texts:
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

    def read(
        self,
        read: Callable[[str], Any],
        kind: Type,
        refused: Callable[[str, int], RowError] | None = None,
    ) -> Any:
        """Return what ``read`` makes of each text, (n,), in the form of ``Source.take``.

        A text for which it raises ValueError is missing, or raises what ``refused`` makes of it and
        of its first row, counted from 1.
        """
        missing = None if kind == "text" else np.nan
        known: list[Any] = []
        for code, text in enumerate(self.distinct):
            try:
                known.append(read(text))
            except ValueError:
                if refused is not None:
                    row = int(np.argmax(self.codes == code)) + 1
                    raise refused(text.strip(), row) from None
                known.append(missing)
        return np.array([*known, missing], dtype=DTYPES[kind])[self.codes]


def class_counts(texts: Iterable[tuple[str, int]], reading: Reading) -> Counter[ValueClass]:
    """Return how many rows are of each class, from the rows of each text."""
    counts: Counter[ValueClass] = Counter()
    for text, count in texts:
        counts[reading.class_of(text.strip())] += count
    return counts


def number_counts(values: Array) -> Counter[ValueClass]:
    """Return how many numbers, (n,), are of each class; NaN is missing and of none."""
    present = int(np.count_nonzero(~np.isnan(values)))
    whole = int(np.count_nonzero(np.isfinite(values) & (np.floor(values) == values)))
    return Counter({"integer": whole, "decimal": present - whole})


def profile_of(counts: Counter[ValueClass], stored_texts: int | None = None) -> ColumnProfile:
    """Return what a column can be read as, from how many of its rows are of each class.

    Some tables say how many of the rows are stored as text.
    """
    total = sum(counts.values()) - counts["missing"]
    return ColumnProfile(
        integer=share(counts["integer"], total),
        decimal=share(counts["integer"] + counts["decimal"], total),
        date=share(counts["date"], total),
        boolean=share(counts["boolean"], total),
        text=share(counts["text"] if stored_texts is None else stored_texts, total),
    )


def unreadable(
    where: str, column: str, kind: Type, text: str, row: int, before: int = 0
) -> RowError:
    """Return the error that a row, counted from 1 after others, has a value not of its type."""
    everywhere = f"or have the column read as text everywhere, by {declaration(column, 'text')}"
    own = f"correct it, give na={[text]} if it stands for a missing value, {everywhere}"
    # What is said to others has no value of a row in it.
    public = f"correct it, name in na= what stands for a missing value, {everywhere}"
    if kind == "number" and "," in text:
        own = public = advice_on_number([text]) or public
    return RowError(
        one_line(where, f"column {column!r}, row {before + row}: {text!r} is no {kind}: {own}"),
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


def in_levels(where: str, column: str, values: Values, kind: Type) -> pd.Categorical:
    """Return a column of texts, (n,), as the levels that each is, in a categorical.

    The values are texts, None where missing, or a categorical of texts, whose order the levels
    have. ``where`` and ``column`` are for messages.
    """
    texts = Texts.of(values)
    places: dict[Level, int] = {}
    positions = np.full(len(texts.distinct) + 1, -1)
    for code, (text, count) in enumerate(texts.counts()):
        if count:
            try:
                form = level_form(text, kind)
            except ValueError:
                row = int(np.argmax(texts.codes == code)) + 1
                raise unreadable(where, column, kind, text, row) from None
            positions[code] = places.setdefault(form, len(places))
    dtype = _dtype(tuple(places))
    return pd.Categorical.from_codes(positions[texts.codes], dtype=dtype, validate=False)


def readable(
    columns: Mapping[str, Values], types: Mapping[str, Type], coded: Collection[str]
) -> dict[str, Values]:
    """Read columns of text, or categoricals of them, without an error that tells of a single row.

    Categories are those ``coded``, as categoricals of levels; numbers are float64. A value that is
    not of its column's type is missing, as is an infinite number.
    """
    read: dict[str, Values] = {}
    for column, kind in types.items():
        texts = columns[column]
        if column in coded:
            levels = Texts.of(texts).read(partial(level_form, kind=kind), "text")
            read[column] = in_levels("", column, levels, kind)
        elif kind == "text":
            read[column] = texts
        else:
            numbers = Texts.of(texts).read(partial(as_number, kind=kind), kind)
            read[column] = np.where(np.isinf(numbers), np.nan, numbers)
    return read


@lru_cache(maxsize=256)
def _dtype(levels: tuple[Level, ...]) -> pd.CategoricalDtype:
    """Return the type of a column of these levels, which small clients mostly share."""
    return pd.CategoricalDtype(pd.Index(levels, dtype=object))


def merged_codes(values: Values, kind: Type) -> str:
    """Return the first code such as 01 that loses its zeros, as it is read as a number, or ``""``.

    The values are as those of ``in_levels``.
    """
    codes = Texts.of(values).distinct if kind == "number" else ()
    return min(filter(LEADING_ZERO.match, codes), default="")


def level_codes(column: str, values: pd.Series, levels: Sequence[Level]) -> NDArray[np.intp]:
    """Return the place of each level of a categorical column, (n,), among those of all clients.

    A missing value is at -1; a value that is none of the levels raises RowError.
    """
    texts = Texts.of(values.array)
    # A dictionary, not an index of pandas: small clients have few values, and are many.
    places = {level: place for place, level in enumerate(levels)}
    positions = [*(places.get(text, -1) for text in texts.distinct), -1]
    coded: NDArray[np.intp] = np.array(positions, dtype=np.intp)[texts.codes]
    unknown = (coded < 0) & (texts.codes >= 0)
    if unknown.any():
        value = texts.distinct[texts.codes[np.argmax(unknown)]]
        count = int(unknown.sum())
        raise RowError(
            f"column {column}: {value} is none of its levels {listed(levels)}",
            f"column {column} has {count} values that are none of the levels {listed(levels)}",
        )
    return coded


def level_counts(levels: Sequence[Level], codes: NDArray[np.intp]) -> dict[Level, int]:
    """Return how many rows have each level, by their codes, (n,): -1 is for none."""
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    return dict(zip(levels, counts.tolist(), strict=True))


def sort_levels(levels: Sequence[Level], kind: Type) -> list[Level]:
    """Return levels in the order of numbers, if they are numbers, or else of text."""
    return sorted(levels, key=Decimal) if kind == "number" else sorted(levels)
