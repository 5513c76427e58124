"""Counts of what a server does, for monitoring on its own machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class Counts:
    """What has happened since a server was started.

    Attributes
    ----------
    handshakes_failed, evicted : int
        Connections without an accepted certificate, and those given up because of their number.
    refused : Counter of str
        Requests that were refused, by HTTP status.
    questions, replies : int
        Delivered, and taken.
    sent_bytes, received_bytes : int
        Of questions and replies.
    began : float
        When, in seconds since 1970.
    """

    handshakes_failed: int = 0
    evicted: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    questions: int = 0
    replies: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    began: float = field(default_factory=time.time)


def exposition(counts: Counts, silent: Mapping[str, float], ends: float | None) -> str:
    """The counts in the text format of Prometheus.

    Parameters
    ----------
    counts : Counts
    silent : mapping of str to float
        By connected client, the seconds since its last request.
    ends : float or None
        When the server's certificate expires, in seconds since 1970.
    """
    counters = {
        "handshakes_failed": "TLS handshakes that failed",
        "evicted": "Handshakes and silent connections given up because of their number",
        "questions": "Questions delivered",
        "replies": "Replies taken",
        "sent_bytes": "Bytes of questions",
        "received_bytes": "Bytes of replies",
    }
    lines = []
    for name, text in counters.items():
        lines += _head(f"{name}_total", "counter", text)
        lines.append(f"fedsplit_{name}_total {getattr(counts, name)}")
    lines += _head("refused_total", "counter", "Requests refused, by HTTP status")
    for status, number in sorted(counts.refused.items()):
        lines.append(f'fedsplit_refused_total{{status="{status}"}} {number}')
    lines += _head("clients", "gauge", "Clients that are connected")
    lines.append(f"fedsplit_clients {len(silent)}")
    lines += _head("silent_seconds", "gauge", "Seconds since a client's last request")
    for name, seconds in silent.items():
        lines.append(f'fedsplit_silent_seconds{{client="{name.translate(LABEL)}"}} {seconds:.1f}')
    lines += _head("start_time_seconds", "gauge", "When the server was started")
    lines.append(f"fedsplit_start_time_seconds {counts.began:.0f}")
    if ends is not None:
        lines += _head("certificate_expiry_seconds", "gauge", "When its certificate expires")
        lines.append(f"fedsplit_certificate_expiry_seconds {ends:.0f}")
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP fedsplit_{name} {text}.", f"# TYPE fedsplit_{name} {kind}"]
