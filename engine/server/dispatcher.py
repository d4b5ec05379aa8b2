"""From a frame to its reply: which method, may this role, what params, and what came of it.

Knows no methods: they are a table. Each request runs in a child of its connection, in a cancel
scope of its own, and the one place where an exception becomes a reply is `_answer`. Reading frames
and writing replies is the connection's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import structlog
import trio
from msgspec import UNSET, Raw, UnsetType

from engine.errors import (
    EngineError,
    Forbidden,
    InternalError,
    InvalidParams,
    MethodNotFound,
    Overloaded,
    RequestCancelled,
    ShuttingDown,
    known_error,
    over_limit,
    to_error_data,
)
from engine.model import ANONYMOUS
from engine.protocol.decode import decode_params
from engine.protocol.envelope import (
    REPLY_MAX_BYTES,
    Call,
    Invalid,
    Message,
    RequestId,
    encode_batch,
    encode_error,
    encode_result,
    parse,
)
from engine.protocol.fields import PAGE_MAX_BYTES
from engine.protocol.params import CancelRequestParams
from engine.server.fitting import fit

if TYPE_CHECKING:
    from engine.server.connection import Connection

Role = Literal["agent", "human", "observer"]
ALL_ROLES: Final[frozenset[Role]] = frozenset({"agent", "human", "observer"})

MAX_WAITS: Final = 10_000  # requests in flight on one connection
MAX_INFLIGHT_BYTES: Final = 64 << 20  # of the frames of those requests
CANCEL_METHOD: Final = "$/cancelRequest"
RESULT_MAX_BYTES: Final = REPLY_MAX_BYTES - 1_024  # with room for what stands round it
_WAIT: Final = "wait for replies"  # what to do at the limits of a connection
_ENVELOPE_BYTES: Final = 512  # of a batch's share, for what stands round each result

log = structlog.stdlib.get_logger("engine.server")


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table.

    `handler(request, params)` returns the result: anything that msgspec encodes. `params` is the
    Struct that the handler takes; None: it takes `Raw | None`, undecoded.
    """

    handler: Callable[[Request, Any], Awaitable[Any]]
    params: type[msgspec.Struct] | None
    roles: frozenset[Role] = ALL_ROLES


class Request:
    """One call in flight, as its handler sees it.

    `finished`, which a handler may set, is called once: with True when the reply with the
    handler's result has been written to the socket; with False if that never will be (an error
    is answered, the call was cancelled, the connection is gone, or it was a notification).
    `page_bytes`: the most output that the result may carry. `deliveries`: how many replies that
    carry ends had been written on the connection when the request came. `is_begun`: some of its
    reply may have been written.
    """

    __slots__ = (
        "connection",
        "deliveries",
        "finished",
        "id",
        "is_begun",
        "method",
        "page_bytes",
        "role",
        "scope",
        "size",
    )

    def __init__(
        self,
        connection: Connection,
        call: Call,
        *,
        size: int = 0,
        page_bytes: int = PAGE_MAX_BYTES,
    ) -> None:
        self.connection = connection
        self.id: RequestId | UnsetType = call.id
        self.method = call.method
        self.role: Role = connection.role
        self.page_bytes = page_bytes
        self.size = size  # bytes of the frame, or the call's share of a batch
        self.finished: Callable[[bool], None] | None = None
        self.deliveries = connection.deliveries_known
        self.is_begun = False
        self.scope = trio.CancelScope()

    @property
    def is_notification(self) -> bool:
        return self.id is UNSET

    @property
    def is_onlooker(self) -> bool:
        """Whether nothing that is shown in the reply counts as told, and nothing moves by it."""
        return self.role == "observer"

    def also_finished(self, more: Callable[[bool], None]) -> None:
        """Have `more` called as `finished` is, after what is there already."""
        earlier = self.finished

        def both(written: bool) -> None:
            if earlier is not None:
                earlier(written)
            more(written)

        self.finished = both

    def settle(self, written: bool) -> None:
        """Call `finished`, unless that was done."""
        finished, self.finished = self.finished, None
        if finished is not None:
            finished(written)


