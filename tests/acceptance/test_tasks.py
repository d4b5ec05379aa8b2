"""PROTOCOL 3 and 9: `list_tasks`, `read_task`, `forget`, and `engine_info`."""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate

ROW = {
    *("taskId", "kickoffId", "as", "kind", "title", "status", "reason", "exitCode", "signal"),
    *("createdAt", "startedAt", "endedAt", "durationMs", "lastOutputAt", "outputBytes"),
    *("errorLines", "warningLines", "lane", "queuePosition", "queueReason", "blockedOn"),
    *("roundId", "seat", "changedSeq"),
}
TASK = ROW | {
    *("command", "cwd", "session", "after", "deadline_secs", "survivors", "cpuMs"),
    *("droppedBytes", "outputPath"),
}
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def ids(page: dict[str, Any]) -> list[str]:
    return [row["taskId"] for row in page["tasks"]]


# -- list_tasks --------------------------------------------------------------------------------


def test_a_row_has_all_its_fields(caller: Caller) -> None:
    reply = caller.bash("echo hi\nexit 3")

    page = caller.call("list_tasks")

    assert page.keys() == {"tasks", "hasMore", "next", "latestSeq", "nextChangedAfter"}
    (row,) = page["tasks"]
    assert row.keys() == ROW
    for name in ("taskId", "kickoffId", "as", "status", "reason", "exitCode", "signal"):
        assert row[name] == reply[name]
    for name in ("createdAt", "startedAt", "endedAt", "durationMs", "outputBytes"):
        assert row[name] == reply[name]
    assert (row["kind"], row["title"]) == ("bash", "echo hi")
    assert TIME.fullmatch(row["lastOutputAt"])
    for name in ("lane", "queuePosition", "queueReason", "blockedOn", "roundId", "seat"):
        assert row[name] is None
    assert type(row["changedSeq"]) is int
    assert 0 < row["changedSeq"] <= page["latestSeq"]
    assert (page["hasMore"], page["next"]) == (False, None)
    assert page["nextChangedAfter"] == page["latestSeq"]


def test_a_running_row_has_no_end_yet(caller: Caller, gate: Gate) -> None:
    reply = caller.start(gate.wait)

    (row,) = caller.call("list_tasks")["tasks"]

    assert row.keys() == ROW
    assert (row["status"], row["taskId"]) == ("running", reply["taskId"])
    assert TIME.fullmatch(row["startedAt"])
    for name in ("reason", "exitCode", "signal", "endedAt", "durationMs", "lastOutputAt"):
        assert row[name] is None
    gate.open()
    caller.wait(reply["taskId"])


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("echo a\techo b", "echo aecho b"),
        ("\n\n  echo x # one\necho two", "echo x # one"),
        ("echo " + "y" * 300, "echo " + "y" * 195),
        ("echo '\x1b[31m\x07red\u202e'", "echo '[31mred'"),
    ],
)
def test_a_title_is_the_first_line_printable_and_short(
    command: str, title: str, caller: Caller
) -> None:
    caller.bash(command)

    assert caller.call("list_tasks")["tasks"][0]["title"] == title


def test_what_runs_has_its_kind(caller: Caller) -> None:
    caller.bash("true")
    caller.execute("echo", "two words")

    rows = caller.call("list_tasks")["tasks"]
    assert [(row["kind"], row["title"]) for row in rows] == [
        ("argv", "echo two words"),
        ("bash", "true"),
    ]


def test_the_list_is_of_ones_own_unless_another_or_all_are_asked_for(client: Client) -> None:
    one, two = client.caller(), client.caller()
    mine, theirs = one.bash("true")["taskId"], two.bash("true")["taskId"]

    assert ids(one.call("list_tasks")) == [mine]
    assert ids(one.call("list_tasks", caller=two.name)) == [theirs]
    assert ids(one.call("list_tasks", caller="*", limit=2)) == [theirs, mine]
    assert ids(client.caller().call("list_tasks")) == []


