"""The package as a user meets it first: ``dir``, ``help`` and ``import *``."""

import ast
import pydoc
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import fedsplit as fs

ROOT = Path(__file__).parents[1]
LATER = ("fit", "path", "load", "FedLasso", "FedRidge", "FedGammaRegressor")


def test_names_that_are_imported_later_are_listed() -> None:
    assert {*LATER, "solve", "Problem"} <= set(dir(fs))


def test_help_describes_names_that_are_imported_later() -> None:
    text = pydoc.render_doc(fs, renderer=pydoc.plaintext)  # type: ignore[attr-defined]  # typeshed lacks it
    for name in ("fit(", "path(", "load(", "class FedLasso(", "class FedGammaRegressor("):
        assert name in text


def test_every_library_that_is_imported_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = {name: extras[name] for name in extras if name not in ("test", "browser")}
    declared = {
        re.split(r"[\[><=]", each)[0] for each in chain(project["dependencies"], *ours.values())
    }
    modules = {each.replace("-", "_") for each in declared} | {"sklearn", "cvxpy"}
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    imported |= {each.name.split(".")[0] for each in names}
                case ast.ImportFrom(module=str(name), level=0):
                    imported.add(name.split(".")[0])
    assert imported - set(sys.stdlib_module_names) - modules == {"fedsplit"}


def test_everything_can_be_imported_without_the_extras_and_what_needs_one_names_it() -> None:
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['cvxpy', 'ray', 'flwr', 'aiohttp', 'cryptography']))\n"
        "from fedsplit import *\n"
        "print(callable(fit), callable(FedLasso), 'RayClients' in globals())\n"
        "import fedsplit\n"
        "for make in (lambda: fedsplit.RayClients, lambda: fedsplit.CvxpyProx()):\n"
        "    try:\n"
        "        make()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "True True False\n"
        "fedsplit.RayClients needs Ray: pip install 'fedsplit[ray]'\n"
        "fedsplit.CvxpyProx needs CVXPY: pip install 'fedsplit[cvx]'\n"
    )
