"""Messages over Flower's Fleet protocol: a server, and a node at each client.

Nothing outside this package imports Flower. Flower's own programs are not used, so there is no
interface by which anybody can register a client, start a run or send code.
"""

import logging
import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when Flower is imported
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"

import flwr.supercore.logger  # noqa: F401  # sets the level of its logger, which is changed below

for _name in (
    "flwr",
    "uvicorn",
    "uvicorn.error",
    "uvicorn.access",
    "uvicorn.asgi",
    "httpx",
    "httpcore",
):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)
