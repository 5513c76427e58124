"""Connect to Ray, or start it on this machine: fail fast, and keep it quiet."""

from __future__ import annotations

import ipaddress
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

# Ray reads these when it is imported; the user's own settings win. No usage statistics, no warning
# about a future version, no line whenever a worker dies, which is made again; and Ray that is
# started here uses 127.0.0.1, where it otherwise listens to other machines.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "worker died|actor died|retries remaining",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)

try:
    import ray
    from ray import cloudpickle
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
        raise InputError(f"Ray {what}: {one_line(str(error))}") from None
    where = "" if address is not None else ray.util.get_node_ip_address()
    if where and not ipaddress.ip_address(where).is_loopback:
        warnings.warn(
            f"Ray was imported before fedsplit, and listens at {where} to other machines: set "
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, or import fedsplit.RayClients before ray",
            stacklevel=3,
        )
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


def _start() -> None:
    cores = None
    if hasattr(os, "sched_getaffinity"):  # the cores of this process, not of the machine
        cores = len(os.sched_getaffinity(0))
    ray.init("local", num_cpus=cores, include_dashboard=False, **QUIET)


def _check_reachable(address: str) -> None:
    """Raise an error unless a gRPC server answers at the address: Ray would try for minutes."""
    if address == "auto" and not (address := os.environ.get("RAY_ADDRESS", "")):
        return  # Ray looks for a cluster on this machine
    scheme, _, rest = address.rpartition("://")
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
    handler = signal.getsignal(signal.SIGTERM)
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        # Only the main thread may set a handler, and only there does Ray do so.
        main = threading.current_thread() is threading.main_thread()
        if main and handler not in (signal.SIG_DFL, None):
            signal.signal(signal.SIGTERM, handler)
