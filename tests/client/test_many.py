"""Mirrors `engine/client/many.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.client import many
from engine.client.typed import Request
from engine.protocol import params

SEATS: dict[str, dict[str, Any]] = {
    "unit": {"command": "pytest -q"},
    "lint": {"argv": ["ruff", "check"], "lane": "gpu"},
}
# Each request with all that it takes, the type that decodes its params, what these have to be,
# budget, and whether it may be sent twice.
CASES: dict[str, tuple[Request[Any], type[params.Params], dict[str, Any], float, bool]] = {
    "wait_any": (
        many.wait_any(["t8f3kq2"], wait_seconds=9, include_output=False, ack="d-1", as_="ci"),
        params.WaitAnyParams,
        {
            "ids": ["t8f3kq2"],
            "wait_seconds": 9,
            "include_output": False,
            "ack": "d-1",
            "as": "ci",
        },
        9.0,
        True,
    ),
    "the inbox": (many.wait_any(), params.WaitAnyParams, {}, 240.0, True),
    "a longer wait": (
        many.wait_any(wait_seconds=900),
        params.WaitAnyParams,
        {"wait_seconds": 900},
        240.0,
        True,
    ),
    "run_round": (many.run_round(SEATS), params.RunRoundParams, {"seats": SEATS}, 0.0, False),
    "retry": (
        many.run_round(round_id="r8f3ku0", retry_seats=["lint"]),
        params.RunRoundParams,
        {"roundId": "r8f3ku0", "retry_seats": ["lint"]},
        0.0,
        False,
    ),
    "list_rounds": (
        many.list_rounds(caller="*", limit=3, before="17"),
        params.ListRoundsParams,
        {"caller": "*", "limit": 3, "before": "17"},
        0.0,
        True,
    ),
    "read_round": (
        many.read_round("r8f3ku0", as_="ci"),
        params.ReadRoundParams,
        {"roundId": "r8f3ku0", "as": "ci"},
        0.0,
        True,
    ),
    "set_lane": (
        many.set_lane("gpu", 2),
        params.SetLaneParams,
        {"lane": "gpu", "limit": 2},
        0.0,
        True,
    ),
    "set_mode": (
        many.set_mode("exclusive", ttl_secs=60),
        params.SetModeParams,
        {"mode": "exclusive", "ttl_secs": 60},
        0.0,
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_what_the_engine_takes(name: str) -> None:
    request, type_, wanted, budget, resend = CASES[name]
    assert request.params == wanted
    msgspec.convert(request.params, type_)
    assert (request.budget, request.resend) == (budget, resend)
