"""Whose line is it: two callers on one connection, a developer who looks on, a kill -9 between.

`python scripts/whose_line.py`. One caller builds a C project that does not compile, with a real
make and gcc; the other runs its own tests meanwhile; a developer has `engine logs -f -a -p error`
open. The engine is killed in the middle of the build and started again. Prints the transcript and
then what it checks; exit code 1 where one of that is not so, 2 where make or gcc is missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from acceptance.running import LIMIT, PROGRAM, Caller, Client, Engine, Gate, Pending

from scripts.broken_shop import (
    BUILD,
    OWN,
    SEVERE_BEFORE_STOP,
    SEVERE_OF_TESTS,
    SOURCES,
    STOPS,
    TESTS,
)

Line = tuple[str, str, str]  # caller, or `engine` where the line is the engine's; task; text


class Developer:
    """`engine logs -f -a -p error`, and what it has printed so far: both streams, in order."""

    COMMAND: Final = ("logs", "-f", "-a", "-p", "error")

    def __init__(self, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ENGINE_")}
        self._process = subprocess.Popen(
            [str(PROGRAM), *self.COMMAND],
            env={**kept, "ENGINE_HOME": str(home), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.screen: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self.screen.append(line.rstrip("\n"))
                self._more.notify_all()

    def has_seen(self, text: str) -> bool:
        """Whether `text` is on the screen, waited for."""
        with self._more:
            return self._more.wait_for(lambda: any(text in line for line in self.screen), LIMIT)

    def leave(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(LIMIT)
        self._reader.join(LIMIT)

    def lines(self) -> list[Line]:
        """What it printed of the journal, without the words about the connection."""
        found = [line.split(" ", 4) for line in self.screen if line[:1].isdigit()]
        return [(caller, task, text) for _time, _level, caller, task, text in found]


class Play:
    """The transcript, as it happens; `facts` are what is checked at the end."""

    def __init__(self, folder: Path, engine: Engine, gates: dict[str, Gate]) -> None:
        self.folder, self.engine, self.gates = folder, engine, gates
        self.facts: list[tuple[bool, str]] = []
        self.env = {"GATES": str(folder / "gates"), "LC_ALL": "C"}

    def build_alone(self) -> list[str]:
        """The lines of the same build without an engine."""
        copy = self.folder / "copy"
        shutil.copytree(self.folder / "shop", copy)
        for stop in STOPS:
            self.gates[stop].open()
        made = subprocess.run(
            BUILD.split(),
            cwd=copy,
            env={"PATH": os.environ["PATH"], **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        for stop in STOPS:
            assert self.gates["bell"].hear() == stop, made.stdout
        return made.stdout.splitlines()

    def start(self, caller: Caller, command: str, **params: Any) -> Pending:
        """Send the call; its reply may come later."""
        shown = "".join(f" {name}={value}" for name, value in params.items())
        print(f"\n{caller.name} > bash: {command}{shown}", flush=True)
        where = {"cwd": str(self.folder / "shop"), "env": self.env}
        return caller.send("bash", command=command, **where, **params)

    def tests(self, caller: Caller, **params: Any) -> dict[str, Any]:
        """A run of the tests that begins now and ends when all is in the journal that should be."""
        pending = self.start(caller, TESTS, **params)
        self.gates["tests"].open()
        return self.answered(caller, pending)

    def answered(self, caller: Caller, pending: Pending) -> dict[str, Any]:
        reply: dict[str, Any] = pending.result()
        print(
            f"{caller.name} < {reply['status']}, exit {reply['exitCode']},"
            f" {reply['outputBytes']} bytes of output; logs:",
            flush=True,
        )
        for line in reply["logs"]:
            if line.get("marker"):
                print(f"    (marker) {line['text']}")
                continue
            whose = f"{line['caller'] or '-':8}{line['taskId'] or '-':9}{line['source']:7}"
            print(f"    {line['level']:8}{whose}{line['text']}")
        return reply

    def until_in_journal(self, client: Client, text: str) -> None:
        """Wait until a line with `text` can be read."""
        page = client.call(
            "read_logs", as_="watcher", logScope="all", contains=text, peek=True, timeout_secs=LIMIT
        )
        assert page["lines"], f"{text!r} is not in the journal"

    def fact(self, is_so: bool, what: str) -> None:
        self.facts.append((is_so, what))

    def run(self) -> bool:
        """The whole of it; whether all is as it should be."""
        alone = self.build_alone()
        print(f"developer $ engine {' '.join(Developer.COMMAND)} &")
        developer = Developer(self.engine.home)
        try:
            with closing(self.engine.connect()) as client:
                first = self.before_the_kill(client, developer)
                self.kill_and_restart()
            with closing(self.engine.connect()) as client:
                second, built, third = self.after_the_kill(client)
                assert developer.has_seen(f"{third['taskId']} failed"), developer.screen
                errors = lines_of(client, logs="error", logScope="all")
                build = lines_of(client, logs="debug", caller="builder")
        finally:
            developer.leave()
        print(f"\ndeveloper $ engine {' '.join(developer.COMMAND)}")
        print(textwrap.indent("\n".join(developer.screen), "    "))
        self.check_replies(alone, first, second, built, third)
        is_in = [text for caller, _task, text in build if caller == "builder"] == alone
        self.fact(is_in, f"  the journal has each of its {len(alone)} lines once, in order")
        self.check_developer(developer.lines(), errors, alone, [first, second, built, third])
        print("\nChecked:")
        for is_so, what in self.facts:
            print(f"  {'yes' if is_so else 'NO '}  {what}")
        return all(is_so for is_so, _what in self.facts)

    def before_the_kill(self, client: Client, developer: Developer) -> dict[str, Any]:
        """The build goes to its second stop, behind an error; the tests of the other fail then."""
        builder, tester = Caller(client, "builder"), Caller(client, "tester")
        tester.bash("true")  # from here on it is told what is new
        self.start(builder, BUILD, key="shop")
        self.until_in_journal(client, f"{STOPS[0]} is reached")
        self.gates[STOPS[0]].open()
        self.until_in_journal(client, f"{STOPS[1]} is reached")
        reply = self.tests(tester)
        assert developer.has_seen(f"{reply['taskId']} failed"), developer.screen
        return reply

    def kill_and_restart(self) -> None:
        """The build goes from its second stop to its third while there is no engine."""
        assert [self.gates["bell"].hear() for _ in range(2)] == list(STOPS[:2])
        print("\n# The engine is killed; the build goes on without it; the engine starts again.")
        print(f"$ kill -9 {self.engine.pid}", flush=True)
        self.engine.kill()
        self.gates[STOPS[1]].open()
        assert self.gates["bell"].hear() == STOPS[2]
        self.engine.start()
        print("$ engine serve &", flush=True)

    def after_the_kill(self, client: Client) -> tuple[dict[str, Any], ...]:
        """Both callers go on, on one new connection: the tests, the end of the build, the tests."""
        builder, tester = Caller(client, "builder"), Caller(client, "tester")
        build = self.start(builder, BUILD, key="shop")
        self.until_in_journal(client, f"{STOPS[2]} is reached")
        second = self.tests(tester, logs="info")
        self.gates[STOPS[2]].open()
        built = self.answered(builder, build)
        return second, built, self.tests(tester, logScope="all")

    def check_replies(
        self,
        alone: list[str],
        first: dict[str, Any],
        second: dict[str, Any],
        built: dict[str, Any],
        third: dict[str, Any],
    ) -> None:
        """What each reply tells of; of the build also that nothing of it is lost."""
        self.check_reply("tester", first, SEVERE_BEFORE_STOP, "warning")
        reached = alone.index(f"{STOPS[2]} is reached") + 1
        self.check_reply("tester", second, reached - SEVERE_BEFORE_STOP, "info")
        told = [line["text"] for line in second["logs"] if line.get("caller", "") is None]
        is_told = len(told) == 1 and told[0].startswith("engine started ")
        self.fact(is_told, "  and that the engine was started, a line of no caller")
        self.check_reply("builder", built, 2 * SEVERE_OF_TESTS, "warning")
        whose = {(line.get("caller"), line.get("taskId")) for line in third["logs"]}
        both = {("builder", built["taskId"]), ("tester", third["taskId"])}
        self.fact(whose == both, "tester's reply, logScope all: both callers' lines, no marker")
        text = "".join(f"{line}\n" for line in alone)
        is_whole = (built["output"], built["outputBytes"]) == (text, len(text.encode()))
        self.fact(is_whole, f"the build's {len(alone)} lines are what it prints without an engine")
        self.fact(built["exitCode"] == 2, "  and its exit code is make's own, 2")

    def check_reply(self, name: str, reply: dict[str, Any], left_out: int, floor: str) -> None:
        """Whose lines a reply with the default scope holds, and what its marker says."""
        *lines, marker = reply["logs"]
        whose = {line["caller"] for line in lines} - {None}
        is_own = whose == {name} and OWN[name] in {line["text"] for line in lines}
        self.fact(is_own, f"{name}'s reply, floor {floor}: its own lines, none of another's work,")
        text = f"{left_out} {floor} lines from another caller's work left out"
        wanted = {"marker": True, "leftOut": left_out, "text": text}
        self.fact(marker == wanted, f"  and one marker at its end: {left_out} lines left out")

    def check_developer(
        self, seen: list[Line], there: list[Line], alone: list[str], replies: list[dict[str, Any]]
    ) -> None:
        """What the developer saw, against the journal and against the build without an engine."""
        self.fact(seen == there, f"the developer saw {len(seen)} error lines, in order, each once")
        errors = [text for text in alone if ": error: " in text or text.startswith("make: ")]
        found = [text for caller, _task, text in seen if caller == "builder"]
        self.fact(found == errors, f"  {len(errors)} of them the build's: all that it printed")
        ends = [f"task {reply['taskId']} failed (exit {reply['exitCode']})" for reply in replies]
        found = [text for caller, _task, text in seen if caller == "engine"]
        self.fact(found == ends, f"  {len(ends)} the engine's: the ends of the tasks")


def lines_of(client: Client, **which: str) -> list[Line]:
    """All such lines of the journal."""
    found: list[Line] = []
    after, has_more = 0, True
    while has_more:
        page = client.call("read_logs", as_="watcher", after_seq=after, peek=True, **which)
        for line in page["lines"]:
            caller = "engine" if line["source"] == "engine" else line["caller"]
            found.append((caller, line["taskId"] or "-", line["text"]))
        after, has_more = page["nextAfterSeq"], page["hasMore"]
    return found


def main() -> None:
    for program in ("make", "gcc"):
        if shutil.which(program) is None:
            print(f"there is no {program} here", file=sys.stderr)
            sys.exit(2)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="engine-demo-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "shop").mkdir()
        (folder / "gates").mkdir()
        for file, text in SOURCES.items():
            (folder / "shop" / file).write_text(textwrap.dedent(text))
        gates = {
            gate: stack.enter_context(Gate(folder / "gates" / gate))
            for gate in (*STOPS, "bell", "tests")
        }
        engine = stack.enter_context(Engine(folder / "home"))
        is_right = Play(folder, engine, gates).run()
    print(f"{time.monotonic() - started:.1f} s")
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
