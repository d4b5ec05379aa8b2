"""The account of a run of `crash_points`: what the next engine says, held against what was done.

Each call was begun once and has its true end, or was not begun, and then nobody has been told
otherwise. Never twice, never gone.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

from acceptance.running import Client, Engine, RpcError

from scripts.crash_many import LINE, REPLY_SECS, Json
from scripts.crash_scenario import SESSION_CALLS, Call, Scenario, connected

EXPIRED: Final = -32004
GONE_SECS: Final = 10.0  # from the stop of the engine to the end of its last process
TASK_SECS: Final = 20.0  # for what is queued or runs to end
_NAME: Final = re.compile(r"(?:^|\s)[:#] (\w\d)\b")

# What lies in a home of which the engine was stopped, and in its folders.
_TOP: Final = frozenset(
    {"engine.json", "engine.lock", "human.token", "listen.port", "keepers.log", "index.db"}
    | {"record.db", "record.told", "keepers", "reserve", "sessions", "tasks"}
)
_SESSION: Final = frozenset({"shell", "shell.2"})
_TASK: Final = frozenset({"spec.json", "claim", "ready", "exit", "output"})
_MOST_AHEAD: Final = 18  # spare directories: sixteen, and one for each shell that waited


@dataclass
class Account:
    """What came of the calls of one run, by name, and what is wrong."""

    once: list[str] = field(default_factory=list)
    unbegun: list[str] = field(default_factory=list)
    cut_short: list[str] = field(default_factory=list)  # by a kill that its end tells of
    wrong: list[str] = field(default_factory=list)


class Judge:
    """Asks the engine for all of it, in `ask`; may be begun again with the next engine.

    `may_lose`: keepers were killed, so a task may be lost, or refused before it began.
    `may_kill`: so were jobs.
    """

    def __init__(self, scenario: Scenario, *, may_lose: bool, may_kill: bool) -> None:
        self.scenario, self._may_lose, self._may_kill = scenario, may_lose, may_kill
        self._told = self._values_told()
        self._v: str | None = None
        self.rows: dict[str, list[Json]] = {}
        self.ends: dict[str, Json] = {}
        self.wrong: list[str] = []
        self._is_open = False

    def _values_told(self) -> set[str]:
        """What `v` may be in the session: of the last call told to have committed, or later."""
        values = {""}
        for name in SESSION_CALLS:
            call = self.scenario.calls[name]
            if call.end is not None and call.end["reason"] == "exit":
                # A keeper that is killed once the end is written down takes the state with it.
                values = {name} | (values if self._may_lose else set())
            elif call.is_sent and call.end is None:
                values.add(name)
        return values

    # -- asking -----------------------------------------------------------------------------------

    def ask(self, engine: Engine) -> None:
        """Look at the session, the keys, every task. Raises EngineDied, then ask the next one."""
        self.rows, self.ends, self.wrong = {}, {}, []
        with connected(engine) as client:
            if not self._is_open:
                self._is_open = True
                self.scenario.late_gate.open()
            self._look_at_session(client)
            for name in SESSION_CALLS:
                if self.scenario.calls[name].key and self.scenario.calls[name].is_sent:
                    self._try(self.scenario.make, client, name)
            self._end_all(client)
            self.scenario.many.drain(client)
            for row in _rows(client):
                found = _NAME.search(row["title"])
                self.rows.setdefault(found[1] if found else row["title"], []).append(row)
            for call in self.scenario.calls.values():
                self._look_at_end(client, call)
            for caller in ("ann", "bob"):  # who have interpreters
                client.call("reset_session", {"as": caller, "kind": "python"})

    def _try(self, step: Any, *args: Any) -> None:
        try:
            step(*args)
        except AssertionError as exc:
            self.wrong.append(str(exc))

    def _look_at_session(self, client: Client) -> None:
        """Before anything runs in it that was not answered."""
        asked = {"as": "ann", "command": 'echo ": S0" >/dev/null; echo "v=$v"', "timeout_secs": 20}
        reply = client.send("bash", asked).result(REPLY_SECS + 5)
        value = reply["output"].strip().removeprefix("v=")
        if reply["status"] != "succeeded" or value not in self._told:
            self.wrong.append(f"session: v is {value!r}, not of {sorted(self._told)}: {reply}")
        elif self._v not in (None, value):
            self.wrong.append(f"session: v was {self._v!r}, is {value!r}")
        self._v = value

    def _end_all(self, client: Client) -> None:
        """Wait for all that runs or is queued; cancel what is to be, and what is lost."""
        until = time.monotonic() + TASK_SECS
        while left := list(_rows(client, state=["queued", "running"])):
            if time.monotonic() > until:
                self.wrong.append(f"never ends: {[row['title'][:60] for row in left]}")
                return
            for row in left:
                if ": C1;" in row["title"]:
                    _cancel(client, row)
                else:
                    client.call("wait", {"as": "judge", "taskId": row["taskId"], "timeout_secs": 5})
        for row in _rows(client, state=["lost"]):
            _cancel(client, row)

    def _look_at_end(self, client: Client, call: Call) -> None:
        """Ask for the end by both of its ids, those that were told if any were."""
        handle = call.handle
        for row in self.rows.get(call.name, []):
            handle = handle or row["taskId"][1:]
        if handle is None:
            return
        answers = []
        for name, letter in (("taskId", "t"), ("kickoffId", "k")):
            try:
                answers.append(client.call("wait", {"as": "judge", name: letter + handle}))
            except RpcError as exc:
                answers.append({"refused": exc.code})
        facts = [{key: one.get(key) for key in _FACTS} for one in answers]
        if facts[0] != facts[1]:
            self.wrong.append(f"{call.name}: by taskId {facts[0]}, by kickoffId {facts[1]}")
        self.ends[call.name] = answers[0]

    # -- judging ----------------------------------------------------------------------------------

    def judge(self, engine: Engine) -> Account:
        """Hold it all against what was done; the engine has been stopped."""
        account = Account(wrong=list(self.wrong))
        many = self.scenario.many
        told = {f"t{call.handle}" for call in self.scenario.calls.values() if call.end}
        may_kill = self._may_lose or self._may_kill
        account.wrong += many.complaints(self.rows, told, may_kill=may_kill)
        for call in self.scenario.calls.values():
            self._judge_call(engine, call, account)
        known = {*self.scenario.calls, *many.seats}
        for name, rows in self.rows.items():
            if name not in known and 'echo ": S0"' not in name:
                account.wrong.append(f"a task that nobody asked for: {rows}")
        account.wrong += self._untidy(engine)
        return account

    def _judge_call(self, engine: Engine, call: Call, account: Account) -> None:
        rows, lines = self.rows.get(call.name, []), self.scenario.lines(call.name)
        end = self.ends.get(call.name)
        if lines not in ("", LINE):
            account.wrong.append(f"{call.name} was begun {len(lines) // len(LINE)} times")
        elif len(rows) > 1:
            account.wrong.append(f"{call.name} has {len(rows)} tasks")
        elif not call.is_sent and (rows or lines):
            account.wrong.append(f"{call.name} was never asked for: {rows} {lines!r}")
        elif end is None and lines:
            account.wrong.append(f"{call.name} has run and is gone")
        elif end is None:
            if call.is_sent:
                account.unbegun.append(call.name)
        elif call.name == "B1" and self.scenario.forget_sent and end.get("refused") == EXPIRED:
            account.once.append(call.name)
            if rows or (engine.home / "tasks" / (call.handle or "?")).exists():
                account.wrong.append(f"B1 is forgotten by half: {rows}")
        elif "refused" in end or not rows:
            account.wrong.append(f"{call.name}: told, and now {end} {rows}")
        elif call.name == "B1" and self.scenario.is_forgotten:
            account.wrong.append(f"B1 was forgotten, and is back: {end}")
        else:
            self._judge_end(call, end, rows[0], lines, account)

    def _judge_end(self, call: Call, end: Json, row: Json, lines: str, account: Account) -> None:
        told = call.end
        for other in (row, told):
            differs = other and any(other[key] != end[key] for key in ("status", "exitCode"))
            if differs:
                account.wrong.append(f"{call.name}: told {other}, now {end}")
        if end["as"] != call.caller:
            account.wrong.append(f"{call.name} is {end['as']}'s")
        if call.is_skipped and lines:
            account.wrong.append(f"{call.name} has run and was to be skipped: {end}")
        elif self._is_true(call, end):
            # A cancelled one may not have come to its line.
            (account.once if lines else account.unbegun).append(call.name)
            if not lines and call.code is not None:
                account.wrong.append(f"{call.name} ended well and was not begun: {end}")
        elif self._is_told_kill(call, end):
            account.cut_short.append(call.name)
        else:
            account.wrong.append(f"{call.name} {end}, wanted {call}")

    def _is_true(self, call: Call, end: Json) -> bool:
        outputs = {call.output}
        if call.code is None:
            outputs.add("")
        if call.name == "A2" and (call.end is None or self._may_lose or self._may_kill):
            outputs |= {f"saw {value}\n" for value in ("", "A0", "A1")}
        facts = (end["status"], end["exitCode"], end.get("value"))
        return facts == (call.status, call.code, call.value) and end["output"] in outputs

    def _is_told_kill(self, call: Call, end: Json) -> bool:
        """Whether the end says that the kill took the job, or its start."""
        if self._may_lose and call.name == "Y2" and end["status"] == "failed":
            return True  # what the session knew is gone with its keeper
        if not call.output.startswith(end["output"]) and call.name != "A2":
            return False
        if end["reason"] == "signal" and end["signal"] == "SIGKILL":
            return self._may_kill or self._may_lose
        return self._may_lose and (end["status"] == "lost" or end["reason"] == "spawn_error")

    def _untidy(self, engine: Engine) -> list[str]:
        """What lies in the home that should not, and who still runs."""
        home = engine.home
        found = [f"{name} in the home" for name in set(os.listdir(home)) - _TOP]
        ids = {row["taskId"][1:] for rows in self.rows.values() for row in rows}
        tasks = set(os.listdir(home / "tasks"))
        found += [f"{name} in tasks" for name in tasks - ids - {".ahead"}]
        for id_ in tasks & ids:
            found += [f"{name} in {id_}" for name in set(os.listdir(home / "tasks" / id_)) - _TASK]
        ahead = os.listdir(home / "tasks" / ".ahead")
        if len(ahead) > _MOST_AHEAD:
            found.append(f"{len(ahead)} directories ahead")
        for caller in os.listdir(home / "sessions"):
            names = set(os.listdir(home / "sessions" / caller)) - _SESSION
            found += [f"{name} in {caller}'s session" for name in names]
        until = time.monotonic() + GONE_SECS
        while (left := engine.processes()) and time.monotonic() < until:
            time.sleep(0.02)
        found += [f"still runs: {pid} {_command(pid)}" for pid in left]
        # Each keeper takes its socket away when it ends.
        found += [f"{name} in keepers" for name in os.listdir(home / "keepers")]
        log = (home / "keepers.log").read_text(errors="replace")
        found += [log[-2000:]] if "Traceback" in log else []
        found += [engine.log_text()[-3000:]] if "Traceback" in engine.log_text() else []
        return found


_FACTS: Final = ("refused", "taskId", "as", "status", "exitCode", "signal", "reason", "output")


def _rows(client: Client, **which: Any) -> list[Json]:
    page = client.call("list_tasks", {"as": "judge", "caller": "*", "limit": 500, **which})
    rows: list[Json] = page["tasks"]
    return rows


def _cancel(client: Client, row: Json) -> None:
    asked = {"as": "judge", "taskId": row["taskId"], "grace_secs": 0, "force": True}
    client.call("cancel", asked)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\0", " ")[:100]
    except OSError:
        return ""
