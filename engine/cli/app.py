"""What one call of the command line knows: its options, its console, the way to the engine."""

from __future__ import annotations

import os
import pwd
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from engine.cli.console import Console
from engine.client.identity import is_text, sendable

if TYPE_CHECKING:
    from engine.client.blocking import Client
    from engine.client.link import Wake
    from engine.client.places import Role

AS_JOB: Final = frozenset(("run", "exec", "py", "wait"))  # the verbs that exit as the job does
CALLER: Final = re.compile(r"[a-z0-9_-]{1,64}")
META: Final = "engine.options"  # where the options of group and verb meet, in click's context


@dataclass
class App:
    """Made once; `subject` is the handle that is being worked on, for the words of an error.

    `shown`: the handle whose end was shown last; once the verb is done the engine is told of it.
    """

    options: dict[str, Any]
    environ: dict[str, str]
    console: Console
    verb: str = ""
    subject: str = ""
    shown: str = ""
    as_job: bool = False
    has_stdout: bool = True  # whether we were given one
    _client: Client | None = field(default=None, repr=False)

    @property
    def json(self) -> bool:
        return bool(self.options.get("json"))

    @property
    def caller(self) -> str:
        """Who asks: `--as`, else ENGINE_CALLER, else `cli-` and the login name."""
        given = self.options.get("as_") or self.environ.get("ENGINE_CALLER")
        name = given or default_caller()
        if not CALLER.fullmatch(name):
            raise click.UsageError(f"--as {name!r} is not 1 to 64 characters of a-z 0-9 _ -")
        return str(name)

    @property
    def home(self) -> str:
        from engine.client.places import find_home

        return find_home(self.options.get("home"), self.environ)

    @property
    def url(self) -> str | None:
        given: str | None = self.options.get("url") or self.environ.get("ENGINE_URL")
        if given and not is_text(given):
            raise click.UsageError("--url is not UTF-8")
        return given

    @property
    def patience(self) -> float:
        from engine.client.schedule import PATIENCE

        given = self.options.get("reconnect")
        return PATIENCE if given is None else float(given)

    def client(
        self,
        *,
        starts: bool = False,
        hello: bool = False,
        role: Role = "agent",
        wake: Wake | None = None,
        timeout: float | None = None,
    ) -> Client:
        """A connected client. `starts`: start an engine where none runs and nothing forbids it.

        Also later, in place of one that vanished. `role`: an observer only looks, so that
        nobody's position moves. `timeout`: seconds that the person waits for all of it.
        """
        from engine.client.blocking import Client
        from engine.client.places import find_place
        from engine.client.sockets import spot

        home = self.home
        may_start = starts and not (self.options.get("no_start") or self.url)
        client = self._client = Client(
            lambda: find_place(home, self.url, self.environ, role=role),
            hello=self.greeting() if hello else None,
            patience=self.patience,
            wake=wake,
            tell_lost=self._tell_lost,
            tell_back=self._tell_back,
            revive=self._start if may_start else None,
            timeout=timeout,
        )
        if may_start:
            client.connect_or_start()
        else:
            client.connect()
        if self.options.get("verbose") and client.place is not None:
            self.console.say(f"connected to {spot(client.place)} as {self.caller}")
        return client

    def _start(self) -> None:
        from engine.client.start import start_engine

        start_engine(self.home, self.environ)

    def greeting(self) -> dict[str, Any]:
        """The params of `hello`: this process's directory and environment without ENGINE_…"""
        env, left_out = sendable(self.environ)
        for name in left_out:
            self.console.say(f"the variable {name} is not UTF-8 and is left out")
        cwd = self.directory()
        return {"cwd": cwd if cwd and is_text(cwd) else None, "env": env, "client": "engine cli"}

    def directory(self) -> str | None:
        """Where this process stands, also when the directory is gone; None where nobody knows."""
        try:
            return os.getcwd()
        except FileNotFoundError:
            named = self.environ.get("PWD", "")
            return named if named.startswith("/") else None

    def _tell_lost(self) -> None:
        self.console.say(f"connection lost; trying again for up to {self.patience:g} s")

    def _tell_back(self, after: float) -> None:
        self.console.say(f"connected again after {after:.1f}s")

    def acknowledge(self) -> None:
        """Tell the engine that the ends which its replies carried have been shown.

        Any request says so; where no other followed the last of them, this one does.
        """
        if self._client is None or not self.shown:
            return
        is_round = self.shown.startswith("r")
        method, name = ("read_round", "roundId") if is_round else ("read_task", "taskId")
        self._client.notify(method, {"as": self.caller, name: self.shown})

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def default_caller() -> str:
    """`cli-` and the login name, characters outside `[a-z0-9_-]` as `-`."""
    try:
        login = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        login = str(os.getuid())
    return "cli-" + re.sub(r"[^a-z0-9_-]", "-", login)[:60]


def read_stdin(what: str) -> str:
    """All of standard input, which has to be UTF-8."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as exc:
        raise click.UsageError(f"{what} is not UTF-8 (byte {exc.start})") from exc
