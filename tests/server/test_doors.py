"""Mirrors `engine/server/doors.py`: headers in, a role or a refusal out; no socket."""

from __future__ import annotations

from base64 import b64encode

import pytest

from engine.server.doors import Doors, Refusal, check_handshake, wants_websocket
from engine.server.tokens import Tokens

TOKENS = Tokens(agent="a" * 43, observer="o" * 43, human="h" * 43)
TCP = Doors(
    tokens=TOKENS,
    port=8420,
    own_port=8420,
    hosts=frozenset({"engine.example", "proxy.example:9000"}),
    origins=frozenset({"https://allowed.example"}),
)
UNIX = Doors(tokens=TOKENS, port=None, own_port=8420)
GOOD_HOST = "host: 127.0.0.1:8420"


def headers(*lines: str) -> list[tuple[bytes, bytes]]:
    pairs = [line.encode().split(b": ", 1) for line in lines]
    return [(name, value) for name, value in pairs]


def status(doors: Doors, *lines: str) -> int:
    """What `check` answers, 200 where it lets pass."""
    try:
        doors.check(headers(*lines))
    except Refusal as exc:
        return exc.status
    return 200


def admitted(*lines: str) -> tuple[str, str | None] | int:
    try:
        admission = TCP.admit(headers(*lines))
    except Refusal as exc:
        return exc.status
    return admission.role, admission.subprotocol


@pytest.mark.case("C146")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8420", 200),
        ("localhost:8420", 200),
        ("LOCALHOST:8420", 200),
        ("[::1]:8420", 200),
        ("engine.example", 200),
        ("proxy.example:9000", 200),
        ("attacker.example:8420", 403),
        ("127.0.0.1:8421", 403),
        ("127.0.0.1", 403),
        ("localhost", 403),
        ("[::1]", 403),
        ("::1:8420", 403),
        ("127.0.0.1.attacker.example:8420", 403),
        ("localhost.:8420", 403),
        ("engine.example:1", 403),
        ("127.0.0.1:08420", 403),
        ("user@127.0.0.1:8420", 403),
        ("", 403),
    ],
)
def test_only_loopback_names_with_the_right_port_are_served(host: str, expected: int) -> None:
    assert status(TCP, f"host: {host}") == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("localhost:1", 200),
        ("[::1]", 200),
        ("127.0.0.1:8420", 200),
        ("localhost:x", 403),
        ("attacker.example", 403),
    ],
)
def test_on_the_socket_of_the_home_any_loopback_name_is_right(host: str, expected: int) -> None:
    assert status(UNIX, f"host: {host}") == expected


def test_a_port_may_be_left_out_for_80_alone() -> None:
    assert status(Doors(tokens=TOKENS, port=80), "host: localhost") == 200


def test_two_hosts_or_none_are_a_bad_request() -> None:
    assert status(TCP, GOOD_HOST, GOOD_HOST) == 400
    assert status(TCP) == 400


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:8420", 200),
        ("http://localhost:8420", 200),
        ("http://[::1]:8420", 200),
        ("https://allowed.example", 200),
        ("https://127.0.0.1:8420", 403),
        ("http://127.0.0.1:1", 403),
        ("http://127.0.0.1", 403),
        ("https://allowed.example.attacker.example", 403),
        ("https://attacker.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_only_the_engines_own_origin_and_those_allowed_may_connect(
    origin: str, expected: int
) -> None:
    assert status(TCP, GOOD_HOST, f"origin: {origin}") == expected
    good = "origin: http://localhost:8420"
    assert status(TCP, GOOD_HOST, good, f"origin: {origin}") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["authorization: Bearer " + "a" * 43], ("agent", None)),
        (["authorization: bearer " + "o" * 43], ("observer", None)),
        (["authorization: Bearer " + "h" * 43], ("human", None)),
        (
            ["authorization: Bearer " + "a" * 43, "sec-websocket-protocol: x, engine.v1"],
            ("agent", "engine.v1"),
        ),
        ([f"sec-websocket-protocol: engine.v1, bearer.{'h' * 43}"], ("human", "engine.v1")),
        (
            [f"sec-websocket-protocol: bearer.{'a' * 43}", "sec-websocket-protocol: engine.v1"],
            ("agent", "engine.v1"),
        ),
        ([f"sec-websocket-protocol: bearer.{'a' * 43}"], 400),
        (["sec-websocket-protocol: engine.v1"], 401),
        ([f"sec-websocket-protocol: engine.v1, bearer.{'x' * 43}"], 401),
        ([f"sec-websocket-protocol: bearer.{'x' * 43}"], 401),
        (
            [f"sec-websocket-protocol: engine.v1, bearer.{'a' * 43}, bearer.{'h' * 43}"],
            401,
        ),
        (
            [
                "authorization: Bearer " + "x" * 43,
                f"sec-websocket-protocol: engine.v1, bearer.{'a' * 43}",
            ],
            401,
        ),
        (["authorization: Bearer " + "a" * 43, "authorization: Bearer " + "a" * 43], 401),
        (["authorization: Basic " + "a" * 43], 401),
        (["authorization: " + "a" * 43], 401),
        (["authorization: Bearer " + "a" * 42], 401),
        (["authorization: Bearer " + "a" * 44], 401),
        (["authorization: Bearer "], 401),
        (["authorization: Bearer é" + "a" * 41], 401),
        ([], 401),
    ],
)
def test_the_token_gives_the_role(lines: list[str], expected: tuple[str, str | None] | int) -> None:
    assert admitted(*lines) == expected


def test_a_refusal_for_want_of_a_token_says_how_to_bring_one() -> None:
    with pytest.raises(Refusal) as caught:
        TCP.admit([])
    assert list(caught.value.headers) == [("WWW-Authenticate", "Bearer")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], 200),
        (["connection: close"], 400),
        (["sec-websocket-version: 8"], 426),
        (["sec-websocket-key: short"], 400),
        (["sec-websocket-key: é"], 400),
    ],
)
def test_a_handshake_is_checked_before_it_is_handed_on(lines: list[str], expected: int) -> None:
    parts = {
        "connection": "keep-alive, Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": b64encode(b"k" * 16).decode(),
    }
    parts |= dict(line.split(": ") for line in lines)
    found = 200
    try:
        check_handshake(headers(*(f"{name}: {value}" for name, value in parts.items())))
    except Refusal as exc:
        found = exc.status
    assert found == expected


def test_an_upgrade_to_something_else_is_no_websocket() -> None:
    assert wants_websocket(headers("upgrade: h2c, WebSocket"))
    assert not wants_websocket(headers("upgrade: h2c"))
