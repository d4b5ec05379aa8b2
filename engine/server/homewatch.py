"""What the engine has in its home and somebody may take away while it is used: made again.

Looked at once a second: the home's own folders, the socket's name, `engine.json` and the kept port.
Where the home itself is away nothing is done: moved back, all is well.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
import trio

from engine.config import Home

LOOK_SECS: Final = 1.0  # nobody tells

log = structlog.get_logger()


class HomeWatch:
    """`remake`: by the name of a file in the home, what makes it anew; each may raise OSError.

    `sessions_gone`: called once the folder of the sessions is there again, empty. `tidy`: called
    with each look.
    """

    def __init__(
        self,
        home: Home,
        remake: dict[str, Callable[[], None]],
        sessions_gone: Callable[[], None],
        tidy: Callable[[], None],
    ) -> None:
        self._home, self._remake, self._sessions_gone = home, remake, sessions_gone
        self._tidy = tidy
        status = home.path.stat()
        self._identity = status.st_dev, status.st_ino
        self.missing: dict[str, str] = {}  # what is gone and cannot be made again -> why

    async def serve(self) -> None:
        """Look until cancelled."""
        while True:
            await trio.sleep(LOOK_SECS)
            self.look()
            self._tidy()

    def look(self) -> None:
        """Have all there again, as far as can be."""
        home = self._home
        try:
            status = home.path.stat()
        except OSError:
            return
        if (status.st_dev, status.st_ino) != self._identity:
            return
        for folder in (home.tasks, home.ahead, home.keepers, home.sessions):
            name = str(folder.relative_to(home.path))
            if self._make(name, functools.partial(_make_folder, folder)) and (
                folder == home.sessions
            ):
                self._sessions_gone()
        for name, remake in self._remake.items():
            self._make(name, remake)

    def _make(self, name: str, make: Callable[[], None]) -> bool:
        """Make what has this name again, if it is gone; whether that was done."""
        if os.path.lexists(self._home.path / name):
            self.missing.pop(name, None)
            return False
        try:
            make()
        except OSError as exc:
            if name not in self.missing:
                log.error("not_made_again", name=name, reason=exc.strerror)
            self.missing[name] = exc.strerror or str(exc)
            return False
        self.missing.pop(name, None)
        log.warning("made_again", name=name)
        return True


def _make_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
