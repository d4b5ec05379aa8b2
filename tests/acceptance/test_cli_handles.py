"""Many handles from the command line, as scripts use the installed program; see PROTOCOL 5."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from acceptance.running import LIMIT, PROGRAM, Engine, Gate, new_name

MATRIX = r"""
set -u
engine round start --junit report.xml \
    --seat lint@cpu='grep -q good code || { echo "code:1:1: error: it is bad"; exit 1; }' \
    --seat types@cpu='echo checked' --seat unit='echo 3 passed' --seat wheel='echo x > wheel' \
    > first.out 2> first.err
echo "first $?"
round=$(grep -o 'engine round retry r[0-9a-v]*' first.err | grep -o 'r[0-9a-v]*$')
echo good > code
engine round retry "$round" --junit report.xml > second.out 2> second.err
echo "second $?"
"""


class Script:
    """What runs bash text with `engine` on its PATH, as one caller."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder, self.name = engine, folder, new_name()
        path = f"{PROGRAM.parent}:{os.environ['PATH']}"
        self.environ = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8"}
        self.environ |= {"ENGINE_HOME": str(engine.home), "ENGINE_CALLER": self.name}

    def run(self, text: str) -> tuple[int, list[str], str]:
        """Exit code, lines of stdout, stderr."""
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [PROGRAM, *arguments], env=self.environ, stdout=subprocess.PIPE, bufsize=0
        )


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0", "--lane", "cpu=1") as engine:
        yield Script(engine, tmp_path)


def test_a_matrix_with_a_seat_that_fails_is_retried_and_green(script: Script) -> None:
    code, lines, errors = script.run(MATRIX)
    assert (code, lines, errors) == (0, ["first 1", "second 0"], "")
    first = (script.folder / "first.out").read_text()
    assert first.splitlines()[-1].endswith("Z code:1:1: error: it is bad")
    assert (script.folder / "second.err").read_text() == ""
    suites = ElementTree.parse(script.folder / "report.xml").getroot()
    cases = {case.get("name"): len(case) for case in suites.iter("testcase")}
    assert cases == {"lint": 0, "types": 1, "unit": 1, "wheel": 0}
    assert script.run("engine inbox --json") == (0, [], "")


def test_a_script_takes_each_of_its_jobs_as_it_ends(script: Script) -> None:
    text = """
        ids=$(for i in 3 1 2; do engine run -d "sleep 0.$i; exit $i"; done)
        while [ -n "$ids" ]; do
            ended=$(engine wait --any $ids); code=$?
            echo "$code $(grep -o 'exit=.' <<< "$ended" | tr '\\n' ' ')"
            for id in $(cut -d' ' -f2 <<< "$ended"); do ids=$(grep -v "$id" <<< "$ids"); done
        done
        true
    """
    code, lines, errors = script.run(text)
    assert (code, errors) == (0, "")
    ends = [word for line in lines for word in line.split()[1:]]
    assert sorted(ends) == ["exit=1", "exit=2", "exit=3"]
    # It exits as the first of those that it tells of.
    assert all(line.split()[0] == line.split()[1].removeprefix("exit=") for line in lines)


def test_a_reader_of_the_inbox_that_is_killed_again_and_again_loses_no_end(
    script: Script,
) -> None:
    with script.engine.connect() as client:
        started = [
            client.call("bash", as_=script.name, command=f"sleep 0.{n}", timeout_secs=0)
            for n in range(10, 60, 2)
        ]
    tasks = {"t" + each["kickoffId"][1:] for each in started}
    marks: dict[str, list[bool]] = {}
    while marks.keys() != tasks:
        with script.start("inbox", "--follow", "--json") as reader:
            assert reader.stdout is not None
            readable, _, _ = select.select([reader.stdout], [], [], LIMIT)
            reader.kill()
            assert readable, f"these never came: {tasks - marks.keys()}"
            for line in reader.stdout.read().split(b"\n")[:-1]:
                update = json.loads(line)
                marks.setdefault(update["id"], []).append(update.get("redelivered", False))
    assert [task for task, told in marks.items() if not all(told[1:])] == []  # twice, unmarked


def test_a_server_is_started_used_once_it_is_ready_and_cancelled(script: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = f"sleep 0.2; exec python3 -m http.server {port} --bind 127.0.0.1"
    code, [task], errors = script.run(f"engine run -d --ready-port {port} '{text}'")
    assert (code, errors) == (0, "")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=LIMIT) as page:
        assert page.status == 200
    assert script.run("engine cancel --all")[0] == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
    assert script.run("engine inbox")[1][0].split()[1:3] == [task, "cancelled"]


def test_a_chain_runs_in_its_order_and_what_follows_runs_also_after_a_failure(
    script: Script,
) -> None:
    text = """
        first=$(engine run -d 'sleep 0.3; echo first >> order')
        second=$(engine run -d --after "$first" 'echo second >> order; exit 1')
        engine run --after "$first" --after "$second" --then 'echo then >> order' 'echo never'
        echo $?
        engine wait
        echo $?
    """
    code, lines, errors = script.run(text)
    assert (code, lines[0], lines[-1]) == (0, "125", "1")
    assert re.search("skipped: after [kt]", errors)  # t: it may have begun by then
    assert (script.folder / "order").read_text() == "first\nsecond\nthen\n"


def test_a_lane_has_so_many_at_once_and_an_exclusive_caller_the_engine(
    script: Script, tmp_path: Path
) -> None:
    with Gate(tmp_path / "gate") as gate:
        lane = f"engine run -d --lane cpu '{gate.wait}'"
        _, [first, second], _ = script.run(f"{lane}; {lane}")
        code, lines, _ = script.run("engine status | grep lanes; engine tasks --json -n 1")
        assert (code, lines[0].split()) == (0, ["lanes", "cpu", "1", "of", "1,", "1", "queued"])
        assert json.loads(lines[1])["queueReason"] == "lane cpu is full (1 of 1)"
        gate.open(2)
        assert script.run(f"engine wait {first} {second}")[0] == 0
    mine = """engine call set_mode '{"mode": "exclusive", "ttl_secs": 60}' > /dev/null"""
    _, [task], _ = script.run(f"{mine}; engine run --as another -d true")
    assert task.startswith("k")
    _, lines, _ = script.run(f"engine show --plain {task}; engine status")
    assert f"queueReason    the engine is exclusive to {script.name}" in lines
    assert f"mode       exclusive to {script.name}" in lines
    script.run("""engine call set_mode '{"mode": "shared"}'""")
    assert script.run(f"engine wait --as another {task}")[0] == 0
