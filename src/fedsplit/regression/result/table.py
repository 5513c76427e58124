"""A regression table as text, in the manner of statsmodels."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model


class Summary(str):
    """Text that shows itself as such at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summary(model: Model) -> Summary:
    """Coefficients, fit, clients and proof."""
    return Summary(
        "\n".join(
            [*_head(model), "", *_coefficients(model), "", *_clients(model), "", *_foot(model)]
        )
    )


def number(value: float | None) -> str:
    """Four significant digits, without an exponent where that is short."""
    if value is None or pd.isna(value):
        return "–"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3e}"


def _cells(model: Model) -> list[list[str]]:
    """The table's cells: name, coef, and where there are any, se, z, p and the interval."""
    if model.se is None or model.zvalues is None or model.pvalues is None:
        return [[name, number(value)] for name, value in model.coef_.items()]
    interval = model.conf_int()
    columns = zip(
        model.names,
        model.coef,
        model.se,
        model.zvalues,
        model.pvalues,
        interval.lower,
        interval.upper,
        strict=True,
    )
    return [
        [name, number(b), number(se), f"{z:.3f}", f"{p:.3f}", number(low), number(high)]
        for name, b, se, z, p, low, high in columns
    ]


def _head(model: Model) -> list[str]:
    lines = [
        f"{model.family.name} regression over {len(model.clients)} client{'s' * (len(model.clients) > 1)}, "
        f"{model.family.link.name} link",
        model.formula,
        f"n {model.n:,}   parameters {len(model.names)}",
    ]
    fit = {"log-likelihood": model.log_likelihood, "deviance": model.deviance, "AIC": model.aic}
    lines.append(
        "   ".join(f"{name} {value:,.6g}" for name, value in fit.items() if value is not None)
    )
    if model.family.dispersed and model.log_likelihood is not None:
        lines[-1] += f"   dispersion {model.dispersion:.6g}"
    return lines


def _coefficients(model: Model) -> list[str]:
    header = ["", "coef", "std err", "z", "P>|z|", "[0.025", "0.975]"]
    rows = _cells(model)
    lines = aligned([header[: len(rows[0])], *rows])
    if model.se_reason is not None:
        lines.append(f"no standard errors: {model.se_reason}")
    return lines


def _clients(model: Model) -> list[str]:
    rows = [
        [
            str(client),
            f"{row.n:,}",
            f"{row.missing:,}",
            f"{100 * row.leverage:.1f} %",
            _move(row.shift, row.coefficient),
        ]
        for client, row in zip(model.clients.index, model.clients.itertuples(), strict=True)
    ]
    return aligned([["client", "n", "missing", "information", "without it"], *rows], left=(0, 4))


def _move(shift: float, coefficient: str) -> str:
    return f"{coefficient} moves {shift:+.2f} SE" if coefficient else "–"


def _foot(model: Model) -> list[str]:
    lines = [
        f"rounds {model.rounds}   floats sent {model.floats:,}   converged {'yes' if model.converged else 'NO'}",
        f"certificate: {model.certificate}",
    ]
    for name, why in model.removed.items():
        lines.append(f"removed: client {name} ({why}); all numbers are those of the others alone")
    return [*lines, *_incidents(model), *(f"warning: {text}" for text in model.warnings)]


def _incidents(model: Model) -> list[str]:
    """What happened to answers, a line a client."""
    told: dict[str, Counter[str]] = {}
    for incident in model.incidents:
        told.setdefault(incident.client, Counter())[incident.what] += 1
    return [
        f"incident: client {name}: "
        + "; ".join(
            f"{what} ({times} times)" if times > 1 else what for what, times in each.items()
        )
        for name, each in told.items()
    ]


def aligned(rows: list[list[str]], left: tuple[int, ...] = (0,)) -> list[str]:
    """Columns of equal width, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
