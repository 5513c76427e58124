"""The package as a user meets it first: ``dir``, ``help`` and ``import *``."""

import ast
import pkgutil
import pydoc
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from types import ModuleType

import fedsplit as fs

ROOT = Path(__file__).parents[1]
LATER = ("fit", "path", "load", "FedLasso", "FedRidge", "FedGammaRegressor")


def test_names_that_are_imported_later_are_listed() -> None:
    assert {*LATER, "solve", "Problem"} <= set(dir(fs))


def test_the_directory_of_the_package_is_its_public_names() -> None:
    assert dir(fs) == sorted(fs.__all__)
    assert all(hasattr(fs, name) for name in fs.__all__)


def test_no_module_of_the_package_has_the_name_of_something_public_that_is_no_module() -> None:
    modules = {each.name for each in pkgutil.iter_modules(fs.__path__)}
    assert {"loop", "methods", "files"} <= modules
    public = {name for name in fs.__all__ if not isinstance(getattr(fs, name), ModuleType)}
    assert not modules & public
    for name in modules & set(vars(fs)):
        assert isinstance(getattr(fs, name), ModuleType), name


def test_importing_the_package_loads_nothing_large() -> None:
    code = "import sys, fedsplit; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    for large in ("numpy", "pandas", "scipy", "scipy.optimize", "sklearn", "ray", "cvxpy"):
        assert large not in loaded


def test_a_run_loads_neither_tables_nor_estimators() -> None:
    code = (
        "import sys, numpy, fedsplit as fs\n"
        "fs.solve(fs.Problem(fs.LeastSquares(), [(numpy.eye(2), numpy.ones(2))]))\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    for large in ("pandas", "scipy.optimize", "sklearn", "ray", "cvxpy", "matplotlib"):
        assert large not in loaded


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