def test_pages_hold_every_task_once_newest_first(caller: Caller) -> None:
    made = [caller.bash("true")["taskId"] for _ in range(7)]
    found: list[str] = []
    params: dict[str, Any] = {}
    pages = 0
    while True:
        page = caller.call("list_tasks", limit=3, **params)
        found, pages = found + ids(page), pages + 1
        if not page["hasMore"]:
            break
        params = {"before": page["next"]}

    assert (found, pages) == (made[::-1], 3)
    assert page["next"] is None


def test_a_list_can_be_of_some_states_alone(caller: Caller, gate: Gate) -> None:
    good, bad = caller.bash("true")["taskId"], caller.bash("false")["taskId"]
    runs = caller.start(gate.wait)["taskId"]

    def of(*states: str) -> list[str]:
        return ids(caller.call("list_tasks", state=list(states)))

    assert of("running") == [runs]
    assert of("failed") == [bad]
    assert of("succeeded", "failed") == [bad, good]
    assert of("cancelled", "queued") == []
    gate.open()
    caller.wait(runs)
    assert of("running") == []


@pytest.mark.parametrize(
    "params",
    [
        *({"limit": 0}, {"limit": 501}, {"limit": True}, {"state": ["dead"]}, {"state": "running"}),
        *({"before": "x"}, {"changed_after": -1}, {"caller": "A"}, {"timeout_secs": -1}),
        {"changed_after": 1, "before": "2"},
    ],
)
def test_a_list_that_cannot_be_is_refused(params: dict[str, Any], caller: Caller) -> None:
    assert caller.refuse("list_tasks", **params)["code"] == -32602


def test_changes_are_waited_for_and_told_once(caller: Caller, gate: Gate) -> None:
    task = caller.start(gate.wait)["taskId"]
    since = caller.call("list_tasks")["latestSeq"]

    begun = time.monotonic()
    nothing = caller.call("list_tasks", changed_after=since, timeout_secs=0.3)
    took = time.monotonic() - begun
    waiting = caller.send("list_tasks", changed_after=since, timeout_secs=55)
    assert not waiting.is_answered(within=0.1)
    gate.open()
    page = waiting.result()

    assert (ids(nothing), nothing["nextChangedAfter"] >= since) == ([], True)
    assert 0.3 <= took < 2
    (row,) = page["tasks"]
    assert (row["taskId"], row["status"]) == (task, "succeeded")
    assert since < row["changedSeq"] <= page["nextChangedAfter"] <= page["latestSeq"]
    assert ids(caller.call("list_tasks", changed_after=page["nextChangedAfter"])) == []


def test_no_change_is_missed_in_pages_of_one(caller: Caller) -> None:
    made = {caller.bash("true")["taskId"] for _ in range(5)}
    found: list[str] = []
    after, pages = 0, 0
    while True:
        page = caller.call("list_tasks", changed_after=after, limit=1)
        found += ids(page)
        after, pages = page["nextChangedAfter"], pages + 1
        if not page["hasMore"]:
            break

    assert set(found) == made
    assert (len(found), pages) == (5, 5)


def test_a_forgotten_task_is_told_as_a_change(caller: Caller) -> None:
    task = caller.bash("true")["taskId"]
    since = caller.call("list_tasks")["latestSeq"]
    waiting = caller.send("list_tasks", changed_after=since, timeout_secs=20)

    caller.call("forget", taskId=task)

    assert waiting.result()["tasks"] == [{"taskId": task, "status": "forgotten"}]
    assert ids(caller.call("list_tasks")) == []


# -- read_task and forget ----------------------------------------------------------------------


def test_a_task_is_its_row_and_what_was_asked(caller: Caller) -> None:
    reply = caller.bash("cd /usr; echo hi", deadline_secs=60.5)

    task = caller.call("read_task", taskId=reply["taskId"])

    assert task.keys() == TASK
    (row,) = caller.call("list_tasks")["tasks"]
    assert {name: task[name] for name in ROW} == row
    assert (task["command"], task["cwd"], task["session"]) == ("cd /usr; echo hi", "/usr", True)
    assert (task["after"], task["deadline_secs"], task["survivors"]) == ([], 60.5, [])
    assert (task["cpuMs"], task["droppedBytes"]) == (reply["cpuMs"], 0)
    assert task["outputPath"] == reply["outputPath"]
    assert caller.call("read_task", kickoffId=reply["kickoffId"]) == task


