"""Errors a client may see, and the one place that turns an exception into its wire form.

One class per code: JSON-RPC 2.0, section 5.1, and the engine's own band. `data` always says the
`kind`, so a program switches on a word and people read the message. A code, once released, is
never given to another class. Nothing here knows where an error is raised.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar, Final

import msgspec

# What the system answers when it has no descriptor or memory left: it may have, a moment later.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class ErrorData(msgspec.Struct, frozen=True, kw_only=True):
    """The `error` member of a JSON-RPC response."""

    code: int
    message: str
    data: dict[str, Any]


class EngineError(Exception):
    """Base of every error that is the answer to a request. What is no subclass is a bug of ours."""

    code: ClassVar[int]
    kind: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """Facts that a program needs to react: `kind`, and those of the subclass."""
        return {"kind": self.kind}


class ParseError(EngineError):
    """The frame is no JSON text, is nested too deeply, or names a member twice."""

    code = -32700
    kind = "parse_error"


class InvalidRequest(EngineError):
    """JSON, but no JSON-RPC 2.0 message."""

    code = -32600
    kind = "invalid_request"


class MethodNotFound(EngineError):
    """There is no such method."""

    code = -32601
    kind = "method_not_found"

    def __init__(self, method: str) -> None:
        super().__init__(f"no such method: {method[:80]}")


class InvalidParams(EngineError):
    """A param is not what the method takes. Raised where params are decoded, before anything is
    made; never mapped from a `ValidationError` elsewhere."""

    code = -32602
    kind = "invalid_params"

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: expected {expected}")
        self.path, self.expected = path, expected

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "expected": self.expected}


class InternalError(EngineError):
    """A bug of ours. Its text never leaves: the traceback is in the engine's log."""

    code = -32603
    kind = "internal_error"

    def __init__(self) -> None:
        super().__init__("internal error")


class UnknownHandle(EngineError):
    """No such task, kickoff, round, request or room, now or before. See `ExpiredHandle`."""

    code = -32003
    kind = "unknown_handle"

    def __init__(self, handle: str) -> None:
        super().__init__(f"no such handle: {handle}")
        self.handle = handle

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "handle": self.handle}


class ExpiredHandle(EngineError):
    """It was there, and was forgotten or dropped by retention. See `UnknownHandle`."""

    code = -32004
    kind = "expired_handle"

    def __init__(self, handle: str, *, ended_at: str | None, status: str | None) -> None:
        super().__init__(f"{handle} has expired")
        self.handle, self.ended_at, self.status = handle, ended_at, status

    def data(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "handle": self.handle,
            "endedAt": self.ended_at,
            "status": self.status,
        }


class ShuttingDown(EngineError):
    """The engine is ending and starts nothing new."""

    code = -32006
    kind = "shutting_down"

    def __init__(self) -> None:
        super().__init__("the engine is shutting down")


class Overloaded(EngineError):
    """A queue, connection, disk or store limit is reached; the same call may succeed later."""

    code = -32007
    kind = "overloaded"

    def __init__(self, what: str, limit: int | str | None, **facts: Any) -> None:
        super().__init__(what)
        self.limit, self.facts = limit, facts

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "limit": self.limit, **self.facts}


def over_limit(what: str, setting: str, limit: int, do: str) -> Overloaded:
    """The limit that a setting gives is reached: of what, and what the caller may do."""
    return Overloaded(f"{what} ({setting} = {limit}); {do}", limit, setting=setting)


class Unavailable(Exception):
    """A part of the engine does not do its work now: to a client an `Overloaded` with that limit.

    Raised far from any client, and caught by whoever can do without that part.
    """

    limit: ClassVar[str]


class RequestCancelled(EngineError):
    """`$/cancelRequest` ended the call. The job, if there is one, was not touched."""

    code = -32008
    kind = "request_cancelled"

    def __init__(self) -> None:
        super().__init__("the request was cancelled")


class Forbidden(EngineError):
    """The token's role may not, or the task is another caller's and `force` was not given."""

    code = -32009
    kind = "forbidden"


class OutputGone(EngineError):
    """The bytes asked for were dropped by retention or the size cap."""

    code = -32010
    kind = "output_gone"

    def __init__(self, oldest_offset: int) -> None:
        super().__init__(f"that output is gone; the oldest kept byte is at {oldest_offset}")
        self.oldest_offset = oldest_offset

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "oldestOffset": self.oldest_offset}


class InvalidState(EngineError):
    """The thing is there, but in a state in which this cannot be done to it."""

    code = -32011
    kind = "invalid_state"

    def __init__(self, message: str, *, state: str, **facts: Any) -> None:
        super().__init__(message)
        self.state, self.facts = state, facts

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "state": self.state, **self.facts}


class DuplicateHandle(EngineError):
    """The same handle stands twice in one list."""

    code = -32012
    kind = "duplicate_handle"

    def __init__(self, handle: str) -> None:
        super().__init__(f"{handle} is given twice")
        self.handle = handle

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "handle": self.handle}


class KeyConflict(EngineError):
    """The caller used this idempotency key for a call with other params."""

    code = -32013
    kind = "key_conflict"

    def __init__(self, key: str, *, task_id: str | None = None) -> None:
        super().__init__("this key was used for a call with other params")
        self.key, self.task_id = key, task_id

    def data(self) -> dict[str, Any]:
        facts = {} if self.task_id is None else {"taskId": self.task_id}
        return {"kind": self.kind, "key": self.key, **facts}


def known_error(exc: Exception) -> EngineError:
    """What a client is told of `exc`; InternalError where it is a bug of ours."""
    if isinstance(exc, OSError) and exc.errno in NO_ROOM:
        return Overloaded("the engine has no descriptor or memory left", "system")
    if isinstance(exc, Unavailable):
        return Overloaded(str(exc), exc.limit)
    return exc if isinstance(exc, EngineError) else InternalError()


def to_error_data(exc: Exception) -> ErrorData:
    """Wire form of `exc`. A stranger keeps its text to itself: the log has the traceback."""
    known = known_error(exc)
    return ErrorData(code=known.code, message=str(known), data=known.data())
