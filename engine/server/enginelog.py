"""The engine's own log: to standard error, into the journal, and, where it is a file, in turns.

An engine that was started in the background has `engine.log` of its home as its standard error.
Once that is full it becomes `engine.log.1`, and those before it one more; the oldest goes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, TextIO, cast

import structlog

from engine.config import Home, Settings
from engine.jobs.oldlogs import make_room, numbered
from engine.journal.journal import Journal
from engine.journal.words import BY_WORD, Level

_NOT_IN_LINE: Final = ("event", "level", "timestamp", "exc_info", "exception")
STDERR: Final = 2

Event = MutableMapping[str, Any]


class LogSink:
    """A structlog processor: the engine's own log becomes lines of the journal too."""

    journal: Journal | None = None

    def __call__(self, _logger: Any, _name: str, event: Event) -> Event:
        # Only the engine's own thread writes; a thread that reads an output says nothing.
        if self.journal is not None and threading.current_thread() is threading.main_thread():
            level = BY_WORD.get(event.get("level", "info"), Level.INFO)
            task = event.get("taskId")
            self.journal.note(
                level,
                _as_line(event),
                caller=event.get("caller"),
                task=str(task)[1:] if task else None,
            )
        return event


def _as_line(event: Mapping[str, Any]) -> str:
    """An event and its facts in one text."""
    facts = [f"{k}={v}" for k, v in event.items() if k not in _NOT_IN_LINE]
    return " ".join([str(event.get("event", "")).replace("_", " "), *facts])


LOG_SINK: Final = LogSink()


class LogFile:
    """Standard error, whose disk may be full: that costs lines of the log, and never the engine.

    How many were lost is said with the first that is taken again.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None  # why it takes no lines now
        self._lost = 0

    def write(self, text: str) -> None:
        """Write whole lines."""
        owed = f"\n{self._lost} lines of this log were lost: {self.trouble}\n" * bool(self._lost)
        data = (owed + text).encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(STDERR, data) :]
        except OSError as exc:
            self.trouble = exc.strerror or str(exc)
            self._lost += 1
        else:
            self.trouble, self._lost = None, 0

    def flush(self) -> None:
        """Nothing waits here."""


LOG_FILE: Final = LogFile()


class Turns:
    """A structlog processor: before a line is written to a full file, a new one is begun.

    Nobody's line is lost, whoever writes to standard error: the new file takes the place of the
    old one under the same descriptor, in one step. `kept`: older files, besides the present one.
    """

    def __init__(self, path: Path, most_bytes: int, kept: int) -> None:
        self._path, self._most_bytes, self._kept = path, most_bytes, kept

    def __call__(self, _logger: Any, _name: str, event: Event) -> Event:
        # In the thread that writes nearly all of it: no line is cut in two.
        if threading.current_thread() is threading.main_thread():
            try:
                self._turn_if_full()
            except OSError as exc:
                event["logNotTurned"] = str(exc)  # with the line that goes into the old file
        return event

    def _turn_if_full(self) -> None:
        present = os.fstat(STDERR)
        if present.st_size < self._most_bytes or not self._is_ours(present):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fresh = self._path.with_name(self._path.name + ".new")
        fd = os.open(fresh, flags, 0o600)
        try:
            make_room(self._path, self._kept)
            if self._kept:
                os.rename(self._path, numbered(self._path, 1))
            os.rename(fresh, self._path)
            os.dup2(fd, STDERR)
        finally:
            os.close(fd)

    def _is_ours(self, present: os.stat_result) -> bool:
        """Whether standard error is the file: else somebody else looks after what it is."""
        try:
            return os.path.samestat(present, os.stat(self._path))
        except FileNotFoundError:
            return False


def configure_logging(home: Home, settings: Settings) -> None:
    """The engine's own log, to standard error: for people, or a JSON object a line."""
    is_json = settings.log_format == "json"
    renderer: Any = structlog.processors.JSONRenderer()
    if not is_json:
        # Plain: the other formatter shows the values of locals, and what callers gave us is there.
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            LOG_SINK,
            Turns(home.log, settings.log_file_bytes, settings.log_files),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if is_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, LOG_FILE)),
        cache_logger_on_first_use=True,
    )
