"""What the daemon's libraries import and the daemon never uses: a fifth of what it has resident.

Only for a process that is the daemon's alone, before its modules are loaded.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

# structlog does without rich, which only draws its tracebacks, and imports asyncio for loggers
# that are awaited; trio, its websockets and asyncio import ssl for those who encrypt.
LATER: Final = ("asyncio", "ssl")
NEVER: Final = ("rich",)
# Those of hashlib that do not need OpenSSL; in one of these sets of modules, by Python's version.
_OWN_HASHES: Final = (
    ("_md5", "_sha1", "_sha2", "_sha3", "_blake2"),
    ("_md5", "_sha1", "_sha256", "_sha512", "_sha3", "_blake2"),
)


class _Later(ModuleType):
    """A module that is loaded when something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)
        return getattr(module, name)


def spare_modules() -> None:
    """Have what is in `LATER` loaded when it is used, and what is in `NEVER`, and OpenSSL, not."""
    for name in LATER:
        sys.modules.setdefault(name, _Later(name))
    unloaded = [*NEVER]
    if any(all(find_spec(each) for each in hashes) for hashes in _OWN_HASHES):
        unloaded.append("_hashlib")
    for name in unloaded:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # documented: no such module
