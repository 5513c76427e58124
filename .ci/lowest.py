"""Print the lowest version that pyproject.toml allows of every dependency, as constraints for pip.

Dependencies of the extras that are named as arguments are included.
"""

import re
import sys
import tomllib
from pathlib import Path

LOWEST = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)$")


def constraints(extras: list[str]) -> list[str]:
    """``name==version`` of every dependency that has a lower bound."""
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    needed = list(project["dependencies"])
    for extra in extras:
        needed += project["optional-dependencies"][extra]
    found = (LOWEST.match(line) for line in needed)
    return [f"{each[1]}=={each[2]}" for each in found if each]


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints(sys.argv[1:])) + "\n")
