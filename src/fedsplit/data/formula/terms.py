"""The terms of a formula: what its operators make of columns and expressions, as in R."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fedsplit.data.formula.factors import TermFactor
from fedsplit.data.formula.syntax import Call, Name, Node, Number, Operation, Text, written

MOST_FACTORS = 20
"""The most factors of a term."""

OPERATORS = ("+", "-", "*", "/", ":", "^", "**", "%in%")
"""Operators of terms; others make an expression, which is a factor."""

Term: TypeAlias = tuple[int, ...]
"""The places of its factors in the list of all factors, in the order of the formula."""

Terms: TypeAlias = dict[frozenset[int], Term]
"""Terms by what is in them: a:b and b:a are one."""


class Sides(NamedTuple):
    """A formula's left side, and what its right side is made of.

    A target of two columns is called by ``cbind``, of successes and failures, or ``Surv``, of
    times and events. The different factors of all terms are in the order in which they appear, the
    terms in R's: those of fewer factors first, without the constant. A formula is ``open`` if ``.``
    stands for columns that are not known yet.
    """

    left: list[TermFactor]
    call: str
    factors: list[TermFactor]
    terms: list[Term]
    intercept: bool
    offsets: list[TermFactor]
    open: bool


def read_terms(tree: Node) -> Sides:
    """Return the two sides of ``target ~ terms``; raise ValueError if it has not two."""
    match tree:
        case Operation("~", [Number() | Text() | Operation("~"), _]):
            raise ValueError("it needs one target on the left, as in y ~ x")
        case Operation("~", [Call("cbind" | "Surv" as name, [first, second], []), right]):
            left, call = [TermFactor.of(first), TermFactor.of(second)], str(name)
        case Operation("~", [target, right]):
            left, call = [TermFactor.of(target)], ""
        case _:
            raise ValueError("it needs a target on the left of ~, as in y ~ x")
    reader = _TermReader()
    terms = sorted(reader.read(right).values(), key=len)
    offsets = list(reader.offsets.values())
    return Sides(left, call, reader.factors, terms, reader.intercept, offsets, reader.open)


@dataclass
class _TermReader:
    """Multiplies terms out."""

    factors: list[TermFactor] = field(default_factory=list)
    places: dict[tuple[bool, str], int] = field(default_factory=dict)
    offsets: dict[str, TermFactor] = field(default_factory=dict)
    intercept: bool = True
    open: bool = False
    work: int = 0

    def read(self, node: Node, added: bool = True) -> Terms:
        """Return the terms of a tree, which are added or taken away."""
        # A sum of a thousand terms is a tree of that depth to the left, where a call for each
        # operator would be too many inside one another.
        chain: list[tuple[Operation, bool]] = []
        while isinstance(node, Operation) and node.symbol in OPERATORS:
            chain.append((node, added))
            if node.symbol == "-" and len(node.operands) == 1:
                added = not added
            node = node.operands[0]
        terms = self._leaf(node, added)
        for operation, added in reversed(chain):
            terms = self._applied(operation, terms, added)
        return terms

    def _leaf(self, node: Node, added: bool) -> Terms:
        """Return the term of a factor; none of a constant, an offset or ``.``."""
        match node:
            case Number(text):
                if text not in ("0", "1"):
                    raise ValueError(f"{text} is not a term: write I({text} * x) for a multiple")
                self.intercept = (text == "1") == added
                return {}
            case Text():
                raise ValueError(f"{written(node)} is neither a column, a number nor an operator")
            case Name(".", quoted=False):
                self.open = True
                return {}
            case Call("offset", [inner], []):
                if not added:
                    raise ValueError("an offset cannot be taken away: leave it out")
                factor = TermFactor.of(inner)
                self.offsets[factor.text] = factor
                return {}
            case Operation("|", [left, right]) if not (_condition(left) and _condition(right)):
                raise ValueError(
                    "| is for conditions, as in (x > 1) | (z > 2): one set of terms is fitted, "
                    "without random effects"
                )
            case Operation("~"):
                raise ValueError("~ stands once, between target and terms")
        factor = TermFactor.of(node)
        place = self.places.setdefault((factor.column is None, factor.text), len(self.factors))
        if place == len(self.factors):
            self.factors.append(factor)
        return {frozenset([place]): (place,)}

    def _applied(self, node: Operation, left: Terms, added: bool) -> Terms:
        """Combine the terms of the operands; those of the first may be changed."""
        match node.symbol, node.operands:
            case (("^" | "**"), [_, exponent]):
                return self._power(left, exponent)
            case "+", [_]:
                return left
            case "-", [_]:
                return {}
        right = self.read(node.operands[1], added != (node.symbol == "-"))
        match node.symbol:
            case "-":
                for key in right:
                    left.pop(key, None)
                return left
            case ":":
                return self._product(left, right)
            case "*":
                product = self._product(left, right)
                return self._sum(self._sum(left, right), product)
            case "/":
                return self._sum(left, self._product(_joined(left), right))
            case "%in%":
                return self._product(_joined(right), left)
        return self._sum(left, right)

    def _sum(self, left: Terms, right: Terms) -> Terms:
        self._count(len(right))
        for key, term in right.items():
            left.setdefault(key, term)
        return left

    def _product(self, left: Terms, right: Terms) -> Terms:
        self._count(len(left) * len(right))
        if not (self.open or (left and right)):
            raise ValueError("a product needs columns on both sides")
        product: Terms = {}
        for first, one in left.items():
            for second, other in right.items():
                key = first | second
                if len(key) > MOST_FACTORS:
                    raise ValueError(f"a term has more than {MOST_FACTORS} factors")
                if key not in product:
                    product[key] = (*one, *(place for place in other if place not in first))
        return product

    def _power(self, base: Terms, exponent: Node) -> Terms:
        match exponent:
            case Number(text) if text.isdigit() and 1 <= int(text) <= MOST_FACTORS:
                power = base
                for _ in range(int(text) - 1):
                    power = self._product(power, base)
                return power
        raise ValueError(
            f"a power of terms is a number from 1 to {MOST_FACTORS}; write I(x^0.5) for that of a "
            "column"
        )

    def _count(self, terms: int) -> None:
        """Bound the terms of one product, before equal ones are merged, and of all together."""
        self.work += terms
        if terms > 10_000 or self.work > 3_000_000:
            raise ValueError("its products have too many terms: leave out some")


def _joined(terms: Terms) -> Terms:
    """Return the product of all terms, as one term."""
    places = tuple(dict.fromkeys(place for term in terms.values() for place in term))
    return {frozenset(places): places} if places else {}


def _condition(node: Node) -> bool:
    """Return whether a tree is a condition and not a column or a term."""
    match node:
        case Operation(symbol):
            return symbol not in OPERATORS
    return isinstance(node, Call)
