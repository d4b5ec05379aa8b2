"""What an engine needs of the machine, looked at one by one: findings, each with its mend.

They read files and ask the kernel, and change nothing. What the engine itself says is no part
of this: see `doctor`.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from engine.cli import units
from engine.client.places import FACTS, HUMAN_TOKEN, tilde
from engine.model import ENGINE_CGROUP

State = Literal["ok", "note", "bad"]

AFAR: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "lustre", "fuse.sshfs", "vboxsf")
)
PASSING: Final = frozenset(("tmpfs", "ramfs"))
LEAST_DESCRIPTORS: Final = 256  # `engine serve` does not start with fewer
FEW_DESCRIPTORS: Final = 4_096  # about 1,000 jobs and waits
FEW_PROCESSES: Final = 1_024
FEW_INODES: Final = 10_000
BASH_WAIT: Final = 5.0  # seconds for `bash --version`
LEAST_BASH: Final = (4, 4)


class Finding(NamedTuple):
    """`note`: works, but not all of it or not for ever; only `bad` counts as not well."""

    check: str
    state: State
    text: str
    mend: str | None = None


def look_at_home(home: str) -> Iterator[Finding]:
    """The folder, whose it is and who else may look into it."""
    shown = tilde(home)
    try:
        facts = os.stat(home)
    except FileNotFoundError:
        yield Finding("home", "note", f"{shown} is not made yet", "engine run TEXT makes it")
        return
    except OSError as exc:
        yield Finding("home", "bad", f"{shown}: {exc.strerror}", "name another: --home DIR")
        return
    if not stat.S_ISDIR(facts.st_mode):
        yield Finding("home", "bad", f"{shown} is no folder", "name another: --home DIR")
    elif facts.st_uid != os.geteuid():
        text = f"{shown} belongs to uid {facts.st_uid}, you are {os.geteuid()}"
        yield Finding("home", "bad", text, "name one of yours: --home DIR")
    elif not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("home", "bad", f"{shown} is closed to you", f"chmod 700 {shown}")
    else:
        yield from _look_at_modes(home, facts.st_mode)


def _look_at_modes(home: str, mode: int) -> Iterator[Finding]:
    """Whether other users are kept from the home and the tokens in it."""
    is_open = False
    paths = {home: mode}
    for name in (FACTS, HUMAN_TOKEN):
        path = os.path.join(home, name)
        try:
            paths[path] = os.stat(path).st_mode
        except FileNotFoundError:
            continue  # made with the first start
    for path, found in paths.items():
        if stat.S_IMODE(found) & 0o077:
            is_open = True
            right = "700" if path == home else "600"
            text = f"{tilde(path)} is open to other users (mode {stat.S_IMODE(found):o})"
            yield Finding("home", "bad", text, f"chmod {right} {tilde(path)}")
    if not is_open:
        yield Finding("home", "ok", f"{tilde(home)}, yours, closed to other users")


def look_at_disk(home: str, least: int, mounts: str = "/proc/self/mountinfo") -> Iterator[Finding]:
    """The file system that the home is on, or will be; `least`: free bytes for new jobs."""
    while not os.path.isdir(home) and home != "/":
        home = os.path.dirname(home)
    kind = file_system(home, mounts)
    local = "name a home on a local disk: --home DIR"
    if kind in AFAR:
        text = f"{kind}: its locks and sockets do not hold what the engine needs of them"
        yield Finding("files", "bad", text, local)
    elif kind in PASSING:
        yield Finding("files", "note", f"{kind}: all is gone when the machine restarts", local)
    elif kind is not None:
        yield Finding("files", "ok", kind)
    facts = os.statvfs(home)
    free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    text = f"{units.size(free)} free of {units.size(whole)}"
    lower = "free some space, or lower min_free_bytes in engine.toml"
    if facts.f_flag & os.ST_RDONLY:
        yield Finding("disk", "bad", "read-only", local)
    elif free < least:
        text += f": under {units.size(least)} new jobs are refused"
        yield Finding("disk", "bad", text, lower)
    elif facts.f_files and facts.f_favail < FEW_INODES:
        text += f", but only {facts.f_favail:,} files more"
        yield Finding("disk", "bad", text, "remove files, or name another home: --home DIR")
    else:
        yield Finding("disk", "ok", text)


def file_system(path: str, mounts: str) -> str | None:
    """The type of the file system that `path` is on; None where the kernel does not say."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    best, kind = -1, None
    where = os.path.realpath(path)
    for fields in lines:  # proc_pid_mountinfo(5): … mount point …, "-", type, source, options
        point = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        is_above = point == "/" or where == point or where.startswith(point + "/")
        if is_above and len(point) >= best:  # the later of two on one point covers the other
            best, kind = len(point), fields[fields.index("-") + 1]
    return kind


