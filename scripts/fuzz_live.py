"""What comes over sockets: heads and frames to an engine, words to a keeper and from one.

The engine and the keeper are whole and alive. Clients are observers here, who can start nothing.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Final

from acceptance.running import Engine

from scripts.fuzz_wire import WORDS
from scripts.fuzzing import Fault, Target, memory_of
from scripts.mutating import mutate, vary_json

LIMIT: Final = 20.0  # seconds for the end of a connection
LOOK_EVERY: Final = 20  # inputs: then another client asks, and is to be answered soon
MOST_MS: Final = 100.0  # of the processor for 99 of 100 of those answers
MOST_GROWN: Final = 96 << 20  # bytes of the engine
_ID: Final = "aaaaaa"
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d\d\d) [A-Za-z ]*\r\n")
_STATUSES: Final = frozenset({101, 200, 400, 401, 403, 404, 405, 426, 431, 501})
_CODES: Final = frozenset(
    {-32700, -32600, -32601, -32602, -32003, -32004, -32007, -32008, -32009, -32010, -32011}
)
_UPGRADE: Final = (
    "GET /rpc HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Authorization: Bearer {}\r\n\r\n"
)


class Served:
    """An engine, and one client of it that is to be answered whatever the others do."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="engine-fuzz-"))
        self.engine = Engine(self.folder / "home", "--set", "min_free_bytes=0")
        try:
            self.engine.start()
            self.client = self.engine.connect()
            self.client.call("bash", command="echo a line; echo error: another", as_="ci")
        except BaseException:
            self._end()
            raise
        self.socket: str = self.engine.facts()["socket"]
        self.token = self.engine.token("observer")
        self._times: list[float] = []  # ms until such an answer, and what it took the engine
        self._spent: list[float] = []
        self._count = 0
        self._before = (0, 0)

    def exchange(self, *parts: bytes) -> bytes:
        """What comes back until the engine ends the connection, of which our half has ended."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT)
            sock.connect(self.socket)
            seen = bytearray()
            try:
                for part in parts:
                    sock.sendall(part)
                sock.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):  # it has had enough
                pass
            try:
                while data := sock.recv(1 << 16):
                    seen += data
            except ConnectionResetError:
                pass
            except TimeoutError as exc:
                raise Fault(f"not ended in {LIMIT} s; so far {bytes(seen[:80])!r}") from exc
        self._look()
        return bytes(seen)

    def _look(self) -> None:
        self._count += 1
        if self._count % LOOK_EVERY == 0:
            began, before = time.monotonic(), self._processor_ms()
            self.client.call("engine_info")
            self._times.append((time.monotonic() - began) * 1000)
            self._spent.append(self._processor_ms() - before)
        if self._count == 500:
            self._before = self._usage()

    def _processor_ms(self) -> float:
        """What the engine's own thread has had of the processor: see proc(5), schedstat."""
        return int(Path(f"/proc/{self.engine.pid}/schedstat").read_text().split()[0]) / 1e6

    def _usage(self) -> tuple[int, int]:
        pid = self.engine.pid
        return memory_of(pid), len(os.listdir(f"/proc/{pid}/fd"))

    def finish(self) -> None:
        """Raise Fault unless the engine is as it was."""
        try:
            self.client.call("roster")
            memory, opened = self._usage()
            log = self.engine.log_text()
            late, spent = _of_a_hundred(self._times), _of_a_hundred(self._spent)
            print(f"  99 of 100 others answered in {late:.1f} ms, {spent:.1f} ms of the processor;")
            print(f"  memory {memory >> 20} MiB (before {self._before[0] >> 20}), {opened} open")
            if "Traceback" in log or "connection failed" in log:
                raise Fault(f"the log says {log[-3000:]}")
            if spent > MOST_MS:  # by the clock it is a matter of what else the machine does
                raise Fault(f"others were answered in {spent:.0f} ms of the processor")
            if self._before[0] and (
                memory - self._before[0] > MOST_GROWN or opened > self._before[1] + 20
            ):
                raise Fault(f"from {self._before} to {memory, opened}")
        finally:
            self.client.close()
            self._end()

    def _end(self) -> None:
        if self.engine.process is not None:
            self.engine.stop()
        self.engine.end_leftovers()
        shutil.rmtree(self.folder)

    # -- heads -----------------------------------------------------------------------------------

    def check_head(self, data: bytes) -> Hashable:
        """Whatever comes first is answered as HTTP, or with the end of the connection."""
        answer = self.exchange(data)
        if not answer:
            return None
        status = _STATUS.match(answer)
        if not status or int(status[1]) not in _STATUSES:
            raise Fault(f"answered with {answer[:200]!r}")
        return int(status[1])

    def heads(self) -> list[bytes]:
        upgrade = _UPGRADE.format(self.token).encode()
        browser = upgrade.replace(
            b"Authorization: Bearer ", b"Sec-WebSocket-Protocol: engine.v1, bearer."
        )
        page = b"GET /whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        return [
            upgrade,
            upgrade + frame(1, CALLS[0]),
            browser,
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"HEAD /readyz?x=1 HTTP/1.0\r\nHost: localhost:80\r\nOrigin: null\r\n\r\n",
            page + self.token.encode() + b"\r\nContent-Length: 3\r\n\r\nabc",
            b"POST /rpc HTTP/1.1\r\nHost: a\r\nHost: b\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ]

    # -- frames ----------------------------------------------------------------------------------

    def check_frames(self, data: bytes) -> Hashable:
        """Whatever follows the upgrade is answered with frames, and these with sound replies."""
        answer = self.exchange(_UPGRADE.format(self.token).encode(), data)
        head, _, rest = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Fault(f"answered with {answer[:200]!r}")
        return tuple(sorted({_look_at(*each) for each in _frames(rest)}))


