"""What Linux tells of processes: who one is beyond its pid, whether it lives, whom it begot.

Reads /proc (proc(5)) and nothing else; signals nobody.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator

COMMAND_LIMIT = 200  # characters of a command line that a survivor is shown with
LOOK_SECS = 0.001
PASSES = 8  # at most, over the threads of one process


def boot_id() -> str:
    """The random name of this boot: a pid of another boot is nobody's."""
    with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
        return file.read(64).decode("ascii").strip()


def stat_fields(pid: int) -> list[str] | None:
    """State and what follows it in /proc/PID/stat; None once the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold anything, brackets and spaces too: cut at the last.
    return text[text.rindex(b")") + 2 :].decode("ascii").split()


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid` (field 22), None once it is gone."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def parentage(pid: int) -> tuple[int, int] | None:
    """The parent of `pid` and its own start time, None once it is gone."""
    fields = stat_fields(pid)
    return (int(fields[1]), int(fields[19])) if fields else None


def times(pids: Iterable[int]) -> frozenset[tuple[int, ...]]:
    """Of each: pid, start, and processor time with that of the children it has waited for, in clock
    ticks. Equal to what it was before: none of them has computed, ended or begun another since."""
    found = ((pid, stat_fields(pid)) for pid in pids)
    return frozenset(
        (pid, int(fields[19]), sum(map(int, fields[11:15]))) for pid, fields in found if fields
    )


def identity(pid: int) -> str:
    """`pid start boot`: names one process for all time. Raises ProcessLookupError if it is gone."""
    started = start_time(pid)
    if started is None:
        raise ProcessLookupError(pid)
    return f"{pid} {started} {boot_id()}"


def is_alive(who: str) -> bool:
    """Whether the process with this `identity` still runs; no zombie, no namesake."""
    pid, _, rest = who.partition(" ")
    started, _, boot = rest.partition(" ")
    if boot != boot_id() or not (pid.isascii() and pid.isdigit()):
        return False  # of another boot, or no identity at all: a job can write what it likes
    fields = stat_fields(int(pid))
    return fields is not None and _has_life(fields) and fields[19] == started


def is_running(pid: int) -> bool:
    """Whether `pid` is somebody in a state other than dead or zombie."""
    fields = stat_fields(pid)
    return fields is not None and _has_life(fields)


def _has_life(fields: list[str]) -> bool:
    # A process whose first thread has left shows Z while the others (field 20) go on.
    return fields[0] not in "ZX" or int(fields[17]) > 1


def _children(pid: int) -> Iterable[int]:
    """Direct children of `pid`, of all its threads, in the order in which they are found."""
    found: dict[int, None] = {}
    # A thread that ends leaves its children to another, which may have been read by then: they
    # show when all are read anew.
    for number in range(PASSES):
        before = len(found)
        threads = _threads(pid)
        for thread in threads:
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file,
            ):
                found.update(dict.fromkeys(map(int, (file.readall() or b"").split())))
        if len(threads) <= 1 or (number and len(found) == before):
            break
    return found


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _by_parent() -> dict[int, list[int]]:
    """Parent -> children of every process: for kernels built without the `children` file."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))):
            table.setdefault(int(fields[1]), []).append(int(name))
    return table


_HAS_CHILDREN_FILE = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


def descendants(root: int) -> list[int]:
    """Every living process below `root`, parents before children, zombies left out.

    A process that forks meanwhile may hide a child: whoever must have all asks again until the
    answer stays the same.
    """
    return [pid for pid in list(walk(root)) if is_running(pid)]


def walk(root: int) -> Iterator[int]:
    """Every process below `root`, zombies too, each before its own children are looked at."""
    table = None if _HAS_CHILDREN_FILE else _by_parent()
    found: set[int] = set()  # who is handed to a new parent meanwhile would be met twice
    todo = [root]
    while todo:
        pid = todo.pop()
        for child in _children(pid) if table is None else table.get(pid, []):
            if child not in found:
                found.add(child)
                todo.append(child)
                yield child


def is_only_descendant(pid: int) -> bool:
    """Whether `pid` is all that there is below this process, which must be its subreaper.

    False where the kernel does not tell.
    """
    # Its own first: whoever loses a parent between the two looks is a child of ours by then.
    return _HAS_CHILDREN_FILE and not _children(pid) and list(_children(os.getpid())) == [pid]


def command(pid: int, looks: int = 1) -> str:
    """The command line of `pid` as one printable line, cut; its name in brackets if it has none.

    In the middle of exec(2) there is none either, and nothing tells when that is over: `looks` says
    how often to look, a millisecond apart.
    """
    try:
        words = _words(pid)
        while words == [b""] and looks > 1 and _has_program(pid):
            time.sleep(LOOK_SECS)
            words, looks = _words(pid), looks - 1
        if words == [b""]:
            with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
                words = [b"[" + (file.read(64) or b"").strip() + b"]"]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    line = b" ".join(words).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)[
        :COMMAND_LIMIT
    ]


def _has_program(pid: int) -> bool:
    try:
        os.readlink(f"/proc/{pid}/exe")
    except OSError:  # the kernel's own, a zombie, another user's
        return False
    return True


def _words(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
        return (file.read(4 * COMMAND_LIMIT) or b"").rstrip(b"\0").split(b"\0")


def values_of(name: str) -> set[str]:
    """The values that this variable had in the environments of living processes, at their start."""
    prefix = f"{name}=".encode()
    return {
        entry[len(prefix) :].decode("utf-8", "replace")
        for _pid, environ in _environs()
        for entry in environ
        if entry.startswith(prefix)
    }


def with_variable(name: str, value: str) -> list[int]:
    """Living processes whose environment at their start had NAME=value (those we may read)."""
    wanted = f"{name}={value}".encode()
    return [pid for pid, environ in _environs() if wanted in environ and is_running(pid)]


def _environs() -> Iterator[tuple[int, list[bytes]]]:
    """All others whose environment we may read, with that."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environ = file.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone, or another user's: not a process of ours
        yield int(entry), environ


def parent(pid: int) -> int:
    """The parent of `pid`; 0 of one that is gone."""
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def has_children() -> bool:
    """Whether this process has a child, living or not waited for: one call, no look at /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
