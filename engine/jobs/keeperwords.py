"""The forms of what a keeper says: see the heads of `engine.keeper.keeper` and `python_keeper`.

A job can listen in a keeper's place, so nothing that comes from there is believed to have one.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from engine.jobs.directory import Moment, Size, is_end
from engine.model import Survivor

_Ranges = list[list[tuple[Size, Size]]]
_Category = Literal["input", "idle"]
_Errno = Annotated[int, Meta(ge=0, lt=1 << 31)]


class _Grew(msgspec.Struct):
    sizes: list[Size]
    dropped: _Ranges


class _Started(msgspec.Struct):
    pid: int
    startedAt: Moment | None
    cwd: str


class _State(_Started):
    sizes: list[Size]
    dropped: _Ranges
    record: dict[str, Any] | None
    blocked: _Category | None = None
    settling: str | None = None


class _Blocked(_Grew):
    category: _Category


class _Listener(msgspec.Struct):
    whose: Literal["job", "new", "before", "none", "unknown"]


class _Ended(msgspec.Struct):
    record: dict[str, Any]
    settling: str | None = None
    stateLeft: Size = 0


class _Settled(msgspec.Struct):
    mishap: str = ""
    stateLeft: Size = 0


class _Gone(msgspec.Struct):
    """With neither: there is nobody to answer a question about. `leaves`: it takes no more jobs."""

    leaves: bool = False
    sizes: list[Size] | None = None
    dropped: _Ranges | None = None

    def __post_init__(self) -> None:
        if (self.sizes is None) != (self.dropped is None):
            raise ValueError("sizes and dropped go together")


class _Refused(msgspec.Struct):
    message: str
    errno: _Errno = 0


class _Signalled(msgspec.Struct):
    pids: list[int]


class _Survivors(msgspec.Struct):
    survivors: list[Survivor]


class _Written(msgspec.Struct):
    taken: Size
    isOpen: bool


class _Failed(msgspec.Struct):
    errno: _Errno
    message: str
    exitCode: Annotated[int, Meta(ge=0, le=255)]


class _Session(msgspec.Struct):
    identity: str
    pid: int
    version: str
    executable: str
    busy: str | None
    isOpen: bool


class _Busy(msgspec.Struct):
    dir: str


class _Bare(msgspec.Struct):
    """Says all by its name."""


_FORMS: Final[dict[str, type[msgspec.Struct]]] = {
    "started": _Started,
    "state": _State,
    "grew": _Grew,
    "ended": _Ended,
    "settled": _Settled,
    "gone": _Gone,
    "refused": _Refused,
    "signalled": _Signalled,
    "survivors": _Survivors,
    "written": _Written,
    "failed": _Failed,
    "opened": _Session,
    "session": _Session,
    "busy": _Busy,
    "blocked": _Blocked,
    "listener": _Listener,
    **dict.fromkeys(("taken", "absent", "accepted", "closed", "closing", "unblocked"), _Bare),
}


def is_word(message: dict[str, Any]) -> bool:
    """Whether a keeper says such things; what else is in it is of no account."""
    event = message.get("ev")
    if not isinstance(event, str) or event not in _FORMS:
        return False
    try:
        msgspec.convert(message, _FORMS[event])
    except (msgspec.ValidationError, UnicodeEncodeError):  # half a pair in a name
        return False
    return message.get("record") is None or is_end(message["record"])
