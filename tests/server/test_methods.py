"""Mirrors `engine/server/methods.py`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from openrpc_rules import check_document

from engine.errors import DuplicateHandle
from engine.protocol import params as p
from engine.protocol.results import RESULTS
from engine.server import methods
from engine.server.dispatcher import ALL_ROLES

SHOW = "from engine.server.methods import fingerprint; print(fingerprint())"


@pytest.fixture
def fresh() -> Iterator[None]:
    """What is kept of the document is made anew, before the test and after it."""
    methods._wire.cache_clear()
    yield
    methods._wire.cache_clear()


def test_every_method_has_a_summary_and_a_result() -> None:
    assert methods.SUMMARIES.keys() == methods.SCHEMAS.keys() == RESULTS.keys()
    assert methods.ERRORS.keys() <= methods.SCHEMAS.keys()


def test_the_document_has_every_method_with_its_roles() -> None:
    document = json.loads(bytes(methods.document()))
    check_document(document)
    roles = {each["name"]: each.get("x-roles") for each in document["methods"]}
    assert roles.pop("$/cancelRequest") is None
    assert roles.keys() == methods.SCHEMAS.keys()
    everybody, acting = ["agent", "human", "observer"], ["agent", "human"]
    assert (roles["bash"], roles["cancel"], roles["shutdown"]) == (acting, acting, ["human"])
    assert roles["roster"] == roles["read_stats"] == roles["rpc.discover"] == everybody


def test_the_fingerprint_is_that_of_the_document_and_the_same_in_another_process() -> None:
    known = methods.fingerprint()
    assert len(known) == 16
    assert json.loads(bytes(methods.document()))["info"]["x-schemaFingerprint"] == known
    for seed in ("1", "2"):
        shown = subprocess.run(
            [sys.executable, "-c", SHOW],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert shown.stdout.decode().strip() == known


@pytest.mark.usefixtures("fresh")
def test_the_fingerprint_changes_with_a_param_a_role_and_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class More(p.ForgetParams, frozen=True, kw_only=True):
        quietly: bool = False

    seen = [methods.fingerprint()]
    for table, row in (
        (methods.SCHEMAS, (More, methods._ACTING)),
        (methods.SCHEMAS, (p.ForgetParams, ALL_ROLES)),
        (methods.ERRORS, (DuplicateHandle,)),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(table, "forget", row)
            methods._wire.cache_clear()
            seen.append(methods.fingerprint())
    assert len(set(seen)) == 4


@pytest.mark.parametrize("name", ["task_id", "kickoff_id"])
async def test_while_a_call_is_about_a_task_nobody_drops_that(name: str) -> None:
    asked: list[tuple[str, ...]] = []

    class Catalog:
        def using(self, *handles: str) -> Any:
            asked.append(handles)
            return contextlib.nullcontext()

    services = SimpleNamespace(
        ready=trio.Event(), catalog=Catalog(), logs=SimpleNamespace(greet=lambda *_a, **_k: None)
    )
    services.ready.set()

    async def handle(_request: object, _params: object) -> str:
        return "done"

    call = methods._when_ready(cast(Any, services), handle)
    request = cast(Any, SimpleNamespace(is_onlooker=True))
    params = p.ReadTaskParams(as_="ci", **{name: "t8f3kr9"})
    assert await call(request, params) == "done"
    assert await call(request, p.EngineInfoParams(as_="ci")) == "done"
    assert asked == [("t8f3kr9",), ()]
