"""Messages between organisations over HTTPS, with certificates on both sides.

The server listens; a client holds one connection to it, asks for its next question, and posts its
reply. Nothing outside this package imports aiohttp.
"""

import logging

_NOISE = ("SSL connection is closed", "socket.send() raised exception.")


def _matters(record: logging.LogRecord) -> bool:
    return record.msg not in _NOISE


# asyncio warns of writes to a connection that the other end has broken, which anybody can cause
logging.getLogger("asyncio").addFilter(_matters)
