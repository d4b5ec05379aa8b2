"""The system call that a thread of another process is in, and the descriptors that it waits for.

Only calls that matter to who waits for what, under names that say so. Needs what ptrace(2) needs:
under Yama only an ancestor may look. Where the kernel does not tell, or the machine is none that is
known here, every call is the empty name. Source: proc(5), /proc/PID/syscall, /proc/PID/fdinfo.
"""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

MAX_FDS: Final = 1024  # of one wait that are looked at

# Name -> numbers. `lock`: futex; `signal`: waits for one.
_X86_64: Final = {
    "read": (0, 19, 275),
    "write": (1, 20),
    "poll": (7,),
    "ppoll": (271,),
    "select": (23, 270),
    "epoll": (232, 281),
    "epoll2": (441,),
    "wait4": (61,),
    "waitid": (247,),
    "signal": (34, 128, 130),
    "lock": (202,),
}
_GENERIC: Final = {  # include/uapi/asm-generic/unistd.h
    "read": (63, 65, 76),
    "write": (64, 66),
    "ppoll": (73,),
    "select": (72,),
    "epoll": (22,),
    "epoll2": (441,),
    "wait4": (260,),
    "waitid": (95,),
    "signal": (133, 137),
    "lock": (98,),
}
_MACHINES: Final = {"x86_64": _X86_64, "aarch64": _GENERIC, "riscv64": _GENERIC}
_NAMES: Final = {
    number: name
    for name, numbers in _MACHINES.get(os.uname().machine, {}).items()
    for number in numbers
}
_POLLFD: Final = struct.Struct("=ihh")  # fd, events, revents
_IN: Final = 1  # POLLIN, EPOLLIN
_BELOW_ZERO: Final = 1 << 31  # of a timeout in ms, an int: there is none
_CHOICES: Final = frozenset({"poll", "ppoll", "select", "epoll", "epoll2"})


class Call(NamedTuple):
    """`name` of the call, empty of one of no account; `args` as they were given."""

    name: str
    args: tuple[int, ...] = ()

    @property
    def is_choice(self) -> bool:
        """Whether it waits for any of several descriptors."""
        return self.name in _CHOICES

    @property
    def is_timed(self) -> bool:
        """Of a choice: whether it ends by time."""
        _a, _b, c, d, e, _f = self.args
        if self.name in ("poll", "epoll"):
            return not (c if self.name == "poll" else d) & _BELOW_ZERO
        return {"ppoll": c, "select": e, "epoll2": d}[self.name] != 0  # pointers


NONE: Final = Call("")


def call_of(pid: int, thread: str) -> Call:
    """What the thread is in; `NONE` also while it runs. Raises OSError where we may not look."""
    with open(f"/proc/{pid}/task/{thread}/syscall", "rb", buffering=0) as file:
        words = (file.read(256) or b"").split()
    if len(words) < 7:  # "running", or stopped outside of any call
        return NONE
    return Call(_NAMES.get(int(words[0]), ""), tuple(int(word, 16) for word in words[1:7]))


def awaited(pid: int, call: Call) -> dict[int, bool]:
    """Descriptor -> whether it is waited for to be read, of a choice. Raises OSError, ValueError.

    Ready to be written, or anything else, is False.
    """
    a, b, c, d, _e, _f = call.args
    if call.name in ("poll", "ppoll"):
        return _polled(pid, a, b)
    if call.name == "select":
        return _selected(pid, a, (b, c, d))
    return _in_epoll(pid, a)


def _polled(pid: int, address: int, count: int) -> dict[int, bool]:
    data = _memory(pid, address, count * _POLLFD.size)
    return {fd: bool(events & _IN) for fd, events, _found in _POLLFD.iter_unpack(data) if fd >= 0}


def _selected(pid: int, count: int, sets: tuple[int, int, int]) -> dict[int, bool]:
    numbers = dict[int, bool]()
    for place, address in enumerate(sets):
        if address:
            bits = int.from_bytes(_memory(pid, address, (count + 63) // 64 * 8), "little")
            for fd in range(count):
                if bits >> fd & 1:
                    numbers.setdefault(fd, place == 0)  # vim waits for exceptions of it, too
    return numbers


def _in_epoll(pid: int, number: int) -> dict[int, bool]:
    numbers = dict[int, bool]()
    with open(f"/proc/{pid}/fdinfo/{number}", "rb") as file:
        for line in file:
            words = line.split()  # tfd: 5 events: 19 ...
            if words[:1] == [b"tfd:"]:
                numbers[int(words[1])] = bool(int(words[3], 16) & _IN)
    return numbers


def _memory(pid: int, address: int, size: int) -> bytes:
    """Memory of another process. Raises OSError, ValueError where there is none or too much."""
    if size > MAX_FDS * _POLLFD.size or address >= 1 << 63:
        raise ValueError("more than is looked at")
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, size, address)
    finally:
        os.close(fd)
    if len(data) < size:
        raise ValueError("not all of it is there")
    return data
