"""Other systems that run jobs, where they are installed: one short job through each, and many.

task-spooler, nq and GNU parallel are looked for on PATH; swe-rex, a library, wants the Python of an
environment that has it. Each has its files in a folder of ours and is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

JOB: Final = ("bash", "-c", "true")
SLOTS: Final = 4
SPOOLER: Final = f"task-spooler, {SLOTS} slots"
_SPOOLER_PROGRAMS: Final = ("tsp", "ts")  # Debian's name, and its own, which moreutils has too

# Calls in one of its sessions: a number of calls in, the seconds that they took out.
_SWE_REX: Final = """
import asyncio, logging, sys, time
logging.disable(logging.CRITICAL)
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
async def main():
    deployment = LocalDeployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    action = BashAction(command="true", check="silent")
    print("ready", flush=True)
    for line in sys.stdin:
        before = time.perf_counter()
        for _ in range(int(line)):
            await deployment.runtime.run_in_session(action)
        print(time.perf_counter() - before, flush=True)
    await deployment.stop()
asyncio.run(main())
"""


class Peer(NamedTuple):
    """`run` does one short job to its end; `size`: how many to a block, the slower the fewer."""

    name: str
    run: Callable[[], object]
    size: int = 20


class ManyPeer(NamedTuple):
    """`run(n)` queues so many short jobs and waits until all have ended."""

    name: str
    run: Callable[[int], object]


@contextlib.contextmanager
def short_peers(swe_rex: str | None) -> Iterator[tuple[list[Peer], list[str]]]:
    """Those that are here, for a short job each; the names of those that are not installed."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engine-peers-")))
        found, missing = list[Peer](), list[str]()
        program = _spooler()
        if program is None:
            missing.append("task-spooler")
        else:
            environ = stack.enter_context(_spooler_server(program, folder, 1))
            run = [program, "-nf", *JOB]
            found.append(Peer("task-spooler", lambda: _run(run, environ)))
        if shutil.which("nq") is None:
            missing.append("nq")
        else:
            found.append(Peer("nq", lambda: _through_nq(folder, 1)))
        if shutil.which("parallel") is None:
            missing.append("GNU parallel")
        else:
            found.append(Peer("GNU parallel", lambda: _through_parallel(folder, 1), 2))
        session = None if swe_rex is None else _swe_rex(swe_rex, stack)
        if session is None:
            missing.append("swe-rex" + (" (--swe-rex PYTHON)" if swe_rex is None else ""))
        else:
            found.append(Peer("swe-rex, a session", session, 2))
        yield found, missing


@contextlib.contextmanager
def many_peers() -> Iterator[tuple[list[ManyPeer], list[str]]]:
    """Those that take many jobs at once, task-spooler first; the names of those not installed."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engine-peers-")))
        found, missing = list[ManyPeer](), list[str]()
        program = _spooler()
        if program is None:
            missing.append(SPOOLER)
        else:
            environ = stack.enter_context(_spooler_server(program, folder, SLOTS))
            found.append(ManyPeer(SPOOLER, lambda n: _through_spooler(program, environ, n)))
        if shutil.which("nq") is None:
            missing.append("nq")
        else:
            found.append(ManyPeer("nq, one at a time", lambda n: _through_nq(folder, n)))
        if shutil.which("parallel") is None:
            missing.append("GNU parallel")
        else:
            name = f"GNU parallel -j{SLOTS}"
            found.append(ManyPeer(name, lambda n: _through_parallel(folder, n)))
        yield found, missing


def _run(command: list[str], environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env=environ,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def _spooler() -> str | None:
    """The program of task-spooler; `ts` counts where it is not the one that stamps lines."""
    for name in _SPOOLER_PROGRAMS:
        path = shutil.which(name)
        if path is not None and "Spool" in subprocess.getoutput(f"{path} -V </dev/null"):
            return path
    return None


@contextlib.contextmanager
def _spooler_server(program: str, folder: Path, slots: int) -> Iterator[dict[str, str]]:
    """The environment in which `program` speaks to a server of ours."""
    environ = os.environ | {"TS_SOCKET": str(folder / "ts"), "TMPDIR": str(folder)}
    _run([program, "-S", str(slots)], environ)
    try:
        yield environ
    finally:
        _run([program, "-K"], environ)


def _through_spooler(program: str, environ: dict[str, str], count: int) -> None:
    """Eight shells queue their share; then the ends of those that started last are waited for."""
    share = f"for ((i = 0; i < {count // 8}; i++)); do {program} {' '.join(JOB)}; done"
    text = f"for c in {{1..8}}; do ( {share} ) & done; wait"
    ids = sorted(int(word) for word in _run(["bash", "-c", text], environ).split())
    if len(ids) != count:
        raise RuntimeError(f"{len(ids)} of {count} jobs were queued")
    for number in ids[-SLOTS:]:
        _run([program, "-w", str(number)], environ)
    _run([program, "-C"], environ)


def _through_nq(folder: Path, count: int) -> None:
    environ = os.environ | {"NQDIR": str(folder)}
    if count == 1:
        id_ = _run(["nq", "-c", *JOB], environ).strip()
    else:
        text = f"for ((i = 0; i < {count}; i++)); do nq -c {' '.join(JOB)}; done"
        id_ = _run(["bash", "-c", text], environ).split()[-1]
    _run(["nq", "-w", id_], environ)


def _through_parallel(folder: Path, count: int) -> None:
    text = f"seq {count} | parallel --will-cite -j{SLOTS} -n1 {' '.join(JOB)} '#'"
    _run(["bash", "-c", text], os.environ | {"HOME": str(folder)})


def _swe_rex(python: str, stack: contextlib.ExitStack) -> Callable[[], float] | None:
    """A call in a session of its; None where `python` does not have it."""
    process = subprocess.Popen(
        [python, "-c", _SWE_REX],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stack.callback(process.wait, 30)
    stack.callback(stdout.close)
    stack.callback(stdin.close)
    if stdout.readline() != "ready\n":
        return None

    def call() -> float:
        stdin.write("1\n")
        stdin.flush()
        return float(stdout.readline())

    return call
