"""The journal over the wire: whose line is it, and each line once, whoever dies."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from acceptance.running import Caller, Client, Engine, Gate

MAKEFILE = """\
all: good.o bad.o
%.o: %.c
\tcc -Wall -c $< -o $@
"""


def texts(reply: dict[str, Any], *, member: str = "logs") -> list[str]:
    return [line.get("text") for line in reply[member]]


def own_texts(reply: dict[str, Any]) -> list[str]:
    """The texts of the lines of the reply's own task: others' floods may have left a marker."""
    return [line["text"] for line in reply["logs"] if line.get("taskId") == reply["taskId"]]


def tail(client: Client, name: str, after: int, **named: Any) -> tuple[list[dict[str, Any]], int]:
    """All that there is after `after` by now, read with a cursor of its own."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.call("read_logs", as_=name, after_seq=after, peek=True, **named)
        found += page["lines"]
        after = page["nextAfterSeq"]
        if not page["hasMore"]:
            return found, after


def tail_until(client: Client, name: str, after: int, last: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(200):
        page = client.call(
            "read_logs", as_=name, after_seq=after, limit=1000, logScope="all", timeout_secs=5
        )
        found += page["lines"]
        after = page["nextAfterSeq"]
        if any(line["text"] == last for line in page["lines"]):
            return found
    raise AssertionError(f"{last} never came: {found[-3:]}")


def wait_lines(client: Client, task: str, count: int) -> list[str]:
    """The texts of a task's lines, once there are as many as `count`."""
    found: list[str] = []
    after = 0
    while len(found) < count:
        page = client.call(
            "read_logs", as_="dev", taskId=task, logScope="all", after_seq=after, timeout_secs=25
        )
        assert page["lines"], f"no more lines after {found}"
        found, after = found + texts(page, member="lines"), page["nextAfterSeq"]
    return found


def broken_build(folder: Path) -> None:
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "good.c").write_text("int main(void) { int unused; return 0; }\n")
    (folder / "bad.c").write_text("int f(void) { return missing; }\n")


def test_a_broken_build_shows_in_its_own_replies_and_as_one_marker_in_others(
    client: Client, tmp_path: Path
) -> None:
    builder, other = client.caller("builder"), client.caller("other")
    broken_build(tmp_path / "src")
    other.bash("true")  # from here on it has a mark
    made = builder.bash("make -k", cwd=str(tmp_path / "src"))
    assert (made["status"], made["exitCode"], made["logsDropped"]) == ("failed", 2, 0)
    assert {(line["caller"], line["taskId"]) for line in made["logs"]} == {
        (builder.name, made["taskId"])
    }
    levels = {line["text"]: line["level"] for line in made["logs"]}
    (error,) = [text for text in levels if text.startswith("bad.c:1:") and "missing" in text]
    assert levels[error] == "error"
    assert levels[f"task {made['taskId']} failed (exit 2)"] == "error"
    assert [text for text in levels if "unused" in text and levels[text] == "warning"]

    reply = other.bash("echo 'ERROR mine'", logs="error")
    (own, marker) = reply["logs"]
    assert (own["text"], own["caller"], own["source"]) == ("ERROR mine", other.name, "output")
    errors = sum(line["level"] == "error" for line in made["logs"])
    assert marker == {
        "marker": True,
        "leftOut": errors,
        "text": f"{errors} error lines from another caller's work left out",
    }
    # Told once; of the warnings, which no reply has looked at, the next one tells.
    assert other.bash("true", logs="error")["logs"] == []
    (marker,) = other.bash("true", logs="warning")["logs"]
    assert marker["leftOut"] == sum(line["level"] == "warning" for line in made["logs"])


