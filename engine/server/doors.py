"""Who may come in: the checks on the head of a connection, before anything is upgraded.

Pure: headers in, an `Admission` or a `Refusal` out. A page that a browser loaded from elsewhere
is stopped by `Host` (a name that was rebound to this machine) and `Origin`; everybody else by the
token. The rules are in the wire protocol's section on transport.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.server.dispatcher import Role
from engine.server.tokens import Tokens

Headers = Iterable[tuple[bytes, bytes]]

SUBPROTOCOL: Final = "engine.v1"
TOKEN_PREFIX: Final = "bearer."  # of the subprotocol by which a browser brings its token
WEBSOCKET_VERSION: Final = "13"  # RFC 6455
HTTP_PORT: Final = 80  # the only port that a Host may leave out
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


class Refusal(Exception):
    """The request is answered with `status` and nothing else happens."""

    def __init__(self, status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


@dataclass(frozen=True)
class Admission:
    role: Role
    subprotocol: str | None  # what the server selects


@dataclass(frozen=True, kw_only=True)
class Doors:
    """The doors of one listener. `port` is its TCP port; None: it is the socket in the home.

    `hosts` (`name` or `name:port`) and `origins` (`https://name[:port]`) are let in besides the
    loopback names and what they serve; `own_port` is the engine's TCP port, for its own origins.
    """

    tokens: Tokens
    port: int | None
    own_port: int | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def check(self, headers: Headers) -> None:
        """Raise `Refusal` unless `Host` and `Origin` are right. Asked of every request."""
        hosts = values(headers, b"host")
        if len(hosts) != 1:
            raise Refusal(400, "expected one Host")
        if not self._is_host_right(hosts[0].lower()):
            raise Refusal(403, "this Host is not served here")
        for origin in values(headers, b"origin"):
            if not self._is_origin_right(origin):
                raise Refusal(403, "this Origin may not connect")

    def admit(self, headers: Headers) -> Admission:
        """The role that the token gives. Raises `Refusal`."""
        offered = _listed(headers, b"sec-websocket-protocol")
        selected = SUBPROTOCOL if SUBPROTOCOL in offered else None
        tokens = [name for name in offered if name.startswith(TOKEN_PREFIX)]
        authorization = values(headers, b"authorization")
        if authorization:
            role = self._role_of(bearer_of(authorization))
        else:
            role = self._role_of(tokens[0].removeprefix(TOKEN_PREFIX) if len(tokens) == 1 else "")
        if role is None:
            challenge = ("WWW-Authenticate", "Bearer")
            raise Refusal(401, "expected a token of this engine", [challenge])
        if not authorization and selected is None:
            raise Refusal(400, f"expected the subprotocol {SUBPROTOCOL} beside the token's")
        return Admission(role, selected)

    def _is_host_right(self, host: str) -> bool:
        if host in self.hosts:
            return True
        name, port = _split_port(host)
        if name not in LOOPBACK_NAMES:
            return False
        if self.port is None:
            return port is None or port.isdecimal()
        return (port or str(HTTP_PORT)) == str(self.port)

    def _is_origin_right(self, origin: str) -> bool:
        own = {f"http://{name}:{self.own_port or self.port}" for name in LOOPBACK_NAMES}
        return origin in own or origin in self.origins

    def _role_of(self, token: str) -> Role | None:
        """The role, found in a time that does not tell how much of a token was right."""
        given = token.encode()
        found: Role | None = None
        roles: tuple[Role, ...] = ("agent", "observer", "human")
        for role in roles:
            if hmac.compare_digest(given, getattr(self.tokens, role).encode()):
                found = role
        return found


def values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def wants_websocket(headers: Headers) -> bool:
    return "websocket" in [name.lower() for name in _listed(headers, b"upgrade")]


def check_handshake(headers: Headers) -> None:
    """Raise `Refusal` unless RFC 6455, section 4.2.1, lets the handshake go on."""
    if "upgrade" not in [name.lower() for name in _listed(headers, b"connection")]:
        raise Refusal(400, "expected Connection: Upgrade")
    if values(headers, b"sec-websocket-version") != [WEBSOCKET_VERSION]:
        version = ("Sec-WebSocket-Version", WEBSOCKET_VERSION)
        raise Refusal(426, "expected Sec-WebSocket-Version: 13", [version])
    keys = values(headers, b"sec-websocket-key")
    if len(keys) != 1 or not _is_nonce(keys[0]):
        raise Refusal(400, "expected one Sec-WebSocket-Key of 16 bytes")


def _is_nonce(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _listed(headers: Headers, name: bytes) -> list[str]:
    """The items of a header that is a comma-separated list, possibly over several lines."""
    items = ",".join(values(headers, name)).split(",")
    return [item.strip() for item in items if item.strip()]


def bearer_of(authorization: list[str]) -> str:
    """The token in the values of the header `Authorization`; empty where there is not one."""
    scheme, _, token = authorization[0].partition(" ")
    return token.strip() if len(authorization) == 1 and scheme.lower() == "bearer" else ""


def _split_port(host: str) -> tuple[str, str | None]:
    if host.endswith("]"):
        return host, None
    name, colon, port = host.rpartition(":")
    return (name, port) if colon else (host, None)
