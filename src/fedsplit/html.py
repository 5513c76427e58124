"""HTML pages, each in one file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import math
import platform
from functools import cache
from importlib.metadata import version

import jinja2


def render(template: str, **values: object) -> str:
    """Return a page; every value is escaped, and a value that the template lacks is an error."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    """Where the templates are, each compiled once in a process."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedsplit"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "data_uri": lambda svg: "data:image/svg+xml;base64," + base64.b64encode(svg).decode(),
        "number": _number,
    }
    return environment


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of these packages and of Python."""
    return {name: version(name) for name in packages} | {"Python": platform.python_version()}


def _number(value: object) -> str:
    """Return a number, or a list of them, with three or four significant digits."""
    match value:
        case list() | tuple():
            return ", ".join(_number(item) for item in value)
        case bool():
            return str(value)
        case float() if not math.isfinite(value):
            return "none"
        case float() | int() if value == round(value) and abs(value) < 1e6:
            return f"{value:.0f}"
        case float() | int():
            return f"{value:.3g}"
    return str(value)
