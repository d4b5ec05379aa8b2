"""What a pipe knows of the messages that pass: which requests wait, and the handshake. Pure.

The standard library alone.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from engine.mcp.refusals import next_after_loss
from engine.mcp.wire import LINE_MAX_BYTES

LOST: Final = -32000  # JSON-RPC: of a request that was in flight
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"  # in `_meta` since 2026-07-28

Message = dict[str, Any]


class Asked(NamedTuple):
    """A request of the client that is not answered yet."""

    id: int | str
    tool: str | None  # of tools/call
    is_modern: bool


class Ledger:
    """The requests in flight, and the handshake to repeat. Pure: messages in, messages out."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}
        self.handshake: list[bytes] = []  # `initialize`, and the notification after it
        self._repeated: str | None = None  # the request whose next answer the client has had

    def sent(self, line: bytes) -> None:
        """Note what a line of the client asks for, if it does."""
        message = _parsed(line)
        method = message.get("method")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "initialize":
            self.handshake = [line]
        elif method == "notifications/initialized" and self.handshake:
            self.handshake = [self.handshake[0], line]
        elif method == "notifications/cancelled":
            self._asked.pop(_key(params.get("requestId")), None)
        if isinstance(method, str) and isinstance(message.get("id"), int | str):
            meta = params.get("_meta")
            tool = str(params.get("name")) if method == "tools/call" else None
            is_modern = isinstance(meta, dict) and VERSION_KEY in meta
            self._asked[_key(message["id"])] = Asked(message["id"], tool, is_modern)

    def repeated(self) -> None:
        """The handshake has been sent again: the client has had its answer."""
        key = _key(_parsed(self.handshake[0]).get("id"))
        self._repeated = None if key in self._asked else key

    def is_for_client(self, line: bytes) -> bool:
        """Whether a line of the engine's is to be passed on; an answer is ticked off."""
        message = _parsed(line)
        if "method" in message or "id" not in message:
            return True
        key = _key(message["id"])
        if key == self._repeated:
            self._repeated = None
            return False
        self._asked.pop(key, None)
        return True

    def give_up(self, why: str) -> list[Message]:
        """The answers to all that is in flight, which it is no longer."""
        asked, self._asked, self._repeated = list(self._asked.values()), {}, None
        return [_answer(each, why) for each in asked]


def _parsed(line: bytes) -> Message:
    """The message in a line; empty where there is none: that is for the other side to judge."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _key(id_: object) -> str:
    """The same for an id and for its digits as a string, which some clients send in turn."""
    return str(id_)


def _answer(asked: Asked, why: str) -> Message:
    """What the client is told of a request: of a tool in its result, where a model reads it."""
    head: Message = {"jsonrpc": "2.0", "id": asked.id}
    if asked.tool is None:
        return {**head, "error": {"code": LOST, "message": f"{why}; call it again"}}
    text = f"connection_lost: {why}\nNext: {next_after_loss(asked.tool)}."
    result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
    if asked.is_modern:
        result["resultType"] = "complete"
    return {**head, "result": result}


class Lines:
    """Puts the bytes of a stream together to lines."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, with their ends. Raises ValueError for one that is none."""
        self._parts += data
        end = self._parts.rfind(b"\n", max(0, len(self._parts) - len(data)))
        if end < 0:
            if len(self._parts) > LINE_MAX_BYTES:
                raise ValueError(f"a message of more than {LINE_MAX_BYTES} bytes")
            return []
        whole = bytes(self._parts[: end + 1])
        del self._parts[: end + 1]
        return [line + b"\n" for line in whole[:-1].split(b"\n")]
