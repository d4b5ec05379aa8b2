"""A task's output as replies carry it: opened, excerpted, paged.

Small outputs are read where they are asked for; one that must be searched for its lines is read
in a thread, so that it delays nobody else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import trio

from engine.errors import InvalidParams
from engine.errors import OutputGone as OutputGoneError
from engine.jobs.excerpt import Excerpt, Source, excerpt, excerpt_pair, recent
from engine.jobs.pages import OffsetPastEnd, OutputFile, OutputGone, Page, read_page
from engine.tasks.task import Task

THREAD_BYTES: Final = 1 << 20  # output above this size is excerpted in a thread
RUNNING_CHARACTERS: Final = 4_000  # of output so far, in the reply of a promoted call
NEW_CHARACTERS: Final = 1_000  # of what is new, in the reply of `wait`

T = TypeVar("T")


def _nothing(_offset: int, _length: int) -> bytes:
    return b""


@contextlib.contextmanager
def opened(task: Task) -> Iterator[tuple[Source, ...]]:
    """The task's outputs as they stand: one, or stdout and stderr. A file not there is empty."""
    record = task.record
    with contextlib.ExitStack() as stack:
        sources = []
        for i, name in enumerate(record.files):
            known = record.sizes[i] if i < len(record.sizes) else 0
            ranges = record.dropped[i] if i < len(record.dropped) else ()
            dropped = (ranges[0][0], ranges[-1][1]) if ranges else None
            try:
                dir_fd = stack.enter_context(task.directory.opened())
                file = stack.enter_context(OutputFile(name, dir_fd=dir_fd))
            except OSError:  # never begun, or something else was put in its place
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


async def _read(task: Task, function: Callable[[tuple[Source, ...]], T]) -> T:
    """`function` of the task's sources, in a thread where they are large."""

    def work() -> T:
        with opened(task) as sources:
            return function(sources)

    if task.record.output_bytes > THREAD_BYTES:
        return await trio.to_thread.run_sync(work)
    return work()


async def whole(task: Task, limit_bytes: int) -> dict[str, Any]:
    """The output members of a finished reply."""

    def cut(sources: tuple[Source, ...]) -> tuple[Excerpt, ...]:
        if len(sources) == 2:
            return excerpt_pair(sources[0], sources[1], limit_bytes)
        return (excerpt(sources[0], limit_bytes),)

    parts = await _read(task, cut)
    return {
        **_texts(task, parts),
        "outputBytes": task.record.output_bytes,
        "omittedBytes": sum(part.omitted_bytes for part in parts),
        "omittedLines": sum(part.omitted_lines for part in parts),
        "droppedBytes": task.record.dropped_bytes,
    }


async def so_far(task: Task, caller: str) -> dict[str, Any]:
    """The output members of a running reply of `bash` or `execute`: all, cut."""

    def cut(sources: tuple[Source, ...]) -> tuple[Excerpt, ...]:
        limit = RUNNING_CHARACTERS // len(sources)
        return tuple(excerpt(source, limit, characters=True) for source in sources)

    parts = await _read(task, cut)
    task.told[caller] = tuple(part.end for part in parts)
    return {**_texts(task, parts), "changed": any(part.text for part in parts)}


async def news(task: Task, caller: str) -> dict[str, Any]:
    """The output members of a running reply of `wait`: what this caller has not been told."""
    told = task.told.get(caller, (0,) * len(task.record.files))

    def cut(sources: tuple[Source, ...]) -> tuple[Excerpt, ...]:
        characters = NEW_CHARACTERS // len(sources)
        return tuple(
            recent(source, start, characters) for source, start in zip(sources, told, strict=True)
        )

    parts = await _read(task, cut)
    task.told[caller] = tuple(part.end for part in parts)
    if not any(part.text for part in parts):
        return {"changed": False}
    return {**_texts(task, parts), "changed": True}


def _texts(task: Task, parts: tuple[Excerpt, ...]) -> dict[str, Any]:
    return {name: part.text for name, part in zip(task.record.files, parts, strict=True)}


async def page(task: Task, stream: str, offset: int, limit_bytes: int, *, raw: bool) -> Page:
    """One page of a stream. Raises InvalidParams and the wire's OutputGone."""
    which = stream_index(task, stream)
    try:
        return await _read(task, lambda s: read_page(s[which], offset, limit_bytes, raw=raw))
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