def test_a_long_command_is_shown_up_to_64_kib(caller: Caller) -> None:
    task = caller.bash("true #" + "é" * 100_000)["taskId"]

    command = caller.call("read_task", taskId=task)["command"]

    assert 65_530 <= len(command.encode()) <= 65_536
    assert command.startswith("true #éé")


def test_argv_is_shown_as_it_would_be_typed(caller: Caller) -> None:
    task = caller.execute("echo", "it's", "two words", session=False)["taskId"]

    shown = caller.call("read_task", taskId=task)

    assert (shown["kind"], shown["session"]) == ("argv", False)
    assert shown["command"] == "echo 'it'\"'\"'s' 'two words'"


def test_a_forgotten_task_is_gone_with_its_files_and_known_to_have_been(caller: Caller) -> None:
    reply = caller.bash("echo hi; false")
    path = Path(reply["outputPath"])

    answer = caller.call("forget", taskId=reply["taskId"])

    assert answer["taskId"] == reply["taskId"]
    assert not path.exists()
    for method, params in (
        ("wait", {"kickoffId": reply["kickoffId"]}),
        *(
            (method, {"taskId": reply["taskId"]})
            for method in ("wait", "read_task", "read_output", "cancel", "forget")
        ),
    ):
        error = caller.refuse(method, **params)
        assert (error["code"], error["data"]["kind"]) == (-32004, "expired_handle"), method
        assert error["data"]["endedAt"] == reply["endedAt"]
        assert error["data"]["status"] == "failed"


def test_what_runs_is_not_forgotten(caller: Caller, gate: Gate) -> None:
    task = caller.start(gate.wait)["taskId"]

    error = caller.refuse("forget", taskId=task)

    assert (error["code"], error["data"]) == (-32011, {"kind": "invalid_state", "state": "running"})
    gate.open()
    assert caller.wait(task)["status"] == "succeeded"


def test_anothers_task_is_forgotten_by_force_alone(client: Client, caller: Caller) -> None:
    task = caller.bash("true")["taskId"]
    other = client.caller()

    assert other.refuse("forget", taskId=task)["code"] == -32009
    assert caller.wait(task)["status"] == "succeeded"
    other.call("forget", taskId=task, force=True)
    assert caller.refuse("wait", taskId=task)["code"] == -32004


@pytest.mark.case("C121")
def test_every_task_that_has_ended_answers_until_it_is_forgotten(caller: Caller) -> None:
    replies = [caller.start(f"echo {i}") for i in range(4)]

    for i, reply in enumerate(replies):
        done = caller.wait(reply["taskId"])
        assert (done["status"], done["output"]) == ("succeeded", f"{i}\n")
        assert caller.call("read_output", taskId=reply["taskId"])["text"] == f"{i}\n"
    assert caller.call("forget", taskId=replies[0]["taskId"])
    assert caller.refuse("wait", taskId=replies[0]["taskId"])["data"]["kind"] == "expired_handle"
    assert caller.refuse("wait", taskId="t000zzz")["data"]["kind"] == "unknown_handle"


@pytest.mark.case("C128")
def test_the_list_says_what_each_task_says(caller: Caller) -> None:
    commands = ["true", "false", "kill -KILL $$", "sleep 20", "echo hi", "sleep 20"]
    tasks = [caller.start(command)["taskId"] for command in commands]
    for task in (tasks[0], tasks[1], tasks[2], tasks[4]):
        caller.wait(task)
    caller.cancel(tasks[3], grace_secs=0)

    rows = {row["taskId"]: row for row in caller.call("list_tasks")["tasks"]}
    looked = {task: caller.call("read_task", taskId=task) for task in tasks}

    assert [looked[task]["status"] for task in tasks] == [
        *("succeeded", "failed", "failed", "cancelled", "succeeded", "running")
    ]
    for task in tasks:
        assert {name: looked[task][name] for name in ROW} == rows[task]
    assert ids(caller.call("list_tasks", state=["running"])) == [tasks[5]]
    caller.cancel(tasks[5], grace_secs=0)
    assert ids(caller.call("list_tasks", state=["running"])) == []


