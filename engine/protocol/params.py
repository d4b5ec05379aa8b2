"""The params of every method: one frozen Struct each, decoded strictly.

A Struct of this module that exists is valid: types and bounds by its annotations, the rest by
`__post_init__`, which also brings over-large times down to their cap. What another release will
offer is known by name and refused by name. Nothing here runs or stores anything.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from engine.errors import InvalidParams
from engine.protocol.decode import convert_params, member_path
from engine.protocol.fields import (
    COMMAND_MAX_BYTES,
    DEADLINE_MAX_SECS,
    EXCLUSIVE_MAX_SECS,
    FOLLOW_MAX_SECS,
    GRACE_MAX_SECS,
    INLINE_BUDGET_SECS,
    MANY_MAX_SECS,
    NOT_OFFERED,
    RESERVED_PREFIX,
    After,
    Argv,
    Base64,
    Caller,
    CallerOrAll,
    Cursor,
    Handle,
    Handles,
    Key,
    Label,
    LaneLimit,
    LaneName,
    LogFloor,
    LogLevel,
    LogScope,
    MemoryBytes,
    Offset,
    OutputBytes,
    PageBytes,
    PageLines,
    PageRows,
    Port,
    PositiveSeconds,
    ReadyText,
    RequestId,
    SeatNames,
    Seats,
    Seconds,
    Seq,
    Status,
    Time,
    cap,
    check_argument,
    check_directory,
    check_env,
    check_exactly_one,
    check_no_nul,
    says,
    utf8_size,
)

NOT_YET: Final = ("room",)  # of the Structs that say so
SEATS: Final = 256  # of a round


_WHAT_TO_RUN: Final = ("command", "argv", "code")
_SEAT_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}\Z")


class TextInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text that is the whole of a job's standard input."""

    text: str


Stdin = Annotated[
    Literal["null", "open"] | TextInput, Meta(extra=says('"null", "open" or {"text": string}'))
]


class ReadyWhen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a job is ready. Exactly one of the two is there; `StartParams` checks that."""

    contains: ReadyText | None = None
    port: Port | None = None


ReadyCondition = Annotated[ReadyWhen, Meta(extra=says('{"contains": string} or {"port": integer}'))]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every method takes."""

    as_: Caller | None = msgspec.field(default=None, name="as")
    tool_schema_fingerprint: Label | None = None


class HelloParams(Params, frozen=True, kw_only=True):
    """`env` comes without its `ENGINE_…` names: a client may pass on all that it has."""

    cwd: str | None = None
    env: dict[str, str] | None = None
    client: Label | None = None

    def __post_init__(self) -> None:
        if self.cwd is not None:
            check_directory("$.cwd", self.cwd)
        if self.env is not None:
            kept = {k: v for k, v in self.env.items() if not k.startswith(RESERVED_PREFIX)}
            check_env("$.env", kept)
            force_setattr(self, "env", kept)


class StartParams(Params, frozen=True, kw_only=True):
    """What `bash` and `execute` have in common."""

    timeout_secs: Seconds = INLINE_BUDGET_SECS
    deadline_secs: PositiveSeconds | None = None
    session: bool = True
    cwd: str | None = None
    env: dict[str, str] | None = None
    stdin: Stdin = "null"
    pty: bool = False
    streams: Literal["merged", "split"] = "merged"
    on_disconnect: Literal["keep", "cancel"] = "keep"
    key: Key | None = None
    lane: LaneName | None = None
    after: After | None = None
    after_when: Literal["succeeded", "failed", "ended"] = "succeeded"
    ready_when: ReadyCondition | None = None
    memory_bytes: MemoryBytes | None = None
    max_output_bytes: OutputBytes = 32_768
    logs: LogFloor = "warning"
    log_scope: LogScope = msgspec.field(default="caller", name="logScope")

    def __post_init__(self) -> None:
        self._check_offered()
        if self.pty and self.streams == "split":
            raise InvalidParams("$.pty", 'false beside "split": a terminal is one stream')
        cap(self, "timeout_secs", INLINE_BUDGET_SECS)
        cap(self, "deadline_secs", DEADLINE_MAX_SECS)
        if self.cwd is not None:
            check_directory("$.cwd", self.cwd)
        if self.env is not None and not self.env:
            force_setattr(self, "env", None)  # no variable, whichever way it is said
        if self.env is not None:
            check_env("$.env", self.env)
        if self.key is not None:
            check_no_nul("$.key", self.key)
        if self.ready_when is not None:
            self._check_ready_when(self.ready_when)
        if self.after is None and self.after_when != "succeeded":
            raise InvalidParams("$.after_when", "nothing without after")
        if not self.after:
            force_setattr(self, "after", None)  # nothing to wait for, whichever way it is said

    def _check_ready_when(self, wanted: ReadyWhen) -> None:
        if (wanted.contains is None) == (wanted.port is None):
            raise InvalidParams("$.ready_when", "exactly one of contains and port")
        if wanted.contains is not None and not _is_one_line(wanted.contains):
            raise InvalidParams("$.ready_when.contains", "text of one line")

    def _check_offered(self) -> None:
        for name in NOT_YET:
            if getattr(self, name, None) is not None:
                raise InvalidParams(f"$.{name}", NOT_OFFERED.format(name))


