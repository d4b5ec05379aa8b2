"""The hostile clients, each in a process of its own: `hostile.py --attack NAME --home H --secs N`.

Each goes on for its time or its count, hangs up, and tells what it saw: counts, and how the engine
ended it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from scripts.hostile_wire import (
    PING,
    Raw,
    announced,
    call,
    frame,
)

Facts = dict[str, Any]
Attack = Callable[[Path, float, str], Facts]

MIB: Final = 1 << 20
MESSAGE_MAX: Final = 16 * MIB


def never_reads(home: Path, until: float, task: str) -> Facts:
    """Asks for pages of half a mebibyte, again and again; a client that is dropped comes anew."""
    facts: Counter[str] = Counter()
    while time.monotonic() < until:
        with Raw(home) as client:
            facts["clients"] += 1
            one = frame(call(1, "read_output", taskId=task, limit_bytes=524_288))
            with contextlib.suppress(OSError):
                while time.monotonic() < until:
                    facts["bytes asked with"] += client.pour(one * 100, until)
            facts["dropped"] += client.is_gone(0)
    return facts


def follows_and_never_reads(home: Path, until: float, task: str) -> Facts:
    """Follows what grows, each page asked for before the one before it was read."""
    facts: Counter[str] = Counter()
    while time.monotonic() < until:
        with Raw(home) as client:
            facts["clients"] += 1
            with contextlib.suppress(OSError):
                for offset in itertools.count(1_000_000, 65_536):
                    params = {"taskId": task, "offset": offset, "timeout_secs": 20}
                    ask = frame(call(offset, "read_output", **params))
                    if client.pour(ask, until) < len(ask):
                        break
                    facts["pages asked for"] += 1
            client.is_gone(max(0.0, until - time.monotonic()))
            facts["dropped"] += client.is_gone(0)
    return facts


def reads_a_byte_a_second(home: Path, until: float, task: str) -> Facts:
    """20 clients that take their replies byte by byte."""
    clients = [Raw(home) for _ in range(20)]
    ask = frame(call(1, "read_output", taskId=task, limit_bytes=524_288))
    for client in clients:
        client.pour(ask * 100, time.monotonic() + 1)
    gone = 0
    while clients and time.monotonic() < until:
        for client in list(clients):
            try:
                is_there = bool(client.sock.recv(1))
            except OSError:
                is_there = False
            if not is_there or client.is_gone(0):
                gone += 1
                clients.remove(client)
                client.sock.close()
        time.sleep(1)
    for client in clients:
        client.sock.close()
    return {"clients": 20, "dropped": gone}


def sends_a_byte_a_second(home: Path, until: float, task: str) -> Facts:
    """20 in their heads, 20 in a frame that is long."""
    heads = [Raw(home, upgrade=False) for _ in range(20)]
    frames = [Raw(home) for _ in range(20)]
    for client in frames:
        client.send(announced(MIB))
    gone: Counter[str] = Counter()
    while time.monotonic() < until:
        for kind, clients in (("head", heads), ("frame", frames)):
            for client in list(clients):
                try:
                    client.send(b"G")
                except OSError:
                    gone[kind] += 1
                    clients.remove(client)
                    client.sock.close()
        time.sleep(1)
    for client in [*heads, *frames]:
        client.sock.close()
    return {"heads sent away": gone["head"], "frames": gone["frame"]}


def halves_left_open(home: Path, until: float, task: str) -> Facts:
    """100 sockets that say nothing, 100 half heads, 100 half frames, 20 of 15 MiB that wait."""
    silent = [Raw(home, upgrade=False) for _ in range(100)]
    heads = [Raw(home, upgrade=False) for _ in range(100)]
    frames = [Raw(home) for _ in range(100)]
    large = [Raw(home) for _ in range(20)]
    for client in heads:
        client.send(b"GET /rpc HTTP/1.1\r\nHost: local")
    for client in frames:
        client.send(frame(call(1, "engine_info"))[:-5])
    for client in large:
        client.send(announced(MESSAGE_MAX - 1) + bytes(15 * MIB))
    time.sleep(max(0.0, until - time.monotonic()))
    facts = {
        "silent sent away": sum(client.is_gone(0) for client in silent),
        "heads sent away": sum(client.is_gone(0) for client in heads),
    }
    for client in [*silent, *heads, *frames, *large]:
        client.sock.close()
    return facts


_LEAVER: Final = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from scripts.hostile_wire import Raw, call, frame
clients = [Raw(Path(sys.argv[1])) for _ in range(20)]
for client in clients:
    client.send(frame(call(1, "wait", taskId="t0000000")))
    client.send(frame(call(2, "read_logs", as_="killed", timeout_secs=55)))
print("in", flush=True)
sys.stdin.read()
"""


