"""From the engine's error reply to the class of `engine.errors` that has its code. Pure."""

from __future__ import annotations

from typing import Any, Final

from engine import errors
from engine.client.errors import RpcError

# Class -> the members of `data` that are attributes of its instances, and under which names.
_FACTS: Final[dict[type[errors.EngineError], dict[str, str]]] = {
    errors.ParseError: {},
    errors.InvalidRequest: {},
    errors.MethodNotFound: {},
    errors.InvalidParams: {"path": "path", "expected": "expected"},
    errors.InternalError: {},
    errors.UnknownHandle: {"handle": "handle"},
    errors.ExpiredHandle: {"handle": "handle", "endedAt": "ended_at", "status": "status"},
    errors.ShuttingDown: {},
    errors.Overloaded: {"limit": "limit"},
    errors.RequestCancelled: {},
    errors.Forbidden: {},
    errors.OutputGone: {"oldestOffset": "oldest_offset"},
    errors.InvalidState: {"state": "state"},
    errors.DuplicateHandle: {"handle": "handle"},
    errors.KeyConflict: {"key": "key", "taskId": "task_id"},
}
_BY_CODE: Final = {kind.code: kind for kind in _FACTS}
# These keep whatever else the reply said.
_WITH_MORE: Final = (errors.Overloaded, errors.InvalidState)


def as_error(refused: RpcError) -> errors.EngineError | RpcError:
    """The error as its class, with message and facts as they came; `refused` for a strange code.

    An engine of another release may leave a fact out: its attribute is None then.
    """
    kind = _BY_CODE.get(refused.code)
    if kind is None:
        return refused
    error = kind.__new__(kind)
    error.args = (str(refused),)
    names = _FACTS[kind]
    for member, attribute in names.items():
        setattr(error, attribute, refused.data.get(member))
    if isinstance(error, _WITH_MORE):
        error.facts = _more(refused.data, names)
    return error


def _more(data: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in known and name != "kind"}
