"""JSON-RPC as a client speaks it: requests to text, text to answers. Pure.

The standard library's `json` on purpose: a command line that starts hundreds of times pays more
for importing a faster one than for decoding a page.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from engine.client.errors import ProtocolFailure, Refused, Unsendable

Params = dict[str, Any]
MAX_CALL: Final = 16 << 20  # bytes; the engine ends a connection that sends a longer message


class Answer(NamedTuple):
    """The reply to one call: `error` is set, or `result` counts."""

    id: int
    result: Any
    error: Refused | None


def encode_call(call_id: int | None, method: str, params: Params) -> str:
    """The text of one request. Params that are None are left out, as the wire treats them alike.

    Without an id it is a notification, which nobody answers.
    Raises `Unsendable` for what is no JSON, not Unicode, no finite number or too long.
    """
    given = {name: value for name, value in params.items() if value is not None}
    head = {} if call_id is None else {"id": call_id}
    try:
        text = to_json({"jsonrpc": "2.0", **head, "method": method, "params": given})
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise Unsendable("a word of the call is not UTF-8") from exc
    except (TypeError, ValueError, RecursionError) as exc:
        raise Unsendable(f"the call cannot be sent: {exc}") from exc
    if size > MAX_CALL:
        raise Unsendable(f"the call has {size} bytes; the engine takes {MAX_CALL}")
    return text


def encode_cancel(call_id: int) -> str:
    """The text of the notification that nobody waits for the call any more."""
    return encode_call(None, "$/cancelRequest", {"id": call_id})


def to_json(value: Any) -> str:
    """`value` as one line of JSON, as short as it gets; NaN and infinities are refused."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode_answer(text: str) -> Answer:
    """The answer in one frame. Raises `ProtocolFailure` for whatever is no reply to a call."""
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ProtocolFailure("the engine sent what is no JSON") from exc
    if not isinstance(reply, dict) or not ("result" in reply or "error" in reply):
        raise ProtocolFailure("the engine sent what is no reply")
    if "result" in reply and isinstance(reply.get("id"), int):
        return Answer(reply["id"], reply["result"], None)
    error = reply.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        raise ProtocolFailure("the engine sent a reply without id or code")
    data = error.get("data")
    refused = Refused(
        error["code"], str(error.get("message", "")), data if isinstance(data, dict) else None
    )
    if not isinstance(reply.get("id"), int):  # it could not even read what we sent
        raise refused
    return Answer(reply["id"], None, refused)
