"""`install-service`: a systemd user unit that runs the engine; it is printed or written, no more.

systemd itself is not called: what a person types is what they know to have been done.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.verbs import Verb, verb
from engine.model import ENGINE_CGROUP

UNIT: Final = "engine.service"
FIRST_LINE: Final = "# Written by: engine install-service"
COMMANDS: Final = (
    f"systemctl --user enable --now {UNIT}",
    "loginctl enable-linger    # so that it runs on when you log out",
)
TEMPLATE: Final = """\
{first}
[Unit]
Description=engine: runs work in the background and loses none of it
Documentation=man:systemd.kill(5)

[Service]
Type=exec
ExecStart={command}
# Jobs are no children of the engine: a stop or restart of the unit leaves them running.
KillMode=process
Restart=on-failure
RestartSec=1
# 2: a bad setting; 3: another engine has the home. Trying again would not help.
RestartPreventExitStatus=2 3
TimeoutStopSec=30
# One job that takes all the memory ends by itself, and not with it the unit.
OOMPolicy=continue
# Memory can be measured and limited for each job (memory_bytes).
Delegate=yes
# Where the engine itself is. systemd before 254 does not know it, and says so in its log; there
# the unit does not come up again beside a job with memory_bytes that outlived its engine.
DelegateSubgroup={leaf}
TasksMax=infinity
LimitNOFILE=524288

[Install]
WantedBy=default.target
"""


@click.command(
    "install-service",
    cls=Verb,
    help="Print a systemd user unit that runs the engine; --write puts it into "
    "~/.config/systemd/user. It is started by the two commands that are named then.",
)
@click.option("--write", is_flag=True, help="Write it, and say how to start it.")
@click.option("--force", is_flag=True, help="Also over a unit that is another one.")
@click.pass_context
def install_service_verb(ctx: click.Context, /, write: bool, force: bool) -> None:
    if force and not write:
        raise click.UsageError("--force is for --write")
    verb(_install, ctx, write=write, force=force)


def _install(app: App, *, write: bool, force: bool) -> int:
    text = unit_text(app.options.get("home") or app.environ.get("ENGINE_HOME"), app.home)
    if not write:
        app.console.write(app.console.out_fd, text.encode())
        return exits.DONE
    return _write(app, text, force)


def unit_text(given: str | None, home: str, program: str = sys.executable) -> str:
    """The unit. The home stands in it where one was `given`: else the engine finds its own."""
    words = [program, "-m", "engine", "serve", *(["--home", home] if given else [])]
    command = " ".join(map(quoted, words))
    return TEMPLATE.format(first=FIRST_LINE, command=command, leaf=ENGINE_CGROUP)


def quoted(word: str) -> str:
    """`word` as one argument of ExecStart=: systemd.service(5), COMMAND LINES."""
    if any(char < " " or char == "\x7f" for char in word):
        raise click.UsageError(f"{word!r} cannot stand in a unit: it has a control character")
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return text if text and not set(text) & set(" '\";") else f'"{text}"'


def _write(app: App, text: str, force: bool) -> int:
    from engine.client.places import tilde

    path = os.path.join(config_folder(app.environ), "systemd", "user", UNIT)
    shown, console = tilde(path), app.console
    try:
        there = read_text(path)
        if there is not None and not (force or there.startswith(FIRST_LINE)):
            console.say(f"{shown} is another unit; --force writes over it", always=True)
            return exits.REFUSED
        if there != text:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".new", path)
    except OSError as exc:
        console.say(f"{shown} cannot be written: {exc.strerror}", always=True)
        return exits.REFUSED
    console.say(f"{shown} {'is as it should be' if there == text else 'written'}. Now type:")
    pid = running(app.home)
    first = [f"engine stop    # the one that runs (pid {pid}); its jobs run on"] if pid else []
    for command in [*first, *COMMANDS]:
        console.line(f"  {command}" if console.out_is_terminal else command)
    return exits.DONE


def running(home: str) -> int | None:
    """The process of the engine that has the home; None where none is known."""
    from engine.client.errors import NotReachable
    from engine.client.places import is_alive, read_facts

    try:
        pid = read_facts(home).get("pid")
    except NotReachable:
        return None
    return pid if isinstance(pid, int) and is_alive(pid) else None


def read_text(path: str) -> str | None:
    """What stands in the file at `path`; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def config_folder(environ: dict[str, str]) -> str:
    """XDG's place for settings: an absolute XDG_CONFIG_HOME, else ~/.config."""
    given = environ.get("XDG_CONFIG_HOME", "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".config")
