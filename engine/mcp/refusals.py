"""Errors as a model can read and act on: what kind, what is wrong, and what to do next."""

from __future__ import annotations

from typing import Final

from engine.client.errors import ClientError, ConnectionLost, RpcError

_NEXT: Final = {
    "invalid_params": "correct that argument and call again",
    "unknown_handle": "list_tasks shows the tasks that there are",
    "expired_handle": "its result is gone; list_tasks shows what there is, or run it again",
    "shutting_down": "the engine is going down; call again in some seconds",
    "overloaded": "call again in a moment, or cancel what is no longer needed",
    "request_cancelled": "the job goes on; wait or wait_any has its result",
    "forbidden": "if it is meant, and your user agrees, pass force: true; cancel, write_stdin and"
    " the like are else for the caller that started the task",
    "output_gone": "call again with an offset from oldestOffset on",
    "invalid_state": "call wait or list_tasks to see how it stands",
    "duplicate_handle": "name each id once",
    "key_conflict": "use another key, or the same arguments as before",
    "internal_error": "a fault of the engine; its log has the details (engine logs)",
    "connection_lost": "the engine went away and comes back by itself",
    "not_reachable": "the engine is not there; call again in some seconds",
}
_AGAIN: Final = "call it again"
_MAY_HAVE_RUN: Final = (
    "it may have been started: call list_tasks to see, then wait with its taskId, and only"
    " otherwise call it again"
)
_ONCE: Final = frozenset({"bash", "execute", "run_round", "write_stdin"})


def next_after_loss(tool: str) -> str:
    """What to do about a call whose answer was lost with the engine."""
    return _MAY_HAVE_RUN if tool in _ONCE else _AGAIN


def words_of(tool: str, error: ClientError) -> str:
    """The text for a model."""
    next_step = _NEXT.get(error.kind, "")
    if isinstance(error, ConnectionLost):
        next_step = next_after_loss(tool)
    facts = ""
    if isinstance(error, RpcError):
        shown = {
            name: value
            for name, value in error.data.items()
            if name not in ("kind", "path", "expected", "handle") and value is not None
        }
        facts = "".join(f"; {name}: {value}" for name, value in shown.items())
    text = f"{error.kind}: {error}{facts}"
    return f"{text}\nNext: {next_step}." if next_step else text
