"""What jobs of the soak leave behind: their marks, and their lines in files and journal. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from scripts.soak_jobs import Job

_LINE: Final = re.compile(r"(?:warning: )?j(\d+) (\d+) x*")
_FOUND: Final = re.compile(r"found (\S+) (\S+) (\S+)")


@dataclass(frozen=True)
class Mark:
    """What a job wrote down of itself."""

    begins: tuple[float, ...] = ()  # seconds since 1970
    lines: int = 0
    has_ended: bool = False

    @staticmethod
    def read(text: str) -> Mark:
        words = [line.split() for line in text.splitlines()]
        return Mark(
            tuple(float(word[1]) for word in words if word[0] == "begin"),
            sum(word[0].isdigit() for word in words),
            ["end"] in words,
        )


@dataclass
class Output:
    """What stands in an output, file or journal: made line by line, so that floods fit."""

    numbers: list[int] = field(default_factory=list)  # of the job's own lines, as they came
    wrong: list[str] = field(default_factory=list)  # the first of the lines that are no such
    found: tuple[str, ...] | None = None  # what a session held when the job began
    check: int = 0  # of all lines, in order
    count: int = 0

    def add(self, text: str, job: Job) -> None:
        self.check, self.count = zlib.crc32(text.encode() + b"\n", self.check), self.count + 1
        if (own := _LINE.fullmatch(text)) and text == job.line(int(own[2])):
            self.numbers.append(int(own[2]))
        elif (found := _FOUND.fullmatch(text)) and self.count == 1:
            self.found = found.groups()
        elif len(self.wrong) < 20:
            self.wrong.append(text)

    @property
    def is_in_order(self) -> bool:
        """Whether it has the lines from the first to some other, each once."""
        return self.numbers == list(range(1, len(self.numbers) + 1))

    @staticmethod
    def of(lines: Iterable[str], job: Job) -> Output:
        made = Output()
        for line in lines:
            made.add(line, job)
        return made


def lines_of(data: bytes) -> Iterator[str]:
    """The lines of an output file; of a terminal's without what it puts before their ends."""
    text = data.decode("utf-8", "replace").removesuffix("\n")
    if data:
        yield from (line.removesuffix("\r") for line in text.split("\n"))
