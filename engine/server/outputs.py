"""A task's output as replies carry it: opened, excerpted, paged.

How much there is the keeper says, not the file: a job can make that of any length.

Small outputs are read where they are asked for; one that must be searched for its lines is read
in a thread, so that it delays nobody else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import trio

from engine.errors import NO_ROOM, InvalidParams
from engine.errors import OutputGone as OutputGoneError
from engine.jobs.excerpt import Excerpt, Source, excerpt, excerpt_pair, recent
from engine.jobs.leftout import LINE_LENGTH, Pick, ReadAt
from engine.jobs.pages import MAX_CHARACTER, OffsetPastEnd, OutputFile, OutputGone, Page, read_page
from engine.jobs.plaintext import json_bytes, render
from engine.journal.levels import Level, LevelFinder, is_plain
from engine.protocol.fields import PAGE_MAX_BYTES
from engine.server.dispatcher import ASKING
from engine.tasks.task import Task
from engine.threads import check_cancelled, in_thread

# Threads that read outputs take turns with the engine's own at the interpreter: beside forty of
# them it would have one turn in forty.
_READERS: Final = trio.CapacityLimiter(2)
INLINE_BYTES: Final = 1 << 20  # output above this size is excerpted in a thread,
AHEAD_BYTES: Final = 64 << 20  # that a keeper may have written before we heard of it; it tells soon
SEARCHED_BYTES: Final = 64 << 10  # or this one, where it is searched for errors
LOOKED_LINES: Final = 40_000  # of a gap, from either end, that are looked at; 50 ms
RUNNING_CHARACTERS: Final = 4_000  # of output so far, in the reply of a promoted call
NEW_CHARACTERS: Final = 1_000  # of what is new, in the reply of `wait`

T = TypeVar("T")


def _nothing(_offset: int, _length: int) -> bytes:
    return b""


def _checked(read_at: ReadAt) -> ReadAt:
    """`read_at`, which ends in a thread whose task was cancelled."""

    def read(offset: int, length: int) -> bytes:
        check_cancelled()
        return read_at(offset, length)

    return read


@contextlib.contextmanager
def opened(task: Task, offset: int | None = None) -> Iterator[tuple[Source, ...]]:
    """The task's outputs as they stand: one, or stdout and stderr. A file not there is empty.

    Each knows one range that was dropped: the first that ends after `offset`; without an offset
    all of them and what lies between.
    """
    record = task.record
    with contextlib.ExitStack() as stack:
        sources = []
        for i, name in enumerate(record.files):
            known = record.sizes[i] if i < len(record.sizes) else 0
            if record.status.is_final and not known:
                sources.append(Source(read_at=_nothing, size=0, ended=True))
                continue
            ranges = record.dropped[i] if i < len(record.dropped) else ()
            dropped = (ranges[0][0], ranges[-1][1]) if ranges else None
            if offset is not None:
                dropped = next((pair for pair in ranges if pair[1] > offset), None)
            try:
                dir_fd = stack.enter_context(task.directory.opened())
                file = stack.enter_context(OutputFile(name, dir_fd=dir_fd))
            except OSError as exc:  # never begun, or something else was put in its place
                if exc.errno in NO_ROOM:
                    raise
                sources.append(Source(read_at=_nothing, size=0, ended=record.status.is_final))
                continue
            size = known
            if not record.status.is_final:
                size = max(known, min(file.written_from(known), known + AHEAD_BYTES))
            sources.append(
                Source(
                    read_at=_checked(file.read_at),
                    size=size,
                    dropped=dropped,
                    ended=record.status.is_final,
                    has_data=file.has_data,
                )
            )
        yield tuple(sources)


async def _read(
    task: Task,
    function: Callable[[tuple[Source, ...]], T],
    offset: int | None = None,
    *,
    inline_bytes: int = INLINE_BYTES,
) -> T:
    """`function` of the task's sources (see `opened`), in a thread where they are large."""

    def work() -> T:
        with opened(task, offset) as sources:
            return function(sources)

    with opened(task, offset) as sources:
        if sum(source.size for source in sources) <= inline_bytes:
            return function(sources)
    request = ASKING.get()
    turn = contextlib.nullcontext() if request is None else request.connection.heavy_turn()
    async with turn:  # else who asks for a thousand has all others wait for them
        return await in_thread(work, limiter=_READERS)


