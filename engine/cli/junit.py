"""A round as JUnit XML, for CI: each seat is a test case. `write` puts it in place in one step."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

from engine.cli import words
from engine.client.errors import CannotWrite

CLASS: Final = "round"  # of every case, so that a seat's history is one from round to round
# What a status is to a reader of test reports; what is not named succeeded.
OUTCOMES: Final = {
    "failed": "failure",
    "timed_out": "failure",
    "cancelled": "error",
    "lost": "error",
    "denied": "error",
    "skipped": "skipped",
}
# Neither XML nor what reads it takes these.
ILLEGAL: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Row = dict[str, Any]


class Seat(NamedTuple):
    """A seat that has ended: its error lines, and the end of its output.

    `stderr`: the end of that, where the streams were kept apart.
    """

    name: str
    row: Row
    errors: Sequence[str]
    output: str
    stderr: str = ""


def report(round_id: str, seats: Iterable[Seat]) -> bytes:
    """The report about a round, as a file holds it."""
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name=f"round {round_id}")
    counts = dict.fromkeys(("tests", "failure", "error", "skipped"), 0)
    began, total = [], 0
    for seat in seats:
        counts["tests"] += 1
        outcome = _add(suite, seat)
        if outcome is not None:
            counts[outcome] += 1
        began.append(str(seat.row.get("startedAt") or seat.row["createdAt"]))
        total += seat.row.get("durationMs") or 0
    facts = {
        "tests": counts["tests"],
        "failures": counts["failure"],
        "errors": counts["error"],
        "skipped": counts["skipped"],
        "time": f"{total / 1000:.3f}",
    }
    for element in (suites, suite):
        element.attrib |= {name: str(value) for name, value in facts.items()}
    suite.set("timestamp", min(began, default="").removesuffix("Z"))
    ElementTree.indent(suites)
    text: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add(suite: ElementTree.Element, seat: Seat) -> str | None:
    """Add a test case; its element's name where the seat did not succeed."""
    row = seat.row
    case = ElementTree.SubElement(suite, "testcase", name=seat.name, classname=CLASS)
    case.set("time", f"{(row.get('durationMs') or 0) / 1000:.3f}")
    outcome = OUTCOMES.get(row["status"])
    if outcome is not None:
        message = legal(f"{words.handle(row)} {words.unstarted(row) or words.outcome(row)}")
        element = ElementTree.SubElement(case, outcome, message=message, type=row["status"])
        parts = ["\n".join(seat.errors), seat.output, seat.stderr]
        element.text = legal("\n\n".join(part for part in parts if part.strip()))
    if seat.output:
        ElementTree.SubElement(case, "system-out").text = legal(seat.output)
    if seat.stderr:
        ElementTree.SubElement(case, "system-err").text = legal(seat.stderr)
    return outcome


def legal(text: str) -> str:
    """`text` with U+FFFD in place of each character that XML cannot hold."""
    return ILLEGAL.sub("\ufffd", text)


def find_target(path: str) -> str:
    """The file that a report to `path` replaces, behind all links; empty where `path` is a device
    or a FIFO, which is written into. Raises OSError."""
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:  # nothing there, or a link to what is not there yet
        is_file = True
    return os.path.realpath(path) if is_file else ""


def write(path: str, data: bytes) -> None:
    """Have the file `path` hold `data`, of which nobody sees a part; or a device or FIFO get it.

    Raises `CannotWrite`.
    """
    try:
        target = find_target(path)
        if target:
            _replace(target, data)
        else:
            # Not made anew, should it be gone by now.
            with open(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), "wb") as file:
                file.write(data)
    except OSError as exc:
        raise CannotWrite(f"{path} cannot be written: {exc.strerror}") from exc


def _replace(path: str, data: bytes) -> None:
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):  # it was never made
            os.unlink(draft)
        raise
