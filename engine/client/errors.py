"""What can go wrong between a client and an engine, as classes.

`lines` of each error is what a person is shown; the first says what is the matter, the last names
the next thing to do where there is one. Nothing here prints or exits.
"""

from __future__ import annotations

from typing import Any, Final

SHUTTING_DOWN: Final = -32006
OVERLOADED: Final = -32007
FORBIDDEN: Final = -32009
UNKNOWN_HANDLE: Final = -32003
EXPIRED_HANDLE: Final = -32004
INVALID_STATE: Final = -32011
INVALID_PARAMS: Final = -32602


class ClientError(Exception):
    """Base of what a client reports instead of an answer."""

    kind = "client_error"

    @property
    def lines(self) -> list[str]:
        return str(self).splitlines() or [type(self).__name__]


class NotReachable(ClientError):
    """No connection could be made; the engine may not run at all."""

    kind = "not_reachable"

    def __init__(self, *lines: str, absent: bool = False) -> None:
        super().__init__("\n".join(lines))
        self.absent = absent  # nobody listens there: an engine may be started


class TokenRefused(NotReachable):
    """Somebody listens and does not take our token (401): asking again will not help."""

    kind = "unauthorized"


class WrongUrl(NotReachable):
    """What was given as the engine's URL is none of the form that it has."""

    kind = "wrong_url"


class TokenUnreadable(ClientError):
    """The token that the verb needs is in a file which cannot be read."""

    kind = "token_unreadable"


class ConnectionLost(ClientError):
    """The connection ended before the answer came, and the call may not be sent twice."""

    kind = "connection_lost"

    def __init__(self, reason: str, *, is_goodbye: bool = False) -> None:
        super().__init__(reason)
        self.is_goodbye = is_goodbye  # the engine ended it in order: it was told to end


class ClientClosed(ClientError):
    """The client itself was closed before the answer came. See `ConnectionLost`."""

    kind = "client_closed"


class ProtocolFailure(ClientError):
    """The other side does not speak the protocol."""

    kind = "protocol_failure"


class CannotStart(ClientError):
    """An engine was started and did not become ready."""

    kind = "cannot_start"

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


class Unsendable(ClientError):
    """A call that no engine would take: it is no JSON, or more than one message holds."""

    kind = "unsendable"


class RpcError(ClientError):
    """The engine's error reply to a call: code, kind, message and data as they came.

    The typed faces raise the class of `engine.errors` that has the code, and this for a code that
    this release does not know.
    """

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data or {}
        self.kind = str(self.data.get("kind", "error"))


Refused = RpcError  # as the command line calls it


class AmbiguousHandle(ClientError):
    """A shortened handle that fits several tasks, or `@last` where there is none."""

    kind = "ambiguous_handle"


class RoundHandle(AmbiguousHandle):
    """A round's id where a task's belongs."""

    kind = "round_handle"


class CannotWrite(ClientError):
    """Our own output cannot be written: a full disk, a closed descriptor."""

    kind = "cannot_write"
