"""What is logged of requests and connections: anybody can cause errors there."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

NOISE = ("SSL connection is closed", "socket.send() raised exception.")
"""Messages of asyncio about connections that the other end has broken."""

log = logging.getLogger("fedsplit.remote.https")  # for who adds a handler
log.addHandler(logging.NullHandler())
log.propagate = False


def quieten() -> None:
    """Keep asyncio's noise out of the log of this process; for commands, not for libraries."""
    logging.getLogger("asyncio").addFilter(_matters)


def log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what went wrong in an event loop: mostly broken connections, which are no faults."""
    error = context.get("exception")
    level = logging.ERROR
    if isinstance(error, OSError):
        level = logging.DEBUG
    log.log(level, context["message"], exc_info=error)


def _matters(record: logging.LogRecord) -> bool:
    return record.msg not in NOISE
