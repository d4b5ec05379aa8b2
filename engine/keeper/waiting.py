"""Whether a job hangs on its input: what each of its processes waits for, as /proc tells it.

A process that reads the input is *stuck*. So is one that waits for a stuck child, or for a pipe
that a stuck process holds, unless somebody else who has the input works on: then it may be that
one who is waited for. The job is stuck when its first process is. So a reader in the background
counts only where the foreground waits for it. Whoever cannot be looked at (another user's) or waits
for something else (a connection, the clock) is not stuck: a false alarm would be worse than none.
A main thread that waits at a lock is taken for one at work: for what, nobody can tell from outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.keeper import peers, processes, syscalls
from engine.keeper.syscalls import Call

MAX_PROCESSES: Final = 256  # of a job that are looked at; of one that has more nothing is told
MAX_THREADS: Final = 64  # likewise, of one process
MAX_HELD: Final = 1024  # descriptors of one process
_TTY: Final = os.makedev(5, 0)  # /dev/tty: the terminal that controls whoever opened it
_FUTEX_PRIVATE: Final = 128  # FUTEX_PRIVATE_FLAG, futex(2)
_INTERNAL: Final = ("anon_inode:[eventfd]", "anon_inode:[signalfd]")


class Input(NamedTuple):
    """What a job reads: the file behind it, and its number where it is a terminal (else 0)."""

    device: int
    inode: int
    terminal: int = 0


File = tuple[int, int]  # device and inode


class Wait(NamedTuple):
    """What a thread or a process waits for.

    kind: `input`; `child` (`pid`, 0: any); `files` (pipes of others); `loop` (its own process's
    events or a signal, such as the end of a child, for ever); `side` (what helper threads do: wait
    at a lock); `other`, with it a sleep and any wait that time ends.
    """

    kind: str
    pid: int = 0
    files: frozenset[File] = frozenset()


_OTHER: Final = Wait("other")
_INPUT: Final = Wait("input")
_LOOP: Final = Wait("loop")
_SIDE: Final = Wait("side")
_ANY_CHILD: Final = Wait("child")


def input_of(fd: int) -> Input:
    """The input of which `fd` is an end: either one of a pipe, or a job's one of a terminal."""
    status = os.fstat(fd)
    number = _terminal_number(status.st_rdev) if stat.S_ISCHR(status.st_mode) else 0
    return Input(status.st_dev, status.st_ino, number)


def _terminal_number(device: int) -> int:
    """As field 7 of /proc/PID/stat has it."""
    major, minor = os.major(device), os.minor(device)
    return minor & 0xFF | major << 8 | (minor & ~0xFF) << 12


def is_stuck(root: int, pids: list[int], source: Input) -> bool:
    """Whether `root`, the first process of a job that is `pids`, hangs on `source` now."""
    if len(pids) > MAX_PROCESSES:
        return False
    living = {pid: _Process(pid, source, pids) for pid in pids}
    stuck = {pid for pid, process in living.items() if process.wait is _INPUT}
    more = stuck
    while more and root not in stuck:
        more = {pid for pid in living.keys() - stuck if _hangs(living[pid], living, stuck)}
        stuck |= more
    return root in stuck


def _hangs(process: _Process, living: dict[int, _Process], stuck: set[int]) -> bool:
    """Whether what `process` waits for is stuck."""
    wait, others = process.wait, [other for other in living.values() if other is not process]
    if wait.kind == "child" and wait.pid:
        return wait.pid in stuck
    if wait.kind == "child":
        return _is_held_up([other for other in others if other.parent == process.pid], stuck)
    return wait.kind == "files" and all(
        _is_held_up([other for other in others if other.holds(file)], stuck) for file in wait.files
    )


def _is_held_up(others: Iterable[_Process], stuck: set[int]) -> bool:
    """Whether one of `others` is stuck, and none that has the input works on."""
    is_found = False
    for other in others:
        if other.pid in stuck:
            is_found = True
        elif other.has_input:
            return False
    return is_found


