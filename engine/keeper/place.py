"""Where a session is found: a symbolic link whose text is the identity of its keeper.

A session that ended while nobody looked leaves a mark there instead.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

LOST: Final = "lost"  # text of the link, in place of an identity: the session died between calls


class Place:
    """The link of one session, once it has one."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._path: str | None = None

    def take(self, path: str) -> None:
        """Have the session found at `path` from now on in place of any other. Raises OSError."""
        _put(path, self._identity)
        self._path = path

    def leave(self, *, is_lost: bool = False) -> None:
        """Have it not found any more. `is_lost`: leave a mark that there was one."""
        path, self._path = self._path, None
        with contextlib.suppress(OSError):  # removed, or somebody has put something else there
            if path is None or os.readlink(path) != self._identity:
                return
            if is_lost:
                _put(path, LOST)
            else:
                os.unlink(path)


def _put(path: str, text: str) -> None:
    """Have the symbolic link at `path` say `text`, in one step. Raises OSError."""
    fresh = f"{path}.{os.urandom(4).hex()}"
    os.symlink(text, fresh)
    try:
        os.rename(fresh, path)
    except OSError:
        os.unlink(fresh)
        raise