def _of_a_hundred(times: list[float]) -> float:
    """What 99 of 100 are below."""
    return sorted(times)[len(times) * 99 // 100] if times else 0.0


CALLS: Final = tuple(
    json.dumps({"jsonrpc": "2.0", "id": i, "method": method, "params": params}).encode()
    for i, (method, params) in enumerate(
        [
            ("engine_info", {}),
            ("list_tasks", {"caller": "*", "changed_after": 0, "timeout_secs": 1}),
            ("read_logs", {"as": "ci", "after_seq": 0, "contains": "x", "wake_on": ["error"]}),
            ("wait", {"taskId": "t8f3kr9", "timeout_secs": 0}),
            ("read_output", {"taskId": "t8f3kr9", "offset": -5, "raw": True}),
            ("hello", {"cwd": "/", "env": {"A": "b"}, "client": "x"}),
            ("read_stats", {"since": "2026-11-30T12:00:00Z"}),
            ("roster", {"after": "a"}),
            ("cancel", {"taskId": "t8f3kr9"}),
        ]
    )
)


def frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """A client's frame; its mask changes nothing, so that changes of bytes mean something."""
    head = bytes([opcode | (fin << 7)])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    else:
        head += (
            b"\xfe" + size.to_bytes(2, "big")
            if size < 1 << 16
            else b"\xff" + size.to_bytes(8, "big")
        )
    return head + bytes(4) + payload


def _frames(data: bytes) -> list[tuple[int, bytes]]:
    """Opcode and payload of the engine's frames; a last one may be cut. Raises Fault."""
    found, at = [], 0
    while at + 2 <= len(data):
        head, size = data[at], data[at + 1]
        if head & 0x70 or size & 0x80 or head & 15 not in (0, 1, 8, 9, 10):
            raise Fault(f"a frame that begins {data[at : at + 8]!r}")
        at += 2
        if size > 125:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(data[at : at + width], "big"), at + width
        if at + size <= len(data):
            found.append((head & 15, data[at : at + size]))
        at += size
    return found


def _look_at(opcode: int, payload: bytes) -> tuple[int, int]:
    if opcode == 8:
        return 8, struct.unpack("!H", payload[:2])[0] if payload else 0
    if opcode != 1:
        return opcode, 0
    replies = json.loads(payload)
    for reply in replies if isinstance(replies, list) else [replies]:
        if reply["jsonrpc"] != "2.0" or ("result" in reply) == ("error" in reply):
            raise Fault(f"the reply is {payload[:300]!r}")
        code = reply["error"]["code"] if "error" in reply else 0
        if code and code not in _CODES:
            raise Fault(f"the reply is {payload[:300]!r}")
    return 1, len(replies) if isinstance(replies, list) else code


def vary_frames(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Frames with other messages in them, in parts, or with any change of their bytes."""
    if rng.random() < 0.4:
        return mutate(rng, data, (*words, *(frame(op, b"") for op in range(16))))
    out = b""
    for _ in range(1 + int(rng.random() * 3)):
        text = vary_json(rng, rng.choice(CALLS), words)
        if rng.random() < 0.3:
            text = text.decode("utf-8", "replace").encode()
        if rng.random() < 0.2:
            text = b"[" + b",".join([text] * rng.randrange(1, 70)) + b"]"
        if rng.random() < 0.2:
            cut = rng.randrange(len(text) + 1)
            out += frame(1, text[:cut], fin=False) + frame(9, b"p") + frame(0, text[cut:])
        else:
            out += frame(rng.choice((1, 1, 1, 1, 2)), text)
    return out + (frame(8, b"\x03\xe8") if rng.random() < 0.5 else b"")


def _served(name: str) -> Callable[[], Target]:
    def make() -> Target:
        served = Served()
        if name == "heads":
            words = (
                b"\r\n",
                b": ",
                b"Host: ",
                b"Origin: http://x\r\n",
                b"bearer.",
                b"\x00",
                b"chunked",
                b"%00",
                b"A" * 5000,
            )
            return Target(
                name=name, seeds=served.heads(), check=served.check_head, words=words,
                pumped=1 << 16, learns=False, finish=served.finish, secs=LIMIT,
            )  # fmt: skip
        seeds = [frame(1, call) for call in CALLS] + [frame(8, b""), frame(2, b"x"), frame(9, b"")]
        return Target(
            name=name, seeds=seeds, check=served.check_frames, words=WORDS, vary=vary_frames,
            pumped=0, learns=False, finish=served.finish, secs=LIMIT,
        )  # fmt: skip

    return make


MAKERS: Final[dict[str, Callable[[], Target]]] = {
    "heads": _served("heads"),
    "frames": _served("frames"),
}
