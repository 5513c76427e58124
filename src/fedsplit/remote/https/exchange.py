"""One message to each of some clients, and what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from fedsplit.channels.channel import SILENT
from fedsplit.remote.https.mailbox import Mailbox, Posted
from fedsplit.remote.https.service import Service

ABSENT_SECONDS = 2.0
"""Seconds for which a message waits for a client that is not connected."""

RECONNECT_SECONDS = 20.0
"""Seconds for which it waits for one that has lost its connection: its process may be restarted."""

PRESENCE_CHECK_SECONDS = 0.25
"""Seconds between looks at who is connected while replies are awaited."""


async def exchange(
    service: Service, messages: Mapping[str, bytes], timeout: float
) -> dict[str, tuple[bytes | None, str, float]]:
    """Post a message to each of these clients, and wait for every reply or failure.

    Returns
    -------
    dict of str to (bytes or None, str, float)
        By client: its reply, what went wrong, and the seconds until then.
    """
    began = time.monotonic()
    boxes = {name: service.box(name) for name in messages}
    posted = {name: box.post(messages[name]) for name, box in boxes.items()}
    last_here = dict.fromkeys(messages, began)
    try:
        while waiting := [name for name, each in posted.items() if not each.outcome.done()]:
            now = time.monotonic()
            for name in waiting:
                if boxes[name].alive:
                    last_here[name] = now
                what = _why_no_answer(service, boxes[name], posted[name], now - last_here[name])
                if what or now - began >= timeout:
                    posted[name].settle(None, what or SILENT.text)
            left = max(0.0, began + timeout - now)
            outcomes = [posted[name].outcome for name in waiting]
            await asyncio.wait(outcomes, timeout=min(PRESENCE_CHECK_SECONDS, left))
    finally:
        for name, box in boxes.items():
            if box.posted is posted[name]:  # none has come in its place
                box.clear()
    found = {}
    for name, each in posted.items():
        reply, what, when = each.outcome.result()
        found[name] = (reply, what, when - began)
    return found


def _why_no_answer(service: Service, box: Mailbox, posted: Posted, absent: float) -> str:
    """Why a client will not answer; an empty text if it may."""
    if box.key and not service.permits(box):
        return "its key was revoked"
    if absent <= ABSENT_SECONDS or (box.silent <= RECONNECT_SECONDS and not box.left):
        return ""
    if posted.delivered:
        return "its client disconnected"
    return "its client is not connected"
