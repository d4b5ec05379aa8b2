"""Counts the frames that pass on their way to the websocket layer, which puts no bound on them.

Pure: bytes in, how many of them to pass on. A message may come in any number of frames, and each
costs what a message does; so a turn has at most `TURN_FRAMES` of them, and a message
`MESSAGE_FRAMES`. What is wrong with a frame is the websocket layer's to find.
"""

from __future__ import annotations

from typing import Final

TURN_FRAMES: Final = 128  # handed on at a time; 3 ms of the websocket layer
MESSAGE_FRAMES: Final = 16_384  # of one message: a kibibyte each of the largest

# RFC 6455, section 5.2
_FIN: Final = 0x80
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_OPCODE: Final = 0x0F
_FIRST_CONTROL: Final = 8
_LENGTH_BYTES: Final = {126: 2, 127: 8}
_HEAD_MAX_BYTES: Final = 14


class TooManyFrames(Exception):
    """A message comes in more than `MESSAGE_FRAMES` frames."""


class FrameMeter:
    """Knows where in its frames a stream of bytes is."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the payload under way
        self._head = b""  # the beginning of a frame's head, which is not whole yet
        self._frames = 0  # of the message under way

    def take(self, data: bytes) -> int:
        """How many of the bytes of `data`, which come next, are a turn's; the rest is not seen.

        At least one of them. Raises TooManyFrames.
        """
        at = 0
        for _ in range(TURN_FRAMES):
            at += (skipped := min(self._left, len(data) - at))
            self._left -= skipped
            if at == len(data):
                return at
            known = len(self._head)
            head = self._head + data[at : at + _HEAD_MAX_BYTES - known]
            size = _head_bytes(head)
            if len(head) < size:
                self._head = head
                return len(data)
            at += size - known
            self._begin(head[:size])
        return at

    def _begin(self, head: bytes) -> None:
        self._head = b""
        length = head[1] & _LENGTH
        more = _LENGTH_BYTES.get(length, 0)
        self._left = int.from_bytes(head[2 : 2 + more], "big") if more else length
        if head[0] & _OPCODE < _FIRST_CONTROL:
            self._frames = 0 if head[0] & _FIN else self._frames + 1
            if self._frames >= MESSAGE_FRAMES:
                raise TooManyFrames


def _head_bytes(head: bytes) -> int:
    """How long the head is that begins so."""
    if len(head) < 2:
        return 2
    mask = 4 if head[1] & _MASKED else 0
    return 2 + _LENGTH_BYTES.get(head[1] & _LENGTH, 0) + mask
