"""Messages of asyncio about connections that the other end has broken, which anybody can cause."""

from __future__ import annotations

import logging

NOISE = ("SSL connection is closed", "socket.send() raised exception.")


def quieten() -> None:
    """Keep these messages out of the log of this process; for commands, not for libraries."""
    logging.getLogger("asyncio").addFilter(_matters)


def _matters(record: logging.LogRecord) -> bool:
    return record.msg not in NOISE
