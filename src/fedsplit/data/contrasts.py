"""How a category is coded, as ``contr.NAME`` in a formula says."""

from __future__ import annotations

import ast
from typing import Any

from formulaic.transforms.contrasts import ContrastsRegistry

from fedsplit.data.categories import Level

CONTRASTS = {
    name: getattr(ContrastsRegistry, name)
    for name in ("treatment", "SAS", "sum", "helmert", "diff", "poly")
}
"""Formulaic's codings, written ``C(g, contr.treatment("b"))``."""


def read_contrasts(node: ast.expr | None = None) -> Any:
    """Return the coding that the tree of ``contr.NAME`` or ``contr.NAME(…)`` stands for.

    None is formulaic's default.
    """
    match node:
        case None:
            return None
        case ast.Attribute(ast.Name("contr"), name) if name in CONTRASTS:
            return CONTRASTS[name]()
        case ast.Call(ast.Attribute(ast.Name("contr"), name), args, keywords) if name in CONTRASTS:
            named = {str(keyword.arg): _constant(keyword.value) for keyword in keywords}
            try:
                return CONTRASTS[name](*[_constant(each) for each in args], **named)
            except TypeError as error:
                raise ValueError(f"contr.{name}: {error}") from None
    known = ", ".join(f"contr.{name}" for name in CONTRASTS)
    raise ValueError(f"a coding is one of {known}")


def _constant(node: ast.expr) -> Level:
    match node:
        case ast.Constant(str() | bool() | int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
    raise ValueError("a coding takes constants only")
