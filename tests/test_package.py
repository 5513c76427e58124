"""The package as a user meets it first: ``dir``, ``help`` and ``import *``."""

import pydoc
import subprocess
import sys

import fedsplit as fs

LATER = ("fit", "path", "load", "FedLasso", "FedRidge", "FedGammaRegressor")


def test_names_that_are_imported_later_are_listed() -> None:
    assert {*LATER, "solve", "Problem"} <= set(dir(fs))


def test_help_describes_names_that_are_imported_later() -> None:
    text = pydoc.render_doc(fs, renderer=pydoc.plaintext)  # type: ignore[attr-defined]  # typeshed lacks it
    for name in ("fit(", "path(", "load(", "class FedLasso(", "class FedGammaRegressor("):
        assert name in text


def test_a_command_loads_no_library_that_it_does_not_need() -> None:
    code = (
        "import sys\n"
        "import fedsplit.commands.app\n"
        "slow = {'matplotlib', 'pandas', 'scipy.stats', 'scipy.optimize', 'sklearn'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_everything_can_be_imported_without_the_extras() -> None:
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['cvxpy', 'ray', 'flwr', 'aiohttp', 'cryptography']))\n"
        "from fedsplit import *\n"
        "print(callable(fit), callable(FedLasso), 'RayClients' in globals())\n"
        "import fedsplit\n"
        "try:\n"
        "    fedsplit.RayClients\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "True True False\nfedsplit.RayClients needs Ray: pip install 'fedsplit[ray]'\n"
    )
