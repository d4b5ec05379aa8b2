"""The doors of the running program, on both of its listeners: asked byte by byte, over a socket."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import LIMIT, Engine

EXTRA = ("--set", 'allowed_origins=["https://board.example"]', "--set", 'allowed_hosts=["box:81"]')


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = tmp_path_factory.mktemp("doors") / "home"
    with Engine(home, "--set", "min_free_bytes=0", *EXTRA) as engine:
        yield engine


@pytest.fixture(params=["unix", "tcp"])
def knock(request: pytest.FixtureRequest, engine: Engine) -> Knock:
    return Knock(engine, is_tcp=request.param == "tcp")


class Knock:
    """Sends one request to a listener and gives its answer."""

    def __init__(self, engine: Engine, *, is_tcp: bool) -> None:
        self.engine = engine
        self.port = int(engine.facts()["url"].rpartition(":")[2].partition("/")[0])
        self.address = ("127.0.0.1", self.port) if is_tcp else str(engine.home / "engine.sock")
        self.family = socket.AF_INET if is_tcp else socket.AF_UNIX
        self.host = f"127.0.0.1:{self.port}" if is_tcp else "localhost"

    def get(self, path: str, *headers: str, host: tuple[str, ...] | None = None) -> Answer:
        hosts = (self.host,) if host is None else host
        lines = [f"GET {path} HTTP/1.1", *(f"Host: {name}" for name in hosts), *headers]
        with socket.socket(self.family) as sock:
            sock.settimeout(LIMIT)
            sock.connect(self.address)
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            data = b""
            while b"\r\n\r\n" not in data or not data.startswith(b"HTTP/1.1 101"):
                chunk = sock.recv(65536)
                if not chunk:
                    break
                data += chunk
        return Answer(data.decode("latin-1"))

    def upgrade(self, *headers: str, host: tuple[str, ...] | None = None) -> Answer:
        key = base64.b64encode(b"0123456789abcdef").decode()
        handshake = (
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        )
        return self.get("/rpc", *handshake, *headers, host=host)

    def bearer(self, role: str = "agent") -> str:
        return f"Authorization: Bearer {self.engine.token(role)}"


class Answer:
    def __init__(self, text: str) -> None:
        head, _, self.body = text.partition("\r\n\r\n")
        status, *lines = head.split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value for name, value in (x.split(": ", 1) for x in lines)}


def test_a_token_lets_in_and_none_or_a_wrong_one_does_not(knock: Knock) -> None:
    for role in ("agent", "observer", "human"):
        assert knock.upgrade(knock.bearer(role)).status == 101
    assert knock.upgrade().status == 401
    assert knock.upgrade("Authorization: Bearer " + "A" * 43).status == 401
    assert knock.upgrade("Authorization: Basic " + knock.engine.token()).status == 401
    assert knock.upgrade("Authorization: Bearer").status == 401


def test_a_browser_brings_its_token_as_a_subprotocol_and_never_sees_it_again(knock: Knock) -> None:
    token = knock.engine.token()
    answer = knock.upgrade(f"Sec-WebSocket-Protocol: engine.v1, bearer.{token}")
    assert (answer.status, answer.headers["sec-websocket-protocol"]) == (101, "engine.v1")
    assert token not in str(answer.headers)
    assert knock.upgrade(f"Sec-WebSocket-Protocol: bearer.{token}").status == 400
    assert knock.upgrade("Sec-WebSocket-Protocol: engine.v1, bearer.wrong").status == 401
    assert knock.upgrade("Sec-WebSocket-Protocol: engine.v1").status == 401


def test_only_own_and_listed_origins_may_connect(knock: Knock) -> None:
    bearer = knock.bearer()
    for origin, status in {
        f"http://127.0.0.1:{knock.port}": 101,
        f"http://localhost:{knock.port}": 101,
        "https://board.example": 101,
        "https://evil.example": 403,
        "null": 403,
        f"https://localhost:{knock.port}": 403,
        f"http://localhost:{knock.port}.evil.example": 403,
    }.items():
        assert knock.upgrade(bearer, f"Origin: {origin}").status == status, origin


def test_only_loopback_and_listed_hosts_are_served_also_on_open_pages(knock: Knock) -> None:
    bearer = knock.bearer()
    assert knock.upgrade(bearer, host=("evil.example",)).status == 403
    assert knock.upgrade(bearer, host=("box:81",)).status == 101
    assert knock.upgrade(bearer, host=(knock.host, knock.host)).status == 400
    assert knock.upgrade(bearer, host=()).status == 400
    assert knock.get("/livez", host=("evil.example",)).status == 403
    assert knock.get("/readyz", host=("evil.example",)).status == 403


def test_the_pages_say_alive_ready_and_who(knock: Knock) -> None:
    assert (knock.get("/livez").status, knock.get("/livez").body) == (200, "ok\n")
    assert (knock.get("/readyz").status, knock.get("/readyz").body) == (200, "ready\n")
    assert knock.get("/whoami").status == 401
    answer = knock.get("/whoami", knock.bearer("observer"))
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "role": "observer",
        "version": "0.1.0",
        "protocol": 1,
        "startedAt": knock.engine.facts()["startedAt"],
    }
    assert knock.get("/else").status == 404


def test_too_little_disk_makes_the_engine_alive_and_not_ready(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", "--set", f"min_free_bytes={1 << 62}") as engine:
        knock = Knock(engine, is_tcp=True)
        assert knock.get("/livez").status == 200
        answer = knock.get("/readyz")
        assert (answer.status, answer.body) == (503, "refusing\n")


def test_tokens_are_kept_over_restarts_and_no_other_homes(engine: Engine, tmp_path: Path) -> None:
    roles = ("agent", "observer", "human")
    with Engine(tmp_path / "home") as other:
        before = {role: other.token(role) for role in roles}
        other.kill()
        other.start()
        assert {role: other.token(role) for role in roles} == before
    assert len({*before.values(), *(engine.token(role) for role in roles)}) == 6
