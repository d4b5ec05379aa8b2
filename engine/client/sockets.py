"""The way to an engine's socket, before any protocol; and what to say where there is none.

The standard library alone: some of its users have to be there at once.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Final

from engine.client.errors import NotReachable, TokenRefused
from engine.client.places import FACTS, Place, is_alive, tilde

HANDSHAKE_WAIT: Final = 10.0  # seconds; the engine's front door gives up after the same time
MAX_SOCKET_PATH: Final = 107  # bytes that fit in sockaddr_un


def wait_readable(fds: list[int], until: float | None) -> set[int]:
    """Those of `fds` that can be read; none when the monotonic clock has reached `until`."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    left = None if until is None else max(0.0, until - time.monotonic()) * 1000
    return {fd for fd, _ in poll.poll(left)}


def connect_unix(path: str, timeout: float = HANDSHAKE_WAIT) -> socket.socket:
    """A socket connected to `path`, which may be longer than the kernel's address field."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            sock.connect(path)
            return sock
        folder, name = os.path.split(path)
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except BaseException:
        sock.close()
        raise
    return sock


def open_socket(place: Place, timeout: float = HANDSHAKE_WAIT) -> socket.socket:
    """A connected socket, after at most `timeout` seconds. Raises `NotReachable`."""
    try:
        if place.socket is not None:
            return connect_unix(place.socket, timeout)
        assert place.address is not None
        sock = socket.create_connection(place.address, timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as exc:
        raise unreachable(place, exc) from exc
    return sock


def spot(place: Place) -> str:
    """Where the connection goes, for people."""
    return tilde(place.socket) if place.socket is not None else place.url


def unreachable(place: Place, exc: OSError) -> NotReachable:
    """What to say where no connection could be made, and whether nobody listens."""
    reason = {
        ConnectionRefusedError: "refused",
        FileNotFoundError: "no socket",
        PermissionError: "permission denied",
        TimeoutError: "no answer",
    }.get(type(exc), (exc.strerror or str(exc)).lower())
    lines = [f"not reachable at {spot(place)} ({reason})"]
    if place.socket is not None and place.pid is not None:
        state = "is there and does not listen" if is_alive(place.pid) else "is gone"
        lines.append(f"{FACTS} names pid {place.pid}, which {state}. Start it: engine serve")
    absent = place.socket is not None and reason in ("refused", "no socket")
    return NotReachable(*lines, absent=absent)


def hung_up(place: Place, reason: str) -> NotReachable:
    """What to say of one that ended the connection before it had let us in.

    Nothing has been asked by then: so goes an engine that is killed, and another may be started.
    """
    return NotReachable(
        f"not reachable at {spot(place)} ({reason})", absent=place.socket is not None
    )


def refusal(place: Place, status: int) -> NotReachable:
    """What to say where the front door answered with this HTTP status."""
    if status == 401:
        where, file = place.url or spot(place), tilde(place.token_from)
        if file:
            return TokenRefused(f"token refused (401) by {where}; it was read from {file}")
        return TokenRefused(
            f"token refused (401) by {where}",
            f"{FACTS} was read from {tilde(place.home)}. Another engine may own this port.",
        )
    return NotReachable(f"refused ({status}) by {spot(place)}")
