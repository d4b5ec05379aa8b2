"""A task's output as replies carry it: opened, excerpted, paged.

Small outputs are read where they are asked for; one that must be searched for its lines is read
in a thread, so that it delays nobody else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from engine.errors import NO_ROOM, InvalidParams
from engine.errors import OutputGone as OutputGoneError
from engine.jobs.excerpt import Excerpt, Source, excerpt, excerpt_pair, recent
from engine.jobs.leftout import Pick
from engine.jobs.pages import MAX_CHARACTER, OffsetPastEnd, OutputFile, OutputGone, Page, read_page
from engine.jobs.plaintext import json_bytes
from engine.journal.levels import Level, LevelFinder
from engine.tasks.task import Task
from engine.threads import in_thread

THREAD_BYTES: Final = 1 << 20  # output above this size is excerpted in a thread
RUNNING_CHARACTERS: Final = 4_000  # of output so far, in the reply of a promoted call
NEW_CHARACTERS: Final = 1_000  # of what is new, in the reply of `wait`

T = TypeVar("T")


def _nothing(_offset: int, _length: int) -> bytes:
    return b""


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
            sources.append(
                Source(
                    read_at=file.read_at,
                    size=max(known, file.size),
                    dropped=dropped,
                    ended=record.status.is_final,
                )
            )
        yield tuple(sources)


async def _read(
    task: Task, function: Callable[[tuple[Source, ...]], T], offset: int | None = None
) -> T:
    """`function` of the task's sources (see `opened`), in a thread where they are large."""

    def work() -> T:
        with opened(task, offset) as sources:
            return function(sources)

    if task.record.output_bytes > THREAD_BYTES:
        return await in_thread(work)
    return work()


def _fitting(
    cut: Callable[[int], tuple[Excerpt, ...]], limit: int, json_limit: int
) -> tuple[Excerpt, ...]:
    """What `cut` gives for `limit`, or for the smaller one with which it fits as JSON."""
    parts = cut(limit)
    while limit and (size := sum(json_bytes(part.text) for part in parts)) > json_limit:
        limit = min(limit * json_limit // size, limit - 1)
        parts = cut(limit)
    return parts


def _new_pick() -> Pick:
    """Picks the lines of level error or worse, given in their order."""
    finder = LevelFinder()

    def pick(texts: list[str]) -> list[int]:
        levels = finder.find(texts).levels
        return [place for place, level in enumerate(levels) if level >= Level.ERROR]

    return pick


async def whole(task: Task, limit_bytes: int, json_limit: int) -> dict[str, Any]:
    """The output members of a finished reply; their texts are `json_limit` bytes at most."""

    def cut(sources: tuple[Source, ...]) -> tuple[Excerpt, ...]:
        if len(sources) == 2:
            out, err = sources
            return _fitting(
                lambda n: excerpt_pair(out, err, n, new_pick=_new_pick), limit_bytes, json_limit
            )
        return _fitting(
            lambda n: (excerpt(sources[0], n, pick=_new_pick()),), limit_bytes, json_limit
        )

    parts = await _read(task, cut)
    return {
        **_texts(task, parts),
        "outputBytes": task.record.output_bytes,
        "omittedBytes": sum(part.omitted_bytes for part in parts),
        "omittedLines": sum(part.omitted_lines for part in parts),
        "droppedBytes": task.record.dropped_bytes,
    }


async def so_far(task: Task, caller: str, json_limit: int, *, is_onlooker: bool) -> dict[str, Any]:
    """The output members of a running reply of `bash` or `execute`: all, cut."""

    def cut(sources: tuple[Source, ...]) -> tuple[tuple[Excerpt, ...], int]:
        def each(limit: int) -> tuple[Excerpt, ...]:
            return tuple(excerpt(source, limit, characters=True) for source in sources)

        parts = _fitting(each, RUNNING_CHARACTERS // len(sources), json_limit)
        return parts, sum(source.size for source in sources)

    parts, size = await _read(task, cut)
    if not is_onlooker:
        task.told[caller] = tuple(part.end for part in parts)
    changed = any(part.text for part in parts)
    return {**_texts(task, parts), "outputBytes": size, "changed": changed}


async def news(task: Task, caller: str, *, is_onlooker: bool) -> dict[str, Any]:
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
    return {**_texts(task, parts), "outputBytes": size, "changed": True}


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
    names = [str(task.directory.path / name) for name in task.record.files]
    return names if task.record.split else names[0]
