"""Who calls a tool: the argument `as`, else the thread that the client names, else the default.

Sub-agents share their parent's connection, and only what a call itself says tells them apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

CALLER_MAX: Final = 64  # characters
OWN: Final = "mcp-"  # how the names begin that are made here
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9_-]+")


def caller_of(arguments: Mapping[str, Any], meta: Mapping[str, Any], default: str) -> Any:
    """The value for `as`: what the call says is passed on as it is, for the engine to check."""
    for name in ("as", "manager_session_id"):
        if arguments.get(name) is not None:
            return arguments[name]
    thread = meta.get("threadId")
    if isinstance(thread, str) and (name := as_name(thread)):
        return name
    return default


def as_name(text: str) -> str:
    """`text` as a caller's name; one that is too long keeps its difference from others."""
    name = _NOT_IN_NAME.sub("-", text.lower()).strip("-")
    if len(name) > CALLER_MAX:
        digest = hashlib.sha256(name.encode()).hexdigest()[:10]
        name = f"{name[: CALLER_MAX - 11]}-{digest}"
    return OWN + name[5:] if name.startswith("anon-") else name


def name_of_session(session: str) -> str:
    """The caller that an HTTP session is: its id is a secret, so the name tells nothing of it."""
    return OWN + hashlib.sha256(session.encode()).hexdigest()[:10]


def name_of_client(client: str) -> str:
    """The caller of a request that belongs to no connection: its client's name."""
    return as_name(OWN + (client or "client"))
