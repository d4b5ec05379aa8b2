"""Bytes made up from good ones, fed to a target, and what came of it. Knows no target.

A target's inputs follow from a seed alone: those that it answers in a new way are kept and made
up from in their turn, so it is led into what it does, by its outcomes and not by its lines. What
fails is written to a folder and can be fed again.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scripts.mutating import MAX_BYTES, mutate, pump, spliced

PUMPED_BYTES: Final = 1 << 20  # of those: a piece again and again, as what makes a regex slow
PUMP_EVERY: Final = 1_000  # inputs
MAX_KEPT: Final = 2_000  # inputs that are made up from
MAX_FAULTS: Final = 5  # different ones; then a target is given up
HANG_SECS: Final = 60  # by the clock: then it is interrupted
# What one input may cost of the processor: whatever it says, its size decides.
BASE_SECS: Final = 0.25
SECS_A_BYTE: Final = 10e-6


class Fault(Exception):
    """A target did what it must not; the message says what."""


class _Hung(BaseException):
    """No domain's error, so that nothing takes it for one."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is fed. `check` answers how it took an input, and raises for what it must not do.

    vary: makes up an input from a good one; None: any change of bytes. pumped: bytes of an input
    that repeats a piece; 0: none. secs: of the processor, beside those for its size. learns: the
    answer follows from the input alone. finish: looks at what is left when all were fed.
    """

    name: str
    seeds: Sequence[bytes]
    check: Callable[[bytes], Hashable]
    words: Sequence[bytes] = ()
    vary: Callable[[random.Random, bytes, Sequence[bytes]], bytes] | None = None
    pumped: int = PUMPED_BYTES
    secs: float = BASE_SECS
    learns: bool = True
    finish: Callable[[], None] = lambda: None


@dataclass
class Result:
    """What came of a target. `faults`: what was wrong -> the file with the first such input."""

    name: str
    count: int = 0
    kept: int = 0
    secs: float = 0.0
    slowest: float = 0.0
    grown: int = 0  # bytes of memory, from a tenth of the inputs on
    faults: dict[str, Path | None] = field(default_factory=dict)


def feed(target: Target, count: int, seed: str, folder: Path) -> Result:
    """Feed `count` inputs, the target's good ones first; the same ones for the same seed."""
    rng = random.Random(f"{seed}/{target.name}")
    result, kept = Result(target.name), list(target.seeds)
    seen: set[Hashable] = set()
    began, warm = time.monotonic(), 0
    for number in range(count):
        data = kept[number] if number < len(target.seeds) else make_up(rng, target, kept, number)
        if number == count // 10:
            warm = memory()
        outcome = try_one(target, data, result, folder)
        result.count += 1
        if target.learns and outcome is not None and outcome not in seen:
            seen.add(outcome)
            if len(kept) < MAX_KEPT and len(data) <= MAX_BYTES and number >= len(target.seeds):
                kept.append(data)
        if len(result.faults) >= MAX_FAULTS:
            break
    result.secs, result.kept = time.monotonic() - began, len(kept)
    result.grown = memory() - warm
    try:
        target.finish()
    except Exception as exc:
        result.faults[_what(exc)] = None
    return result


def try_one(target: Target, data: bytes, result: Result, folder: Path) -> Hashable:
    """The outcome of one input; None where it fails, which is noted and saved."""
    try:
        outcome, secs = _timed(target, data)
        if secs > _bound(target, data):  # by another's doing? the least of three counts
            secs = min(secs, _timed(target, data)[1], _timed(target, data)[1])
        if secs > _bound(target, data):
            raise Fault(f"takes {secs:.2f} s of the processor for {len(data)} bytes")
    except (Exception, _Hung) as exc:  # any: that is what is looked for
        what = _what(exc)
        if what not in result.faults:
            result.faults[what] = _save(folder, target.name, data)
            print(f"{target.name}: {what}\n  {result.faults[what]}\n{_trace(exc)}", flush=True)
        return None
    result.slowest = max(result.slowest, secs)
    return outcome


def _timed(target: Target, data: bytes) -> tuple[Hashable, float]:
    before = time.process_time()
    with _interrupted(HANG_SECS):
        outcome = target.check(data)
    return outcome, time.process_time() - before


def _bound(target: Target, data: bytes) -> float:
    return target.secs + SECS_A_BYTE * len(data)


@contextmanager
def _interrupted(secs: float) -> Iterator[None]:
    """Raise `_Hung` in what takes longer; regular expressions look for signals, too."""

    def ring(_number: int, _frame: object) -> None:
        raise _Hung(f"not done in {secs} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, secs)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _what(exc: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if "fuzzing" not in f.filename]
    at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
    return (
        f"{type(exc).__name__} at {at}: {str(exc)[:200]!r}"
        if not isinstance(exc, Fault)
        else (f"{at}: {str(exc)[:300]}")
    )


def _trace(exc: BaseException) -> str:
    return "".join(traceback.format_exception(exc)[-12:])


def _save(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
    path.write_bytes(data)
    return path


def memory() -> int:
    """Bytes of this process in memory."""
    return memory_of(os.getpid())


def memory_of(pid: int) -> int:
    """Likewise of any process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def make_up(rng: random.Random, target: Target, kept: Sequence[bytes], number: int) -> bytes:
    """An input from those that are kept."""
    data = kept[int(rng.random() * len(kept))]
    if target.vary is not None:
        return target.vary(rng, data, target.words)
    if target.pumped and number % PUMP_EVERY == PUMP_EVERY - 1:
        return pump(rng, data, target.words, target.pumped)
    if rng.random() < 0.1:
        data = spliced(rng, data, kept[int(rng.random() * len(kept))])
    return mutate(rng, data, target.words)
