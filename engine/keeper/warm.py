"""A shell started ahead of its call: it has restored its session and waits for the word to begin.

Nothing of it is to be seen by the command: environment, directory, descriptors and limits are what
they would be had it been started then. Where they would not, it is thrown away. One that finds no
word, as its keeper has died, leaves without having begun (see `shell.AWAIT_CALL`).
"""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from engine.keeper import shell
from engine.keeper.spawning import be_first_out_of_memory, spawn

# What is the same for a call and the shell that was started for it.
_SAME: Final = ("argv", "path", "env", "cwd", "cwd_or_parent", "umask", "nofile", "session")


class WarmShell:
    """The shell of a launch that may come. `output` is the read end of what it writes to.

    request: as of a launch, without a directory. Raises OSError, SpawnFailed.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self.output, write_end = os.pipe()
        word, self._word = os.pipe()
        try:
            os.set_blocking(self.output, False)  # our end alone: the shell's stays blocking
            os.dup2(word, shell.FD_WORD, inheritable=False)
            actions: list[tuple[Any, ...]] = [
                (os.POSIX_SPAWN_DUP2, write_end, 1),
                (os.POSIX_SPAWN_DUP2, write_end, 2),
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            ]
            self.pid, self.cwd = spawn(request, actions)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(write_end)
            os.close(word)
        be_first_out_of_memory(self.pid)

    def fits(self, request: dict[str, Any]) -> bool:
        """Whether a shell that is started for `request` now would be as this one is."""
        is_plain = (
            request["streams"] == "merged"
            and request["stdin"] == "null"
            and not (request.get("pty") or request.get("memory"))
            and all(request.get(name) == self._request.get(name) for name in _SAME)
        )
        return is_plain and self.cwd == request["cwd"] and self._is_in(request["cwd"])

    def _is_in(self, path: str) -> bool:
        """Whether `path` still leads to the directory that the shell is in."""
        try:
            # With the dot it must be one that may be entered, too.
            return os.path.samestat(os.stat(f"/proc/{self.pid}/cwd"), os.stat(f"{path}/."))
        except OSError:
            return False

    def begin(self) -> None:
        """Say the word. The call's text is at its descriptor by now."""
        os.write(self._word, shell.WORD)
        os.close(self._word)
        self._word = -1

    def end(self) -> None:
        """End the shell, which has not begun, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.close()

    def close(self) -> None:
        """Let go of what is left in our hands."""
        for fd in (self.output, self._word):
            if fd >= 0:
                os.close(fd)
        self.output = self._word = -1
