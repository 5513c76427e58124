"""``/health`` and ``/metrics``, for monitoring on the server's own machine."""

from __future__ import annotations

import json

from aiohttp import web

from fedsplit.remote.https.metrics import Counts, exposition
from fedsplit.remote.https.service import Service

LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""The names under which they are served, and no other name of this machine."""


class Monitor:
    """Answers what monitoring asks.

    Parameters
    ----------
    service : Service
    counts : Counts
    ends : float or None
        When the server's certificate expires, in seconds since 1970.
    """

    def __init__(self, service: Service, counts: Counts, ends: float | None) -> None:
        self._service = service
        self._counts = counts
        self._ends = ends

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer ``/health`` and ``/metrics``."""
        if (request.host or "").rpartition(":")[0] not in LOCAL:  # another site's page in a browser
            return web.Response(status=403)
        boxes = self._service.present()
        if request.method == "GET" and request.path == "/health":
            text = json.dumps({"status": "ok", "clients": len(boxes)})
            return web.Response(text=text, content_type="application/json")
        if request.method == "GET" and request.path == "/metrics":
            silent = {name: box.silent for name, box in boxes.items()}
            text = exposition(self._counts, silent, self._ends)
            return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4"})
        return web.Response(status=404)
