"""Settings of the daemon and the places in its home: defaults, each with its unit and its meaning.

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

LaneName = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,64}$(?!\n)")]
LaneLimit = Annotated[int, Meta(ge=0, le=100_000)]  # 0: nothing starts in it


class BadSetting(Exception):
    """A setting is unknown or does not fit; the message says which and why."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings; the names are those of engine.toml, the meanings those of the reference."""

    listen: Annotated[
        str | None,
        Meta(
            description="`HOST:PORT` of the TCP listener, loopback only;"
            " left out: a free port, chosen once and kept; where it is taken, another until the end"
        ),
    ] = None
    slots: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(description="jobs at once; left out: 16 a core"),
    ] = None
    lanes: Annotated[
        dict[LaneName, LaneLimit],
        Meta(
            description="named limits within the slots, as `{gpu = 1}`: of the jobs that name a"
            " lane so many run at once; what `set_lane` says holds until this changes"
        ),
    ] = {}
    inline_budget_secs: Annotated[
        float, Meta(ge=0, le=20, description="the longest that a call waits for its job")
    ] = 20.0
    output_cap_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description="kept of each output file: its first 64 MiB and its newest part",
        ),
    ] = _GIB
    total_output_cap_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description="kept of all outputs together, and of all calls of more than 4 KiB; over it"
            " the tasks that ended first go (`expired_handle`), of those that have some",
        ),
    ] = 20 * _GIB
    retention_days: Annotated[
        float,
        Meta(gt=0, description="how long an ended task is kept; a fraction will do"),
    ] = 7.0
    ended_tasks: Annotated[
        int,
        Meta(
            ge=1,
            description="ended tasks that are kept; over it those that ended first go, one in a"
            " hundred at a time",
        ),
    ] = 100_000
    journal_lines: Annotated[
        int,
        Meta(
            ge=10_000,
            description="lines that the journal keeps; over it the noisiest caller's least severe"
            " go first; each caller keeps 10,000 or, where so many callers have lines that this"
            " is more than the limit, an equal share of it",
        ),
    ] = 1_000_000
    warm_shells: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000,
            description="shells that wait for their caller's next call, one a caller, five minutes"
            " at most, some 5 MiB each",
        ),
    ] = 8
    python_sessions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Python sessions at once; over it the one that is idle longest is closed,"
            " and its caller's next call has `sessionReset`",
        ),
    ] = 64
    session_state_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=32 << 20,
            description="variables, functions and the rest of one caller's shell; a call that"
            " leaves more leaves the session as it was, and the log says so",
        ),
    ] = 16 << 20
    total_session_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description="all callers' shells on disk together; over it those unused for longest go,"
            " a tenth at a time, and their callers' log says so",
        ),
    ] = _GIB
    queue_limit: Annotated[
        int, Meta(ge=1, description="calls that may wait for a slot; more are refused")
    ] = 10_000
    # Half of the queue: whoever runs wild leaves the other half to the others.
    max_tasks_per_caller: Annotated[
        int, Meta(ge=1, description="tasks of one caller that have not ended; more are refused")
    ] = 5_000
    min_free_bytes: Annotated[
        int, Meta(ge=0, description="free disk below which new calls are refused")
    ] = _GIB
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            description="connections at once that are let in; one in ten of them is for the Unix"
            " socket alone. Clients that are not in yet are limited apart, 1,000 on each listener",
        ),
    ] = 1_000
    max_waits: Annotated[int, Meta(ge=1, description="calls in flight on one connection")] = 10_000
    max_inflight_bytes: Annotated[int, Meta(ge=1 << 20, description="bytes of those calls")] = (
        64 << 20
    )
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(description="pages that a browser may connect from, besides the engine's own"),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="`Host` headers that are let in, besides loopback's")
    ] = ()
    human_token_file: Annotated[
        str | None,
        Meta(description="where the human's token is kept; left out: `human.token` in the home"),
    ] = None
    log_format: Annotated[
        str,
        Meta(description="`console` or `json`: the engine's own log, on its standard error"),
    ] = "console"
    log_file_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            description="size at which `engine.log` becomes `engine.log.1` and a new one is"
            " begun; likewise `keepers.log`",
        ),
    ] = 10 << 20
    log_files: Annotated[
        int, Meta(ge=0, le=1_000, description="older ones that are kept of each")
    ] = 3

    @property
    def slot_count(self) -> int:
        return self.slots or 16 * (os.cpu_count() or 1)

    @property
    def limits(self) -> dict[str, int | float]:
        """All limits by their settings' names."""
        values = {**msgspec.structs.asdict(self), "slots": self.slot_count}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}


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
    except (OSError, ValueError, RecursionError) as exc:
        raise BadSetting(f"{path}: {exc}") from exc
    _convert(values, str(path))
    for name, text in overrides.items():
        values[name] = _parse(name, text)
        _convert({name: values[name]}, f"--set {name}")
    given = {name: value for name, value in flags.items() if value is not None}
    if "lanes" in given:  # one flag is about one lane
        given["lanes"] = {**values.get("lanes", {}), **given["lanes"]}
    return _convert(values | given, "settings")


def _parse(name: str, text: str) -> Any:
    """A value as TOML has it; what is no TOML is taken as a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):  # no TOML, or a number or nesting that Python refuses
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
        self.reserve = path / "reserve"  # room for a start on a full disk
        self.ahead = self.tasks / ".ahead"  # on their file system, should that be another
        self.index = path / "index.db"
        self.record = path / "record.db"
        self.lock = path / "engine.lock"
        self.facts = path / "engine.json"
        self.socket = path / "engine.sock"
        self.keepers_log = path / "keepers.log"
        self.log = path / "engine.log"  # of an engine that was started in the background