def _is_one_line(text: str) -> bool:
    """Whether a line of an output can hold it."""
    return not any(c in "\n\r\b\x1b" or "\x80" <= c <= "\x9f" for c in text)


def _check_text(path: str, text: str) -> None:
    check_no_nul(path, text)
    if not 1 <= utf8_size(text) <= COMMAND_MAX_BYTES:
        raise InvalidParams(path, "1 to 1048576 bytes of UTF-8")


class BashParams(StartParams, frozen=True, kw_only=True):
    command: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_text("$.command", self.command)


class ExecuteParams(StartParams, frozen=True, kw_only=True):
    """Exactly one of `argv` and `code` is there. What `session` says is about `code` alone."""

    argv: Argv | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exactly_one(argv=self.argv, code=self.code)
        for i, item in enumerate(self.argv or ()):
            check_argument(f"$.argv[{i}]", item, utf8_size(item))
        if self.code is not None:
            _check_text("$.code", self.code)
            if self.pty:
                raise InvalidParams("$.pty", "false beside code: an interpreter has no terminal")
            if self.stdin == "open":
                raise InvalidParams("$.stdin", '"null" or {"text": string} beside code')
            if self.memory_bytes is not None:
                raise InvalidParams(
                    "$.memory_bytes", "nothing beside code: it runs where others do"
                )


class RunRoundParams(Params, frozen=True, kw_only=True):
    """`seats`, or a round and those of its seats that are to run again.

    Afterwards each of `seats` is a `BashParams` or `ExecuteParams`.
    """

    seats: Seats | None = None
    round_id: Handle | None = msgspec.field(default=None, name="roundId")
    retry_seats: SeatNames | None = None
    room: Label | None = None

    def __post_init__(self) -> None:
        if self.room is not None:
            raise InvalidParams("$.room", NOT_OFFERED.format("room"))
        check_exactly_one(seats=self.seats, roundId=self.round_id)
        if (self.round_id is None) != (self.retry_seats is None):
            raise InvalidParams("$", "roundId and retry_seats together")
        if self.retry_seats is not None and len(set(self.retry_seats)) < len(self.retry_seats):
            raise InvalidParams("$.retry_seats", "names that differ")
        if self.seats is not None:
            if not 1 <= len(self.seats) <= SEATS:
                raise InvalidParams("$.seats", f"object of 1 to {SEATS} seats")
            seats = {name: self._seat(name, given) for name, given in self.seats.items()}
            force_setattr(self, "seats", seats)

    def _seat(self, name: str, given: Any) -> BashParams | ExecuteParams:
        at = member_path("$.seats", name)
        if not _SEAT_NAME.match(name):
            raise InvalidParams(at, "name of a seat, 1 to 64 characters of a-z 0-9 _ -")
        if not isinstance(given, dict):
            raise InvalidParams(at, "object: the params of bash or execute")
        unsaid = {what for what in _WHAT_TO_RUN if given.get(what) is None}
        if len(unsaid) != len(_WHAT_TO_RUN) - 1:
            raise InvalidParams(at, "exactly one of command, argv and code")
        said = {what: value for what, value in given.items() if what not in unsaid}
        seat: BashParams | ExecuteParams
        try:
            if "command" in said:
                seat = convert_params(said, BashParams)
            else:
                seat = convert_params(said, ExecuteParams)
        except InvalidParams as exc:
            raise InvalidParams(at + exc.path.removeprefix("$"), exc.expected) from exc
        if seat.as_ not in (None, self.as_):
            raise InvalidParams(f"{at}.as", "nothing: a seat is its round's caller's")
        if seat.key is not None:
            raise InvalidParams(f"{at}.key", "nothing: a seat has no key")
        return seat


