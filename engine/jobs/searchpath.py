"""Where the programs of a caller's shell session are looked for. Pure."""

from __future__ import annotations

import os
import re
from typing import Final

from engine.jobs.shelldump import unquote
from engine.jobs.shellprologue import ShellState

# What restores a scalar: its attributes that act on a value may stand in a command behind it.
_SCALAR: Final = re.compile(
    rb"""declare\ -\S+\ PATH=("(?:[^\\"]|\\.)*"|\$'(?:[^\\']|\\.)*')""", re.VERBOSE | re.DOTALL
)


def search_path(state: ShellState | None) -> str | None:
    """The PATH of a session with `state`; None where it has none, or no session is there."""
    if state is None:
        return None
    found = _SCALAR.match(state.variables.get(b"PATH", b""))
    return None if found is None else os.fsdecode(unquote(found[1]))
