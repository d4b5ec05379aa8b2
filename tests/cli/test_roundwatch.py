"""Mirrors `engine/cli/roundwatch.py`: what of a round is followed, also over a restart."""

from __future__ import annotations

import json
import re
from pathlib import Path

from acceptance.running import Engine, Gate
from cli.program import LIMIT, Terminal, engine, start

from engine.cli.roundwatch import rows_of_seats


def test_an_engine_that_was_killed_loses_no_end_and_tells_none_twice(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as own:
        call = ("round", "start", "--seat", "quick=exit 2", "--seat", f"slow={gate.wait}")
        with start(own.home, *call, "--no-start") as run:
            assert run.stdout is not None
            assert run.stdout.readline().split()[-3:] == [b"quick", b"exit", b"2"]
            own.kill()
            gate.open()
            own.start()
            out, err = run.communicate(timeout=LIMIT)
        assert run.returncode == 1
        lines = out.decode().splitlines()
        assert [line.split()[2:] for line in lines] == [
            ["succeeded", "exit=0", lines[0].split()[4], "slow", *gate.wait.split()]
        ]
        assert "engine: connection lost; trying again for up to 60 s" in err.decode()
        assert engine(own.home, "inbox").out == b""


def test_a_round_whose_seat_runs_again_is_followed_by_its_new_task(
    real: Engine, me: str, gate: Gate
) -> None:
    with real.connect() as client:
        seats = {"a": {"command": "exit 1"}, "b": {"command": gate.wait}}
        id_ = client.call("run_round", as_=me, seats=seats)["roundId"]
        with start(real.home, "wait", id_, "--as", me) as wait:
            assert wait.stdout is not None
            assert wait.stdout.readline().split()[-3:] == [b"a", b"exit", b"1"]
            client.call("run_round", as_=me, roundId=id_, retry_seats=["a"])
            assert wait.stdout.readline().split()[-3:] == [b"a", b"exit", b"1"]
            gate.open()
            out, _ = wait.communicate(timeout=LIMIT)
    assert wait.returncode == 1
    assert out.split(b"\n")[0].split()[5] == b"b"


def test_a_seat_that_waits_for_input_is_said_to_be_lost_while_its_peers_run(
    real: Engine, me: str, gate: Gate, tmp_path: Path
) -> None:
    file = tmp_path / "seats.json"
    asking = {"command": 'printf "Name? "; read -r name', "stdin": "open", "session": False}
    file.write_text(json.dumps({"ask": asking, "other": {"command": gate.wait}}))
    with start(real.home, "round", "start", "-f", str(file), "--as", me) as run:
        assert run.stderr is not None
        line = run.stderr.readline().decode()
        assert re.fullmatch(r"engine: round r\w{6} goes on: ask waits for input: Name\?\n", line)
        assert engine(real.home, "cancel", "--all", "--as", me).code == 0
        run.communicate(timeout=LIMIT)
    assert run.returncode == 1


def test_of_a_seat_with_two_streams_the_last_line_is_that_of_its_stdout(
    real: Engine, me: str, tmp_path: Path
) -> None:
    file = tmp_path / "seats.json"
    split = {"command": "echo on stdout; echo on stderr >&2", "streams": "split"}
    file.write_text(json.dumps({"two": split}))
    call = ("round", "start", "-f", str(file), "--as", me)
    with Terminal(real.home, *call, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    assert re.search(r"✓ two .*  on stdout\r\n$", terminal.seen)


def test_of_a_seat_that_was_forgotten_nothing_but_that_is_known() -> None:
    found = {"seats": {"a": {"taskId": "t8f3ku1", "status": "forgotten"}}}
    assert rows_of_seats(found) == {
        "a": {
            "taskId": "t8f3ku1",
            "kickoffId": "k8f3ku1",
            "status": "forgotten",
            "title": "",
            "changedSeq": 0,
        }
    }
