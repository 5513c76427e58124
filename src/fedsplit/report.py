"""One self-contained HTML page: figures, claims and settings, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

import jinja2

from fedsplit.experiments.record import Claim, Experiment, Record


class Section(NamedTuple):
    """One experiment on the page."""

    experiment: Experiment
    record: Record
    figures: Mapping[str, bytes]
    claims: Sequence[Claim]


def page(sections: Sequence[Section], command: str) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedsplit"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"data_uri": _data_uri, "number": _number}
    claims = [claim for section in sections for claim in section.claims]
    return environment.get_template("reproduction.html").render(
        sections=sections,
        command=command,
        held=sum(claim.holds for claim in claims),
        total=len(claims),
        seconds=sum(section.record.seconds for section in sections),
        versions={name: version(name) for name in ("fedsplit", "numpy", "scipy", "matplotlib")}
        | {"Python": platform.python_version()},
    )


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _number(value: object) -> str:
    """A number, or a list of them, at three or four significant digits."""
    if isinstance(value, list | tuple):
        return ", ".join(_number(item) for item in value)
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"
    return str(value)
