"""How well levels are found on the corpus of labelled output, and how fast.

`python scripts/level_report.py`. Labels were given by hand; the table counts lines, the list
below it shows each line whose level was not found as labelled.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from journal.scoring import CORPUS, Score, read_file, score  # noqa: E402

from engine.journal.cutter import LineCutter  # noqa: E402
from engine.journal.levels import Level, LevelFinder  # noqa: E402

PIECE = 65536  # bytes fed at a time
FLOODS = {
    "seq": b"".join(b"%d\n" % number for number in range(500_000)),
    "prose": b"The quick brown fox jumps over the lazy dog, again and again, 12\n" * 200_000,
    "build": b"cc -O2 -Ibuild/include -c src/module/object.c -o build/object.o\n" * 200_000,
    "app log": b"2026-03-14 13:56:07,656 INFO app.http GET /items?page=3 200 12 ms\n" * 100_000,
    "json log": b'{"level":"info","ts":1773493201.5,"msg":"done","status":200}\n' * 100_000,
    "pytest": b"tests/test_cutter.py::test_lines[1-2-3] PASSED         [ 50%]\n" * 100_000,
    "gcc warnings": b"a.c:3:35: warning: suggest parentheses [-Wparentheses]\n" * 50_000,
}


def main() -> None:
    console = Console()
    result = score()
    console.print(_accuracy(result))
    precision, recall = result.severe()
    console.print(f"warning or worse: precision {precision:.4f}, recall {recall:.4f}")
    for miss in result.misses:
        console.print(
            f"{miss.place} is {miss.wanted.word}, found {miss.got.word}: {miss.text[:120]}",
            markup=False,
            highlight=False,
        )
    console.print(_speed())


def _accuracy(result: Score) -> Table:
    table = Table("level", "lines", "precision", "recall")
    for level in Level:
        table.add_row(
            level.word,
            str(result.lines(level)),
            f"{result.precision(level):.4f}",
            f"{result.recall(level):.4f}",
        )
    return table


def _speed() -> Table:
    corpus = b"".join(read_file(path)[1] for path in sorted(CORPUS.glob("*.txt")))
    table = Table("output", "lines/s", "cut, µs a line", "level, µs a line")
    for name, output in {"corpus": corpus * 20, **FLOODS}.items():
        cutter, finder = LineCutter(), LevelFinder()
        cutting = finding = 0.0
        for start in range(0, len(output), PIECE):
            begun = time.process_time()
            lines = cutter.feed(output[start : start + PIECE])
            cut = time.process_time()
            finder.find(lines.texts)
            cutting += cut - begun
            finding += time.process_time() - cut
        count = output.count(b"\n")
        table.add_row(
            name,
            f"{count / (cutting + finding):,.0f}",
            f"{cutting / count * 1e6:.2f}",
            f"{finding / count * 1e6:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
