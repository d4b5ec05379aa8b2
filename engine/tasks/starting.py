"""From what was asked to what a keeper is told: program, environment, directory, shell text."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.jobs.directory import Base, Spec
from engine.jobs.executor import Order
from engine.jobs.orphans import MARK
from engine.jobs.pythonlocal import CodeOrder, PythonOrder
from engine.jobs.shellstate import CallPlan, ShellState, plan_call

# What a program should know when nobody looks: given where the caller has not said otherwise.
DEFAULTS: Final = {"NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"}
# The same for one that has a terminal, which somebody may look at.
TERMINAL_DEFAULTS: Final = {"TERM": "xterm"}
_BASE_NAMES: Final = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR"})
_BASE_PREFIXES: Final = ("LC_", "XDG_")


def default_base(environ: Mapping[str, str]) -> Base:
    """Where calls start that no `hello` has spoken for: the user's home, a few variables."""
    env = {
        name: value
        for name, value in environ.items()
        if (name in _BASE_NAMES or name.startswith(_BASE_PREFIXES)) and _is_text(value)
    }
    name, folder = _user()
    home = env.get("HOME") or folder
    fallback = {"HOME": home, "USER": name, "LOGNAME": name, "PATH": os.defpath}
    return Base(cwd=home if os.path.isdir(home) else "/", env={**fallback, **env})


def _user() -> tuple[str, str]:
    """Name and home directory of the engine's user; of one that nobody has named, what will do."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:  # a container's number
        return str(os.getuid()), "/"
    return user.pw_name, user.pw_dir


def _is_text(value: str) -> bool:
    """Whether JSON can carry it: no byte that is no UTF-8."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _defaults(spec: Spec) -> Mapping[str, str]:
    return TERMINAL_DEFAULTS if spec.pty else DEFAULTS


def _ready_port(spec: Spec) -> int | None:
    return None if spec.ready_when is None else spec.ready_when.port


class Starter:
    """Makes orders. `home` is the engine's, for the job's ENGINE_HOME."""

    def __init__(self, home: str, output_cap_bytes: int) -> None:
        self._home, self._cap = home, output_cap_bytes
        self._bash = shutil.which("bash") or "/bin/bash"

    def order(
        self, spec: Spec, state: ShellState | None, *, is_quiet: bool = False
    ) -> tuple[Order, CallPlan | None]:
        """The order for `spec`, and how its shell was planned if it has one.

        `state` is that of the caller's session, for a spec that runs in it. `is_quiet`: see Order.
        """
        identity = {MARK: "t" + spec.id, **self._names(spec)}
        cwd = spec.cwd or (state.cwd if state is not None else spec.base.cwd)
        plan: CallPlan | None = None
        if spec.command is not None:
            plan = plan_call(
                state,
                spec.command.encode(),
                session=spec.session,
                base=spec.base.env,
                env=spec.env,
                defaults=_defaults(spec),
                identity=identity,
                has_terminal=spec.pty,
            )
            argv, env = plan.argv, plan.environ
        else:
            argv = spec.argv or []
            env = {**_defaults(spec), **spec.base.env, **spec.env, **identity}
        order = Order(
            argv=argv,
            path=self._bash if plan is not None else None,
            env=env,
            cwd=cwd,
            cwd_or_parent=spec.cwd is None,
            split=spec.split,
            deadline_secs=spec.deadline_secs,
            output_cap_bytes=self._cap,
            prologue=plan.prologue if plan is not None else None,
            call=plan.call if plan is not None else b"",
            stdin=None if spec.stdin is None else spec.stdin.encode(),
            wants_state=spec.session and plan is not None,
            stdin_open=spec.stdin_open,
            pty=spec.pty,
            memory_bytes=spec.memory_bytes,
            ready_port=_ready_port(spec),
            is_quiet=is_quiet,
        )
        if plan is not None:  # it is kept as long as the call runs, the texts may be long
            plan = msgspec.structs.replace(plan, prologue=b"", call=b"")
        return order, plan

    def _names(self, spec: Spec) -> dict[str, str]:
        return {"ENGINE_CALLER": spec.caller, "ENGINE_HOME": self._home}

    def python_order(self, spec: Spec) -> PythonOrder:
        """What the interpreter starts with that `spec` is the first call of."""
        env = {**DEFAULTS, **spec.base.env, **self._names(spec)}
        return PythonOrder(env=env, cwd=spec.base.cwd)

    def code_order(self, spec: Spec) -> CodeOrder:
        return CodeOrder(
            code=(spec.code or "").encode(),
            cwd=spec.cwd,
            env=spec.env,
            stdin=None if spec.stdin is None else spec.stdin.encode(),
            split=spec.split,
            deadline_secs=spec.deadline_secs,
            output_cap_bytes=self._cap,
            ready_port=_ready_port(spec),
        )
