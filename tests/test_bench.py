"""Mirrors `scripts/bench*.py`: the client that is not ours, the yardsticks, the table."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import NO_FLOOR, Engine

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts import bench
from scripts.bench_client import Client
from scripts.bench_peers import many_peers, short_peers
from scripts.bench_rate import Crowd, _one_crowd
from scripts.benching import (
    Figure,
    Sampler,
    blocks,
    memory,
    new_home,
    placing,
    processor_secs,
    ratios,
)

RSS_KIB = 50 << 10


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(tmp_path_factory.mktemp("bench") / "home", *NO_FLOOR) as engine:
        yield engine


@pytest.fixture
def home(engine: Engine) -> Path:
    return engine.home


def test_a_home_is_in_a_folder_that_is_spread_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program := tmp_path / "chattr").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with new_home() as home:
        assert not home.exists()
        assert (tmp_path / "asked").read_text() == f"+T {home.parent}\n"
    assert not home.parent.exists()
    assert "each in a block group of its own" in placing()


@pytest.mark.parametrize("program", [None, "#!/bin/sh\nexit 1\n"])
def test_it_is_said_where_homes_cannot_be_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    if program is not None:
        (tmp_path / "chattr").write_text(program)
        (tmp_path / "chattr").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "placed as any other folder" in placing()
    with new_home() as home:
        assert home.parent.exists()


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 500_000])
def test_the_client_sends_and_takes_frames_of_all_lengths(home: Path, size: int) -> None:
    client = Client(home)
    reply = client.bash(f": {'x' * size}; printf '%{size}s' | tr ' ' y", max_output_bytes=524_288)
    assert reply["output"] == "y" * size
    client.close()


def test_the_client_tells_replies_apart_and_raises_errors(home: Path) -> None:
    client = Client(home)
    slow, quick = client.send("bash", command="read -t 0.2 <> <(:)"), client.send("engine_info")
    assert [client.receive()["id"], client.receive()["id"]] == [quick, slow]
    with pytest.raises(RuntimeError, match="-32601"):
        client.call("no_such_method")
    client.close()


def test_the_client_answers_pings(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text(
        json.dumps({"socket": f"{tmp_path}/s", "tokens": {"agent": "T"}})
    )
    pongs = []

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            assert b"Bearer T\r\n" in peer.recv(4096)
            peer.sendall(b"HTTP/1.1 101 Switching\r\n\r\n\x89\x02hi\x81\x02{}")
            pongs.append(peer.recv(4096))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/s")
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        client = Client(tmp_path)
        assert client.receive_text() == b"{}"
        thread.join(10)
        client.close()
    assert pongs == [b"\x8a\x82\0\0\0\0hi"]


def test_blocks_are_in_turn_and_the_first_does_not_count() -> None:
    turns: list[str] = []
    found = blocks(2, 3, lambda: turns.append("a"), lambda: turns.append("b"))
    assert turns == ["a", "a", "a", "b", "b", "b"] * 3
    assert [len(values) for values in found] == [2, 2]
    assert ratios([6.0, 3.0], [2.0, 3.0]) == [3.0, 1.0]


def test_processor_time_and_memory_are_those_of_the_process() -> None:
    own, kernel = processor_secs(os.getpid()), os.times()
    assert abs(own - kernel.user - kernel.system) < 0.05
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert 0.15 < processor_secs(os.getpid()) - own < 0.4
    before = memory(os.getpid())
    block = bytearray(os.urandom(RSS_KIB << 10))
    assert abs((memory(os.getpid()) - before) / 1024 - RSS_KIB) < RSS_KIB / 10
    assert memory(os.getpid(), "Rss") > len(block)


def test_a_sampler_counts_a_pause_in_each_call_that_it_holds_up(engine: Engine) -> None:
    client = Client(engine.home)
    with Sampler(engine.home) as sampler:
        client.bash("read -t 0.3 <> <(:)")
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            time.sleep(0.5)  # it is the length of the pause that is measured
        finally:
            os.kill(engine.pid, signal.SIGCONT)
        client.bash("read -t 0.2 <> <(:)")
    times = sampler.times()
    assert 450 < max(times) < 5_000
    assert sum(took > 200 for took in times) >= 25  # one for each 10 ms of it, but for the last
    client.close()


def test_peers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with short_peers(None) as (found, missing):
        assert found == []
        assert missing == ["task-spooler", "nq", "GNU parallel", "swe-rex (--swe-rex PYTHON)"]
    with short_peers(sys.executable) as (found, missing):
        assert missing[-1] == "swe-rex"
    with many_peers() as (several, missing):
        assert several == []
        assert missing == ["task-spooler, 4 slots", "nq", "GNU parallel"]


def test_peers_that_are_installed_do_what_they_are_measured_by() -> None:
    with short_peers(None) as (found, _missing):
        for peer in found:
            peer.run()
    with many_peers() as (several, _missing):
        for many in several:
            many.run(8)


def test_a_crowd_makes_so_many_calls_and_no_caller_two_at_a_time(home: Path) -> None:
    client = Client(home)
    assert len(_one_crowd(client, 3, 10)) == 10
    assert len(_one_crowd(client, 4, 2)) == 2
    roster = client.call("roster")["callers"]
    assert {"c0", "c1", "c2"} <= {row["name"] for row in roster}
    client.close()
    assert Crowd(1, 2.0, 3.0, 4.0).p99_ms == 4.0


def test_the_table_has_median_quartiles_goal_and_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        Figure("calls", [1.0, 2.0, 3.0], "x", "1.2"),
        Figure("one", [12_345.6], "lines/s"),
        Figure("times", [float(n) for n in range(1, 201)], "ms"),
        Figure("nq: not installed", [], "x"),
    ]
    bench.show(rows)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["calls", "2.00", "1.00", "…", "3.00", "3", "x", "1.2"]
    assert lines[2] == ["one", "12,346", "12,346", "…", "12,346", "1", "lines/s"]
    assert lines[3] == ["times", "100.50", "50.25", "…", "150.75", "198.99", "200", "ms"]
    assert lines[4] == ["nq:", "not", "installed"]
    told = bench.as_json(rows)
    assert told["machine"]["cores"] == os.cpu_count()
    assert told["figures"][0] == {
        "name": "calls",
        "unit": "x",
        "goal": "1.2",
        "values": [1.0, 2.0, 3.0],
    }


def test_groups_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["calls", "rate", "waits", "memory", "output", "journal", "start", "restart"]
    assert bench.parse([]).groups == names
    assert bench.parse(["--only", "rate,waits"]).groups == ["rate", "waits"]
    with pytest.raises(SystemExit):
        bench.parse(["--only", "rate,wait"])
    assert "--only wait: groups are calls, rate" in capsys.readouterr().err


def test_it_writes_what_it_measured(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    script = Path(__file__).parent.parent / "scripts" / "bench.py"
    done = subprocess.run(
        [sys.executable, script, "--quick", "--only", "start", "--json", told],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "engine tasks / python -c 'import click, wsproto'" in done.stdout
    figures = json.loads(told.read_text())["figures"]
    assert [len(figure["values"]) for figure in figures] == [5, 5, 5, 5]