# What is answered here; None: what runs here answers nobody.
ASKING: Final[ContextVar[Request | None]] = ContextVar("asking", default=None)

# Takes the reply of one request; None: there is none.
Sink = Callable[[Request | None, bytes | None], None]


class _BatchReply:
    """Collects the replies of one batch and posts them as one, when the last is there."""

    def __init__(self, connection: Connection, calls: int) -> None:
        self._connection = connection
        self._missing = calls
        self._size = 2
        self._replies: list[bytes] = []
        self._requests: list[Request] = []

    def add(self, request: Request | None, reply: bytes | None) -> None:
        self._missing -= 1
        if reply is not None:
            if self._size + len(reply) + 1 > REPLY_MAX_BYTES - self._missing * _ENVELOPE_BYTES:
                reply = self._without_room(request)
            self._size += len(reply) + 1
            self._replies.append(reply)
        if request is not None:
            self._requests.append(request)
        if self._missing == 0:
            self._post()

    def _without_room(self, request: Request | None) -> bytes:
        """The reply in place of one that the batch cannot hold: the result is not delivered."""
        request_id = None
        if request is not None:
            request.settle(False)
            request_id = None if isinstance(request.id, UnsetType) else request.id
        error = Overloaded("the replies of a batch share 1 MiB; send this alone", REPLY_MAX_BYTES)
        return encode_error(request_id, to_error_data(error))

    def _post(self) -> None:
        if self._replies:
            self._connection.post(encode_batch(self._replies), self._requests)
        for request in self._requests if not self._replies else ():
            request.settle(False)