def test_all_shows_both_each_with_its_caller_and_task(client: Client, tmp_path: Path) -> None:
    builder, other = client.caller("builder"), client.caller("other")
    broken_build(tmp_path / "src")
    other.bash("true", logs="none")
    made = builder.bash("make", cwd=str(tmp_path / "src"), logs="error")
    reply = other.bash("echo 'ERROR mine'", logs="error", logScope="all")
    assert {(line["caller"], line["taskId"]) for line in reply["logs"]} == {
        (builder.name, made["taskId"]),
        (other.name, reply["taskId"]),
    }
    seqs = [line["seq"] for line in reply["logs"][1:]]
    assert seqs == [line["seq"] for line in made["logs"]] == sorted(seqs)


def test_a_reply_about_a_running_task_has_the_lines_that_are_new(
    caller: Caller, gate: Gate
) -> None:
    command = f"echo 'ERROR one'; {gate.wait}; echo 'ERROR two'; {gate.wait}"
    started = caller.start(command)
    client = caller.client
    wait_lines(client, started["taskId"], 1)
    # The list is a reply about no task: it tells nothing, and nothing is told twice.
    first = caller.wait(started["taskId"], timeout_secs=0)
    assert own_texts(first) in (["ERROR one"], [])  # the first reply may have had it
    assert own_texts(started) + own_texts(first) == ["ERROR one"]
    gate.open()
    wait_lines(client, started["taskId"], 2)
    assert own_texts(caller.wait(started["taskId"], timeout_secs=0, logs="none")) == []
    assert own_texts(caller.wait(started["taskId"], timeout_secs=0)) == ["ERROR two"]
    assert own_texts(caller.wait(started["taskId"], timeout_secs=0)) == []
    gate.open()
    assert own_texts(caller.wait(started["taskId"])) == ["ERROR one", "ERROR two"]


def test_a_finished_task_shows_its_newest_fifty_lines(caller: Caller) -> None:
    reply = caller.bash("for i in $(seq 1 70); do echo ERROR $i; done")
    assert own_texts(reply) == [f"ERROR {number}" for number in range(21, 71)]
    assert reply["logsDropped"] == 20
    again = caller.wait(reply["taskId"])
    assert (own_texts(again), again["logsDropped"]) == (own_texts(reply), 20)
    row = caller.client.call("read_task", as_=caller.name, taskId=reply["taskId"])
    assert (row["errorLines"], row["warningLines"]) == (70, 0)


def test_a_reply_of_the_longest_lines_stays_below_a_mebibyte(caller: Caller) -> None:
    line = "ERROR " + "\U0001f600" * 4090
    reply = caller.send(
        "bash", command=f"for i in $(seq 99); do echo '{line}'; done", max_output_bytes=524288
    )
    message = reply.message()
    assert len(json.dumps(message, ensure_ascii=False).encode()) < 1 << 20
    result = message["result"]
    shown = own_texts(result)
    assert len(shown) + result["logsDropped"] == 99
    assert {len(text) for text in shown} == {4096}


def test_errors_in_the_gap_of_an_output_are_lifted_out(caller: Caller) -> None:
    command = "seq 1 20000; echo 'x.c:1:2: error: lost'; seq 20002 40000"
    reply = caller.bash(command, max_output_bytes=2000)
    assert "\n20001: x.c:1:2: error: lost\n" in reply["output"]
    assert len(reply["output"].encode()) <= 2000