def _fitting(
    cut: Callable[[int], tuple[Excerpt, ...]],
    limit: int,
    most: int,
    size_of: Callable[[str], int] = json_bytes,
) -> tuple[Excerpt, ...]:
    """What `cut` gives for `limit`, or for the smaller one with which it is `most` bytes (JSON)."""
    parts = cut(limit)
    while limit and (size := sum(size_of(part.text) for part in parts)) > most:
        limit = min(limit * most // size, limit - 1)
        parts = cut(limit)
    return parts


def _encoded_bytes(text: str) -> int:
    return len(text.encode())


def _new_pick() -> Pick:
    """Picks the lines of level error or worse; looks at `LOOKED_LINES` that may be."""
    looked = 0

    def pick(block: bytes) -> list[tuple[int, str]] | None:
        nonlocal looked
        if is_plain(block):
            return []
        looked += block.count(b"\n") + 1
        if looked > LOOKED_LINES:
            return None
        shown = render(block.decode("utf-8", "replace")).split("\n")
        levels, texts = LevelFinder().find([line[:LINE_LENGTH] for line in shown])
        found = zip(levels, texts, strict=True)
        return [(place, text) for place, (level, text) in enumerate(found) if level >= Level.ERROR]

    return pick


async def whole(
    task: Task, limit_bytes: int, json_limit: int, *, errors: int | None
) -> dict[str, Any]:
    """The output members of a finished reply; their texts are `json_limit` bytes at most.

    `errors`: how many lines of level error or worse it has; None: not known yet.
    """
    new_pick, known = None if errors == 0 else _new_pick, errors or 0

    def cut(sources: tuple[Source, ...]) -> tuple[Excerpt, ...]:
        def sized(limit: int) -> tuple[Excerpt, ...]:
            if len(sources) == 2:
                return excerpt_pair(*sources, limit, new_pick=new_pick, known=known)
            return (excerpt(sources[0], limit, new_pick=new_pick, known=known),)

        return _fitting(sized, limit_bytes, json_limit)

    parts = await _read(task, cut, inline_bytes=SEARCHED_BYTES if new_pick else INLINE_BYTES)
    return {
        **_texts(task, parts),
        "outputBytes": task.record.output_bytes,
        "omittedBytes": sum(part.omitted_bytes for part in parts),
        "omittedLines": sum(part.omitted_lines for part in parts),
        "droppedBytes": task.record.dropped_bytes,
    }


async def so_far(
    task: Task, caller: str, limit_bytes: int, json_limit: int, *, is_onlooker: bool
) -> dict[str, Any]:
    """The output members of a running reply of `bash` or `execute`: all, cut."""

    def cut(sources: tuple[Source, ...]) -> tuple[tuple[Excerpt, ...], int]:
        def each(limit: int) -> tuple[Excerpt, ...]:
            return tuple(excerpt(source, limit, characters=True) for source in sources)

        def sized(limit: int) -> tuple[Excerpt, ...]:
            return _fitting(each, limit, limit_bytes, _encoded_bytes)

        characters = min(RUNNING_CHARACTERS, limit_bytes) // len(sources)
        parts = _fitting(sized, characters, json_limit)
        return parts, sum(source.size for source in sources)

    parts, size = await _read(task, cut)
    if not is_onlooker:
        task.told[caller] = tuple(part.end for part in parts)
    changed = any(part.end for part in parts)
    return {**_texts(task, parts), "outputBytes": size, "changed": changed}


async def news(task: Task, caller: str, limit_bytes: int, *, is_onlooker: bool) -> dict[str, Any]:
    """The output members of a running reply of `wait`: what this caller has not been told."""
    told = task.told.get(caller, (0,) * len(task.record.files))

    def cut(sources: tuple[Source, ...]) -> tuple[tuple[Excerpt, ...], int]:
        characters = NEW_CHARACTERS // len(sources)
        parts = tuple(
            recent(source, start, characters) for source, start in zip(sources, told, strict=True)
        )
        return parts, sum(source.size for source in sources)

    parts, size = await _read(task, cut)
    if not is_onlooker:
        task.told[caller] = tuple(part.end for part in parts)
    if not any(part.text for part in parts):
        return {"outputBytes": size, "changed": False}
    shown = tuple(_last(part, limit_bytes // len(parts)) for part in parts)
    return {**_texts(task, shown), "outputBytes": size, "changed": True}


async def tail(task: Task, json_limit: int = PAGE_MAX_BYTES) -> dict[str, Any]:
    """The output members of a task that runs, whoever was told what: its last characters.

    The texts are about `json_limit` bytes of JSON at most.
    """

    def cut(sources: tuple[Source, ...]) -> tuple[tuple[Excerpt, ...], int]:
        def each(limit: int) -> tuple[Excerpt, ...]:
            return tuple(recent(source, 0, max(1, limit // len(sources))) for source in sources)

        parts = _fitting(each, NEW_CHARACTERS, json_limit)
        return parts, sum(source.size for source in sources)

    parts, size = await _read(task, cut)
    return {**_texts(task, parts), "outputBytes": size}


def _last(part: Excerpt, size: int) -> Excerpt:
    """The last `size` bytes of its text, short of what would be left of a character."""
    data = part.text.encode()
    if len(data) <= size:
        return part
    text = data[len(data) - size :].decode("utf-8", "ignore")
    return Excerpt(text=text, end=part.end)


def _texts(task: Task, parts: tuple[Excerpt, ...]) -> dict[str, Any]:
    return {name: part.text for name, part in zip(task.record.files, parts, strict=True)}


async def page(
    task: Task, stream: str, offset: int, limit_bytes: int, json_limit: int, *, raw: bool
) -> Page:
    """One page of a stream. Raises InvalidParams and the wire's OutputGone."""
    which = stream_index(task, stream)

    def read(sources: tuple[Source, ...]) -> Page:
        limit = min(limit_bytes, json_limit // 4 * 3) if raw else limit_bytes  # base64: 4 for 3
        page = read_page(sources[which], offset, limit, raw=raw)
        while limit > MAX_CHARACTER and (size := json_bytes(page.text or "")) > json_limit:
            limit = max(min(limit * json_limit // size, limit - 1), MAX_CHARACTER)
            page = read_page(sources[which], offset, limit)
        return page

    try:
        return await _read(task, read, max(offset, 0))
    except OffsetPastEnd as exc:
        raise InvalidParams("$.offset", f"at most {exc.size}, the size of the output") from exc
    except OutputGone as exc:
        raise OutputGoneError(exc.oldest_offset) from exc


def stream_index(task: Task, stream: str) -> int:
    """Which of the task's files `stream` is. Raises InvalidParams."""
    files = task.record.files
    if stream not in files:
        raise InvalidParams("$.stream", " or ".join(f'"{name}"' for name in files) + " (this task)")
    return files.index(stream)


def paths(task: Task) -> str | list[str]:
    """`outputPath`: the file, or both of a split task."""
    names = [f"{task.directory.path}/{name}" for name in task.record.files]
    return names if task.record.split else names[0]
