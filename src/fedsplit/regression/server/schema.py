"""One schema for all clients: what every column is read as, decided before anything is coded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedsplit.data.formula.formula import Formula
from fedsplit.data.types import Fit, Type
from fedsplit.errors import InputError
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings

IN_WORDS: Mapping[Type, str] = {
    "number": "numbers",
    "boolean": "true or false",
    "date": "dates",
    "text": "text",
}
"""What a column of each type holds."""


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
    settings: Settings,
    columns: Sequence[str],
    present: Mapping[str, Mapping[str, Fit | None]],
) -> Schema:
    """Decide what the columns of a model are read as.

    Parameters
    ----------
    formula : Formula
    settings : Settings
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
        and FAMILIES[settings.family].classifies
        and not _is_share(target, settings, _known(target, present))
    ):
        categories.add(target)
    types: dict[str, Type] = {}
    for column in columns:
        fits = _known(column, present)
        if column in settings.declared:
            types[column] = settings.declared[column]
        elif column not in categories and any(fit.category for fit in fits.values()):
            types[column] = _stored_category(column, fits)
        else:
            _check_labels(column, fits)
            types[column] = _common_type(column, fits, column in categories)
            continue
        if types[column] == "text":
            categories.add(column)
    return Schema(types, frozenset(categories))


def _is_share(column: str, settings: Settings, fits: Mapping[str, Fit]) -> bool:
    """Whether a target of two classes is the share of successes among several trials."""
    if not FAMILIES[settings.family].binary:
        return False
    numbers = all(settings.declared.get(column, fit.type) == "number" for fit in fits.values())
    if not numbers or all(fit.integer == "all" for fit in fits.values()):
        return False
    if settings.weights is None:
        raise InputError(
            f"column {column} holds numbers that are not whole: {settings.family} needs 0 and 1, "
            "or shares and a column of trials as weights, or cbind(successes, failures)"
        )
    return True


def _known(column: str, present: Mapping[str, Mapping[str, Fit | None]]) -> dict[str, Fit]:
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


def _stored_category(column: str, fits: Mapping[str, Fit]) -> Type:
    """The type of a column that is a category because clients have stored it as one."""
    one = next(name for name, fit in fits.items() if fit.category)
    for other, fit in fits.items():
        if not fit.category and fit.type != "text":
            raise InputError(
                f"column {column} is a category at client {one} and holds {IN_WORDS[fit.type]} at "
                f"client {other}: write C({column}) if it is a category, or declare it, as in "
                f"--types {column}={fit.type}"
            )
    return "text"


def _check_labels(column: str, fits: Mapping[str, Fit]) -> None:
    """Raise InputError if a category has labels at one client and their numbers at another."""
    labels = [name for name, fit in fits.items() if fit.category and fit.words]
    numbers = [name for name, fit in fits.items() if fit.type == "number"]
    if labels and numbers:
        raise InputError(
            f"column {column} is a category of words at client {labels[0]} and holds numbers at "
            f"client {numbers[0]}: if they stand for the same, give every value its label, or give "
            f"--types {column}=text to keep them apart"
        )


def _common_type(column: str, fits: Mapping[str, Fit], category: bool) -> Type:
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
        f"{other}: correct the file, declare the column, as in --types {column}={first}, or write "
        f"C({column}) if it is a category"
    )