class ListRoundsParams(Params, frozen=True, kw_only=True):
    caller: CallerOrAll | None = None  # None: the caller's own
    limit: PageRows = 50
    before: Cursor | None = None


class ReadRoundParams(Params, frozen=True, kw_only=True):
    round_id: Handle = msgspec.field(name="roundId")


class WaitParams(Params, frozen=True, kw_only=True):
    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    kickoff_id: Handle | None = msgspec.field(default=None, name="kickoffId")
    timeout_secs: Seconds = INLINE_BUDGET_SECS
    max_output_bytes: OutputBytes = 32_768
    logs: LogFloor = "warning"
    log_scope: LogScope = msgspec.field(default="caller", name="logScope")

    def __post_init__(self) -> None:
        cap(self, "timeout_secs", INLINE_BUDGET_SECS)
        check_exactly_one(taskId=self.task_id, kickoffId=self.kickoff_id)


class WaitAnyParams(Params, frozen=True, kw_only=True):
    """`ids` left out: the caller's inbox, whose name may be given as `manager_session_id` too.

    Afterwards `wait_seconds` is how long to wait, by whichever name it was given; the
    other is None.
    """

    ids: Handles | None = None
    wait_seconds: Seconds | None = None
    timeout_secs: Seconds | None = None
    include_output: bool = True
    manager_session_id: Label | None = None
    ack: Handle | None = None

    def __post_init__(self) -> None:
        if self.wait_seconds is not None and self.timeout_secs is not None:
            raise InvalidParams("$", "at most one of wait_seconds and timeout_secs")
        given = self.timeout_secs if self.wait_seconds is None else self.wait_seconds
        force_setattr(self, "wait_seconds", MANY_MAX_SECS if given is None else given)
        force_setattr(self, "timeout_secs", None)
        cap(self, "wait_seconds", MANY_MAX_SECS)
        if self.ids is None and self.manager_session_id is not None:
            self._take_session(self.manager_session_id)

    def _take_session(self, name: str) -> None:
        try:
            msgspec.convert(name, Caller)
        except msgspec.ValidationError as exc:
            expected = "1 to 64 characters of a-z 0-9 _ -"
            raise InvalidParams("$.manager_session_id", expected) from exc
        if self.as_ not in (None, name):
            raise InvalidParams("$.manager_session_id", f'"{self.as_}", as in as')
        force_setattr(self, "as_", name)


class CancelParams(Params, frozen=True, kw_only=True):
    """Exactly one of the handles and `caller` is there."""

    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    kickoff_id: Handle | None = msgspec.field(default=None, name="kickoffId")
    caller: Caller | None = None
    grace_secs: Seconds = 5.0
    force: bool = False

    def __post_init__(self) -> None:
        cap(self, "grace_secs", GRACE_MAX_SECS)
        check_exactly_one(taskId=self.task_id, kickoffId=self.kickoff_id, caller=self.caller)


class WriteStdinParams(Params, frozen=True, kw_only=True):
    """One of `text` and `base64` is there, or neither and `eof`."""

    task_id: Handle = msgspec.field(name="taskId")
    text: str | None = None
    base64: Base64 | None = None
    eof: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.text is not None or self.base64 is not None or not self.eof:
            check_exactly_one(text=self.text, base64=self.base64)

    @property
    def data(self) -> bytes:
        return self.base64 or (self.text or "").encode()


