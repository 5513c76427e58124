"""A regression table as text, in the manner of statsmodels, and as HTML for a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from fedsplit import html as pages
from fedsplit.errors import listed
from fedsplit.regression.result.facts import (
    about_classes,
    absent,
    decimals,
    measures,
    number,
    specification_lines,
    title,
)

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model

MOST_INCIDENTS = 10
"""How many clients have a line for their incidents."""


class Summary(str):
    """Text that a prompt shows as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def summary(model: Model) -> Summary:
    """The text of ``Model.summary``: coefficients, clients, the proof and what went wrong."""
    parts = [pooled_summary(model), *_clients(model.clients), "\n".join(model.foot())]
    return Summary("\n\n".join(parts))


def pooled_summary(model: Model) -> str:
    """The coefficients, without anything about single clients: for all of those that took part."""
    columns = _coefficients(model)
    cells = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    return "\n".join([*model.head(), "", *aligned(cells), *absent(model)])


def fragment(model: Model) -> str:
    """The table as HTML, for a notebook: without the clients, which ``summary`` has."""
    columns = _coefficients(model)
    return pages.render(
        "notebook.html",
        head=model.head(),
        header=list(columns),
        named=True,
        rows=list(zip(*columns.values(), strict=True)),
        foot=[*absent(model), *model.foot()],
    )


def shortened(formula: str, longest: int = 60) -> str:
    """A formula in one short line."""
    return formula if len(formula) <= longest else f"{formula[:longest]}…"


def aligned(rows: list[list[str]], left: tuple[int, ...] = (0,)) -> list[str]:
    """Rows of cells as lines, with columns to the right but for those in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        for i in left:
            cells[i] = row[i].ljust(widths[i])
        lines.append("  ".join(cells).rstrip())
    return lines


def opening(model: Model) -> Iterator[str]:
    """What was fitted, and over whom."""
    if not model.settled:
        yield "NOT CONVERGED: the coefficients are those of the last round"
    clients = f"{model.n_clients} client{'s' * (model.n_clients != 1)}"
    if model.run.summed:
        clients += " by secure sums"
    yield f"{title(model)} over {clients}, {model.family.link.name} link"
    yield model.formula
    yield from about_classes(model)
    yield from specification_lines(model)


def head(model: Model) -> Iterator[str]:
    """The lines of a pooled fit above the coefficients."""
    yield from opening(model)
    for text, agreed in model.plan.agreed.items():
        yield f"{text}: {agreed}"
    freedom = f"   residual degrees of freedom {model.df_resid:,}"
    if model.settings.biased is not None:
        freedom = ""  # as n - p would not count them
    yield f"n {model.nobs:,}   parameters {model.estimates.rank}{freedom}"
    for line in measures(model):
        if shown := [f"{each.name} {each.shown}" for each in line if each.name]:
            yield "   ".join(shown)


def foot(model: Model) -> Iterator[str]:
    """The lines of a pooled fit below the coefficients: the run, the proof, what went wrong."""
    converged = "yes" if model.converged else "NO"
    yield (
        f"exchanges {model.exchanges}   rounds {model.rounds}   "
        f"floats sent {model.run.floats:,}   converged {converged}"
    )
    yield f"certificate: {model.certificate}"
    if model.removed:
        gone = listed((f"client {name} ({reason})" for name, reason in model.removed.items()), 10)
        yield f"removed: {gone}; all numbers are those of the other clients"
    incidents = Counter((incident.client, incident.what) for incident in model.run.incidents)
    by_client: dict[str, list[str]] = {}
    for (name, what), times in incidents.items():
        repeated = f" ({times} times)" * (times > 1)
        by_client.setdefault(name, []).append(f"{what}{repeated}")
    for name, parts in list(by_client.items())[:MOST_INCIDENTS]:
        yield f"incident: client {name}: {listed(parts, 3)}"
    if len(by_client) > MOST_INCIDENTS:
        yield f"incident: {len(by_client) - MOST_INCIDENTS:,} more clients"
    for text in model.warnings:
        yield f"warning: {text}"


def _coefficients(model: Model) -> dict[str, list[str]]:
    """The cells of the table by their heads, the names first."""
    columns = {"": list(model.estimates.names), "coef": [number(value) for value in model.params]}
    if model.bse is not None and model.tvalues is not None and model.pvalues is not None:
        interval = model.conf_int()
        columns["std err"] = [number(value) for value in model.bse]
        statistic = model.statistic
        columns[statistic] = [decimals(value) for value in model.tvalues]
        columns[f"P>|{statistic}|"] = [decimals(value) for value in model.pvalues]
        columns["[0.025"] = [number(value) for value in interval["lower"]]
        columns["0.975]"] = [number(value) for value in interval["upper"]]
    return columns


def _clients(clients: pd.DataFrame) -> list[str]:
    """The table of clients, if anything is known of single ones."""
    if clients["leverage"].isna().all():
        return []
    rows = [["client", "n", "missing", "information", "without it"]]
    for name, row in zip(clients.index, clients.itertuples(), strict=True):
        move = f"{row.coefficient} moves {row.shift:+.2f} SE" if row.coefficient else "–"
        share = f"{100 * row.leverage:.1f} %"
        rows.append([str(name), f"{row.n:,}", f"{row.missing:,}", share, move])
    return ["\n".join(aligned(rows, left=(0, 4)))]
