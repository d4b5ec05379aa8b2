"""The command line, loaded once: a process that forks one for each command of a test.

`cli.program` starts it as a script, with the names of further modules to load, and asks by a
socket: four bytes of length, with the command's stdin, stdout and stderr beside them and at most
one descriptor more, which will be its 3; then JSON with `arguments`, `environ`, `cwd`, `terminal`.
The answer is a pid, as text of 16 bytes. Starting Python and importing click costs 0.1 s of
processor time, this a tenth of it.

No command runs here, so none sees anything of another. A command's process is the child of one
that has ended: so it becomes the child of whoever tests, who awaits it and finds it if it stays.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
import termios
import threading
import time
from typing import Any, NoReturn

import engine.cli
from engine.cli.main import main

# What verbs import when they need it, and most tests do.
LATER = (
    *("base64", "difflib", "subprocess", "wcwidth", "click.shell_completion"),
    *("engine.client.blocking", "engine.client.start"),
)


def load(more: list[str]) -> None:
    """Import `more` and all that a command may need; its memory is shared with those forked."""
    own = [f"engine.cli.{module.name}" for module in pkgutil.iter_modules(engine.cli.__path__)]
    for name in (*own, *LATER, *more):
        importlib.import_module(name)
    if (methods := sys.modules.get("engine.server.methods")) is not None:
        methods.fingerprint()  # every engine makes it once, which takes as long as all its start
    gc.collect()
    gc.freeze()


def await_command(control: socket.socket) -> None:
    """Return in the process of each command; in this one never: it exits where the socket ends."""
    while True:
        length, fds, _, _ = socket.recv_fds(control, 4, 4)
        if not length:
            sys.exit(0)
        asked = json.loads(control.recv(int.from_bytes(length), socket.MSG_WAITALL))
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:
                os.write(tell, b"%16d" % child)
                os._exit(0)
            for fd in (told, tell):
                os.close(fd)
            control.close()
            become(asked, fds)
            return
        for fd in (tell, *fds):
            os.close(fd)
        os.waitpid(between, 0)  # from here on the command has its new parent
        control.sendall(os.read(told, 16))
        os.close(told)


def become(asked: dict[str, Any], fds: list[int]) -> None:
    """Be as a process that was started for this command."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if asked["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    time.tzset()
    if (scheduler := sys.modules.get("trio._core._run")) is not None:
        scheduler._r.seed()  # or all would take their tasks in the same order
    sys.argv[1:] = asked["arguments"]
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        setattr(sys, name, open(fd, mode, buffering=1, closefd=False))  # noqa: SIM115


def leave(code: int) -> NoReturn:
    """End as the interpreter does, but for taking apart what is loaded.

    All of that memory would be copied for it: three times the processor time of a short command.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    control = socket.socket(fileno=int(sys.argv.pop()))
    load(sys.argv[1:])
    await_command(control)
    try:
        main()
    except SystemExit as exc:
        if isinstance(exc.code, int):
            leave(exc.code)
        raise
