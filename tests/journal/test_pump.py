"""Mirrors `engine/journal/pump.py`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.jobs import pages
from engine.jobs.directory import TaskDirectory, make_directory
from engine.journal import pump as module
from engine.journal import stream
from engine.journal.cutter import LineCutter, Lines
from engine.journal.pump import Pump
from engine.journal.stream import FLOOD_TURN_BYTES, FLOOD_TURN_LINES
from engine.store.lines import NewLine, Piece

INFO, WARNING, ERROR = 1, 3, 4
CLOSING = NewLine(1, ERROR, "ci", "x", "engine", "task x failed")


@pytest.fixture
def directory(tmp_path: Path) -> TaskDirectory:
    return make_directory(tmp_path)


def pump_of(directory: TaskDirectory, state: bytes | None = None) -> Pump:
    return Pump(directory.id, "ci", ("output",), directory, state=state)


def next_piece(pump: Pump) -> Piece:
    pump.begin()
    return pump.read()


def write(pump: Pump, data: bytes, *, ended: bool = False) -> None:
    with open(pump.directory.path / "output", "ab") as file:
        file.write(data)
        pump.sizes = (file.tell(),)
    pump.is_ended = ended


def drain_lines(pump: Pump) -> list[NewLine]:
    """All lines, each committed; fails where it never comes to an end."""
    found: list[NewLine] = []
    for _ in range(1000):
        piece = next_piece(pump)
        pump.committed(piece)
        found += piece.lines
        if not pump.is_behind:
            return found
    raise AssertionError(found[-3:])


def drain(pump: Pump) -> list[str]:
    """The texts of all lines."""
    return [line.text for line in drain_lines(pump)]


def test_a_line_comes_when_it_is_whole_and_the_last_one_at_the_end(
    directory: TaskDirectory,
) -> None:
    pump = pump_of(directory)
    pump.closing = [CLOSING]
    write(pump, b"one\ntw")
    assert drain(pump) == ["one"]
    write(pump, b"o\nthree", ended=True)
    piece = next_piece(pump)
    assert [line.text for line in piece.lines] == ["two", "three", "task x failed"]
    assert (piece.state, piece.is_finished) == (None, True)
    pump.committed(piece)
    assert (pump.is_settled, pump.is_behind) == (True, False)


def test_a_piece_that_was_not_committed_is_read_again(directory: TaskDirectory) -> None:
    pump = pump_of(directory)
    write(pump, b"one\nTraceback (most recent call last):\n  File")
    first = next_piece(pump)
    again = next_piece(pump)
    assert [line.text for line in again.lines] == [line.text for line in first.lines] != []
    assert again.state == first.state
    pump.committed(again)
    write(pump, b' "x"\n')
    assert drain(pump) == ['  File "x"']


@pytest.mark.parametrize("kill_at", range(6))
def test_a_new_pump_goes_on_from_what_was_committed(directory: TaskDirectory, kill_at: int) -> None:
    pump, found, state = pump_of(directory), list[str](), None
    parts = [b"a\nb", b"b\n\xc3", b"\xa4c\n", b"x" * 5000, b"y\nd\n", b"e"]
    for number, part in enumerate(parts):
        write(pump, part, ended=number == 5)
        sizes, ended = pump.sizes, pump.is_ended
        piece = next_piece(pump)
        if number == kill_at:  # before the commit
            pump = pump_of(directory, state)
            pump.sizes, pump.is_ended = sizes, ended
            piece = next_piece(pump)
        pump.committed(piece)
        state = piece.state
        found += [line.text for line in piece.lines]
    assert found == ["a", "bb", "äc", "x" * 4096, "d", "e"]


def test_the_end_is_said_once_and_what_survivors_write_is_cut_at_its_line_ends(
    directory: TaskDirectory,
) -> None:
    pump = pump_of(directory)
    pump.closing, pump.may_grow = [CLOSING], True
    write(pump, b"one\npart", ended=True)
    piece = next_piece(pump)
    pump.committed(piece)
    assert [line.text for line in piece.lines] == ["one", "part", "task x failed"]
    # The engine is killed here.
    pump = pump_of(directory, piece.state)
    pump.closing, pump.may_grow = [CLOSING], True
    write(pump, b"la", ended=True)
    assert drain(pump) == []
    write(pump, b"te\nrest", ended=True)
    assert drain(pump) == ["late"]
    pump.may_grow = False
    piece = next_piece(pump)
    assert ([line.text for line in piece.lines], piece.state) == (["rest"], None)


def test_far_behind_only_what_is_severe_is_kept_and_the_rest_is_counted_in_one_line(
    directory: TaskDirectory,
) -> None:
    pump = pump_of(directory)
    plain = b"x" * 1023 + b"\n"
    write(pump, plain * 10_000 + b"ERROR amid\n" + plain * 100, ended=True)
    kept: list[NewLine] = []
    while pump.is_behind:
        piece = next_piece(pump)
        pump.committed(piece)
        kept += piece.lines
    severe = [(line.level, line.source, line.text) for line in kept if line.level >= WARNING]
    assert severe[0] == (ERROR, "output", "ERROR amid")
    ((level, source, word),) = severe[1:]
    stored = sum(line.level == INFO for line in kept)
    left_out = 10_100 - stored
    assert (level, source) == (WARNING, "engine")  # no line of the job's
    assert (
        word == f"{left_out:,} lines ({left_out * 1024:,} bytes of output) are not in the journal"
    )
    assert 0 < left_out * 1024 <= (10_100 << 10) - module.FLOOD_BYTES + FLOOD_TURN_BYTES


def test_what_was_dropped_or_punched_out_is_counted_and_joins_no_lines(
    directory: TaskDirectory,
) -> None:
    pump = pump_of(directory)
    write(pump, b"one\nERROR bef" + b"\0" * 65523 + b"tail of a line\nafter\n")
    pump.dropped = (((13, 65536),),)
    found = drain_lines(pump)
    assert [(line.text, line.level, line.cut) for line in found] == [
        ("one", INFO, False),
        ("ERROR bef", ERROR, True),
        ("after", INFO, False),
        ("65,523 bytes of output are not kept and not in the journal", WARNING, False),
    ]


def test_a_hole_that_nobody_has_told_of_yet_is_found_in_the_file(
    directory: TaskDirectory,
) -> None:
    pump = pump_of(directory)
    write(pump, b"x" * 4095 + b"\n")
    path = directory.path / "output"
    os.truncate(path, 64 << 10)
    write(pump, b"half\nafter\n")
    assert drain(pump) == [
        *("x" * 4095, "after"),
        "61,440 bytes of output are not kept and not in the journal",
    ]


def test_far_behind_in_short_lines_those_that_are_not_severe_are_counted(
    directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLOOD_LINES", 100_000)
    pump = pump_of(directory)
    pump.closing = [CLOSING]
    count = 1_500_000  # 3 MB
    write(pump, b"y\n" * count + b"ERROR amid\n" + b"y\n" * count + b"last", ended=True)
    reads = 0
    found: list[NewLine] = []
    while pump.is_behind:
        piece = next_piece(pump)
        pump.committed(piece)
        found, reads = found + piece.lines, reads + 1
    assert reads < 100  # with a look at each line: more than 250
    severe = [line for line in found if line.level >= WARNING]
    stored = sum(line.text == "y" for line in found)
    assert 2000 <= stored <= 100_000 + FLOOD_TURN_LINES
    assert [line.text for line in severe] == [
        "ERROR amid",
        f"{2 * count - stored:,} lines ({2 * (2 * count - stored):,} bytes of output)"
        " are not in the journal",
        "task x failed",
    ]
    assert found[-3].text == "last"
    assert {line.time for line in severe[1:]} == {found[-3].time}  # the end is not before them


def test_one_line_that_is_rewritten_without_end_is_no_lines_left_out(
    directory: TaskDirectory,
) -> None:
    pump = pump_of(directory)
    bar = b"".join(b"\rprogress %7d" % done for done in range(700_000))
    assert len(bar) > module.FLOOD_BYTES
    write(pump, bar + b"\n", ended=True)
    (line,) = drain_lines(pump)
    assert (line.text, line.cut) in [
        ("progress  699999", False),
        ("1 line (11,200,001 bytes of output) is not in the journal", False),
    ]


@pytest.mark.parametrize("skip", [1, 7, 4096, 1 << 20])
@pytest.mark.parametrize("block", [3, 4096, 1 << 20])
def test_the_rest_of_a_cut_line_is_passed_over_and_all_behind_it_is_there(
    directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch, skip: int, block: int
) -> None:
    monkeypatch.setattr(stream, "SKIP_BYTES", skip)
    monkeypatch.setattr(stream, "TURN_BYTES", 20_000)
    monkeypatch.setattr(pages, "_SEEK_BYTES", block)
    pump = pump_of(directory)
    write(pump, b"one\n" + b"x" * 20_050 + b"\ntwo\n" + b"y" * 20_030)
    found = drain_lines(pump)
    write(pump, b"y" * 50)
    found += drain_lines(pump)
    write(pump, b"y\nthree", ended=True)
    found += drain_lines(pump)
    assert [(line.text[:5], len(line.text), line.cut) for line in found] == [
        ("one", 3, False),
        ("xxxxx", 4096, True),
        ("two", 3, False),
        ("yyyyy", 4096, True),
        ("three", 5, False),
    ]


def test_the_rest_of_a_cut_line_takes_few_turns_each_of_which_ends(
    directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SKIP_BYTES", 4 << 20)
    pump = pump_of(directory)
    write(pump, b"x" * (9 << 20), ended=True)
    sizes = []
    while pump.is_behind:
        piece = next_piece(pump)
        pump.committed(piece)
        sizes.append(piece.read_bytes)
    # A slice is read as lines are, then the line is known to be cut.
    slice_, skip = stream.SLICE_BYTES, 4 << 20
    assert sizes == [slice_ + skip, skip, (9 << 20) - slice_ - 2 * skip]


def test_no_piece_of_a_flood_that_is_looked_at_at_once_is_large(
    directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The event loop waits for each call on one.
    fed: list[int] = []
    feed = LineCutter.feed

    def feed_and_note(cutter: LineCutter, data: bytes) -> Lines:
        fed.append(len(data))
        return feed(cutter, data)

    monkeypatch.setattr(LineCutter, "feed", feed_and_note)
    pump = pump_of(directory)
    write(pump, (b"x" * 90 + b" warning\n") * 100_000, ended=True)
    pump.committed(next_piece(pump))
    assert max(fed) <= 128 << 10
    assert sum(fed) >= 512 << 10  # of which a turn has several


@pytest.mark.parametrize("is_told", [True, False])
def test_what_is_not_kept_of_a_cut_line_is_counted_and_joins_no_lines(
    directory: TaskDirectory, is_told: bool
) -> None:
    pump = pump_of(directory)
    with open(directory.path / "output", "wb") as file:
        file.write(b"x" * (1 << 20))
        file.seek(3 << 20)
        file.write(b"y" * 100 + b"\nlast\n")
    pump.sizes, pump.is_ended = ((3 << 20) + 106,), True
    pump.dropped = (((1 << 20, 3 << 20),),) if is_told else ()
    found = drain_lines(pump)
    assert [(line.text[:4], line.cut) for line in found] == [
        ("xxxx", True),
        ("last", False),
        ("2,09", False),
    ]
    assert found[-1].text == "2,097,152 bytes of output are not kept and not in the journal"


@pytest.mark.parametrize("what", ["removed", "shortened", "replaced"])
def test_an_output_that_is_not_there_is_counted_and_the_end_comes(
    directory: TaskDirectory, what: str
) -> None:
    pump = pump_of(directory)
    pump.closing = [CLOSING]
    write(pump, b"one\ntwo\n", ended=True)
    path = directory.path / "output"
    if what == "shortened":
        os.truncate(path, 4)
    else:
        path.unlink()
    if what == "replaced":
        os.mkfifo(path)
    lost = 4 if what == "shortened" else 8
    assert drain(pump) == [
        *(["one"] if what == "shortened" else []),
        f"{lost} bytes of output are not kept and not in the journal",
        "task x failed",
    ]


def test_without_a_descriptor_nothing_is_passed_over(
    directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump = pump_of(directory)
    write(pump, b"one\n", ended=True)

    def refuse(*_args: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(module, "OutputFile", refuse)
        piece = next_piece(pump)
        assert (piece.lines, piece.is_finished, pump.is_starved) == ([], False, True)
        pump.committed(piece)
        assert pump.is_behind
    assert drain(pump) == ["one"]


def test_what_is_told_while_a_piece_is_written_is_for_the_next(directory: TaskDirectory) -> None:
    pump = pump_of(directory)
    write(pump, b"one\n")
    pump.closing = [CLOSING]
    pump.begin()  # the transaction has no word yet of the end
    pump.is_ended = True
    first = pump.read()
    pump.committed(first)
    assert ([line.text for line in first.lines], first.is_finished) == (["one"], False)
    assert first.state is not None
    assert pump.is_behind
    last = next_piece(pump)
    assert ([line.text for line in last.lines], last.state) == (["task x failed"], None)
