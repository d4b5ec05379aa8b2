"""Commands typed at a terminal of 80x24, and what it then shows."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path
from typing import Final

SIZE: Final = struct.pack("HHHH", 24, 80, 0, 0)
LIMIT: Final = 60.0  # seconds for a command, which has long been ended by the tests' own limit


def typed(command: str, folder: Path, environ: dict[str, str]) -> list[str]:
    """The lines that a terminal shows of bash text, standard output and error alike."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
    try:
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={"TERM": "xterm", "NO_COLOR": "1", **environ},
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        ) as process:
            os.close(slave)
            shown = _read_all(master)
            process.wait(LIMIT)
    finally:
        os.close(master)
    return screen(shown.decode())


def _read_all(fd: int) -> bytes:
    """What comes until nobody has the terminal open any more."""
    pieces = []
    while True:
        try:
            pieces.append(os.read(fd, 65536))
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            return b"".join(pieces)


def screen(text: str) -> list[str]:
    """What is left to see of a text with the few sequences by which a block is drawn again."""
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[\d*[AK]|\r?\n|\r|[^\x1b\r\n]+|\x1b", text):
        if piece.endswith("\n"):
            row += 1
            lines += [""] * (row == len(lines))
        elif piece.startswith("\x1b[") and piece.endswith("A"):
            row = max(0, row - int(piece[2:-1] or 1))
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece != "\r":
            lines[row] += piece
    while lines and not lines[-1]:
        lines.pop()
    return lines