def test_lines_are_there_once_and_in_order_over_kills_of_the_engine(tmp_path: Path) -> None:
    count = 4000
    command = f"i=0; while [ $i -lt {count} ]; do echo line $i; i=$((i+1)); done; echo end"
    engine = Engine(tmp_path / "home", "--set", "min_free_bytes=0")
    with engine, Gate(tmp_path / "gate") as gate:
        with engine.connect() as client:
            caller = client.caller("ci")
            started = caller.start(f"{gate.wait}; {command}; {gate.wait}; echo late")
            gate.open()
            found, after = tail(client, "dev", 0, logScope="all")
        for _ in range(4):
            engine.kill()
            engine.start()
            with engine.connect() as client:
                more, after = tail(client, "dev", after, logScope="all")
                found += more
        with engine.connect() as client:
            if "end" not in [line["text"] for line in found]:
                found += tail_until(client, "dev", after, "end")
            gate.open()
        engine.kill()
        engine.start()
        with engine.connect() as client:
            reply = caller.on(client).wait(started["taskId"])
            assert reply["status"] == "succeeded"
            found += tail_until(client, "dev", found[-1]["seq"], "late")
        job = [line for line in found if line["source"] == "output"]
        wanted = [f"line {number}" for number in range(count)] + ["end", "late"]
        assert [line["text"] for line in job] == wanted
        seqs = [line["seq"] for line in found]
        assert seqs == sorted(set(seqs))


