"""What a machine has too little of is told to the caller, and the next call works again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.faulty import of_few_processes
from acceptance.running import Engine

PROCESSES = 14  # that the engine, its mother, the keepers and the jobs may be together


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Engine]:
    with of_few_processes(tmp_path, PROCESSES, "--slots", "50") as engine:
        yield engine


@pytest.mark.case("C107")
def test_a_job_for_which_there_is_no_process_fails_and_a_later_one_runs(limited: Engine) -> None:
    with limited.connect() as client:
        caller = client.caller()
        replies = [
            caller.execute("sleep", "60", timeout_secs=0.2, session=False) for _ in range(PROCESSES)
        ]
        ran = [reply for reply in replies if reply["status"] == "running"]
        failed = [reply for reply in replies if reply["status"] != "running"]
        again = caller.bash("echo hi")
        standing = [caller.wait(reply["taskId"], timeout_secs=0)["status"] for reply in ran]
        for reply in ran:
            caller.cancel(reply["taskId"], grace_secs=0)
        after = caller.bash("echo after")

    assert ran
    assert failed
    for reply in (*failed, again):
        assert (reply["status"], reply["reason"]) == ("failed", "spawn_error")
        assert (reply["exitCode"], reply["signal"], reply["output"]) == (126, None, "")
        assert "Resource temporarily unavailable" in reply["error"]["message"]
    assert set(standing) == {"running"}
    assert (after["status"], after["output"]) == ("succeeded", "after\n")
