"""The sockets that the engine listens on: one in its home, and one on the loopback interface; and
who is at the other end of one.

Making them is all that happens here; who accepts, and what a client may do, is the front door's.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

import structlog
import trio

from engine.server.tokens import write_private

SOCKET_FILE: Final = "engine.sock"
SECOND_NAME: Final = ".engine.sock"  # by which it gets the first again, should that be removed
PORT_FILE: Final = "listen.port"  # the TCP port that was free at the first start
BACKLOG: Final = 1024  # clients that may wait to be accepted
DEFAULT_HOST: Final = "127.0.0.1"

_UCRED: Final = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
_LISTEN: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})\Z"
)


log = structlog.get_logger()


class CannotListen(Exception):
    """An address is wrong, taken, or may not be listened on. The text is for whoever starts us."""


class Address(NamedTuple):
    host: str  # an IP address of the loopback interface
    port: int  # 0: any that is free


def parse_listen(text: str) -> Address:
    """`HOST:PORT` (`127.0.0.1:8420`, `localhost:0`, `[::1]:8420`). Raises `CannotListen`."""
    found = _LISTEN.match(text)
    if found is None or int(found["port"]) > 65_535:
        raise CannotListen(f"listen {text!r}: expected HOST:PORT")
    host = found["v6"] or found["host"]
    if host == "localhost":
        host = DEFAULT_HOST
    if not _is_loopback(host):
        raise CannotListen(
            f"listen {text!r}: only loopback addresses (127.0.0.1, localhost, [::1]): "
            "anything else needs TLS, which this engine does not offer yet"
        )
    return Address(host, int(found["port"]))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: what it leads to may change
        return False


def open_tcp(home: Path, listen: str | None = None) -> trio.SocketListener:
    """A listener on `listen`; without it on the port that this home keeps, chosen the first time.

    Where somebody has taken the kept port, on another for this time: no engine at all would be
    worse, and `engine.json` tells where it is. Raises `CannotListen`.
    """
    if listen is not None:
        return _bind_tcp(parse_listen(listen))
    kept = _kept_port(home)
    if kept is not None:
        try:
            return _bind_tcp(Address(DEFAULT_HOST, kept))
        except CannotListen as exc:
            log.error("kept_port_taken", reason=str(exc))
            return _bind_tcp(Address(DEFAULT_HOST, 0))
    listener = _bind_tcp(Address(DEFAULT_HOST, 0))
    keep_port(home, tcp_port(listener))
    return listener


def keep_port(home: Path, port: int) -> None:
    """Have the next engine take this port. Raises OSError."""
    write_private(home / PORT_FILE, f"{port}\n".encode())


def missed_port(home: Path, listener: trio.SocketListener) -> int | None:
    """The port that the home keeps, where `listener` has another because that was taken."""
    kept = _kept_port(home)
    return None if kept == tcp_port(listener) else kept


def tcp_port(listener: trio.SocketListener) -> int:
    port: int = listener.socket.getsockname()[1]
    return port


def tcp_url(listener: trio.SocketListener) -> str:
    """Where clients find the websocket: `ws://127.0.0.1:8420/rpc`."""
    host, port, *_ = listener.socket.getsockname()
    return f"ws://[{host}]:{port}/rpc" if ":" in host else f"ws://{host}:{port}/rpc"


def _kept_port(home: Path) -> int | None:
    path = home / PORT_FILE
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise CannotListen(f"{path}: holds no port; remove it to have a new one chosen")
    return int(text)


def _bind_tcp(address: Address) -> trio.SocketListener:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        where = f"{address.host}:{address.port}"
        raise CannotListen(f"cannot listen on {where}: {exc.strerror}") from exc
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def open_unix(home: Path) -> trio.SocketListener:
    """A listener on `engine.sock` in `home`, which the caller has locked: a socket that is there
    is left over from an engine that is gone, and is replaced. Raises `CannotListen`.

    The path may be longer than an address can hold (108 bytes), so it is bound by descriptor.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_socket(home)
            sock.bind(f"/proc/self/fd/{directory}/{SOCKET_FILE}")
            os.chmod(SOCKET_FILE, 0o600, dir_fd=directory)
        finally:
            os.close(directory)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        raise CannotListen(f"cannot listen on {home / SOCKET_FILE}: {exc.strerror}") from exc
    with contextlib.suppress(OSError):  # a file system without second names does without
        name_again(home, SECOND_NAME)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def remove_socket(home: Path) -> None:
    """Take away the socket's names: before another is made, and as the last of a clean end."""
    for name in (SOCKET_FILE, SECOND_NAME):
        (home / name).unlink(missing_ok=True)


def name_again(home: Path, name: str = SOCKET_FILE) -> None:
    """Give the socket a name that it has lost, by the other that it has. Raises OSError."""
    other = SECOND_NAME if name == SOCKET_FILE else SOCKET_FILE
    os.link(home / other, home / name)


def peer_name(sock: trio.socket.SocketType) -> str:
    """Where a client comes from, for the record: an address, or on the home's socket a process."""
    if sock.family != trio.socket.AF_UNIX:
        host, port, *_ = sock.getpeername()
        return f"{host} port {port}"
    packed = sock.getsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(packed)
    return f"pid {pid} uid {uid}"
