"""Waits over many handles inside the test's own process, where what they wait on is the test's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from engine.config import Home, Settings
from engine.daemon import serve
from engine.journal.journal import Journal
from engine.startup import prepare_home

LIMIT = 20.0  # seconds for any wait here
JOBS = 12


async def ask(websocket: WebSocketConnection, method: str, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"as": "ci", **params}}
    await websocket.send_message(json.dumps(message))
    return json.loads(await websocket.get_message())["result"]


@pytest.mark.parametrize("is_round", [False, True])
async def test_the_lines_of_all_that_have_ended_are_waited_for_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_round: bool
) -> None:
    asked: set[str] = set()
    all_asked = trio.Event()

    async def settle(_journal: Journal, task: str) -> bool:
        """All are behind, which is known of none before it was asked of each."""
        asked.add(task)
        if len(asked) == JOBS:
            all_asked.set()
        await all_asked.wait()
        return False

    home = Home(tmp_path / "home")
    prepare_home(home)
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            settings = Settings(min_free_bytes=0)
            url = await nursery.start(serve, home, settings, 0o022, None)
            token = json.loads((home.path / "engine.json").read_text())["tokens"]["agent"]
            headers = [(b"Authorization", f"Bearer {token}".encode())]
            async with open_websocket_url(url, extra_headers=headers) as websocket:
                seats = {f"s{n}": {"command": f"echo {n}"} for n in range(JOBS)}
                begun = await ask(websocket, "run_round", seats=seats)
                tasks = [seat["taskId"] for seat in begun["seats"].values()]
                for task in tasks:
                    await ask(websocket, "wait", **{"as": "other", "taskId": task})
                monkeypatch.setattr(Journal, "settle", settle)
                ids = [begun["roundId"]] if is_round else tasks
                reply = await ask(websocket, "wait_any", ids=ids)
            nursery.cancel_scope.cancel()
    assert asked == {task[1:] for task in tasks}
    if is_round:
        outputs = [seat["output"] for seat in reply["rounds"][0]["seats"].values()]
    else:
        outputs = [update["output"] for update in reply["updates"]]
        assert all(update["logsBehind"] for update in reply["updates"])
    assert outputs == [f"{n}\n" for n in range(JOBS)]
