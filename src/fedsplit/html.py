"""What every HTML page shares: one environment, figures inside the page, and the versions that made it."""

from __future__ import annotations

import base64
import platform
from importlib.metadata import version

import jinja2


def render(template: str, **values: object) -> str:
    """A page from its template; every value is escaped, and one that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedsplit"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"data_uri": _data_uri, "number": _number}
    return environment.get_template(template).render(values)


def versions(*packages: str) -> dict[str, str]:
    """Of these packages and of Python."""
    return {name: version(name) for name in packages} | {"Python": platform.python_version()}


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _number(value: object) -> str:
    """A number, or a list of them, at three or four significant digits."""
    if isinstance(value, list | tuple):
        return ", ".join(_number(item) for item in value)
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"
    return str(value)
