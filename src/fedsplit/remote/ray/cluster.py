"""The way to a Ray cluster: joined, or started on this machine, quickly or not at all, and without a word."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedsplit.errors import InputError

try:
    import ray
    from ray import cloudpickle
    from ray._private import services, worker
    from ray.exceptions import ActorDiedError, RayError, RayTaskError
except ModuleNotFoundError as missing:
    raise InputError(
        f"Ray cannot be imported ({missing}): pip install 'fedsplit[ray]'"
    ) from missing

__all__ = [
    "ActorDiedError",
    "RayError",
    "RayTaskError",
    "cloudpickle",
    "connect",
    "one_line",
    "ray",
]  # all of Ray

SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray calls nobody, and does not warn of its next version; what the user has set stays."""

QUIETLY: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}

REACH = 5.0
"""Seconds in which a cluster has to answer when it is first called."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a caller of gRPC begins, with empty settings; the other side answers with its own."""


def connect(address: str | None) -> None:
    """Join the cluster at the address, or start Ray on this machine, without its dashboard and its statistics.

    Where Ray is connected already, to this or to any address where none is given, that connection is used.
    """
    if address is not None and (not isinstance(address, str) or not address.strip()):
        raise InputError(
            f"address must be that of a Ray cluster, as in 'host:6379', not {address!r}"
        )
    if ray.is_initialized():
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        with _silence():
            if address is None:
                cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
                ray.init(
                    "local",
                    num_cpus=cores,
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    **QUIETLY,
                )
            else:
                _call(address)
                ray.init(address, **QUIETLY)
    except (ImportError, OSError, RuntimeError, ValueError, AssertionError, RayError) as error:
        what = (
            "cannot be started on this machine"
            if address is None
            else f"cannot be reached at {address}"
        )
        raise InputError(f"Ray {what}: {one_line(error)}") from None


def _call(address: str) -> None:
    """Refuse an address at which nobody answers, or no server of Ray's kind: Ray itself would try for minutes."""
    kind, _, rest = address.rpartition("://")
    if kind not in ("", "ray"):
        raise ValueError("an address is host:port, ray://host:port or auto")
    place = rest if kind else str(services.canonicalize_bootstrap_address(address))
    host, _, port = place.rpartition(":") if ":" in place else (place, "", "10001")
    if not host or not port.isdigit():
        raise ValueError("an address is host:port, ray://host:port or auto")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH) as line:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        line.settimeout(REACH)
        line.sendall(PREFACE)
        if line.recv(4)[3:] != PREFACE[-6:-5]:
            raise ConnectionError("another kind of server is there")


@contextmanager
def _silence() -> Iterator[None]:
    """Ray starts or joins without a word, here and later, and without taking the user's handler of SIGTERM away."""
    logger, main = logging.getLogger("ray"), threading.current_thread() is threading.main_thread()
    level, listen, handler = (
        logger.level,
        worker.listen_error_messages,
        signal.getsignal(signal.SIGTERM),
    )
    logger.setLevel(logging.CRITICAL)
    worker.listen_error_messages = _nothing  # this thread prints, on stdout, where a worker dies
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        worker.listen_error_messages = listen
        if main and handler not in (signal.SIG_DFL, None):
            signal.signal(signal.SIGTERM, handler)


def _nothing(*args: object) -> None:
    """In the place of printing."""


def one_line(error: BaseException) -> str:
    """An error in one line, not too long."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + "…"
