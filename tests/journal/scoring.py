"""The corpus of labelled lines below `corpus/`, and how well the level finder does on it.

One file a kind of output. A line is the letter of its level as a person gave it, `|`, and the
line as the program printed it, without its newline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.journal.cutter import LineCutter
from engine.journal.levels import Level, LevelFinder

CORPUS = Path(__file__).parent / "corpus"
LABELS = dict(zip("DINWECAM", Level, strict=True))


@dataclass
class Miss:
    """A line whose level was not found as labelled."""

    place: str  # file:line
    wanted: Level
    got: Level
    text: str


@dataclass
class Score:
    """How often each label was given each level."""

    pairs: Counter[tuple[Level, Level]] = field(default_factory=Counter)
    misses: list[Miss] = field(default_factory=list)

    def lines(self, level: Level) -> int:
        return sum(n for (wanted, _), n in self.pairs.items() if wanted == level)

    def precision(self, level: Level) -> float:
        """Of the lines found to be `level`, the part that is."""
        given = sum(n for (_, got), n in self.pairs.items() if got == level)
        return self.pairs[level, level] / given if given else 1.0

    def recall(self, level: Level) -> float:
        """Of the lines that are `level`, the part that was found."""
        return self.pairs[level, level] / max(self.lines(level), 1)

    def severe(self) -> tuple[float, float]:
        """Precision and recall of the question "is it a warning or worse?"."""
        floor = Level.WARNING
        both = sum(n for (w, g), n in self.pairs.items() if w >= floor and g >= floor)
        given = sum(n for (_, got), n in self.pairs.items() if got >= floor)
        wanted = sum(n for (want, _), n in self.pairs.items() if want >= floor)
        return both / given, both / wanted


def read_file(path: Path) -> tuple[list[Level], bytes]:
    """The labels of a file of the corpus, and the output that they stand for."""
    rows = path.read_bytes().split(b"\n")[:-1]
    labels = [LABELS[chr(row[0])] for row in rows]
    return labels, b"".join(row[2:] + b"\n" for row in rows)


def levelled() -> Iterator[tuple[Path, list[Level], list[Level], list[str]]]:
    """Each file with its labels, the levels found and the texts."""
    for path in sorted(CORPUS.glob("*.txt")):
        labels, output = read_file(path)
        found = LevelFinder().find(LineCutter().feed(output).texts)
        yield path, labels, found.levels, found.texts


def score() -> Score:
    """What the finder makes of the whole corpus."""
    result = Score()
    for path, labels, levels, texts in levelled():
        rows = zip(labels, levels, texts, strict=True)
        for number, (wanted, got, text) in enumerate(rows, 1):
            result.pairs[wanted, got] += 1
            if wanted != got:
                result.misses.append(Miss(f"{path.name}:{number}", wanted, got, text))
    return result
