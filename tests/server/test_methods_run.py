"""Mirrors `engine/server/methods_run.py`: what only this part can show."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trio
from tasks.building import BASE, LIMIT, FakeExecutor, built

from engine.config import Settings
from engine.protocol.params import ExecuteParams
from engine.server.methods_run import RunMethods


async def test_while_the_reply_of_a_call_is_made_nobody_drops_its_task(tmp_path: Path) -> None:
    made = trio.Event()

    async def hang(*_args: object, **_named: object) -> dict[str, Any]:
        made.set()
        return await trio.sleep_forever()

    async with built(tmp_path, FakeExecutor()) as engine:
        services = SimpleNamespace(
            supervisor=engine.supervisor,
            catalog=engine.catalog,
            settings=Settings(),
            base_of=lambda _connection: BASE,
            logs=SimpleNamespace(of=hang),
            inbox=engine.supervisor.inbox,
        )
        methods = RunMethods(cast(Any, services))
        request = SimpleNamespace(connection=None, is_onlooker=False, page_bytes=1, finished=None)
        params = ExecuteParams(as_="ci", argv=["true"], timeout_secs=0)
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(methods.execute, cast(Any, request), params)
                await made.wait()
                assert set(engine.catalog.in_use) == set(engine.catalog.live)
                assert len(engine.catalog.in_use) == 1
                nursery.cancel_scope.cancel()
        assert set(engine.catalog.in_use) == set()
