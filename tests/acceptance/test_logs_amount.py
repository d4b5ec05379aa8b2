"""The journal and replies where there is much to read: short lines, dropped output, few errors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from acceptance.running import Caller, Client, Engine, Gate


def settled(caller: Caller, reply: dict[str, Any], **named: Any) -> dict[str, Any]:
    """The reply about an ended task, once all its lines are in the journal."""
    for _ in range(60):
        if not reply.get("logsBehind"):
            return reply
        reply = caller.wait(reply["taskId"], **named)
    raise AssertionError("still behind")


def lines_of(client: Client, task: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after, has_more = 0, True
    while has_more:
        page = client.call(
            "read_logs", as_="dev", taskId=task, after_seq=after, limit=1000, logScope="all"
        )
        found += page["lines"]
        after, has_more = page["nextAfterSeq"], page["hasMore"]
    return found


def test_millions_of_short_lines_are_counted_and_delay_no_reply(
    client: Client, caller: Caller
) -> None:
    count = 4_000_000
    begun = time.monotonic()
    reply = caller.bash(f"yes | head -n {count}; echo 'ERROR last'", max_output_bytes=0)
    reply = settled(caller, reply, max_output_bytes=0)
    assert time.monotonic() - begun < 25  # seconds; a look at each line takes 60
    assert (reply["output"], reply["omittedLines"]) == ("", count + 1)
    # The error is known to be there alone, and is searched for from the end.
    begun = time.monotonic()
    for limit in (0, 4000, 32768):
        shown = caller.wait(reply["taskId"], max_output_bytes=limit)
        assert len(shown["output"]) <= limit
    assert time.monotonic() - begun < 6  # seconds; the three took 12
    lines = lines_of(client, reply["taskId"])
    stored = sum(line["text"] == "y" for line in lines)
    (word,) = [line["text"] for line in lines if line["source"] == "engine"]
    left_out = count - stored
    assert word == f"{left_out:,} lines ({2 * left_out:,} bytes of output) are not in the journal"
    assert stored < 400_000


def test_an_error_deep_in_the_gap_is_found_from_its_end_and_numbered(caller: Caller) -> None:
    # 13 MB; without the last word the search from the front would end before the error.
    code = "for i in range(700000): print('ERROR in gap' if i == 600000 else 'line number %d' % i)"
    reply = caller.execute("python3", "-c", code, max_output_bytes=4000)
    assert "\n600001: ERROR in gap\n" in reply["output"]
    assert "not searched" not in reply["output"]


def test_errors_that_are_out_of_reach_are_spoken_of(caller: Caller) -> None:
    plain = "yes a plain line of thirty one chars | head -c 6000000"
    command = f"{plain}; echo; echo 'ERROR amid'; {plain}; echo; echo 'ERROR late'; seq 5000"
    reply = settled(caller, caller.bash(command, max_output_bytes=4000), max_output_bytes=4000)
    lifted = [line for line in reply["output"].splitlines() if "ERROR" in line or "<" in line]
    assert len(lifted) == 3
    assert lifted[0].endswith("left out; read_output has them>")
    assert lifted[1].endswith(" bytes were not searched for errors>")
    assert lifted[2].endswith(": ERROR late")


def test_where_output_was_dropped_half_a_line_is_marked_as_cut(tmp_path: Path) -> None:
    engine = Engine(
        tmp_path / "home", "--set", "min_free_bytes=0", "--set", "output_cap_bytes=1048576"
    )
    with engine, engine.connect() as client:
        caller = client.caller("ci")
        code = "import sys\nfor i in range(300000): sys.stdout.write('line %d and its end\\n' % i)"
        reply = caller.execute("python3", "-c", code, max_output_bytes=0)
        reply = settled(caller, reply, max_output_bytes=0)
        lines = lines_of(client, reply["taskId"])
        job = [line for line in lines if line["source"] == "output"]
        assert {line["text"].endswith(" and its end") for line in job if not line.get("cut")} == {
            True
        }
        words = [line["text"] for line in lines if line["source"] == "engine"]
        assert [word for word in words if word.startswith("0 ")] == []
        if reply["droppedBytes"]:
            assert [word for word in words if word.endswith("are not kept and not in the journal")]


def test_running_replies_carry_no_more_output_than_was_asked_for(
    caller: Caller, gate: Gate
) -> None:
    big = "printf '€%.0s' $(seq 3000); echo"
    command = f"{big}; {gate.wait}; {big}; sleep 600"
    task = caller.start(command, key="K")["taskId"]
    caller.call("read_output", taskId=task, offset=9000, timeout_secs=20)
    # Under the same key: the reply of the same call again, with all that there is so far.
    again = caller.start(command, key="K", max_output_bytes=100)
    assert again["changed"]
    assert 0 < len(again["output"].encode()) <= 100
    none = caller.start(command, key="K", max_output_bytes=0)
    assert (none["changed"], none["output"], none["outputBytes"]) == (True, "", 9001)
    gate.open()
    caller.call("read_output", taskId=task, offset=18001, timeout_secs=20)
    news = caller.wait(task, timeout_secs=0, max_output_bytes=100)
    assert (news["changed"], news["output"]) == (True, "€" * 33 + "\n")
    caller.cancel(task, grace_secs=0)


def test_a_word_of_the_engines_about_a_silent_task_is_in_its_reply(client: Client) -> None:
    owner, other = client.caller(), client.caller()
    started = owner.bash("cat > /dev/null", stdin="open", timeout_secs=0, logs="info")
    other.call("write_stdin", taskId=started["taskId"], text="x", eof=True, force=True)
    reply = owner.wait(started["taskId"], logs="info")
    assert reply["status"] == "succeeded"
    told = [line for line in started["logs"] + reply["logs"] if "taskId" in line]
    (line,) = [line for line in told if line["taskId"] == started["taskId"]]
    assert (line["source"], line["level"]) == ("engine", "info")
    assert f"by={other.name}" in line["text"]


def test_a_line_shows_nothing_that_is_not_seen(caller: Caller) -> None:
    reply = caller.bash("printf 'ERROR a\\xf3\\xa0\\x81\\x88b c\\xcd\\x8fd e\\xc2\\xadf\\n'")
    assert [line["text"] for line in reply["logs"]] == ["ERROR ab cd ef"]


def test_the_line_about_code_that_failed_names_the_exception(caller: Caller) -> None:
    reply = caller.call("execute", code="{}['k']")
    assert reply["logs"][-1]["text"] == f"task {reply['taskId']} failed (KeyError: 'k')"
