"""Requests about many handles, rounds, lanes and the mode of the engine; see `requests`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Unpack

from engine.client.requests import Common, wire_form
from engine.client.typed import Request
from engine.protocol.results import (
    LaneSet,
    ModeSet,
    RoundDetails,
    RoundPage,
    RoundStarted,
    WaitAny,
)

MANY_HOLD: Final = 240.0  # seconds that a wait for many takes at most, and unless it says less


def wait_any(
    ids: Sequence[str] | None = None,
    *,
    wait_seconds: float | None = None,
    include_output: bool | None = None,
    ack: str | None = None,
    **options: Unpack[Common],
) -> Request[WaitAny]:
    """Wait for the first of many handles, or of the caller's inbox where none are named.

    What it brings is acknowledged by `ack`, or by the caller's next call on this connection.
    """
    what = {"ids": None if ids is None else list(ids), "include_output": include_output}
    how = {"wait_seconds": wait_seconds, "ack": ack}
    hold = MANY_HOLD if wait_seconds is None else min(wait_seconds, MANY_HOLD)
    return Request("wait_any", wire_form({**what, **how, **options}), budget=hold)


def run_round(
    seats: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    round_id: str | None = None,
    retry_seats: Sequence[str] | None = None,
    **options: Unpack[Common],
) -> Request[RoundStarted]:
    """Start jobs side by side, each in a seat: `{"unit": {"command": "pytest -q"}}`; or those
    seats of a round again that did not succeed. Never sent twice."""
    what = None if seats is None else {name: dict(seat) for name, seat in seats.items()}
    names = None if retry_seats is None else list(retry_seats)
    which = {"seats": what, "round_id": round_id, "retry_seats": names}
    return Request("run_round", wire_form({**which, **options}), resend=False)


def list_rounds(
    *,
    caller: str | None = None,
    limit: int | None = None,
    before: str | None = None,
    **options: Unpack[Common],
) -> Request[RoundPage]:
    """Rounds, newest first."""
    what = {"caller": caller, "limit": limit, "before": before}
    return Request("list_rounds", wire_form({**what, **options}))


def read_round(round_id: str, **options: Unpack[Common]) -> Request[RoundDetails]:
    """A round, its seats with their rows, without touching anything."""
    return Request("read_round", wire_form({"round_id": round_id, **options}))


def set_lane(lane: str, limit: int, **options: Unpack[Common]) -> Request[LaneSet]:
    """Have so many jobs at once run in this lane (role `human`)."""
    return Request("set_lane", wire_form({"lane": lane, "limit": limit, **options}))


def set_mode(
    mode: Literal["shared", "exclusive"],
    *,
    ttl_secs: float | None = None,
    **options: Unpack[Common],
) -> Request[ModeSet]:
    """Have only the caller's calls start, for a time; or everybody's again."""
    return Request("set_mode", wire_form({"mode": mode, "ttl_secs": ttl_secs, **options}))
