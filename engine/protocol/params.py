"""The params of every method: one frozen Struct each, decoded strictly.

A Struct of this module that exists is valid: types and bounds by its annotations, the rest by
`__post_init__`, which also brings over-large times down to their cap. What another release will
offer is known by name and refused by name. Nothing here runs or stores anything.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from engine.errors import InvalidParams
from engine.protocol.decode import member_path

INLINE_BUDGET_SECS: Final = 20.0  # longest wait of bash, execute, wait and read_output
FOLLOW_MAX_SECS: Final = 55.0  # longest wait of list_tasks
GRACE_MAX_SECS: Final = 300.0  # longest grace of cancel
DEADLINE_MAX_SECS: Final = 1e9  # 31 years: a later deadline is kept as this one
COMMAND_MAX_BYTES: Final = 1 << 20
ARG_MAX_BYTES: Final = 131_072  # Linux: MAX_ARG_STRLEN; one string of argv or env must be shorter
SAFE_INT: Final = (1 << 53) - 1  # the integers that every double holds exactly
PAGE_MAX_BYTES: Final = 512 * 1024  # the largest page of output that a reply carries
RESERVED_PREFIX: Final = "ENGINE_"

NOT_OFFERED: Final = "nothing: this engine does not offer {} yet"


def _says(expected: str) -> dict[str, str]:
    """`Meta.extra` by which a refusal words what it expected."""
    return {"expected": expected}


# `$(?!\n)`: a plain `$` also matches before a last newline.
Caller = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9_-]{1,64}$(?!\n)", extra=_says("1 to 64 characters of a-z 0-9 _ -")),
]
CallerOrAll = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9_-]{1,64}|\*)$(?!\n)",
        extra=_says('1 to 64 characters of a-z 0-9 _ -, or "*"'),
    ),
]
Handle = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,84}$(?!\n)",
        extra=_says("handle of 1 to 84 characters of A-Z a-z 0-9 _ -"),
    ),
]
Seconds = Annotated[float, Meta(ge=0, extra=_says("number >= 0"))]
PositiveSeconds = Annotated[float, Meta(gt=0, extra=_says("number > 0"))]
Key = Annotated[str, Meta(max_length=200, extra=_says("string of at most 200 characters"))]
Label = Annotated[str, Meta(max_length=200, extra=_says("string of at most 200 characters"))]
OutputBytes = Annotated[
    int, Meta(ge=0, le=PAGE_MAX_BYTES, extra=_says("integer between 0 and 524288"))
]
PageBytes = Annotated[
    int, Meta(ge=1, le=PAGE_MAX_BYTES, extra=_says("integer between 1 and 524288"))
]
Offset = Annotated[
    int, Meta(ge=-SAFE_INT, le=SAFE_INT, extra=_says("integer between -2^53 and 2^53"))
]
Seq = Annotated[int, Meta(ge=0, le=SAFE_INT, extra=_says("integer between 0 and 2^53"))]
PageRows = Annotated[int, Meta(ge=1, le=500, extra=_says("integer between 1 and 500"))]
Argv = Annotated[
    list[str], Meta(min_length=1, max_length=4096, extra=_says("array of 1 to 4096 strings"))
]

LogFloor = Annotated[
    Literal[
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
        "none",
    ],
    Meta(
        extra=_says(
            "debug, info, notice, warning, error, critical, alert, emergency"
            ' (the least severe that is shown) or "none"'
        )
    ),
]
LogScope = Literal["caller", "all"]
Status = Literal[
    "queued",
    "held",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "lost",
    "skipped",
    "denied",
]
RequestId = int | float | str | None


class TextInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text that is the whole of a job's standard input."""

    text: str


Stdin = Annotated[
    Literal["null", "open"] | TextInput, Meta(extra=_says('"null" or {"text": string}'))
]


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
            _check_directory("$.cwd", self.cwd)
        if self.env is not None:
            kept = {k: v for k, v in self.env.items() if not k.startswith(RESERVED_PREFIX)}
            _check_env("$.env", kept)
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
    lane: Label | None = None
    after: list[Handle] | None = None
    after_when: Literal["succeeded", "failed", "ended"] | None = None
    ready_when: dict[str, Any] | None = None
    memory_bytes: Seq | None = None
    max_output_bytes: OutputBytes = 32_768
    logs: LogFloor = "warning"
    log_scope: LogScope = msgspec.field(default="caller", name="logScope")

    def __post_init__(self) -> None:
        self._check_offered()
        _cap(self, "timeout_secs", INLINE_BUDGET_SECS)
        _cap(self, "deadline_secs", DEADLINE_MAX_SECS)
        if self.cwd is not None:
            _check_directory("$.cwd", self.cwd)
        if self.env is not None:
            _check_env("$.env", self.env)
        if self.key is not None:
            _check_no_nul("$.key", self.key)

    def _check_offered(self) -> None:
        for name in ("lane", "after", "after_when", "ready_when", "memory_bytes"):
            if getattr(self, name) is not None:
                raise InvalidParams(f"$.{name}", NOT_OFFERED.format(name))
        if self.pty:
            raise InvalidParams("$.pty", "false: this engine does not offer a terminal yet")
        if self.stdin == "open":
            raise InvalidParams(
                "$.stdin", '"null" or {"text": string}: this engine does not offer "open" yet'
            )