def come_and_go(home: Path, until: float, task: str) -> Facts:
    """Waves of 500: hello, a call, and away without a word. Beside them some are killed."""
    facts: Counter[str] = Counter()
    while time.monotonic() < until:
        killed = subprocess.Popen(
            [sys.executable, "-c", _LEAVER, str(home), *sys.path[:2]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        clients = []
        for number in range(500):
            client = Raw(home)
            client.send(frame(call(1, "hello", client="comes and goes")))
            what = ("engine_info", {}) if number % 50 else ("bash", {"command": "true"})
            client.send(frame(call(2, what[0], **what[1])))
            clients.append(client)
        for number, client in enumerate(clients):
            if number % 2:  # the others leave with their replies under way
                replies = [client.reply() for _ in range(2)]
                facts["answered"] += sum("result" in reply for reply in replies)
            client.sock.close()
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        facts["came"] += 520
    return facts


def big_frames(home: Path, until: float, task: str) -> Facts:
    """Commands of 1 MiB, batches of 15 MiB, junk of 16 MiB, and one byte over it."""
    facts: Counter[str] = Counter()
    command = "true # " + "x" * (MIB - 7)
    large = frame(call(1, "bash", command=command, as_="large", max_output_bytes=0))
    one = call(1, "read_logs", as_="large", contains="y" * 200, limit=1)
    pad = {"jsonrpc": "2.0", "id": 9, "method": "x" * 240_000}
    batch = frame(b"[" + b",".join([one] + [json.dumps(pad).encode()] * 63) + b"]")
    junk = frame(b"[" * (MESSAGE_MAX // 2) + b"]" * (MESSAGE_MAX // 2))
    text = frame(b'"' + b"z" * (MESSAGE_MAX - 2) + b'"')
    values = frame(b"[" + b"1," * 290_000 + b"1]")
    over = frame(b'"' + b"z" * (MESSAGE_MAX - 1) + b'"')
    for data in itertools.cycle((large, batch, junk, text, values, over)):
        if time.monotonic() > until:
            return facts
        with Raw(home) as client, contextlib.suppress(ConnectionError):
            client.send(data)
            if data is over:
                facts[f"one byte over: {client.end()}"] += 1
                continue
            reply = client.reply()
            facts["frames"] += 1
            facts["answered"] += bool(reply)
    return facts


def fragments(home: Path, until: float, task: str) -> Facts:
    """A million fragments of a byte, a million of none, one of 4-byte characters, compression."""
    facts: Counter[str] = Counter()
    byte = frame(b"x", 0, fin=False) * 10_000
    none = frame(b"", 0, fin=False) * 10_000
    smile = frame("\U0001f600".encode(), 0, fin=False) * 10_000
    while time.monotonic() < until:
        for name, data in (("bytes", byte), ("empty", none), ("wide", smile)):
            with Raw(home) as client:
                with contextlib.suppress(OSError):
                    client.send(frame(b"x", fin=False))
                    for _ in range(100):
                        client.send(data)
                facts[f"{name}: {client.end()}"] += 1
        with Raw(home, extensions="permessage-deflate") as client:
            facts["deflate agreed"] += b"deflate" in client.head.lower()
            client.send(frame(b"\xaa\x56\x4a", rsv=4))
            facts[f"compressed: {client.end()}"] += 1
    return facts


def pings(home: Path, until: float, task: str) -> Facts:
    """Floods of pings, read and not read; control frames that are too large or cut."""
    facts: Counter[str] = Counter()
    flood = frame(b"p" * 125, PING) * 1_000
    with Raw(home) as reads, Raw(home) as deaf, contextlib.suppress(OSError):
        while time.monotonic() < until:
            facts["not read"] += deaf.pour(flood, time.monotonic() + 0.01) // 131
            if reads.pour(flood, until) == len(flood):
                for _ in range(1_000):
                    reads.receive()
                facts["read"] += 1_000
    for bad in (frame(b"x" * 126, PING), frame(b"x", PING, fin=False), frame(b"x", 11)):
        with Raw(home) as client:
            client.send(bad)
            facts[f"refused: {client.end()}"] += 1
    return facts


def hostile_json(home: Path, until: float, task: str) -> Facts:
    """Depth, digits, many ids, one id a thousand times, cancels for nothing and for all."""
    facts: Counter[str] = Counter()
    deep = b"[" * 200_000 + b"]" * 200_000
    inside = b'{"jsonrpc":"2.0","id":1,"method":"wait","params":' + b'{"a":' * 200_000
    digits = b'{"jsonrpc":"2.0","id":' + b"9" * 1_000_000 + b',"method":"roster"}'
    number = b'{"jsonrpc":"2.0","id":1,"method":"wait","params":{"timeout_secs":%s}}'
    texts = (deep, inside, digits, number % (b"8" * 1_000_000))
    cancel = json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 5}})
    while time.monotonic() < until:
        with Raw(home) as client:
            for text in texts:
                client.send(frame(text))
                facts["errors"] += "error" in client.reply()
            for _ in range(2_000):  # one id
                client.send(frame(call(5, "read_logs", as_="many", timeout_secs=55, logs="alert")))
            batch = "[" + ",".join([cancel] * 64) + "]"
            for _ in range(10_000 // 64):
                client.send(frame(batch.encode()))
            for _ in range(2_000):
                facts["cancelled"] += client.reply()["error"]["code"] == -32008
    return facts


def waits_and_away(home: Path, until: float, task: str) -> Facts:
    """10,000 waits on a connection, and it goes; 10,000 more, and what they wait for ends."""
    facts: Counter[str] = Counter()
    while time.monotonic() < until:
        with Raw(home) as client, Raw(home) as other:
            for ends in (True, False):
                start = {"as": "waited", "command": "sleep 600", "timeout_secs": 0}
                other.send(frame(call(1, "bash", **start)))
                reply = other.reply()
                held = reply["result"]["taskId"]
                for number in range(9_990):
                    client.send(frame(call(number, "wait", taskId=held, timeout_secs=20)))
                facts["waits"] += 9_990
                client.send(frame(call("in", "engine_info")))
                while client.reply()["id"] != "in":
                    pass
                if not ends:
                    client.sock.close()
                other.send(frame(call(2, "cancel", as_="waited", taskId=held, grace_secs=1)))
                if ends:
                    for _ in range(9_990):
                        facts["answered"] += client.reply()["result"]["status"] == "cancelled"
                other.reply()
    return facts


def names(home: Path, until: float, task: str) -> Facts:
    """100,000 callers on one connection; a thousandth of them runs something in a session."""
    facts: Counter[str] = Counter()
    prefix = f"n{os.getpid()}"
    with Raw(home) as client:
        for start in range(0, 100_000, 50):
            calls = []
            for number in range(start, start + 50):
                name = f"{prefix}-{number}"
                if number % 1_000 == 0:
                    calls.append(call(number, "bash", as_=name, command="X=1"))
                elif number % 2:
                    calls.append(call(number, "read_logs", as_=name, limit=1))
                else:
                    calls.append(call(number, "wait", as_=name, taskId=task, max_output_bytes=0))
            client.send(frame(b"[" + b",".join(calls) + b"]"))
            facts["calls"] += len(client.reply())
    facts["names"] = facts["calls"]
    return facts


def nothing(home: Path, until: float, task: str) -> Facts:
    """For comparison."""
    time.sleep(max(0.0, until - time.monotonic()))
    return {}


ATTACKS: Final[dict[str, Attack]] = {
    "nothing": nothing,
    "never reads": never_reads,
    "follows, never reads": follows_and_never_reads,
    "reads a byte a second": reads_a_byte_a_second,
    "sends a byte a second": sends_a_byte_a_second,
    "halves left open": halves_left_open,
    "500 come and go": come_and_go,
    "big frames": big_frames,
    "fragments": fragments,
    "pings": pings,
    "hostile json": hostile_json,
    "10,000 waits": waits_and_away,
    "100,000 names": names,
}
