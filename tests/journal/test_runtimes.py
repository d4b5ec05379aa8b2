"""Mirrors `engine/journal/runtimes.py` and the rules beside it: real output, labelled by hand."""

from __future__ import annotations

import re

from journal.scoring import CORPUS, levelled, read_file, score

from engine.journal.cutter import LineCutter
from engine.journal.levels import Level, LevelFinder

TRAP = re.compile("error|warn|fatal|fail|crit|panic|exception|emerg|alert|abort|killed", re.I)


def test_the_corpus_is_large_enough_to_say_something() -> None:
    rows = [row for _, *columns in levelled() for row in zip(*columns, strict=True)]
    assert len(rows) >= 2700
    assert sum(label >= Level.WARNING for label, *_ in rows) >= 1000
    assert sum(label == Level.INFO and bool(TRAP.search(text)) for label, _, text in rows) >= 500


def test_levels_are_found_as_well_as_when_they_were_measured() -> None:
    result = score()
    precision, recall = result.severe()
    assert precision >= 0.999
    assert recall >= 0.968
    for level in Level:
        assert result.precision(level) >= 0.98
        assert result.recall(level) >= 0.966


def test_a_finder_that_goes_on_with_the_memory_of_another_finds_the_same() -> None:
    for path in sorted(CORPUS.glob("*.txt")):
        texts = LineCutter().feed(read_file(path)[1]).texts
        whole = LevelFinder().find(texts)
        memory, levels = "", []
        for text in texts:
            finder = LevelFinder(memory)
            levels += finder.find([text]).levels
            memory = finder.memory
            assert len(memory) <= 65
        assert levels == whole.levels, path.name


def test_passing_over_plain_lines_changes_no_level() -> None:
    for path in sorted(CORPUS.glob("*.txt")):
        texts = LineCutter().feed(read_file(path)[1]).texts
        finder = LevelFinder()
        assert [finder.find_one(text)[0] for text in texts] == LevelFinder().find(texts).levels