class BashParams(StartParams, frozen=True, kw_only=True):
    command: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_no_nul("$.command", self.command)
        if not 1 <= _utf8_size(self.command) <= COMMAND_MAX_BYTES:
            raise InvalidParams("$.command", "1 to 1048576 bytes of UTF-8")


class ExecuteParams(StartParams, frozen=True, kw_only=True):
    """`argv` is there once this exists: `code` is refused by name."""

    argv: Argv | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_exactly_one(argv=self.argv, code=self.code)
        if self.argv is None:
            raise InvalidParams("$.code", NOT_OFFERED.format("code"))
        for i, item in enumerate(self.argv):
            _check_argument(f"$.argv[{i}]", item, _utf8_size(item))


class WaitParams(Params, frozen=True, kw_only=True):
    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    kickoff_id: Handle | None = msgspec.field(default=None, name="kickoffId")
    timeout_secs: Seconds = INLINE_BUDGET_SECS
    max_output_bytes: OutputBytes = 32_768
    logs: LogFloor = "warning"
    log_scope: LogScope = msgspec.field(default="caller", name="logScope")

    def __post_init__(self) -> None:
        _cap(self, "timeout_secs", INLINE_BUDGET_SECS)
        _check_exactly_one(taskId=self.task_id, kickoffId=self.kickoff_id)


class CancelParams(Params, frozen=True, kw_only=True):
    """Exactly one of the handles and `caller` is there."""

    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    kickoff_id: Handle | None = msgspec.field(default=None, name="kickoffId")
    caller: Caller | None = None
    grace_secs: Seconds = 5.0
    force: bool = False

    def __post_init__(self) -> None:
        _cap(self, "grace_secs", GRACE_MAX_SECS)
        _check_exactly_one(taskId=self.task_id, kickoffId=self.kickoff_id, caller=self.caller)


class ReadOutputParams(Params, frozen=True, kw_only=True):
    task_id: Handle = msgspec.field(name="taskId")
    stream: Literal["output", "stdout", "stderr"] = "output"
    offset: Offset = 0  # negative: so many bytes before the end
    limit_bytes: PageBytes = 65_536
    timeout_secs: Seconds = 0.0
    raw: bool = False

    def __post_init__(self) -> None:
        _cap(self, "timeout_secs", INLINE_BUDGET_SECS)


class ListTasksParams(Params, frozen=True, kw_only=True):
    caller: CallerOrAll | None = None  # None: the caller's own
    state: list[Status] | None = None
    limit: PageRows = 50
    before: Label | None = None
    changed_after: Seq | None = None
    timeout_secs: Seconds = 0.0

    def __post_init__(self) -> None:
        _cap(self, "timeout_secs", FOLLOW_MAX_SECS)


class ReadTaskParams(Params, frozen=True, kw_only=True):
    task_id: Handle | None = msgspec.field(default=None, name="taskId")
    kickoff_id: Handle | None = msgspec.field(default=None, name="kickoffId")

    def __post_init__(self) -> None:
        _check_exactly_one(taskId=self.task_id, kickoffId=self.kickoff_id)


class ForgetParams(Params, frozen=True, kw_only=True):
    task_id: Handle = msgspec.field(name="taskId")
    force: bool = False


class ResetSessionParams(Params, frozen=True, kw_only=True):
    kind: Literal["bash", "python"] = "bash"

    def __post_init__(self) -> None:
        if self.kind == "python":
            raise InvalidParams("$.kind", '"bash": this engine does not offer "python" yet')


class EngineInfoParams(Params, frozen=True, kw_only=True):
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


def _cap(params: Params, name: str, most: float) -> None:
    value = getattr(params, name)
    if value is not None and value > most:
        force_setattr(params, name, most)


def _check_exactly_one(**given: object) -> None:
    if sum(value is not None for value in given.values()) != 1:
        raise InvalidParams("$", f"exactly one of {_listed(list(given))}")


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_no_nul(path: str, text: str) -> None:
    if "\0" in text:
        raise InvalidParams(path, "string without NUL")


def _check_argument(path: str, text: str, size: int) -> None:
    _check_no_nul(path, text)
    if size >= ARG_MAX_BYTES:
        raise InvalidParams(path, "fewer than 131072 bytes (the system passes no more in one)")


def _check_directory(path: str, text: str) -> None:
    _check_no_nul(path, text)
    if not text.startswith("/"):
        raise InvalidParams(path, "an absolute path")


def _check_env(path: str, env: dict[str, str]) -> None:
    """Raise unless each `NAME=value` can be passed to a process and no name is the engine's."""
    for name, value in env.items():
        at = member_path(path, name)
        if not name or "=" in name or "\0" in name:
            raise InvalidParams(at, "name that is not empty and has no = or NUL")
        if name.startswith(RESERVED_PREFIX):
            raise InvalidParams(at, f"name that does not begin with {RESERVED_PREFIX}")
        _check_argument(at, value, _utf8_size(name) + 1 + _utf8_size(value))
