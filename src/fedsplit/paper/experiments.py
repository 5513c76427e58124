"""The table of the paper's experiments, and where those on open questions are."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from fedsplit.errors import InputError
from fedsplit.paper.experiment import Experiment
from fedsplit.paper.fig1 import FIG1
from fedsplit.paper.fig2 import FIG2A, FIG2B
from fedsplit.paper.fig3 import FIG3
from fedsplit.paper.fig4 import FIG4A, FIG4B

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each for each in (FIG1, FIG2A, FIG2B, FIG3, FIG4A, FIG4B)
}
"""The paper's own figures."""


def named(name: str) -> Experiment:
    """The experiment of this name."""
    return (open_questions() if is_open(name) else EXPERIMENTS)[name]


def is_open(name: str) -> bool:
    """Whether a name is that of all experiments on open questions, or of one of them."""
    return name.partition("-")[0] == "open"


def open_questions() -> dict[str, Experiment]:
    """The experiments on what the paper leaves open, which a checkout of the repository has."""
    # a package of its own, found in that folder and nowhere else
    if "open" not in sys.modules:
        folder = _checkout() / "examples" / "open"
        spec = spec_from_file_location("open", folder / "__init__.py")
        if spec is None or spec.loader is None:  # never, as the file is one of Python
            raise InputError(f"{folder}: cannot be imported")
        module = module_from_spec(spec)
        sys.modules["open"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["open"]  # half a package would be found the next time
            raise
    result: dict[str, Experiment] = sys.modules["open"].OPEN
    return result


def _checkout() -> Path:
    """The folder of the repository: that of an editable install, or else the current one."""
    source = Path(__file__).parents[2]
    # an installed package has folders of other projects beside it
    beside = [source.parent] if source.name == "src" else []
    for folder in (*beside, Path.cwd()):
        if (folder / "examples" / "open" / "__init__.py").is_file():
            return folder
    raise InputError(
        "figure: experiments on open questions are in examples/open of fedsplit's repository: "
        "run this in a checkout of it"
    )
