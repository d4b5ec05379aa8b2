from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import NEXT, Kind, Status, TaskRecord, as_text, rfc3339, signal_name, title_of


def test_an_end_is_never_left_and_all_but_three_states_are_ends() -> None:
    assert {status for status in Status if not status.is_final} == {"queued", "held", "running"}
    assert set(NEXT) == set(Status)
    assert all(not NEXT[status] for status in Status if status.is_final)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_796_040_271_208, "2026-11-30T12:04:31.208Z"),
        (1_796_040_271_999, "2026-11-30T12:04:31.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
    ],
)
def test_a_time_has_milliseconds_and_a_z(ms: int, text: str) -> None:
    assert rfc3339(ms) == text


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (9, "SIGKILL"),
        (15, "SIGTERM"),
        (34, "SIGRTMIN"),
        (35, "SIGRTMIN+1"),
        (63, "SIGRTMIN+29"),
        (64, "SIGRTMIN+30"),
        (200, "SIG200"),
    ],
)
def test_a_signal_is_named_as_kill_l_names_it(number: int, name: str) -> None:
    assert int(signal.SIGRTMIN) == 34
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("make -j8\nmake install", "make -j8"),
        ("\n\n  \n  make\t-k  ", "make-k"),
        ("", ""),
        ("echo \x1b[31mred\x07", "echo [31mred"),
        ("echo \u202eevil\u200b", "echo evil"),
        ("x" * 500, "x" * 200),
        ("\u2028a\nb", "a"),
    ],
)
def test_a_title_is_the_first_line_that_says_something(command: str, title: str) -> None:
    assert title_of(command) == title


@given(st.binary(max_size=40).filter(lambda name: b"\0" not in name))
def test_any_file_name_becomes_text_that_json_can_carry(name: bytes) -> None:
    text = as_text(name.decode("utf-8", "surrogateescape"))
    assert text.encode().decode() == text
    assert text == name.decode("utf-8", "replace")


def test_a_record_adds_up_its_files() -> None:
    record = TaskRecord(
        id="8f3kr9",
        caller="ci",
        kind=Kind.BASH,
        title="x",
        order=1,
        created_at=0,
        split=True,
        sizes=(3, 4),
        dropped=(((0, 2),), ((1, 2), (3, 4))),
    )
    assert (record.task_id, record.kickoff_id) == ("t8f3kr9", "k8f3kr9")
    assert record.files == ("stdout", "stderr")
    assert (record.output_bytes, record.dropped_bytes) == (7, 4)
