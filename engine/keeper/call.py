"""One call of a session: a task whose code runs in the session's interpreter.

It ends when the code does. What the code left behind (processes; threads, which hold the call's
output) is the call's, and is looked after until it is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from engine.keeper.interpreter import Interpreter
from engine.keeper.kept import Kept
from engine.keeper.link import LinkBroken
from engine.keeper.news import News
from engine.keeper.spawning import SpawnFailed, exit_code, signal_number
from engine.keeper.taskfiles import CALL_EXIT_SIZE, Mark

VALUE_LIMIT: Final = 8192  # bytes; the worker cuts there
_TEXT_LIMIT: Final = 4096  # characters of an error's type and message

REQUIRED: Final = frozenset({"dir", "name", "cwd", "env", "stdin", "streams", "deadline", "cap"})


class Call(Kept):
    """request: {dir, name, cwd?, env, stdin, streams, deadline, cap, fds}.

    `name` is what `ENGINE_TASK_ID` says in the call's environment; `cwd` and `env` hold for this
    call alone.
    """

    def __init__(
        self, request: dict[str, Any], keeper: Mark, interpreter: Interpreter, *, is_once: bool
    ) -> None:
        """`is_once`: the interpreter is this call's alone, and its end that of the call."""
        super().__init__(request, keeper)
        self.name: str = request["name"]
        self.news: News
        self.has_threads = False  # some that it left behind hold its output
        self.living: Callable[[], list[int]] = list  # its processes, set by the keeper
        self._interpreter: Interpreter | None = interpreter  # as long as the code runs
        self._is_once = is_once
        self._has_begun = False
        self._missing: str | None = None  # the session's directory, where that is gone
        self._told: dict[str, Any] = {"error": None, "value": None}  # before the interpreter ends
        self._cpu = 0.0  # of the interpreter before the code began
        self.pid = interpreter.worker

    def processes(self) -> list[int]:
        return self.living()

    def measured(self) -> list[int]:
        return [*(self._interpreter.pids if self._interpreter else ()), *super().measured()]

    def start(self, code: int, stdin: int) -> None:
        """Hand it to the interpreter. Raises Refused; if that one is dying, its end is told."""
        self.open_files(CALL_EXIT_SIZE)
        assert self._interpreter is not None
        asked = {name: self.request[name] for name in ("cwd", "env")}
        asked |= {"call": self.name, "once": self._is_once}
        ends = [output.take_write_end() for output in self.outputs]
        try:
            self._interpreter.hand_over(asked, code, [stdin, *ends])
        except LinkBroken:
            self._interpreter.kill()  # it has closed its end: nothing can run in it
        finally:
            for output in self.outputs:
                output.close_write_end()
        self.begin_timers()

    def pipes(self) -> list[str]:
        """The names of its pipes as /proc shows them."""
        return [f"pipe:[{os.fstat(output.pipe).st_ino}]" for output in self.outputs]

    def on_began(self, message: dict[str, Any]) -> None:
        """The code can be interrupted from here on."""
        self._has_begun = True
        self.cwd, self._cpu = str(message["cwd"]), float(message["cpu"])
        self._missing = None if message["missing"] is None else str(message["missing"])
        if self.cause is not None and self._interpreter is not None:
            self._interpreter.interrupt()

    def started(self) -> dict[str, Any]:
        """The news of its start; `cwdMissing`: the directory in whose place `cwd` is."""
        facts = {"pid": self.pid, "startedAt": self.started_at, "cwd": self.cwd}
        return {"ev": "started", **facts, "cwdMissing": self._missing}

    # -- end -----------------------------------------------------------------------------------

    def end(self, message: dict[str, Any], *, is_reset: bool) -> None:
        """Write down how the code ended, as the worker says. Raises ValueError on nonsense.

        `is_reset`: the session ends with this call.
        """
        self.has_threads = bool(message["held"])
        facts = _checked(message)
        cpu = max(0.0, float(message["cpu"]) - self._cpu)
        self._interpreter = None
        self.write_record(
            cause="exit", cpu=cpu, survivors=self.survivors(), sessionReset=is_reset, **facts
        )

    def on_result(self, message: dict[str, Any]) -> None:
        """Keep what came of the code, for when the interpreter ends. Raises ValueError."""
        facts = _checked(message)
        self._told = {name: facts[name] for name in self._told}

    def end_unstarted(self, message: dict[str, Any]) -> None:
        """Write down that its directory cannot be entered."""
        self._interpreter = None
        error = SpawnFailed(int(message["errno"]), str(message["what"])[:_TEXT_LIMIT])
        self.write_spawn_failure(error, value=None, sessionReset=False)

    def end_with_interpreter(self, status: int, cpu: float) -> None:
        """Write down that the interpreter has ended: `status` as of wait4(2).

        Of a call that shares its interpreter with others: that it died of this one.
        """
        self._interpreter = None
        self.write_record(
            cause="exit" if os.WIFEXITED(status) else "signal",
            exitCode=exit_code(status),
            signal=signal_number(status),
            **self._told,
            sessionReset=not self._is_once,
            cpu=max(0.0, cpu - self._cpu),
            survivors=self.survivors(),
        )

    # -- killing it ------------------------------------------------------------------------------

    def begin_kill(self, cause: str, grace: float) -> list[int]:
        """Interrupt the code and TERM its processes; after `grace` KILL, the interpreter too."""
        interrupted: list[int] = []
        if self._interpreter is not None:
            interrupted = [self._interpreter.worker]
            if self._has_begun:
                self._interpreter.interrupt()
        signalled = interrupted + super().begin_kill(cause, grace)
        if not signalled:
            self.stop_killing()  # it has left threads alone, which nothing ends
        return signalled

    def kill(self) -> None:
        if self._interpreter is not None:
            self._interpreter.kill()
        super().kill()


def _checked(message: dict[str, Any]) -> dict[str, Any]:
    """Exit code, value and error of a word that code could have forged. Raises ValueError."""
    code, value, error = message["exitCode"], message["value"], message["error"]
    if type(code) is not int or not 0 <= code <= 255:
        raise ValueError("no exit code")
    if value is not None and len(str(value).encode()) > VALUE_LIMIT:
        raise ValueError("the value is too long")
    if error is not None:
        kind, text = str(error["type"])[:_TEXT_LIMIT], str(error["message"])[:_TEXT_LIMIT]
        error = {"type": kind, "message": text}
    value = None if value is None else str(value)
    return {"exitCode": code, "signal": None, "error": error, "value": value}
