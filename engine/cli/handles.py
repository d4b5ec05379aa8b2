"""Handles as people type them: whole, cut to a unique prefix, or `@last`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from engine.cli.app import App
from engine.client.blocking import Client
from engine.client.errors import UNKNOWN_HANDLE, AmbiguousHandle, Refused, RoundHandle

LAST: Final = "@last"
LEAST_PREFIX: Final = 3  # characters
PAGES: Final = 200  # of 500 rows: as many tasks as an engine keeps
SHOWN: Final = 10  # candidates that are named


def as_param(handle: str) -> dict[str, str]:
    """The param that names a task by this handle."""
    return {"kickoffId": handle} if handle.startswith("k") else {"taskId": handle}


def resolve(app: App, client: Client, given: str) -> str:
    """The whole handle for what was typed. Raises `AmbiguousHandle`, `Refused`.

    Prefixes are for terminals: a script that means one task must not hit another.
    """
    app.subject = given
    if given == LAST:
        return last(app, client)
    if given.startswith("r"):
        client.call("read_round", {"roundId": given})  # one that there is not is refused
        raise RoundHandle(f"{given} is a round: engine round show {given} names its tasks")
    return _completed(app, client, given, "read_task", as_param(given))


def resolve_round(app: App, client: Client, given: str) -> str:
    """Likewise of a round."""
    app.subject = given
    return _completed(app, client, given, "read_round", {"roundId": given})


def resolve_any(app: App, client: Client, given: str) -> str:
    """Likewise of a task or a round."""
    return (resolve_round if given.startswith("r") else resolve)(app, client, given)


def _completed(app: App, client: Client, given: str, method: str, asked: dict[str, str]) -> str:
    """`given`, or on a terminal what it is the beginning of; by `method` a whole one is read."""
    if not app.console.out_is_terminal or app.json:
        return given
    try:
        client.call(method, {"as": app.caller, **asked})
    except Refused as exc:
        if exc.code != UNKNOWN_HANDLE or len(given) < LEAST_PREFIX:
            raise
        found = (matching_rounds if given.startswith("r") else matches)(app, client, given)
        if not found:
            raise
        if len(found) > 1:
            raise AmbiguousHandle(ambiguous(given, found)) from exc
        app.subject = found[0]
        return found[0]
    return given


def last(app: App, client: Client) -> str:
    """The caller's newest task."""
    rows = client.call("list_tasks", {"as": app.caller, "limit": 1})["tasks"]
    if not rows:
        raise AmbiguousHandle(f"{app.caller} has no task")
    handle: str = rows[0].get("taskId") or rows[0]["kickoffId"]
    app.subject = handle
    return handle


def matches(app: App, client: Client, prefix: str) -> list[str]:
    """All handles of tasks that begin with `prefix`, newest first."""
    rows = _all(app, client, "list_tasks", "tasks")
    both = (handle for row in rows for handle in (row.get("taskId"), row.get("kickoffId")))
    return [handle for handle in both if handle and handle.startswith(prefix)]


def matching_rounds(app: App, client: Client, prefix: str) -> list[str]:
    """All rounds whose ids begin with `prefix`, newest first."""
    ids = (row["roundId"] for row in _all(app, client, "list_rounds", "rounds"))
    return [round_id for round_id in ids if round_id.startswith(prefix)]


def _all(app: App, client: Client, method: str, name: str) -> Iterator[dict[str, Any]]:
    """What a method lists, page by page."""
    params: dict[str, Any] = {"as": app.caller, "caller": "*", "limit": 500}
    for _ in range(PAGES):
        page = client.call(method, params)
        yield from page[name]
        if not page["hasMore"]:
            break
        params["before"] = page["next"]


def ambiguous(prefix: str, found: list[str]) -> str:
    """`t8f3k fits 3 tasks: t8f3kp7 t8f3kq2 t8f3kr9`."""
    names = " ".join(sorted(found)[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    kind = "rounds" if prefix.startswith("r") else "tasks"
    return f"{prefix} fits {len(found)} {kind}: {names}{more}"


def task_of(app: App, client: Client, handle: str) -> dict[str, Any]:
    """The row (and more) of a task, as `read_task` has it."""
    row: dict[str, Any] = client.call("read_task", {"as": app.caller, **as_param(handle)})
    return row


def streams_of(row: dict[str, Any]) -> tuple[str, ...]:
    """The streams that a task's output was kept in: two where its `outputPath` names two files."""
    return ("output",) if isinstance(row.get("outputPath"), str) else ("stdout", "stderr")