class ReadOutputParams(Params, frozen=True, kw_only=True):
    task_id: Handle = msgspec.field(name="taskId")
    stream: Literal["output", "stdout", "stderr"] = "output"
    offset: Offset = 0  # negative: so many bytes before the end
    limit_bytes: PageBytes = 65_536
    timeout_secs: Seconds = 0.0
    raw: bool = False

    def __post_init__(self) -> None:
        cap(self, "timeout_secs", INLINE_BUDGET_SECS)


class ListTasksParams(Params, frozen=True, kw_only=True):
    caller: CallerOrAll | None = None  # None: the caller's own
    state: list[Status] | None = None
    limit: PageRows = 50
    before: Cursor | None = None
    changed_after: Seq | None = None
    timeout_secs: Seconds = 0.0

    def __post_init__(self) -> None:
        cap(self, "timeout_secs", FOLLOW_MAX_SECS)


class ReadLogsParams(Params, frozen=True, kw_only=True):
    """At most one of the places to read from is there; none: the caller's read position."""

    logs: LogLevel = "info"  # the floor
    log_scope: LogScope = msgspec.field(default="caller", name="logScope")
    caller: Caller | None = None
    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    contains: Label | None = None
    after_seq: Seq | None = None
    before_seq: Seq | None = None
    since: Time | None = None
    peek: bool = False
    limit: PageLines = 200
    timeout_secs: Seconds = 0.0
    wake_on: list[LogLevel] | None = None

    def __post_init__(self) -> None:
        cap(self, "timeout_secs", FOLLOW_MAX_SECS)
        given = (self.after_seq, self.before_seq, self.since)
        if sum(value is not None for value in given) > 1:
            raise InvalidParams("$", "at most one of after_seq, before_seq and since")
        if self.wake_on is not None and not self.wake_on:
            raise InvalidParams("$.wake_on", "array of at least one level")


class ReadTaskParams(Params, frozen=True, kw_only=True):
    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    kickoff_id: Handle | None = msgspec.field(default=None, name="kickoffId")

    def __post_init__(self) -> None:
        check_exactly_one(taskId=self.task_id, kickoffId=self.kickoff_id)


class ForgetParams(Params, frozen=True, kw_only=True):
    task_id: Handle = msgspec.field(name="taskId")
    force: bool = False


class ResetSessionParams(Params, frozen=True, kw_only=True):
    kind: Literal["bash", "python"] = "bash"


class SetLaneParams(Params, frozen=True, kw_only=True):
    lane: LaneName
    limit: LaneLimit  # 0: nothing starts in it


class SetModeParams(Params, frozen=True, kw_only=True):
    """`ttl_secs` is about `exclusive` alone."""

    mode: Literal["shared", "exclusive"]
    ttl_secs: PositiveSeconds = 600.0

    def __post_init__(self) -> None:
        cap(self, "ttl_secs", EXCLUSIVE_MAX_SECS)


class EngineInfoParams(Params, frozen=True, kw_only=True):
    pass


class RosterParams(Params, frozen=True, kw_only=True):
    after: Caller | None = None  # the last name of an earlier page


class ReadStatsParams(Params, frozen=True, kw_only=True):
    since: Time | None = None  # the samples after it; None: the last hour


class DiscoverParams(Params, frozen=True, kw_only=True):
    pass


class ShutdownParams(Params, frozen=True, kw_only=True):
    mode: Literal["leave", "cancel"] = "leave"


class CancelRequestParams(Params, frozen=True, kw_only=True):
    """`id` is that of a call of the same connection; null is an id like any other."""

    id: RequestId = None


# What says how a call is answered, not what is run: no part of a job's identity.
_ABOUT_THE_CALL: Final = (
    "as",
    "key",
    "logScope",
    "logs",
    "max_output_bytes",
    "on_disconnect",
    "timeout_secs",
    "tool_schema_fingerprint",
)


def job_identity(params: BashParams | ExecuteParams) -> bytes:
    """Canonical JSON of what `params` ask to run: equal for equal jobs under one `key`.

    A param at its default is left out, so it compares equal to one not given, and to one that
    the release which stored the identity did not know.
    """
    facts = {
        field.encode_name: value
        for field in msgspec.structs.fields(params)
        if field.encode_name not in _ABOUT_THE_CALL
        and (value := getattr(params, field.name)) != field.default
    }
    return msgspec.json.encode(facts, order="sorted")
