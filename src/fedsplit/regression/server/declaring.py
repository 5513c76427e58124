"""What a study with secure sums declares, read from clients in this process or on a cluster.

Between organisations the study says what columns are read as and which levels categories have, and
no client tells them. Where all rows are at hand, as when a study is tried out, they are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedsplit.data.categories import Level
from fedsplit.data.formula.formula import Formula
from fedsplit.data.types import Type
from fedsplit.errors import InputError, listed
from fedsplit.regression.options import Settings
from fedsplit.regression.server.handshake import plan_of
from fedsplit.regression.server.looking import look
from fedsplit.remote.members import Members


class Declaration(NamedTuple):
    """What all clients have to know of the columns of a study.

    Attributes
    ----------
    formula : str
        Without ``.``.
    types : mapping of str to Type
    levels : mapping
        Of every category, in their order; of a target that is a class, its classes.
    """

    formula: str
    types: Mapping[str, Type]
    levels: Mapping[str, Sequence[Level]]


def declare(
    members: Members, formula: Formula, settings: Settings, excluded: Sequence[str] = ()
) -> Declaration:
    """Look at the columns of clients that tell them."""
    looked = look(members, formula, settings, excluded)
    taking_part = looked.taking_part
    lacking = [*looked.empty, *(looked.descriptions.keys() - taking_part.keys())]
    if lacking:
        raise InputError(
            f"client {listed(lacking)} has no complete row: with secure sums every client takes "
            "part, leave it out of the data"
        )
    plan, _ = plan_of(looked.formula, settings, looked.schema, taking_part)
    levels = dict(plan.levels)
    target = looked.formula.target_column
    if plan.classes and target is not None:
        levels[target] = plan.classes
    return Declaration(looked.formula.text, looked.schema.types, levels)
