"""PROTOCOL 9, `shutdown`: by a human; jobs run on or are ended, and who waits is answered."""

from __future__ import annotations

from pathlib import Path

from acceptance.running import Engine, Gate, is_running

OPTIONS = ("--slots", "2", "--set", "min_free_bytes=0")


def test_leave_answers_who_waits_and_leaves_the_jobs(tmp_path: Path, gate: Gate) -> None:
    with Engine(tmp_path / "home", *OPTIONS) as engine:
        with engine.connect("human") as human, engine.connect() as client:
            caller = client.caller()
            task = caller.start(f"{gate.wait}; echo survived")["taskId"]
            waiting = caller.send("wait", taskId=task)
            call = caller.send("bash", command="sleep 0.4; echo on")
            assert not waiting.is_answered(within=0.1)

            answer = human.call("shutdown", mode="leave")

            assert answer["mode"] == "leave"
            assert waiting.result()["status"] == "running"
            assert call.result()["status"] == "running"
        assert engine.wait_exit(5) == 0
        gate.open()
        engine.start()
        with engine.connect() as client:
            back = caller.on(client)
            assert back.wait(task)["output"] == "survived\n"
            assert back.wait(call_id(back))["output"] == "on\n"


def call_id(caller: object) -> str:
    """The newest task of the caller."""
    task: str = caller.call("list_tasks")["tasks"][0]["taskId"]  # type: ignore[attr-defined]
    return task


def test_cancel_ends_the_jobs_and_the_queue(tmp_path: Path, bell: Gate) -> None:
    with Engine(tmp_path / "home", *OPTIONS) as engine:
        with engine.connect("human") as human, engine.connect() as client:
            caller = client.caller()
            command = f"echo $BASHPID > {bell.path}; trap 'exit 0' TERM; sleep 60 & wait"
            tasks = [caller.start(command)["taskId"] for _ in range(2)]
            pids = [int(bell.hear()) for _ in tasks]
            kickoff = caller.start("echo never")["kickoffId"]
            human.call("shutdown", mode="cancel")
        assert engine.wait_exit(15) == 0
        assert [pid for pid in pids if is_running(pid)] == []
        engine.start()
        with engine.connect() as client:
            back = caller.on(client)
            ended = [back.wait(handle, timeout_secs=0) for handle in (*tasks, kickoff)]
    assert [(one["status"], one["reason"]) for one in ended] == [("cancelled", "cancelled")] * 3
