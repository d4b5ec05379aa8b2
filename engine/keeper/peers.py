"""The other end of a Unix socket, by inode: of a pair that a process keeps for itself, both.

Source: sock_diag(7). The kernel may be built without it; other network namespaces are not seen.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST: Final = 1
UDIAG_SHOW_PEER: Final = 4
UNIX_DIAG_PEER: Final = 2  # the attribute of an answer that has the peer's inode
ANSWER_BYTES: Final = 4096
_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST: Final = struct.Struct("=BBHIIIII")  # family, protocol, -, states, inode, show, cookie
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_INODE: Final = struct.Struct("=I")
_ANY: Final = 0xFFFFFFFF
_BEFORE_ATTRIBUTES: Final = 32  # header, and what the answer says about the socket itself


def peer_of(inode: int) -> int | None:
    """The inode of what a Unix socket is connected to; None where there is none, or none told."""
    if inode > _ANY:
        return None
    wanted = (socket.AF_UNIX, 0, 0, _ANY, inode, UDIAG_SHOW_PEER, _ANY, _ANY)
    length = _HEADER.size + _REQUEST.size
    head = _HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    try:
        with socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(head + _REQUEST.pack(*wanted))
            # It answers within the call above, if at all.
            answer = kernel.recv(ANSWER_BYTES, socket.MSG_DONTWAIT)
    except OSError:  # not built in, not allowed, no descriptor to be had
        return None
    return _peer_in(answer)


def _peer_in(answer: bytes) -> int | None:
    if len(answer) < _BEFORE_ATTRIBUTES or _HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return None  # an error: no Unix socket has that inode
    offset = _BEFORE_ATTRIBUTES
    while offset + _ATTRIBUTE.size + _INODE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, offset)
        if kind == UNIX_DIAG_PEER:
            return int(_INODE.unpack_from(answer, offset + _ATTRIBUTE.size)[0])
        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return None


def socket_name(inode: int) -> str:
    """As the link of a descriptor in /proc has it."""
    return f"socket:[{inode}]"


def inode_in(name: str) -> int | None:
    """The inode that such a link names; None of what is no socket."""
    if not name.startswith("socket:["):
        return None
    return int(name[len("socket:[") : -1])
