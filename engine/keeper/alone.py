"""How long a session has been without an engine, which it outlives, but not for ever.

No engine holds a link to a session that is idle: so its keeper looks whether one listens.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from engine.keeper.kept import clock

_LOOKS: Final = 12  # until the time is over: so much of it may pass before the first one


class Alone:
    """`engine`: the path of its socket; `secs`: how long it may be that nobody listens there."""

    def __init__(self, engine: str, secs: float) -> None:
        self._engine, self._secs = engine, secs
        self._since: float | None = None  # that nobody was found to listen
        self.look_at = clock() + secs / _LOOKS

    def is_over(self, *, is_used: bool) -> bool:
        """Look again, as is due; whether it has been too long."""
        now = clock()
        self.look_at = now + self._secs / _LOOKS
        if is_used or is_listening(self._engine):
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since >= self._secs


def is_listening(path: str) -> bool:
    """Whether a socket at `path` takes connections; True also where that cannot be found out."""
    folder, name = os.path.split(path)
    try:
        # Through the descriptor: a socket's path is limited to 107 bytes.
        directory = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.setblocking(False)
                sock.connect(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False
    except OSError:  # its queue is full; there is no descriptor to be had
        return True
    return True