def look_at_programs(path: str | None) -> Iterator[Finding]:
    """This interpreter, and what jobs need of `path`, the PATH."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", f"{version} ({tilde(sys.executable)})")
    found = shutil.which("python3", path=path)
    if found is None:
        yield Finding("python", "note", "no python3 on PATH", "engine py needs one: install it")
    bash = shutil.which("bash", path=path)
    if bash is None:
        yield Finding("bash", "bad", "no bash on PATH", "install it")
        return
    text, number = bash_version(bash)
    if number < LEAST_BASH:
        least = ".".join(map(str, LEAST_BASH))
        yield Finding("bash", "bad", f"{text} ({bash})", f"install {least} or newer")
    else:
        yield Finding("bash", "ok", f"{text} ({bash})")


def bash_version(bash: str) -> tuple[str, tuple[int, int]]:
    """What the program says that it is, in words and as major and minor; (0, 0): it does not."""
    asked = [bash, "--norc", "-c", 'echo "$BASH_VERSION ${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"']
    try:
        said = subprocess.run(asked, capture_output=True, timeout=BASH_WAIT, text=True).stdout
        text, major, minor = said.split()
        return text, (int(major), int(minor))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return "does not say its version", (0, 0)


def look_at_limits() -> Iterator[Finding]:
    """Open files and processes that the kernel lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the engine raises the soft one
    text = f"{_limit(hard)} open files"
    raise_it = "raise it: ulimit -Hn, /etc/security/limits.conf, or LimitNOFILE= of the unit"
    if hard != resource.RLIM_INFINITY and hard < FEW_DESCRIPTORS:
        state: State = "bad" if hard < LEAST_DESCRIPTORS else "note"
        yield Finding("limits", state, f"{text}: few for many jobs at once", raise_it)
    else:
        yield Finding("limits", "ok", f"{text} (now {_limit(soft)})")
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    text = f"{_limit(soft)} processes"
    if soft != resource.RLIM_INFINITY and soft < FEW_PROCESSES:
        raise_it = "raise it: ulimit -u, or TasksMax= of the unit"
        yield Finding("limits", "note", f"{text}: jobs may fail to fork", raise_it)
    else:
        yield Finding("limits", "ok", text)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value:,}"


def look_at_cgroup(pid: int | None, root: str = "/sys/fs/cgroup", proc: str = "/proc") -> Finding:
    """Whether the process `pid` (None: this one) has a cgroup of its own to divide among jobs."""
    mend = "a unit of systemd has one: engine install-service"
    try:
        with open(f"{proc}/{pid or 'self'}/cgroup", encoding="utf-8") as file:
            path = next(line[3:].strip() for line in file if line.startswith("0::"))
        if os.path.basename(path) == ENGINE_CGROUP:  # where one lives that divides the one above
            path = os.path.dirname(path)
        with open(f"{root}{path}/cgroup.controllers", encoding="utf-8") as file:
            controllers = file.read().split()
    except (OSError, StopIteration):
        text = "no cgroup v2: the memory of jobs is neither measured nor limited"
        return Finding("cgroup", "note", text, "boot with the unified hierarchy")
    has_type = os.path.exists(f"{root}{path}/cgroup.type")  # the kernel's own root has none
    if not (has_type and os.access(f"{root}{path}/cgroup.subtree_control", os.W_OK)):
        text = f"{path} is not delegated: the memory of jobs is neither measured nor limited"
        return Finding("cgroup", "note", text, mend)
    if "memory" not in controllers:
        return Finding("cgroup", "note", f"{path} has no memory controller", mend)
    return Finding("cgroup", "ok", f"{path}, delegated ({' '.join(controllers)})")


def summary(findings: list[Finding]) -> str:
    """`all is well`, or how many findings are to be mended."""
    bad = sum(finding.state == "bad" for finding in findings)
    return f"{bad} {'thing' if bad == 1 else 'things'} to mend" if bad else "all is well"
