"""Mirrors `engine/cli/junit.py`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli.looks import row

from engine.cli import junit
from engine.client.errors import CannotWrite


def seat(name: str, status: str, output: str = "", *errors: str, **more: Any) -> junit.Seat:
    return junit.Seat(name, row("8f3ku1", status, "x", durationMs=1_500, **more), errors, output)


def test_each_seat_is_a_test_case_and_a_failure_has_its_error_lines_and_last_output() -> None:
    data = junit.report(
        "r5k2",
        [
            seat("unit", "succeeded", "212 passed\n"),
            seat("lint", "failed", "Found 3 errors.\n", "a.py:1: F401", "b.py:2: E1", exitCode=1),
        ],
    )
    assert data.decode() == (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        '<testsuites tests="2" failures="1" errors="0" skipped="0" time="3.000">\n'
        '  <testsuite name="round r5k2" tests="2" failures="1" errors="0" skipped="0"'
        ' time="3.000" timestamp="2026-11-30T11:55:02.116">\n'
        '    <testcase name="unit" classname="round" time="1.500">\n'
        "      <system-out>212 passed\n</system-out>\n"
        "    </testcase>\n"
        '    <testcase name="lint" classname="round" time="1.500">\n'
        '      <failure message="t8f3ku1 failed, exit 1" type="failed">a.py:1: F401\n'
        "b.py:2: E1\n\nFound 3 errors.\n</failure>\n"
        "      <system-out>Found 3 errors.\n</system-out>\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )


@pytest.mark.parametrize(
    ("status", "element", "count"),
    [
        ("failed", "failure", "failures"),
        ("timed_out", "failure", "failures"),
        ("cancelled", "error", "errors"),
        ("lost", "error", "errors"),
        ("denied", "error", "errors"),
        ("skipped", "skipped", "skipped"),
    ],
)
def test_every_end_that_is_no_success_is_counted_as_what_readers_know(
    status: str, element: str, count: str
) -> None:
    suites = ElementTree.fromstring(junit.report("r5k2", [seat("a", status)]))
    assert suites.find(f"testsuite/testcase/{element}") is not None
    counts = {name: suites.get(name) for name in ("failures", "errors", "skipped")}
    assert counts == {**dict.fromkeys(counts, "0"), count: "1"}


def test_what_xml_cannot_hold_is_replaced() -> None:
    dirty = "a\x00b\x1bc\ud800d\ufffee\tf\U0001f600<&>"
    suites = ElementTree.fromstring(junit.report("r5k2", [seat("a", "failed", dirty, dirty)]))
    text = suites.findtext("testsuite/testcase/system-out")
    assert text == "a\ufffdb\ufffdc\ufffdd\ufffde\tf\U0001f600<&>"


def test_a_report_takes_the_place_of_the_one_before_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_bytes(b"before")
    before = path.stat().st_ino
    junit.write(str(path), b"after")
    assert path.read_bytes() == b"after"
    assert path.stat().st_ino != before
    assert os.listdir(tmp_path) == ["report.xml"]


def test_a_report_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "report.xml").mkdir()
    with pytest.raises(CannotWrite, match=r"report\.xml cannot be written: Is a directory"):
        junit.write(str(tmp_path / "report.xml"), b"x")
    assert os.listdir(tmp_path) == ["report.xml"]


def test_a_link_stays_a_link_and_the_file_behind_it_has_the_report(tmp_path: Path) -> None:
    target, link = tmp_path / "kept" / "report.xml", tmp_path / "link.xml"
    target.parent.mkdir()
    link.symlink_to("kept/report.xml")
    for data in (b"made", b"replaced"):
        junit.write(str(link), data)
        assert (link.is_symlink(), target.read_bytes()) == (True, data)
    assert os.listdir(target.parent) == ["report.xml"]


def test_a_fifo_stays_one_and_its_reader_has_the_report(tmp_path: Path) -> None:
    fifo, got = tmp_path / "fifo", list[bytes]()
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)  # so that the reader ends, whatever the writer does
    reader = threading.Thread(target=lambda: got.append(os.read(keep, 100)))
    reader.start()
    junit.write(str(fifo), b"report")
    is_fifo = fifo.is_fifo()
    if not is_fifo:
        os.write(keep, b"nothing")
    reader.join()
    os.close(keep)
    assert (is_fifo, got) == (True, [b"report"])


def test_streams_apart_are_both_there_and_what_was_not_started_says_why() -> None:
    split = seat("split", "failed", "out\n", exitCode=1)._replace(stderr="err\n")
    error = {"message": "/no/such: No such file or directory"}
    never = seat("never", "failed", exitCode=127, reason="spawn_error", error=error)
    suites = ElementTree.fromstring(junit.report("r5k2", [split, never]))
    assert suites.findtext("testsuite/testcase/system-out") == "out\n"
    assert suites.findtext("testsuite/testcase/system-err") == "err\n"
    assert suites.findtext("testsuite/testcase/failure") == "out\n\n\nerr\n"
    failure = suites.find("testsuite/testcase[@name='never']/failure")
    assert failure is not None
    assert failure.get("message") == (
        "t8f3ku1 not started, exit 127: /no/such: No such file or directory"
    )
