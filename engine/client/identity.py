"""Who a client is to the engine, and where its callers start: the caller's name, and `hello`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from engine.client.wire import Params

RESERVED: Final = "ENGINE_"  # what begins so is ours and never a job's
CALLER: Final = "ENGINE_CALLER"
_COERCED: Final = ("C.UTF-8", "C.utf8", "UTF-8")  # what Python puts in place of the C locale


def name_of(given: str | None, environ: Mapping[str, str]) -> str:
    """The caller's name: `given`, else ENGINE_CALLER, else one that nobody else has.

    A name is needed: a client that the engine names anew with each connection could not repeat
    a call under its key.
    """
    return given or environ.get(CALLER) or "lib-" + os.urandom(5).hex()


def greeting(client: str, environ: Mapping[str, str]) -> Params:
    """The params of `hello`: this process's directory and environment, less ENGINE_….

    What is no UTF-8 cannot be sent and is left out.
    """
    env, _left_out = sendable(environ)
    try:
        cwd = os.getcwd()
    except FileNotFoundError:  # removed under us: sessions start in the user's home
        return {"env": env, "client": client}
    return {"cwd": cwd if is_text(cwd) else None, "env": env, "client": client}


def sendable(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables of `environ` that a job may have, and the names of those that are no UTF-8."""
    env, left_out = {}, []
    for name, value in _inherited(environ).items():
        if name.startswith(RESERVED):
            continue
        if is_text(name) and is_text(value):
            env[name] = value
        else:
            left_out.append(name)
    return env, left_out


def _inherited(environ: Mapping[str, str]) -> Mapping[str, str]:
    """`environ` without the LC_CTYPE that Python gave itself at its start (PEP 538)."""
    if environ.get("LC_CTYPE") not in _COERCED:
        return environ
    with open("/proc/self/environ", "rb") as file:
        is_ours = any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0"))
    return environ if is_ours else {n: v for n, v in environ.items() if n != "LC_CTYPE"}


def is_text(text: str) -> bool:
    """Whether `text`, as the system handed it to us, is UTF-8 (has no lone surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