class _Process:
    """One process as it is now."""

    def __init__(self, pid: int, source: Input, pids: list[int]) -> None:
        self.pid, self._source, self._pids = pid, source, pids
        self.parent, self.wait = 0, _OTHER
        self._terminal = self._group = self._foreground = 0
        self._held: set[File] | None = None
        fields = processes.stat_fields(pid)
        if fields is None:
            return
        self.parent, self._group = int(fields[1]), int(fields[2])
        self._terminal, self._foreground = int(fields[4]), int(fields[5])
        # One that is stopped shows the call that it was in.
        if fields[0] not in "TtZX" and int(fields[17]) <= MAX_THREADS:
            self.wait = self._look()

    @property
    def has_input(self) -> bool:
        """Whether it may be who is waited for: it has the input, not in the background."""
        is_at_terminal = self._source.terminal and self._source.terminal == self._terminal
        if is_at_terminal and self._group != self._foreground:
            return False
        return self._is_source(0)

    def holds(self, file: File) -> bool:
        """Whether it has the file open."""
        if self._held is None:
            self._held = set()
            try:
                numbers = os.listdir(f"/proc/{self.pid}/fd")[:MAX_HELD]
            except OSError:  # gone, or another user's
                numbers = []
            for status in map(self._file, numbers):
                if status is not None:
                    self._held.add((status.st_dev, status.st_ino))
        return file in self._held

    def _look(self) -> Wait:
        """What it waits for. Helper threads do not count where another does more."""
        try:
            waits = [self._thread(thread) for thread in os.listdir(f"/proc/{self.pid}/task")]
        except OSError:  # gone, or not for us to look at
            return _OTHER
        told = [wait for wait in waits if wait not in (_SIDE, _LOOP)]
        if not told:
            return _ANY_CHILD if _LOOP in waits else _OTHER
        return told[0] if all(wait == told[0] for wait in told) else _OTHER

    def _thread(self, thread: str) -> Wait:
        call = syscalls.call_of(self.pid, thread)
        if call.is_choice:
            return self._choice(call)
        if call.name == "read":
            return _INPUT if self._is_source(call.args[0]) else self._pipes({call.args[0]})
        if call.name == "write":
            return self._pipes({call.args[0]})
        if call.name == "wait4":
            return Wait("child", call.args[0]) if 0 < call.args[0] < 1 << 31 else _ANY_CHILD
        if call.name == "waitid":
            return Wait("child", call.args[1]) if call.args[0] == os.P_PID else _ANY_CHILD
        if call.name == "lock":
            is_helper = int(thread) != self.pid or self._joins(call)
            return _SIDE if is_helper else _OTHER
        return _LOOP if call.name == "signal" else _OTHER

    def _joins(self, call: Call) -> bool:
        """Whether it waits for the end of a thread of its own, as pthread_join does: on the number
        that the kernel clears, with an operation that is not private."""
        number, is_private = call.args[2] & 0xFFFFFFFF, call.args[1] & _FUTEX_PRIVATE
        return not is_private and os.path.isdir(f"/proc/{self.pid}/task/{number}")

    def _choice(self, call: Call) -> Wait:
        """What waiting for any of several is. For a connection, too: that is no prompt."""
        if call.is_timed:  # it goes on by itself: a screen that is refreshed, a watcher
            return _OTHER
        try:
            wanted = syscalls.awaited(self.pid, call)
        except (OSError, LookupError, ValueError):
            return _OTHER
        sources = {fd for fd, is_read in wanted.items() if is_read and self._is_source(fd)}
        others = {fd for fd in wanted.keys() - sources if not self._is_internal(fd)}
        if sources:
            return _OTHER if others else _INPUT
        return self._pipes(others) if others else _LOOP

    def _pipes(self, numbers: set[int]) -> Wait:
        """Waiting for these pipes; `_OTHER` where one is none."""
        found = [self._file(number) for number in numbers]
        files = [(f.st_dev, f.st_ino) for f in found if f and stat.S_ISFIFO(f.st_mode)]
        return Wait("files", files=frozenset(files)) if len(files) == len(found) else _OTHER

    def _file(self, number: int | str) -> os.stat_result | None:
        try:
            return os.stat(f"/proc/{self.pid}/fd/{number}")
        except OSError:  # closed meanwhile, or not for us to look at
            return None

    def _is_source(self, number: int) -> bool:
        file = self._file(number)
        if file is None:
            return False
        if stat.S_ISCHR(file.st_mode) and file.st_rdev == _TTY:
            return self._source.terminal == self._terminal != 0
        return (file.st_dev, file.st_ino) == self._source[:2]

    def _is_internal(self, number: int) -> bool:
        """Whether only the process itself, or a signal, can make it ready."""
        try:
            name = os.readlink(f"/proc/{self.pid}/fd/{number}")
            if name.startswith("pipe:"):  # one of its own has two ends there
                return _links(self.pid).count(name) > 1 and not self._is_shared(name)
            inode = peers.inode_in(name)
            if inode is None:
                return name in _INTERNAL
            peer = peers.peer_of(inode)
            other = "" if peer is None else peers.socket_name(peer)
            return other in _links(self.pid) and not self._is_shared(other)
        except OSError:
            return False

    def _is_shared(self, name: str) -> bool:
        """Whether another process of the job has it, too, such as a child that was forked.

        Raises OSError of one that is not for us to look at.
        """
        for pid in self._pids:
            try:
                if pid != self.pid and name in _links(pid):
                    return True
            except (FileNotFoundError, ProcessLookupError):  # gone
                continue
        return False


def _links(pid: int) -> list[str]:
    """What its descriptors are, by name. Raises OSError."""
    path, names = f"/proc/{pid}/fd", []
    for number in os.listdir(path)[:MAX_HELD]:
        try:
            names.append(os.readlink(f"{path}/{number}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return names
