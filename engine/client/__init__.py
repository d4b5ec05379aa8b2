"""How a program talks to an engine.

    from engine.client import connect          # on trio
    from engine.client.sync import connect     # without it

    async with connect() as engine:
        result = await engine.bash("make", as_="ci")

What is named here is loaded when it is used: the command line must not pay for trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.client.api import Engine, connect

__all__ = ["Engine", "connect"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine.client import api

    return getattr(api, name)