def test_what_survivors_write_is_read_on_after_a_restart(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", "--set", "min_free_bytes=0")
    with engine, Gate(tmp_path / "gate") as gate:
        with engine.connect() as client:
            caller = client.caller("ci")
            inner = f"{gate.wait}; echo -n part; {gate.wait}; echo ed"
            reply = caller.bash(f"({inner}; {gate.wait}; echo last) & echo started; exit 3")
            assert len(reply["survivors"]) > 0
        engine.kill()
        gate.open()
        engine.start()
        with engine.connect() as client:
            gate.open()
            found = tail_until(client, "dev", 0, "parted")
        engine.kill()
        engine.start()
        with engine.connect() as client:
            gate.open()
            found += tail_until(client, "dev", found[-1]["seq"], "last")
        said = f"task {reply['taskId']} failed (exit 3)"
        assert [line["text"] for line in found if line["taskId"]] == [
            *("started", said),
            *("parted", "last"),
        ]


def test_what_is_left_of_calls_that_ended_silently_is_heard_also_after_a_kill(
    tmp_path: Path,
) -> None:
    engine = Engine(tmp_path / "home", "--set", "min_free_bytes=0")
    with engine, ExitStack() as stack:
        gates = [stack.enter_context(Gate(tmp_path / f"gate{number}")) for number in range(3)]
        loops = [
            f"({gate.wait}; echo ERROR one; {gate.wait}; echo ERROR two) &" for gate in gates[:2]
        ]
        code = f"import os, threading\ngate = os.open({str(gates[2].path)!r}, os.O_RDONLY)\n"
        code += "def work(word):\n    os.read(gate, 1); print('ERROR', word)\n"
        code += "threading.Thread(target=lambda: [work('one'), work('two')]).start()"
        with engine.connect() as client:
            caller = client.caller("ci")
            replies = [
                caller.bash(loops[0]),
                caller.execute("bash", "-c", loops[1]),
                caller.call("execute", code=code),
            ]
            said = [(reply["status"], reply["output"]) for reply in replies]
            assert said == [("succeeded", "")] * 3
            for gate in gates:
                gate.open()
            first = [wait_lines(client, reply["taskId"], 1) for reply in replies]
        engine.kill()
        for gate in gates:
            gate.open()
        engine.start()
        with engine.connect() as client:
            both = [wait_lines(client, reply["taskId"], 2) for reply in replies]
        assert (first, both) == ([["ERROR one"]] * 3, [["ERROR one", "ERROR two"]] * 3)


def test_marks_and_read_positions_outlive_the_engine(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", "--set", "min_free_bytes=0")
    with engine:
        with engine.connect() as client:
            one, two = client.caller("one"), client.caller("two")
            two.bash("true")
            one.bash("echo ERROR early")
            assert texts(two.bash("true")) == [
                "1 warning lines from another caller's work left out"
            ]
            page = two.call("read_logs", logScope="all")
            assert "ERROR early" in texts(page, member="lines")
            one.bash("echo ERROR late")
        engine.kill()
        engine.start()
        with engine.connect() as client:
            two = two.on(client)
            assert texts(two.bash("true")) == [
                "1 warning lines from another caller's work left out"
            ]
            page = two.call("read_logs", logScope="all")
            assert texts(page, member="lines")[0] == "ERROR late"
            with engine.connect("observer") as watcher:
                for _ in range(2):
                    page = two.on(watcher).call("read_logs", logScope="all")
                    assert [line for line in page["lines"] if line["taskId"]] == []


def test_what_a_reply_has_told_is_not_told_again_by_the_next_engine(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", "--set", "min_free_bytes=0")
    with engine, Gate(tmp_path / "gate") as gate:
        for number in range(4):
            with engine.connect() as client:
                one, two = client.caller("one"), Caller(client, "two")
                two.bash("true", logScope="all")
                failed = one.bash(f"echo ERROR {number}")
                assert texts(two.bash("true", logScope="all")) == texts(failed)
                page = two.call("read_logs", logScope="all")
                assert f"ERROR {number}" in texts(page, member="lines")
            engine.kill()  # in the moment after the reply
            engine.start()
            with engine.connect() as client:
                two = two.on(client)
                assert texts(two.bash("true", logScope="all")) == []
                page = two.call("read_logs", logScope="all")
                assert [line for line in page["lines"] if line["taskId"]] == []
        with engine.connect() as client:
            caller = client.caller("ci")
            started = caller.start(f"echo 'ERROR once'; {gate.wait}; echo 'ERROR two'; sleep 600")
            wait_lines(client, started["taskId"], 1)
            first = caller.wait(started["taskId"], timeout_secs=0)
            assert texts(started) + texts(first) == ["ERROR once"]
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = caller.on(client)
            again = caller.wait(started["taskId"], timeout_secs=0)
            assert (again["changed"], again["logs"], "output" in again) == (False, [], False)
            gate.open()
            wait_lines(client, started["taskId"], 2)
            more = caller.wait(started["taskId"], timeout_secs=0)
            assert (more["output"], texts(more)) == ("ERROR two\n", ["ERROR two"])
            caller.cancel(started["taskId"], grace_secs=0)


def test_a_flood_keeps_what_is_severe_and_one_line_that_counts_the_rest(
    client: Client, caller: Caller
) -> None:
    flood = f"yes {'x' * 99} | head -n"
    command = f"{flood} 200000; echo 'ERROR amid'; {flood} 10000; echo 'ERROR last'"
    reply = caller.bash(command)
    for _ in range(60):
        if not reply.get("logsBehind"):
            break
        reply = caller.wait(reply["taskId"])
    own = [line for line in reply["logs"] if line["taskId"] == reply["taskId"]]
    assert [line["text"] for line in own if line["source"] == "output"] == [
        *("ERROR amid", "ERROR last"),
    ]
    words = [line["text"] for line in own if line["source"] == "engine"]
    assert words
    assert {word.partition("output) ")[2] for word in words} == {"are not in the journal"}
    lines, _ = tail(client, caller.name, 0, taskId=reply["taskId"], limit=1000)
    stored = sum(line["source"] == "output" for line in lines)
    left_out = sum(int(word.split(" ")[0].replace(",", "")) for word in words)
    assert left_out + stored == 210_002


def test_a_wait_for_lines_ends_with_the_first_of_a_level(caller: Caller, gate: Gate) -> None:
    client, name = caller.client, caller.name
    caller.bash("true")
    waiting = client.send("read_logs", as_=name, timeout_secs=25, wake_on=["error"])
    caller.bash("echo plain")
    assert not waiting.is_answered()
    caller.bash("echo ERROR now")
    page = waiting.result()
    assert texts(page, member="lines") == ["plain", "ERROR now"]
    assert (page["endReason"], page["hasMore"]) == ("woke", False)
    empty = client.call("read_logs", as_=name)
    assert (empty["lines"], empty["endReason"]) == ([], "timeout")
