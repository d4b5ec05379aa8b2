"""Who listens at a port of this machine: sockets by their inodes, and whose they are.

Source: proc(5), /proc/net/tcp and tcp6. What listens in another network namespace is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

_LISTEN: Final = b"0A"  # TCP_LISTEN
# The addresses, as they stand there (32-bit words in the machine's order), at which one that
# connects to 127.0.0.1 or ::1 may be heard.
_ANY: Final = frozenset({b"00000000", b"0" * 32})
_LOOPBACK: Final = frozenset(
    {
        *(b"0100007F", b"7F000001"),
        *(b"0" * 24 + b"01000000", b"0" * 31 + b"1"),
        *(b"0000000000000000FFFF00000100007F", b"00000000000000000000FFFF7F000001"),
    }
)
_ADDRESSES: Final = _ANY | _LOOPBACK


def listeners(port: int) -> frozenset[int] | None:
    """Inodes of the sockets that listen at `port`; None where the system does not tell."""
    found: set[int] | None = None
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", "rb") as file:
                lines = file.read().splitlines()[1:]
        except OSError:  # no IPv6, or no /proc/net
            continue
        found = found or set()
        for line in lines:
            words = line.split()  # sl local remote state ... inode, in the tenth place
            address, _colon, number = words[1].partition(b":")
            if words[3] == _LISTEN and int(number, 16) == port and address in _ADDRESSES:
                found.add(int(words[9]))
    return None if found is None else frozenset(found)


def has_any(pids: Iterable[int], inodes: frozenset[int]) -> bool:
    """Whether one of these processes has one of these sockets open."""
    names = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids:
        path = f"/proc/{pid}/fd"
        try:
            for number in os.listdir(path):
                if _link(f"{path}/{number}") in names:
                    return True
        except OSError:  # gone, or another user's
            continue
    return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
