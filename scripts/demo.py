"""What the engine is for, in half a minute: `make demo`.

Starts an engine in a temporary home, lets two callers run real work, kills the engine with -9
while a job runs, starts it again, and shows that nothing was lost. Prints each command before it
runs it; stops with exit code 1 where something is not as it should be.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENGINE = Path(sys.executable).with_name("engine")
COMPILE_LIMIT = 45  # seconds for any one command of the demonstration

# A job with something to see: compiles the standard library's modules one by one, with a pause
# between them, and ends with a code of its own.
BUILD = """
python3 - <<'END'
import pathlib, py_compile, sys, tempfile, time, sysconfig
files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
with tempfile.TemporaryDirectory() as folder:
    for number, file in enumerate(files, 1):
        py_compile.compile(str(file), cfile=f"{folder}/{file.stem}.pyc", doraise=True)
        print(f"[{number:2}/{len(files)}] {file.name}", flush=True)
        time.sleep(0.12)
print(f"compiled {len(files)} modules")
sys.exit(3)
END
"""


class Demo:
    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ENGINE_")}
        self.environ = {**kept, "ENGINE_HOME": str(home), "NO_COLOR": "1"}

    def engine(self, *words: str, expect: int | None = 0) -> str:
        """Run `engine WORDS`, shown as a transcript; its standard output."""
        print(f"\n$ engine {shlex.join(words)}", flush=True)
        done = subprocess.run(
            [str(ENGINE), *words],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMPILE_LIMIT,
            check=False,
        )
        print(done.stdout, end="", flush=True)
        if done.returncode:
            print(f"(exit {done.returncode})", flush=True)
        self.check(expect is None or done.returncode == expect, f"exit code {expect} was expected")
        return done.stdout

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.engine("call", method, json.dumps(params)))
        return reply

    def check(self, is_right: bool, what: str) -> None:
        if not is_right:
            print(f"\nNot as it should be: {what}", flush=True)
            sys.exit(1)

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the daemon in the background; returns when it answers calls."""
        print(f"\n$ engine serve --home {self.home} &", flush=True)
        ready, notify = os.pipe()
        daemon = subprocess.Popen(
            [str(ENGINE), "serve", "--home", str(self.home), "--notify-fd", str(notify)],
            env=self.environ,
            pass_fds=[notify],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(notify)
        with open(ready, "rb") as pipe:
            self.check(pipe.readline() == b"ready\n", "the engine did not start")
        return daemon

    def run(self) -> None:
        daemon = self.serve()
        try:
            self.two_callers()
            task = self.promoted()
            print("\n# The engine is killed in the middle of the job, and started again.")
            print(f"$ kill -9 {daemon.pid}")
            daemon.kill()
            daemon.wait()
            daemon = self.serve()
            self.nothing_is_lost(task)
        finally:
            daemon.send_signal(signal.SIGTERM)
            status = daemon.wait(10)
        self.check(status == 0, "the engine ends with exit code 0 on SIGTERM")

    def two_callers(self) -> None:
        print("\n# Two callers on one engine: each has a shell session of its own.")
        self.call("bash", **{"as": "docs-agent"}, command="cd /usr/lib && export STAGE=docs; pwd")
        self.call("bash", **{"as": "ci"}, command="export STAGE=build; cd /; pwd")
        reply = self.call("bash", **{"as": "docs-agent"}, command='echo "$STAGE in $PWD"')
        self.check(reply["output"] == "docs in /usr/lib\n", "docs-agent's session is its own")
        reply = self.call("bash", **{"as": "ci"}, command='echo "$STAGE in $PWD"')
        self.check(reply["output"] == "build in /\n", "ci's session is its own")

    def promoted(self) -> str:
        print("\n# A job that outlives its call is promoted: the caller gets a taskId and goes on.")
        reply = self.call("bash", **{"as": "ci"}, command=BUILD, timeout_secs=1)
        self.check(reply["status"] == "running", "the job is promoted after its budget")
        self.engine("tasks", "--as", "ci")
        return str(reply["taskId"])

    def nothing_is_lost(self, task: str) -> None:
        self.engine("tasks", "--as", "ci")
        self.engine("wait", task, "--as", "ci", expect=3)
        print("\n# Every line is there, once, and the exit code is the job's own.")
        output = self.engine("output", task, "--as", "ci")
        lines = output.splitlines()
        total = len(lines) - 1
        numbers = [int(line[1:].split("/")[0]) for line in lines[:-1]]
        self.check(numbers == list(range(1, total + 1)), "each line is there once and in order")
        self.check(lines[-1] == f"compiled {total} modules", "the last line is there")
        self.engine("run", "echo a run of one line; exit 7", expect=7)
        print(f"\nAll as it should be: {total} lines, none lost, none twice; exit codes 3 and 7.")


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="engine-demo-") as folder:
        Demo(Path(folder) / "home").run()
    print(f"{time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