class Dispatcher:
    """Runs the calls of all connections by one table of methods."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        *,
        max_waits: int = MAX_WAITS,
        max_inflight_bytes: int = MAX_INFLIGHT_BYTES,
        fingerprint: str | None = None,
        opened: Callable[[Connection], None] | None = None,
        closed: Callable[[Connection], None] | None = None,
    ) -> None:
        """`fingerprint`: that of the present schemas; a call that brings another one has
        `schemaChanged` in its result. `opened`, `closed`: called once for each connection."""
        self._methods = methods
        self._max_waits = max_waits
        self._max_inflight_bytes = max_inflight_bytes
        self._fingerprint = fingerprint
        self.opened = opened
        self.closed = closed
        self.is_shutting_down = False  # True: whatever comes in is refused

    def dispatch(self, connection: Connection, text: str) -> None:
        """Start what the frame asks for. Replies reach `connection.post` when they are ready."""
        parsed = parse(text)
        if not isinstance(parsed, list):
            self._take(connection, parsed, len(text), PAGE_MAX_BYTES, _single(connection))
            return
        sink = _BatchReply(connection, len(parsed)).add
        share = (REPLY_MAX_BYTES - len(parsed) * _ENVELOPE_BYTES) // len(parsed)
        page_bytes = min(PAGE_MAX_BYTES, share // 2)  # JSON may double what is quoted
        for message in parsed:
            self._take(connection, message, len(text) // len(parsed), page_bytes, sink)

    def _take(
        self, connection: Connection, message: Message, size: int, page_bytes: int, sink: Sink
    ) -> None:
        if isinstance(message, Invalid):
            sink(None, encode_error(message.id, to_error_data(message.error)))
            return
        request = Request(connection, message, size=size, page_bytes=page_bytes)
        if message.method == CANCEL_METHOD:
            self._cancel(request, message.params, sink)
        elif refusal := self._refusal(connection, size):
            sink(request, _error_reply(request, refusal))
        else:
            connection.in_flight.add(request)
            name = request.method  # else trio makes one, of each
            connection.nursery.start_soon(self._run, request, message.params, sink, name=name)

    def _refusal(self, connection: Connection, size: int) -> EngineError | None:
        if self.is_shutting_down:
            return ShuttingDown()
        if len(connection.in_flight) >= self._max_waits:
            what = "too many requests in flight on this connection"
            return over_limit(what, "max_waits", self._max_waits, _WAIT)
        if connection.in_flight.size + size > self._max_inflight_bytes and connection.in_flight:
            what = "too many bytes of requests in flight on this connection"
            return over_limit(what, "max_inflight_bytes", self._max_inflight_bytes, _WAIT)
        return None

    def _cancel(self, request: Request, raw: Raw | None, sink: Sink) -> None:
        """End the calls of this connection that have the id; one that is unknown is no error."""
        try:
            params = decode_params(raw, CancelRequestParams)
        except EngineError as exc:
            sink(request, _error_reply(request, exc))
            return
        connection = request.connection
        if found := connection.in_flight.take(params.id):
            connection.nursery.start_soon(connection.cancel, list(found))
        sink(request, None if request.is_notification else encode_result(_id(request), b"null"))

    async def _run(self, request: Request, raw: Raw | None, sink: Sink) -> None:
        """Answer one request. Cancelled from without (the connection ends): no reply."""
        in_flight = request.connection.in_flight
        ASKING.set(request)
        try:
            reply = await self._answer(request, raw)
        except BaseException:
            in_flight.discard(request)
            request.settle(False)
            raise
        in_flight.discard(request)
        sink(request, reply)

    async def _answer(self, request: Request, raw: Raw | None) -> bytes | None:
        """The reply, or None to a notification: the one place where an exception becomes one."""
        try:
            with request.scope:
                result = await self._call(request, raw)
                return None if request.is_notification else result
            raise RequestCancelled
        except Exception as exc:
            request.settle(False)
            if isinstance(known_error(exc), InternalError):
                request_id = None if request.is_notification else request.id
                log.exception("request failed", requestId=request_id, method=request.method)
            return _error_reply(request, exc)

    async def _call(self, request: Request, raw: Raw | None) -> bytes:
        """The encoded reply of the method's handler."""
        method = self._methods.get(request.method)
        if method is None:
            raise MethodNotFound(request.method)
        if request.role not in method.roles:
            raise Forbidden(f"the role {request.role} may not call {request.method}")
        params = raw if method.params is None else decode_params(raw, method.params)
        _check_name(request.connection, getattr(params, "as_", None))
        found = await method.handler(request, params)
        result = msgspec.json.encode(found)
        if len(result) > RESULT_MAX_BYTES and isinstance(found, dict):
            # Else whoever asks again has the same for ever, and of an inbox all that stands behind.
            log.warning("result cut", method=request.method, bytes=len(result))
            result = msgspec.json.encode(fit(found, RESULT_MAX_BYTES, None))
        given = getattr(params, "tool_schema_fingerprint", None)
        if given is not None and self._fingerprint is not None and given != self._fingerprint:
            result = _with_schema_changed(result)
        reply = encode_result(_id(request), result)
        if len(reply) > REPLY_MAX_BYTES:
            raise RuntimeError(f"a reply of {len(reply)} bytes")
        return reply


def _check_name(connection: Connection, name: str | None) -> None:
    """Raise InvalidParams where a caller names itself as connections are named: it would be taken
    for one, whose inbox and place end with it."""
    if name is not None and name.startswith(ANONYMOUS) and name != connection.name:
        raise InvalidParams("$.as", f'a name that does not begin with "{ANONYMOUS}"')


def _single(connection: Connection) -> Sink:
    def sink(request: Request | None, reply: bytes | None) -> None:
        if reply is not None:
            connection.post(reply, () if request is None else (request,))
        elif request is not None:
            request.settle(False)

    return sink


def _id(request: Request) -> RequestId:
    return None if isinstance(request.id, UnsetType) else request.id


def _error_reply(request: Request, exc: Exception) -> bytes | None:
    if request.is_notification:
        return None
    return encode_error(_id(request), to_error_data(exc))


def _with_schema_changed(result: bytes) -> bytes:
    """`result`, a JSON object, with the member that tells a client to fetch the schemas anew."""
    if not result.startswith(b"{"):
        return result
    return b'{"schemaChanged":true' + (b"}" if result == b"{}" else b"," + result[1:])
