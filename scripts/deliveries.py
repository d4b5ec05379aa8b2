"""News of ends under broken connections and kills: nothing lost, nothing twice without the mark.

    deliveries.py [--breaks N] [--kills N] [--seed N]

Four callers begin jobs that end soon, and ask for their inboxes; their connections are broken and
the engine is killed at random moments, also with a reply on its way. A ledger has what each caller
was told, with and without the mark. At the end all is asked for once more. Exit code 1 where an
end was lost, or came twice without the mark.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from websockets.exceptions import ConnectionClosed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from acceptance.running import Caller, Client, Engine, Pending

CALLERS: Final = ("ann", "bob", "cec", "dan")
JOBS: Final = 3  # that a caller begins in each round
MOMENT_SECS: Final = 0.15  # the latest of a round at which something breaks


class Account:
    """What one caller has begun, and what of it it was told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.begun: set[str] = set()
        self.told: Counter[str] = Counter()
        self.unmarked: Counter[str] = Counter()
        self.delivery: str | None = None

    def hear(self, reply: dict[str, Any]) -> None:
        """Note a reply of `bash`, which may carry the end of its job, or one of `wait_any`."""
        if "updates" not in reply:
            task = "t" + reply["kickoffId"][1:]
            self.begun.add(task)
            if reply["status"] != "running":
                self.told[task] += 1
                self.unmarked[task] += 1
            return
        self.delivery = reply["delivery"]
        for update in reply["updates"]:
            if update["ready"] == "ended":
                self.told[update["taskId"]] += 1
                self.unmarked[update["taskId"]] += not update.get("redelivered", False)


class Run:
    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, self._random = engine, random.Random(seed)
        self.accounts = [Account(name) for name in CALLERS]
        self.breaks = self.kills = 0

    def round(self, *, kill: bool) -> None:
        """Calls of all callers on one connection, which then breaks, or whose engine dies."""
        client = self._engine.connect()
        sent: list[tuple[Account, Pending]] = []
        for account in self.accounts:
            sent += self._ask(account, Caller(client, account.name))
        until = time.monotonic() + self._random.uniform(0, MOMENT_SECS)
        self._listen(sent, until)
        if kill:
            self._engine.kill()
            self.kills += 1
        self._listen(sent, time.monotonic() + (5.0 if kill else 0.0))
        if kill:
            client.close()
            self._engine.start()
        else:
            client.drop()
            self.breaks += 1

    def _ask(self, account: Account, caller: Caller) -> list[tuple[Account, Pending]]:
        pace = self._random.choice(["true", "sleep 0.01", "sleep 0.05"])
        sent = [
            caller.send("bash", command=f"{pace}; echo {n}", session=False, timeout_secs=0)
            for n in range(JOBS)
        ]
        ack = account.delivery if self._random.random() < 0.5 else None
        sent += [caller.send("wait_any", wait_seconds=5, ack=ack) for _ in range(2)]
        return [(account, pending) for pending in sent]

    def _listen(self, sent: list[tuple[Account, Pending]], until: float) -> None:
        """Hear what comes until then; a caller that was told of ends asks on, or does not."""
        while sent:
            try:
                message = sent[0][1].client.receive(max(0.001, until - time.monotonic()))
            except (TimeoutError, ConnectionClosed):
                return
            for account, pending in sent:
                if pending.id == message["id"]:
                    sent.remove((account, pending))
                    account.hear(message["result"])
                    if self._random.random() < 0.3 and time.monotonic() < until:
                        caller = Caller(pending.client, account.name)
                        sent.append((account, self._ask_on(caller)))
                    break

    def _ask_on(self, caller: Caller) -> Pending:
        try:
            return caller.send("wait_any", wait_seconds=5)
        except ConnectionClosed:
            return Pending(caller.client, -1)

    def settle(self) -> bool:
        """Ask for all that is left, until nothing is; print the table. False: it does not hold."""
        with self._engine.connect() as client:
            for account in self.accounts:
                self._drain(account, client)
        lost = sum(len(account.begun - account.told.keys()) for account in self.accounts)
        told = sum(account.told.total() for account in self.accounts)
        unmarked = [count for account in self.accounts for count in account.unmarked.values()]
        again, twice = told - sum(unmarked), sum(count > 1 for count in unmarked)
        print("| connections broken | kills | ends | told with the mark | lost | twice unmarked |")
        print("|---|---|---|---|---|---|")
        ends = sum(len(account.begun | account.told.keys()) for account in self.accounts)
        print(f"| {self.breaks} | {self.kills} | {ends} | {again} | {lost} | {twice} |")
        return not lost and not twice

    def _drain(self, account: Account, client: Client) -> None:
        caller = Caller(client, account.name)
        while True:
            reply = caller.call("wait_any", ack=account.delivery)
            account.hear(reply)
            if reply["reason"] == "nothing_pending":
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--breaks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="engine-deliveries-") as folder,
        Engine(Path(folder) / "home", "--set", "min_free_bytes=0") as engine,
    ):
        run = Run(engine, options.seed)
        rounds = [True] * options.kills + [False] * options.breaks
        random.Random(options.seed).shuffle(rounds)
        for kill in rounds:
            run.round(kill=kill)
        holds = run.settle()
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
