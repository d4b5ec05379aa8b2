"""Mirrors `engine/client/requests.py`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.client import many, requests
from engine.client.api import Engine
from engine.client.sync import Engine as SyncEngine
from engine.client.typed import Request
from engine.protocol import params
from engine.protocol.results import RESULTS

T = "t8f3kq2"
START = {
    "as_": "ci",
    "timeout_secs": 3,
    "deadline_secs": 60,
    "session": False,
    "cwd": "/",
    "env": {"A": "1"},
    "stdin": "open",
    "pty": True,
    "streams": "merged",
    "on_disconnect": "cancel",
    "key": "k",
    "lane": "gpu",
    "after": ["t8f3kr9", "r8f3ku0"],
    "after_when": "ended",
    "max_output_bytes": 9,
    "logs": "error",
    "log_scope": "all",
    "tool_schema_fingerprint": "f",
}

# Each request with all that it takes, the type that decodes its params, budget, and whether it
# may be sent twice.
CASES: dict[str, tuple[Request[Any], type[params.Params], float, bool]] = {
    "bash": (requests.bash("make", **START), params.BashParams, 3.0, True),  # type: ignore[arg-type]
    "execute": (
        requests.execute(["make"], **START),  # type: ignore[arg-type]
        params.ExecuteParams,
        3.0,
        True,
    ),
    "wait": (
        requests.wait(
            task_id=T, timeout_secs=90, max_output_bytes=9, logs="none", log_scope="all", as_="ci"
        ),
        params.WaitParams,
        20.0,
        True,
    ),
    "cancel": (
        requests.cancel(kickoff_id="k1", grace_secs=7, force=True),
        params.CancelParams,
        12.0,
        True,
    ),
    "cancel_all": (
        requests.cancel_all("docs", grace_secs=1, force=True),
        params.CancelParams,
        6.0,
        True,
    ),
    "write_stdin": (
        requests.write_stdin(T, text="hi", eof=True, force=True),
        params.WriteStdinParams,
        0.0,
        False,
    ),
    "read_output": (
        requests.read_output(
            T, stream="stderr", offset=-5, limit_bytes=10, timeout_secs=30, raw=True
        ),
        params.ReadOutputParams,
        20.0,
        True,
    ),
    "list_tasks": (
        requests.list_tasks(
            caller="*", state=["failed"], limit=3, changed_after=4, timeout_secs=55
        ),
        params.ListTasksParams,
        55.0,
        True,
    ),
    "read_task": (requests.read_task(task_id=T), params.ReadTaskParams, 0.0, True),
    "read_logs": (
        requests.read_logs(
            logs="error",
            log_scope="all",
            caller="docs",
            task_id=T,
            contains="x",
            after_seq=5,
            peek=True,
            limit=3,
            timeout_secs=2,
            wake_on=["alert"],
        ),
        params.ReadLogsParams,
        2.0,
        True,
    ),
    "forget": (requests.forget(T, force=True), params.ForgetParams, 0.0, False),
    "reset_session": (requests.reset_session("python"), params.ResetSessionParams, 0.0, True),
    "engine_info": (requests.engine_info(as_="ci"), params.EngineInfoParams, 0.0, True),
    "roster": (requests.roster(after="ci"), params.RosterParams, 0.0, True),
    "read_stats": (
        requests.read_stats(since="2026-11-30T12:04:31Z"),
        params.ReadStatsParams,
        0.0,
        True,
    ),
    "discover": (requests.discover(as_="ci"), params.DiscoverParams, 0.0, True),
    "shutdown": (requests.shutdown("cancel"), params.ShutdownParams, 0.0, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_what_the_engine_takes(name: str) -> None:
    request, type_, budget, resend = CASES[name]
    decoded = msgspec.convert(request.params, type_)
    back = {k: v for k, v in msgspec.to_builtins(decoded).items() if v is not None}
    for param, value in request.params.items():
        if (param, value) != ("timeout_secs", value) or value <= budget:
            assert back[param] == value
    assert (request.budget, request.resend) == (budget, resend)


def test_what_is_left_out_is_the_engines_to_say() -> None:
    assert requests.bash("make").params == {"command": "make"}
    assert requests.wait(task_id=T).params == {"taskId": T}
    assert requests.read_logs().params == {}


def test_a_directory_may_be_a_path() -> None:
    assert requests.bash("make", cwd=Path("/srv/x")).params["cwd"] == "/srv/x"
    assert requests.execute(["make"], cwd=Path("/srv/x")).params["cwd"] == "/srv/x"


def test_when_a_job_is_ready_is_sent_as_it_was_said() -> None:
    ready = requests.bash("make", ready_when={"port": 8080}).params["ready_when"]
    assert ready == {"port": 8080}
    wanted = msgspec.convert({"command": "make", "ready_when": ready}, params.BashParams)
    assert wanted.ready_when == params.ReadyWhen(port=8080)


def test_a_job_without_a_key_and_a_read_that_moves_are_not_sent_twice() -> None:
    assert not requests.bash("make").resend
    assert not requests.execute(code="1").resend
    assert not requests.read_logs().resend
    assert requests.read_logs(before_seq=9).resend
    assert requests.read_logs(since="2026-11-30T12:04:31Z").resend


@pytest.mark.parametrize("face", [Engine, SyncEngine])
def test_both_faces_have_every_method(face: type) -> None:
    made = {
        name
        for module in (requests, many)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if "Request" in str(inspect.signature(function).return_annotation) and name[0] != "_"
    }
    assert {name for name in made if not hasattr(face, name)} == set()
    on_the_wire = {"discover": "rpc.discover", "cancel_all": "cancel"}
    assert {on_the_wire.get(name, name) for name in made} >= RESULTS.keys() - {"hello"}
