"""Task directories before their calls are accepted: made ahead, filled, then moved into place.

A directory appears among the tasks in one step, with its whole spec. What lies here at a start is
of calls that nobody was told of, and of none at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import structlog

from engine.config import Home
from engine.jobs.directory import Spec, TaskDirectory, make_directory, make_spare
from engine.tasks.room import lack_of_room
from engine.threads import in_thread

SPARE: Final = 16  # directories for calls that have none reserved
LEAST_SPARE: Final = 8  # from here on more are made, all in one go: a thread for each costs more
# What rename(2) answers where the tasks have that id.
_NOT_FREE: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)

log = structlog.get_logger()


class DirectoriesAhead:
    """`which_had`: those of some ids that tasks have, or had. Raises OSError.

    It is asked when a directory has been made. No task can come by its id then: tasks get theirs
    here, and here each is the only one of its name.
    """

    def __init__(self, home: Home, which_had: Callable[[Collection[str]], set[str]]) -> None:
        self._folder, self._tasks, self._which_had = (folder := home.ahead), home.tasks, which_had
        self._spare: list[TaskDirectory] = []
        self._is_filling = False
        self._reserved: dict[str, TaskDirectory] = {}
        folder.mkdir(mode=0o700, exist_ok=True)
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)

    def make_again(self) -> None:
        """Somebody has removed the folder, and all that was ahead with it. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._spare[:] = [directory for directory in self._spare if directory.path.exists()]

    @property
    def is_low(self) -> bool:
        """Whether it is time for a `refill`, and none is under way."""
        return len(self._spare) < LEAST_SPARE and not self._is_filling

    async def refill(self) -> None:
        """Have spare directories again. What the disk does not take is made when it is needed."""
        if self._is_filling:
            return
        self._is_filling = True
        try:
            # Where many files were removed not long ago, ext4 takes milliseconds for each.
            made, trouble = await in_thread(self._make_some, SPARE - len(self._spare))
        finally:
            self._is_filling = False
        if trouble is not None:
            log.warning("no_spare_directory", reason=str(trouble))
        had = self._which_had([directory.id for directory in made])
        self._spare += [directory for directory in made if directory.id not in had]
        for directory in made:
            if directory.id in had:
                directory.remove()

    def _make_some(self, count: int) -> tuple[list[TaskDirectory], OSError | None]:
        """Spare directories, and what stood in the way of more. A full disk's last room is not for
        them: the next start needs it."""
        made: list[TaskDirectory] = []
        try:
            while len(made) < count and lack_of_room(self._folder) is None:
                made.append(make_spare(self._folder))
        except OSError as exc:
            return made, exc
        return made, None

    def reserve(self) -> TaskDirectory:
        """Set a spare directory apart for a call that may come. Raises OSError."""
        directory = self.take(None, split=False) if self._spare else self._make(make_spare)
        self._reserved[directory.id] = directory
        return directory

    def give_back(self, id_: str) -> None:
        """Its call will not come; one that came has taken it, and there is nothing to do."""
        directory = self._reserved.pop(id_, None)
        if directory is not None:
            with contextlib.suppress(OSError):  # the next start removes it
                directory.remove()

    def take(self, wanted: str | None, *, split: bool) -> TaskDirectory:
        """A directory for a call, here still: `wanted` if it is reserved. Raises OSError."""
        reserved = self._reserved.pop(wanted, None) if wanted else None
        if reserved is not None:
            return reserved
        if self._spare and not split:
            return self._spare.pop()
        return self._make(make_directory)

    def accept(self, directory: TaskDirectory, spec: Spec) -> TaskDirectory | None:
        """Put a directory among the tasks, with its spec; None where they have that id already.

        Raises OSError. Where it is not there in the end, it is gone.
        """
        try:
            directory.write_spec(spec)
            return directory.move(self._tasks)
        except OSError as exc:
            with contextlib.suppress(OSError):
                directory.remove()
            if exc.errno not in _NOT_FREE:
                raise
        return None

    def _make(self, make: Callable[[Path], TaskDirectory]) -> TaskDirectory:
        """A directory of an id that no task has, or has had."""
        while self._which_had([(directory := make(self._folder)).id]):
            directory.remove()
        return directory
