"""What happens in one run of `crash_points`: calls of all kinds, and what must come of each.

Two callers in two slots: calls in a session, each with a key and a shell started ahead; an argv
job; one promoted that ends while no engine runs, one that runs on; two that are queued, one of
them until the next engine; a cancel, a forget, code. A third has calls that wait for another's
end, calls in a lane of one and a round, and takes their ends from its inbox: see `crash_many`. Each
job appends a line to a file of its own, so that a second run, or none, shows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acceptance.running import Client, Engine, Gate, RpcError
from websockets.exceptions import WebSocketException

from scripts.crash_many import LINE, REPLY_SECS, Json, Many

LANE: Final = "one"  # the name of a lane of one
SESSION_CALLS: Final = ("A0", "A1", "A2")  # of ann, in this order; each sets `v` to its own name
AHEAD_SECS: Final = 1.0  # for a shell that is started ahead; it may have been killed
DEATH_SECS: Final = 5.0  # from the loss of a connection to the end of its engine
AWAY_SECS: Final = 5.0  # for a job to end while no engine runs
LOOK_SECS: Final = 0.005


class EngineDied(Exception):
    """The engine is gone: what it has not answered, nobody knows."""


@dataclass
class Call:
    """One call: what it asks, what must come of it, and what is known of it."""

    name: str
    caller: str
    method: str
    params: Json
    output: str = ""
    code: int | None = 0
    value: str | None = None
    is_sent: bool = False
    handle: str | None = None  # without its letter, from whichever reply
    end: Json | None = None  # the reply that told its end to who called, if one did
    is_skipped: bool = False

    @property
    def status(self) -> str:
        if self.is_skipped:
            return "skipped"
        if self.code is None:
            return "cancelled"
        return "succeeded" if self.code == 0 else "failed"

    @property
    def key(self) -> str | None:
        key: str | None = self.params.get("key")
        return key

    def note(self, reply: Json) -> None:
        """Take down what a reply says. Raises AssertionError where another task answers."""
        handle = reply["kickoffId"][1:]
        assert self.handle in (None, handle), f"{self.name}: first {self.handle}, now {handle}"
        self.handle = handle
        if reply["status"] != "running":
            self.end = reply


class Scenario:
    """The calls, made in `run`; `folder` is where their lines and gates are."""

    def __init__(self, folder: Path) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.gate = Gate(folder / "gate")  # of the job that ends while no engine runs
        self.late_gate = Gate(folder / "late-gate")  # of the one that runs on
        made = self._shells() + self._others() + self._codes() + self._waiting()
        self.calls = {call.name: call for call in made}
        self.many = Many(self.marks)
        self.is_cancelled = self.is_forgotten = False  # by a reply
        self.forget_sent = False

    def close(self) -> None:
        for gate in (self.gate, self.late_gate):
            gate.__exit__()

    def _shells(self) -> list[Call]:
        return [
            self._bash("A0", "ann", "v=A0; echo zero", "zero\n"),
            self._bash("A1", "ann", "v=A1; echo one; (exit 3)", "one\n", 3, key="key-1"),
            self._bash("A2", "ann", 'echo "saw $v"; v=A2', "saw A1\n", key="key-2"),
        ]

    def _others(self) -> list[Call]:
        argv = ["bash", "-c", f"{self._begin('B1')}; echo argv; exit 7"]
        wait = f"echo before; {self.gate.wait}; echo after; exit 5"
        wait_late = f"echo before; {self.late_gate.wait}; echo after; exit 6"
        both = "before\nafter\n"
        soon = {"timeout_secs": 0.05, "session": False}
        return [
            Call("B1", "bob", "execute", {"argv": argv}, "argv\n", 7),
            self._bash("P1", "ann", wait, both, 5, **soon),
            self._bash("C1", "bob", "echo up; sleep 600", "up\n", None, timeout_secs=0),
            self._bash("Q1", "bob", "echo queued; exit 4", "queued\n", 4, timeout_secs=0),
            self._bash("P2", "ann", wait_late, both, 6, **soon),
            self._bash("Q2", "bob", "echo late; exit 2", "late\n", 2, timeout_secs=0),
        ]

    def _waiting(self) -> list[Call]:
        """Calls in a lane of one, and two that start after the first's end, or do not."""
        free: Json = {"timeout_secs": 0, "session": False}
        skipped = self._bash("S1", "cat", "echo never", "", None, **free)
        skipped.is_skipped = True
        return [
            self._bash(
                "L1", "cat", "echo first; sleep 0.05; exit 9", "first\n", 9, **free, lane=LANE
            ),
            self._bash("L2", "cat", "echo second", "second\n", 0, **free, lane=LANE),
            self._bash("N1", "cat", "echo next; exit 8", "next\n", 8, **free),
            skipped,
        ]

    def _codes(self) -> list[Call]:
        names = ("Y1", "Y2")
        ran = {
            name: f"# {name}\nwith open({str(self.marks / name)!r}, 'a') as f:\n"
            f"    n = f.write({LINE!r})\n"
            for name in names
        }
        texts = {"Y1": "print('code'); y = 41; y + 1", "Y2": "print(y)"}
        one, two = (
            Call(name, "ann", "execute", {"code": ran[name] + texts[name]}) for name in names
        )
        one.output, one.value, two.output = "code\n", "42", "41\n"
        return [one, two]

    def _begin(self, name: str) -> str:
        """How a job's text begins: its name, by which its task is known, and its line."""
        return f": {name}; echo ran >> {self.marks / name}"

    def _bash(
        self, name: str, caller: str, text: str, output: str, code: int | None = 0, **params: Any
    ) -> Call:
        command = f"{self._begin(name)}; {text}"
        return Call(name, caller, "bash", {"command": command, **params}, output, code)

    # -- the first life ---------------------------------------------------------------------------

    def run(self, engine: Engine, at: Callable[[str], None]) -> None:
        """Make all calls; `at` is told the name of each before it is made. Raises EngineDied."""
        with connected(engine) as client:
            for name in SESSION_CALLS:
                if name != "A0":
                    _wait_shell_ahead(engine)
                at(name)
                self.make(client, name)
            for name in ("B1", "P1", "C1"):
                at(name)
                self.make(client, name)
            self._hear(client, "C1")
            at("Q1")
            self.make(client, "Q1")
            self._cancel(client, "C1")
            self._wait(client, "Q1")
            self._forget(client, "B1")
            self._run_waiting(engine, client, at)
            for name in ("Y1", "Y2", "P2", "Q2"):
                at(name)
                self.make(client, name)

    def _run_waiting(self, engine: Engine, client: Client, at: Callable[[str], None]) -> None:
        for name in ("L1", "L2", "N1", "S1"):
            at(name)
            self.make(client, name)
            if name == "L1":
                after = {"after": [f"k{self.calls[name].handle}"]}
                self.calls["N1"].params |= {**after, "after_when": "failed"}
                self.calls["S1"].params |= after
        at("Z1")
        self.many.run(engine, client)

    def make(self, client: Client, name: str) -> None:
        """Make a call and note its reply, whatever it says; a refusal is an AssertionError."""
        call = self.calls[name]
        pending = client.send(call.method, {"as": call.caller, **call.params})
        call.is_sent = True
        try:
            call.note(pending.result(REPLY_SECS))
        except RpcError as exc:
            raise AssertionError(f"{name} refused: {exc}") from exc

    def _ask(self, client: Client, name: str, method: str, **params: Any) -> Json:
        """Ask about a call of which a reply has told the task."""
        call = self.calls[name]
        about = {"as": call.caller, "taskId": f"t{call.handle}", **params}
        return client.send(method, about).result(REPLY_SECS)

    def _hear(self, client: Client, name: str) -> None:
        """Wait until a job has said something, or has ended."""
        self._ask(client, name, "read_output", timeout_secs=20)

    def _wait(self, client: Client, name: str) -> None:
        self.calls[name].note(self._ask(client, name, "wait"))

    def _cancel(self, client: Client, name: str) -> None:
        self.is_cancelled = self._ask(client, name, "cancel", grace_secs=0)["outcome"] == (
            "cancelled"
        )

    def _forget(self, client: Client, name: str) -> None:
        self.forget_sent = True
        self._ask(client, name, "forget")
        self.is_forgotten = True

    # -- while no engine runs ---------------------------------------------------------------------

    def be_away(self, engine: Engine) -> None:
        """Have the job at the first gate end, if it has begun."""
        self.gate.open()
        if not self.lines("P1"):
            return
        until = time.monotonic() + AWAY_SECS
        while time.monotonic() < until and not self._has_end(engine, "P1"):
            time.sleep(LOOK_SECS)

    def _has_end(self, engine: Engine, name: str) -> bool:
        """Whether the job's directory tells its end."""
        for folder in (engine.home / "tasks").iterdir():
            spec, end = folder / "spec.json", folder / "exit"
            if spec.is_file() and f": {name};" in spec.read_text() and end.is_file():
                return b"\ncomplete\n" in end.read_bytes()
        return False

    def lines(self, name: str) -> str:
        """What a job has written down itself."""
        path = self.marks / name
        return path.read_text() if path.exists() else ""


def _wait_shell_ahead(engine: Engine) -> None:
    """Wait until a keeper has a shell ready for a call; the calls are good without one too."""
    until = time.monotonic() + AHEAD_SECS
    ahead = engine.home / "tasks" / ".ahead"
    while time.monotonic() < until:
        if any((folder / "ready").is_symlink() for folder in ahead.iterdir()):
            return
        time.sleep(LOOK_SECS)


@contextlib.contextmanager
def connected(engine: Engine) -> Any:
    """A connection. Where it breaks because the engine died: EngineDied."""
    try:
        client = engine.connect()
        try:
            yield client
        finally:
            with contextlib.suppress(WebSocketException, OSError):
                client.drop()
    except (WebSocketException, EOFError, OSError) as exc:
        process = engine.process
        assert process is not None
        with contextlib.suppress(Exception):
            process.wait(DEATH_SECS)
        if process.poll() is None:
            raise AssertionError(f"the connection broke, the engine lives: {exc!r}") from exc
        raise EngineDied from exc
