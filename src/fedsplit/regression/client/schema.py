"""One schema for all clients: what every column is read as, decided before anything is coded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.data.formula.formula import Formula
from fedsplit.data.types import ColumnProfile, Type, declaration
from fedsplit.errors import InputError
from fedsplit.regression.client.description import ColumnRequest
from fedsplit.regression.families import FAMILIES

IN_WORDS: Mapping[Type, str] = {
    "number": "numbers",
    "boolean": "true or false",
    "date": "dates",
    "text": "text",
}
"""What a column of each type holds."""


@dataclass(frozen=True)
class Wanted:
    """What a user has said about a model, before anybody has looked at its columns.

    Attributes
    ----------
    formula, family : str
    declared : mapping of str to Type
        The types of columns that the user has declared.
    weights, offset, exposure : str or None
        Columns.
    excluded : tuple of str
        Columns that ``.`` in the formula does not stand for.
    strict : bool
        Whether to refuse answers that could disclose single rows.
    study : tuple of str
        Columns of which some may not be in the model: rows that lack one of them are not used.
    """

    formula: str
    family: str
    declared: Mapping[str, Type]
    weights: str | None
    offset: str | None
    exposure: str | None
    excluded: tuple[str, ...]
    strict: bool
    study: tuple[str, ...] = ()

    @property
    def extra(self) -> list[str]:
        """The columns that are no part of the formula."""
        named = (self.weights, self.offset, self.exposure)
        return [name for name in named if name is not None]

    def columns(self, formula: Formula) -> tuple[str, ...]:
        """The columns that the model needs, where ``formula`` has no ``.`` left.

        Those that only decide which rows are used come last.
        """
        return tuple(dict.fromkeys([*formula.columns, *self.extra, *self.study]))

    def asked(self, present: Sequence[str]) -> tuple[str, ...]:
        """The columns that a client with these is asked about: all, if the formula has a ``.``."""
        formula = Formula(self.formula)
        if formula.open:
            return tuple(present)
        return self.columns(formula)

    def others(self, formula: Formula) -> tuple[str, ...]:
        """The columns that only decide which rows are used."""
        used = {*formula.columns, *self.extra}
        return tuple(name for name in dict.fromkeys(self.study) if name not in used)

    def request(self, formula: Formula, schema: Schema) -> ColumnRequest:
        """What is to be described, of columns that are read as decided."""
        others = frozenset(self.others(formula))
        return ColumnRequest(schema.types, schema.categories, self.strict, others)

    def request_of(
        self, name: str, present: Mapping[str, ColumnProfile | None]
    ) -> ColumnRequest | None:
        """What a client of this name and these columns would be asked for, if it were alone.

        None if a category is among them that neither the formula nor the user has declared: its
        levels are told only once the server has decided that it is one.
        """
        if self.family not in FAMILIES:
            raise InputError(f"the server sent the unknown family {self.family[:40]!r}")
        formula = Formula(self.formula)
        if formula.open:
            formula = formula.expanded(each for each in present if each not in self.excluded)
        columns = self.columns(formula)
        if not set(columns) <= set(present):
            return None
        request = self.request(formula, decide(formula, self, columns, {name: present}))
        known = formula.categories | set(self.declared)
        if FAMILIES[self.family].classifies:
            known |= {str(formula.target_column)}
        if not request.coded <= known:
            return None
        return request


class Schema(NamedTuple):
    """What the server has decided about columns.

    Attributes
    ----------
    types : mapping of str to Type
        What every client reads a column as.
    categories : frozenset of str
        The columns that the formula, the family, the user or a file declares to be categories.
    """

    types: Mapping[str, Type]
    categories: frozenset[str]


def decide(
    formula: Formula,
    wanted: Wanted,
    columns: Sequence[str],
    present: Mapping[str, Mapping[str, ColumnProfile | None]],
) -> Schema:
    """Decide what the columns of a model are read as.

    Parameters
    ----------
    formula : Formula
    wanted : Wanted
    columns : sequence of str
        Those of the model.
    present : mapping
        What each client can read each of its columns as.

    Raises
    ------
    InputError
        If clients have different things in a column, and nobody has declared what it is.
    """
    categories = set(formula.categories)
    target = formula.target_column
    if (
        target is not None
        and FAMILIES[wanted.family].classifies
        and not _is_share(target, wanted, _known(target, present))
    ):
        categories.add(target)
    types: dict[str, Type] = {}
    others = wanted.others(formula)
    for column in columns:
        if column in others:  # read as whatever it is: only what is missing matters
            types[column] = wanted.declared.get(column, "text")
            continue
        fits = _known(column, present)
        if column in wanted.declared:
            types[column] = wanted.declared[column]
        elif column not in categories and any(fit.category for fit in fits.values()):
            types[column] = _stored_category(column, fits)
        else:
            _check_labels(column, fits)
            types[column] = _common_type(column, fits, column in categories)
            continue
        if types[column] == "text":
            categories.add(column)
    return Schema(types, frozenset(categories))


def _is_share(column: str, wanted: Wanted, fits: Mapping[str, ColumnProfile]) -> bool:
    """Whether a target of two classes is the share of successes among several trials."""
    if not FAMILIES[wanted.family].binary:
        return False
    numbers = all(wanted.declared.get(column, fit.type) == "number" for fit in fits.values())
    if not numbers or all(fit.integer == "all" for fit in fits.values()):
        return False
    if wanted.weights is None:
        raise InputError(
            f"column {column} holds numbers that are not whole: {wanted.family} needs 0 and 1, "
            "or shares and a column of trials as weights, or cbind(successes, failures)"
        )
    return True


def _known(
    column: str, present: Mapping[str, Mapping[str, ColumnProfile | None]]
) -> dict[str, ColumnProfile]:
    """What the clients that have values in a column can read it as."""
    known = {}
    for name, own in present.items():
        fit = own[column]
        if fit is None:
            raise InputError(
                f"client {name}: column {column} is nested, or of a type that is neither number, "
                "boolean, text nor date: convert it"
            )
        if not fit.empty:
            known[name] = fit
    if not known:
        raise InputError(f"column {column} is empty at every client: leave it out")
    return known


def _stored_category(column: str, fits: Mapping[str, ColumnProfile]) -> Type:
    """The type of a column that is a category because clients have stored it as one."""
    one = next(name for name, fit in fits.items() if fit.category)
    for other, fit in fits.items():
        if not fit.category and fit.type != "text":
            raise InputError(
                f"column {column} is a category at client {one} and holds {IN_WORDS[fit.type]} at "
                f"client {other}: write C({column}) if it is a category, or declare it by "
                f"{declaration(column, fit.type)}"
            )
    return "text"


def _check_labels(column: str, fits: Mapping[str, ColumnProfile]) -> None:
    """Raise InputError if a category has labels at one client and their numbers at another."""
    labels = [name for name, fit in fits.items() if fit.category and fit.words]
    numbers = [name for name, fit in fits.items() if fit.type == "number"]
    if labels and numbers:
        raise InputError(
            f"column {column} is a category of words at client {labels[0]} and holds numbers at "
            f"client {numbers[0]}: if they stand for the same, give every value its label, or give "
            f"{declaration(column, 'text')} to keep them apart"
        )


def _common_type(column: str, fits: Mapping[str, ColumnProfile], category: bool) -> Type:
    """The type that suits all clients; text, if it is a category and they have several."""
    types = {name: fit.type for name, fit in fits.items()}
    if not category:
        # Where a few mistakes are among numbers, the client says in which row.
        mistaken = {name for name, fit in fits.items() if fit.mostly_number}
        types |= dict.fromkeys(mistaken, "number")
    found = set(types.values())
    if len(found) == 1:
        return found.pop()
    if found == {"number", "boolean"}:
        return "number"
    if category:
        return "text"
    one, first = next(iter(types.items()))
    other, second = next((name, kind) for name, kind in types.items() if kind != first)
    if first == "text":
        (one, first), (other, second) = (other, second), (one, first)
    raise InputError(
        f"column {column} holds {IN_WORDS[first]} at client {one} and {IN_WORDS[second]} at client "
        f"{other}: correct the file, declare the column by {declaration(column, first)}, or "
        f"write C({column}) if it is a category"
    )
