"""The sockets that the engine listens on: one in its home, and one on the loopback interface.

Making them is all that happens here; who accepts, and what a client may do, is the front door's.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import Final, NamedTuple

import trio

from engine.server.tokens import write_private

SOCKET_FILE: Final = "engine.sock"
PORT_FILE: Final = "listen.port"  # the TCP port that was free at the first start
BACKLOG: Final = 1024  # clients that may wait to be accepted
DEFAULT_HOST: Final = "127.0.0.1"

_LISTEN: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})\Z"
)


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

    A kept port that is taken is an error: clients were told of it. Raises `CannotListen`.
    """
    if listen is not None:
        return _bind_tcp(parse_listen(listen), hint="")
    kept = _kept_port(home)
    if kept is not None:
        hint = f"; it is kept in {home / PORT_FILE}, --listen HOST:PORT takes another"
        return _bind_tcp(Address(DEFAULT_HOST, kept), hint=hint)
    listener = _bind_tcp(Address(DEFAULT_HOST, 0), hint="")
    write_private(home / PORT_FILE, f"{tcp_port(listener)}\n".encode())
    return listener


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


def _bind_tcp(address: Address, *, hint: str) -> trio.SocketListener:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        where = f"{address.host}:{address.port}"
        raise CannotListen(f"cannot listen on {where}: {exc.strerror}{hint}") from exc
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
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def remove_socket(home: Path) -> None:
    """Take away the socket's name: before another is made, and as the last of a clean end."""
    (home / SOCKET_FILE).unlink(missing_ok=True)
