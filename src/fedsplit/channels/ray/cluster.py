"""Connect to Ray, or start it on this machine: fail fast, and keep it quiet."""

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
from fedsplit.texts import one_line

try:
    import ray
    from ray import cloudpickle
    from ray._private import ray_constants, services, worker
    from ray.exceptions import ActorDiedError, RayError, RayTaskError
except ModuleNotFoundError as missing:
    raise InputError(
        f"Ray cannot be imported ({missing}): pip install 'fedsplit[ray]'"
    ) from missing

# All of Ray that the package uses.
__all__ = [
    "ActorDiedError",
    "RayError",
    "RayTaskError",
    "cloudpickle",
    "connect",
    "ray",
]

QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
"""Options of ``ray.init``."""


def connect(address: str | None) -> None:
    """Connect to a Ray cluster; an existing connection, to any address, is used as it is.

    Parameters
    ----------
    address : str or None
        None starts Ray on this machine, without its dashboard, where only this machine reaches
        it. Joining a cluster without authentication causes a warning.
    """
    if address is not None and (not isinstance(address, str) or not address.strip()):
        raise InputError(
            f"address must be that of a Ray cluster, as in 'host:6379', not {address!r}"
        )
    if ray.is_initialized():
        return
    # No usage statistics, and no warning about a future version; the user's own settings win.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        with _silence():
            if address is None:
                _start()
            else:
                _check_reachable(address)
                ray.init(address, **QUIET)
    except (ImportError, OSError, RuntimeError, ValueError, AssertionError, RayError) as error:
        what = "cannot be started on this machine"
        if address is not None:
            what = f"cannot be reached at {address}"
        raise InputError(f"Ray {what}: {one_line(str(error), 300)}") from None
    if address is not None and not _authenticated():
        warnings.warn(
            f"the Ray cluster at {address} accepts anybody who can reach its ports, and runs their "
            "code: let a firewall close them to other machines, or start it with "
            "RAY_AUTH_MODE=token or RAY_USE_TLS=1 (Ray's guide on security)",
            stacklevel=3,
        )


def _authenticated() -> bool:
    """Whether this process uses TLS or a token with Ray, without which it joins no such cluster."""
    return _uses_tls() or os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def _uses_tls() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


@contextmanager
def _loopback() -> Iterator[None]:
    """Let Ray use the address 127.0.0.1 as it is.

    Outside of macOS and Windows it replaces that by an address that other machines reach, and
    listens on all interfaces.
    """
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters


def _start() -> None:
    cores = None
    if hasattr(os, "sched_getaffinity"):  # the cores of this process, not of the machine
        cores = len(os.sched_getaffinity(0))
    with _loopback():
        ray.init(
            "local",
            num_cpus=cores,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            **QUIET,
        )


def _check_reachable(address: str) -> None:
    """Raise an error unless a gRPC server answers at the address: Ray would try for minutes."""
    scheme, _, rest = address.rpartition("://")
    if not scheme:
        rest = str(services.canonicalize_bootstrap_address(address))
    if ":" not in rest:
        rest += ":10001"
    host, _, port = rest.rpartition(":")
    if scheme not in ("", "ray") or not host or not port.isdigit():
        raise ValueError("an address is host:port, ray://host:port or auto")
    endpoint = (host.strip("[]"), int(port))
    with socket.create_connection(endpoint, timeout=5.0) as connection:
        if _uses_tls():
            return
        connection.settimeout(5.0)
        # gRPC's preface with empty settings; a server answers with settings of its own
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        connection.sendall(preface + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        if connection.recv(4)[3:] != b"\x04":  # the type of a settings frame
            raise ConnectionError("another kind of server is there")


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Ray quiet while it starts, and leave the user's handler of SIGTERM in place."""
    logger = logging.getLogger("ray")
    level = logger.level
    listen = worker.listen_error_messages
    handler = signal.getsignal(signal.SIGTERM)
    logger.setLevel(logging.CRITICAL)
    # Ray starts this in a thread, which prints on stdout whenever a worker dies.
    worker.listen_error_messages = lambda *args: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        worker.listen_error_messages = listen
        # Only the main thread may set a handler, and only there does Ray do so.
        main = threading.current_thread() is threading.main_thread()
        if main and handler not in (signal.SIG_DFL, None):
            signal.signal(signal.SIGTERM, handler)
