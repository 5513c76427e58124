"""Federated convex optimisation: the pooled answer from clients that never pool their data.

The public names stand in ``__init__.pyi``, once, for type checkers and for this module, which
imports each of them when it is first used: pandas, scikit-learn and Ray take seconds.
"""

import ast
from importlib import import_module, resources
from importlib.util import find_spec
from typing import Any

from fedsplit.errors import InputError
from fedsplit.version import __version__ as __version__

_SITES = ("Cryptography and aiohttp", "sites", "aiohttp")

_EXTRAS = {
    **dict.fromkeys(
        (
            *("Coordinator", "FileTransport", "HttpsTransport", "Interruption", "Site"),
            *("StudyResult", "authority"),
        ),
        _SITES,
    ),
    "CvxpyLoss": ("CVXPY", "cvx", "cvxpy"),
    "CvxpyProx": ("CVXPY", "cvx", "cvxpy"),
    **dict.fromkeys(("RayClients", "RayTransport"), ("Ray", "ray", "ray")),
}
"""Names that need an extra: what it is called, the extra, and the module that it brings."""

_STUB = ast.parse(resources.files(__name__).joinpath("__init__.pyi").read_text(encoding="utf-8"))

_MODULES = {
    alias.name: statement.module
    for statement in _STUB.body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
"""By public name, the module that it is imported from."""

# names of an extra that is not installed are left out, so that `import *` and `help` work
__all__ = sorted(
    name for name in _MODULES if name not in _EXTRAS or find_spec(_EXTRAS[name][2]) is not None
)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'fedsplit' has no attribute {name!r}")
    try:
        value = vars(import_module(module)).get(name)
        if value is None:  # a module itself, such as ``theory``
            value = import_module(f"{module}.{name}")
    except (ModuleNotFoundError, InputError) as error:
        if name not in _EXTRAS:
            raise
        product, extra, _ = _EXTRAS[name]
        raise ImportError(
            f"fedsplit.{name} needs {product}: pip install 'fedsplit[{extra}]'"
        ) from error
    globals()[name] = value  # the next use does not come here
    return value
