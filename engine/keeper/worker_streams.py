"""Standard input, output and error of a session's interpreter: descriptors and objects.

A part of the program that `worker` describes.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from engine.keeper.worker_threads import Call, Lines


class Stream(io.RawIOBase):
    """Standard output or error, below the text layer: see `Lines`."""

    mode = "wb"

    def __init__(self, number: int, lines: Lines) -> None:
        self.name = "<stdout>" if number == 1 else "<stderr>"
        self._number = number
        self._lines = lines

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._lines.write(self._number, piece)
        return len(piece)

    def flush(self) -> None:
        super().flush()
        self._lines.flush(self._number)


class Streams:
    """Descriptors 0, 1 and 2 and what `sys` calls stdin, stdout and stderr."""

    NAMES = ("stdin", "stdout", "stderr")

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._forms = [(s.encoding, s.errors) for s in (sys.stdin, sys.stdout, sys.stderr)]
        self._made: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
        for stream in self._made:
            stream.close()  # not the descriptors: theirs are never closed so

    def connect(self, call: Call) -> None:
        """Lead them to `call`, objects and all, but for what code has put there itself."""
        for number, fd in enumerate(call.streams):
            os.dup2(fd, number)
            present = getattr(sys, self.NAMES[number], None)
            is_ours = present is self._made[number]
            # Input read ahead was the last call's.
            if number == 0 or not _is_usable(self._made[number]):
                self._made[number] = self._make(number)
                setattr(sys, "__" + self.NAMES[number] + "__", self._made[number])
            if is_ours or not _is_usable(present):
                setattr(sys, self.NAMES[number], self._made[number])

    def _make(self, number: int) -> Any:
        encoding, errors = self._forms[number]
        if number == 0:
            return open(0, encoding=encoding, errors=errors, closefd=False)
        raw: Any = Stream(number, self._lines)
        stream = io.TextIOWrapper(raw, encoding, errors, "\n", write_through=True)
        stream.mode = "w"  # type: ignore[misc]  # as the interpreter's own have it
        return stream

    def write_error(self, text: str) -> None:
        """Write to the call's standard error, whatever code has made of `sys.stderr`."""
        self._lines.write(2, text.encode(self._forms[2][0], "backslashreplace"))
        self._lines.flush(2)

    def flush(self) -> None:
        """Hand everything buffered to the present call's output, also that of C code."""
        for stream in (*self._made[1:], getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue  # the code's own object, broken or closed: its loss
        # Loading it for this would cost more than the call.
        c_functions = getattr(sys.modules.get("ctypes"), "pythonapi", None)
        if c_functions is not None:
            c_functions.fflush(None)

    def disconnect(self, call: Call | None) -> None:
        """Lead the descriptors to `call`, whose threads go on, or nowhere; the input nowhere."""
        nothing = os.open("/dev/null", os.O_RDWR)
        targets = (nothing, nothing, nothing) if call is None else (nothing, *call.streams[1:])
        for number, fd in enumerate(targets):
            if fd != number:
                os.dup2(fd, number)
        if nothing > 2:
            os.close(nothing)


def _is_usable(stream: Any) -> bool:
    try:
        return stream is not None and not getattr(stream, "closed", False)
    except ValueError:  # its buffer was taken from it
        return False