@pytest.mark.case("C150")
@pytest.mark.parametrize("handle", ["../state", "t/../x", "/etc/passwd", "t\0", "", ".", "t" * 85])
def test_a_handle_that_is_a_path_is_refused(handle: str, caller: Caller) -> None:
    for method in ("read_output", "read_task", "wait", "cancel", "forget"):
        error = caller.refuse(method, taskId=handle)
        assert (error["code"], error["data"]["path"]) == (-32602, "$.taskId")


@pytest.mark.case("C154")
def test_ids_are_unique_and_not_counted_up(caller: Caller) -> None:
    calls = [caller.send("bash", command="true", timeout_secs=0) for _ in range(50)]
    tasks = [call.result()["kickoffId"] for call in calls]

    assert len(set(tasks)) == 50
    assert all(re.fullmatch(r"k[0-9a-v]{6,}", task) for task in tasks)
    numbers = [int(task[1:], 32) for task in tasks]
    gaps = [b - a for a, b in itertools.pairwise(numbers)]
    assert len(set(gaps)) > 40


# -- engine_info -------------------------------------------------------------------------------


def test_the_engine_tells_of_itself(engine: Engine, client: Client, gate: Gate) -> None:
    caller = client.caller()
    task = caller.start(gate.wait)["taskId"]

    info = client.call("engine_info")

    assert info.keys() == {
        *("name", "version", "protocol", "schemaFingerprint", "startedAt", "slots", "running"),
        *("queued", "held", "oldestQueuedMs", "lanes", "requestsPending", "oldestRequestMs"),
        *("callers", "modeOwner", "latestSeq", "journalLines", "outputBytes", "diskFreeBytes"),
        *("policy", "limits", "degraded"),
    }
    facts = engine.facts()
    assert (info["name"], info["version"], info["protocol"]) == ("engine", facts["version"], 1)
    assert info["startedAt"] == facts["startedAt"]
    assert TIME.fullmatch(info["startedAt"])
    assert (info["slots"], info["queued"], info["held"]) == (100, 0, 0)
    assert info["running"] >= 1
    assert info["oldestQueuedMs"] is None
    assert (info["lanes"], info["requestsPending"], info["oldestRequestMs"]) == ({}, 0, None)
    assert info["callers"] >= 1
    assert info["modeOwner"] is None
    assert info["latestSeq"] > 0
    assert info["latestSeq"] >= info["journalLines"] >= 1  # the engine's own first line
    assert info["outputBytes"] >= 0
    assert info["diskFreeBytes"] > 0
    assert (info["policy"], info["degraded"]) == ("none", [])
    assert info["limits"]["max_waits"] == 10_000
    assert isinstance(info["schemaFingerprint"], str)
    gate.open()
    caller.wait(task)


def test_a_fingerprint_that_is_not_the_current_one_is_told(caller: Caller) -> None:
    current = caller.call("engine_info")["schemaFingerprint"]

    for method, params in (("bash", {"command": "true"}), ("list_tasks", {}), ("engine_info", {})):
        assert "schemaChanged" not in caller.call(method, tool_schema_fingerprint=current, **params)
        stale = caller.call(method, tool_schema_fingerprint="old", **params)
        assert stale["schemaChanged"] is True


def test_a_page_of_long_rows_ends_early_and_none_is_missed(caller: Caller) -> None:
    title = "echo " + "🏷" * 195
    calls = [caller.send("bash", command=title, timeout_secs=0) for _ in range(450)]
    made = {call.result()["kickoffId"] for call in calls}
    for kickoff in made:
        caller.wait(kickoff)

    found: list[str] = []
    page = caller.call("list_tasks", limit=500)
    first = page
    while True:
        text = json.dumps(page, ensure_ascii=False, separators=(",", ":"))
        assert len(text.encode()) <= 512 * 1024
        found += [row["kickoffId"] for row in page["tasks"]]
        if not page["hasMore"]:
            break
        page = caller.call("list_tasks", limit=500, before=page["next"])

    assert first["hasMore"] is True
    assert len(first["tasks"]) > 200
    assert first["tasks"][0]["title"] == title
    assert (len(found), set(found)) == (450, made)
