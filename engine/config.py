"""Settings of the daemon and the places in its home: defaults, each with its unit and its reason.

`HOME/engine.toml`, over it `engine serve --set NAME=VALUE` and the flags. An unknown name or a
bad value stops the start: a limit that is silently not in force is worse than none.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

_GIB = 1 << 30


class BadSetting(Exception):
    """A setting is unknown or does not fit; the message says which and why."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings; the names are those of engine.toml."""

    listen: str | None = None  # HOST:PORT; None: loopback, a free port at first, kept then
    slots: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # None: 16 a core
    inline_budget_secs: Annotated[float, Meta(ge=0, le=20)] = 20.0  # a call never waits longer
    output_cap_bytes: Annotated[int, Meta(ge=1 << 20)] = _GIB  # kept of each output file
    journal_lines: Annotated[int, Meta(ge=10_000)] = 1_000_000  # kept; see `store.lines.thin_out`
    warm_shells: Annotated[int, Meta(ge=0, le=1_000)] = 8  # see `tasks.warming`; some 5 MiB each
    queue_limit: Annotated[int, Meta(ge=1)] = 10_000  # kickoffs; more are refused
    min_free_bytes: Annotated[int, Meta(ge=0)] = _GIB  # of disk; below it new calls are refused
    max_connections: Annotated[int, Meta(ge=1)] = 1_000
    max_waits: Annotated[int, Meta(ge=1)] = 10_000  # calls in flight on one connection
    max_inflight_bytes: Annotated[int, Meta(ge=1 << 20)] = 64 << 20  # of those calls' frames
    allowed_origins: tuple[str, ...] = ()  # pages that may connect, besides the engine's own
    allowed_hosts: tuple[str, ...] = ()  # Host headers that may come in, besides loopback's
    human_token_file: str | None = None  # None: human.token in the home
    log_format: str = "console"  # or json
    log_file_bytes: Annotated[int, Meta(ge=1 << 16)] = 10 << 20  # of engine.log, then a new one
    log_files: Annotated[int, Meta(ge=0, le=1_000)] = 3  # older ones that are kept

    @property
    def slot_count(self) -> int:
        return self.slots or 16 * (os.cpu_count() or 1)


def load_settings(home: Path, overrides: dict[str, str], flags: dict[str, Any]) -> Settings:
    """Settings of engine.toml, over them `overrides` (as typed), over them `flags`.

    Raises BadSetting.
    """
    path = home / "engine.toml"
    values: dict[str, Any] = {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as exc:
        raise BadSetting(f"{path}: {exc}") from exc
    _convert(values, str(path))
    for name, text in overrides.items():
        values[name] = _parse(name, text)
        _convert({name: values[name]}, f"--set {name}")
    values |= {name: value for name, value in flags.items() if value is not None}
    return _convert(values, "settings")


def _parse(name: str, text: str) -> Any:
    """A value as TOML has it; what is no TOML is taken as a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(values: dict[str, Any], source: str) -> Settings:
    for name in values:
        if name not in Settings.__struct_fields__:
            raise BadSetting(f"{source}: there is no setting {name!r}")
    try:
        settings = msgspec.convert(values, Settings)
    except msgspec.ValidationError as exc:
        raise BadSetting(f"{source}: {exc}") from exc
    if settings.log_format not in ("console", "json"):
        raise BadSetting(f"{source}: log_format is console or json, not {settings.log_format!r}")
    return settings


class Home:
    """The paths below an engine's home. Makes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tasks = path / "tasks"
        self.sessions = path / "sessions"
        self.keepers = path / "keepers"
        self.aside = path / "aside"
        self.ahead = self.tasks / ".ahead"  # on their file system, should that be another
        self.index = path / "index.db"
        self.record = path / "record.db"
        self.lock = path / "engine.lock"
        self.facts = path / "engine.json"
        self.socket = path / "engine.sock"
        self.keepers_log = path / "keepers.log"
        self.log = path / "engine.log"  # of an engine that was started in the background
