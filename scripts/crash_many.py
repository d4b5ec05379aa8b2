"""A round with a retry and an inbox, as one caller of `crash_points` has them, and their account.

The round has a seat that succeeds and one that fails, which is run again. The inbox is asked with
`ack`, and once more over a connection that vanishes behind the reply. Whatever is killed: a round
is there whole or not at all, each of its tasks was begun once, and each end of the caller's
reaches it, twice only with the mark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from acceptance.running import Client, Engine

from scripts.soak_inbox import Ledger

Json = dict[str, Any]

CALLER: Final = "cat"
LINE: Final = "ran\n"
REPLY_SECS: Final = 20.0  # for any one reply
DRAIN_SECS: Final = 20.0
CODES: Final = {"Z1": 0, "Z2": 1}  # seat -> what it ends with, each time


class Many:
    """`seats`: the names of the seats' jobs. `marks`: where those write a line, each task one."""

    seats: Final = tuple(CODES)

    def __init__(self, marks: Path) -> None:
        self._marks, self.ledger = marks, Ledger()
        self._delivery: str | None = None
        self.round_id: str | None = None  # by a reply
        self.is_sent = self.is_retry_sent = self.is_retried = False

    def _params(self, name: str) -> Json:
        mark = f"{self._marks}/{name}.$ENGINE_TASK_ID"
        text = f": {name}; echo ran >> {mark}; echo {name}; exit {CODES[name]}"
        return {"command": text, "session": False}

    # -- the first life ---------------------------------------------------------------------------

    def run(self, engine: Engine, client: Client) -> None:
        """The round, and the inbox. Raises EngineDied's causes."""
        seats = {name.lower(): self._params(name) for name in self.seats}
        self.is_sent = True
        reply = self._ask(client, "run_round", seats=seats)
        round_id = self.round_id = str(reply["roundId"])
        self._take_round(client, round_id)
        self.is_retry_sent = True
        self._ask(client, "run_round", roundId=round_id, retry_seats=["z2"])
        self.is_retried = True
        other = engine.connect()
        try:
            self._take(other, wait_seconds=5)
        finally:
            other.drop()
        self._delivery = None  # what that has told, nobody acknowledges: it comes again

    def _ask(self, client: Client, method: str, **params: Any) -> Json:
        asked = {"as": CALLER, **params}
        return client.send(method, asked).result(REPLY_SECS)

    def _take(self, client: Client, wait_seconds: float) -> Json:
        """Ask the inbox, with the receipt of what it told before."""
        sent_at = time.monotonic()
        reply = self._ask(client, "wait_any", wait_seconds=wait_seconds, ack=self._delivery)
        self.ledger.note(CALLER, reply, sent_at, lambda _task: False)
        self._delivery = reply["delivery"]
        return reply

    def _take_round(self, client: Client, round_id: str) -> None:
        """Ask on until the end of the round is told."""
        until = time.monotonic() + REPLY_SECS
        while not self.ledger.rounds[round_id]:
            assert time.monotonic() < until, "the inbox does not tell of the round"
            self._take(client, wait_seconds=5)

    # -- the account ------------------------------------------------------------------------------

    def drain(self, client: Client) -> None:
        """Take all that is in the inbox, with the next engine; nothing runs any more."""
        until = time.monotonic() + DRAIN_SECS
        while self._take(client, 0)["reason"] != "nothing_pending":
            assert time.monotonic() < until, "the inbox does not become empty"

    def complaints(
        self, rows: Mapping[str, list[Json]], told: Collection[str], *, may_kill: bool
    ) -> list[str]:
        """What is wrong. `rows`: of all tasks, by name. `told`: tasks of whose ends their callers
        had a reply that is not the inbox's. `may_kill`: jobs or keepers were killed.
        """
        wrong = [*self.ledger.wrong, *_early(rows)]
        for name in self.seats:
            wrong += self._seat_complaints(name, rows.get(name, []), may_kill=may_kill)
        seated = [row for name in self.seats for row in rows.get(name, [])]
        if {row["roundId"] for row in seated} - {self.round_id} and self.round_id is not None:
            wrong.append(f"another round than {self.round_id}: {seated}")
        if len({bool(rows.get(name)) for name in self.seats}) > 1:
            wrong.append(f"half a round: {seated}")
        if self.round_id is not None and not seated:
            wrong.append(f"{self.round_id} is gone")
        for each in rows.values():
            for row in each:
                if row["as"] == CALLER:
                    wrong += self._tell_complaints(row, is_told=row["taskId"] in told)
        for id_ in {row["roundId"] for row in seated}:
            marks = self.ledger.rounds[id_]
            # A round has one end for each time that it was begun.
            if not marks or marks.count(False) > 1 + self.is_retry_sent:
                wrong.append(f"the ends of {id_} were told, with the mark or not: {marks}")
        return wrong

    def _seat_complaints(self, name: str, rows: list[Json], *, may_kill: bool) -> list[str]:
        wrong = []
        most = 1 + (self.is_retry_sent and name == "Z2")
        least = 1 + (self.is_retried and name == "Z2")
        if (rows and not least <= len(rows) <= most) or (rows and not self.is_sent):
            wrong.append(f"{name} has {len(rows)} tasks, of {least} to {most}")
        known = {f"{name}.{row['taskId']}" for row in rows}
        marks = {mark for mark in os.listdir(self._marks) if mark.startswith(f"{name}.")}
        wrong += [f"{mark} has run and is gone" for mark in marks - known]
        for mark in known & marks:
            if (text := (self._marks / mark).read_text()) != LINE:
                wrong.append(f"{mark} was begun {len(text) // len(LINE)} times")
        for row in rows:
            is_true = row["exitCode"] == CODES[name] and row["reason"] == "exit"
            is_true = is_true and f"{name}.{row['taskId']}" in marks
            if not is_true and not may_kill:
                wrong.append(f"{name} ended so: {row}")
        return wrong

    def _tell_complaints(self, row: Json, *, is_told: bool) -> list[str]:
        tells = self.ledger.tells[row["taskId"]]
        unmarked = is_told + sum(not tell.is_marked for tell in tells)
        is_lost = not tells and not is_told
        wrong = [f"nobody was told of the end of {row['taskId']} {row['title'][:20]}"] * is_lost
        wrong += [f"{row['taskId']} was told {unmarked} times unmarked"] * (unmarked > 1)
        ends = {tell.end for tell in tells}
        if ends - {tuple(row[key] for key in ("status", "exitCode", "signal", "reason"))}:
            wrong.append(f"{row['taskId']}: told {ends}, and now {row}")
        return wrong


def _early(rows: Mapping[str, list[Json]]) -> list[str]:
    """Which of those that come after `L1`, by its end or by its lane, have not waited for it."""
    if not rows.get("L1"):
        return []
    end, wrong = rows["L1"][0]["endedAt"], []
    for name in ("L2", "N1"):
        for row in rows.get(name, []):
            if row["startedAt"] and (end is None or row["startedAt"] < end):
                wrong.append(f"{name} was started {row['startedAt']}, L1 has ended {end}")
    return wrong
