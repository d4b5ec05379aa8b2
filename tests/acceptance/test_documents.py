"""Mirrors `documents.py` and `terminal.py`: what is not as it was told is found."""

from __future__ import annotations

from typing import Any

import pytest
from acceptance.documents import Likeness, commands, messages
from acceptance.terminal import screen


@pytest.fixture
def likeness() -> Likeness:
    return Likeness({"/home/anna/proj": "/tmp/x/proj", "/home/anna": "/tmp/x"})


@pytest.mark.parametrize(
    ("told", "real", "is_like"),
    [
        ("a  b", "a b", True),
        ("exit 2", "exit 3", False),
        ("after 3.4s", "after 12ms", True),
        ("after 3.4s", "after long", False),
        ("12:02:11.004 up", "23:59:59.999 up", True),
        ("pid 12, 7 left", "pid 4711, 7 left", True),
        ("pid 12, 7 left", "pid 12, 8 left", False),
        ("in /home/anna/proj", "in /tmp/x/proj", True),
        ("one … three", "one two three", True),
        ("(a.c)", "(abc)", False),
    ],
)
def test_a_line_is_like_another_but_for_what_varies(
    likeness: Likeness, told: str, real: str, is_like: bool
) -> None:
    assert likeness.is_like(told, real) is is_like


def test_an_id_stands_for_the_same_task_from_then_on(likeness: Likeness) -> None:
    assert likeness.is_like("t8f3kq2 runs", "t0ab1cd runs")
    assert likeness.here("engine wait k8f3kq2") == "engine wait k0ab1cd"
    assert likeness.is_like("t8f3kq2 ended", "t0ab1cd ended")
    assert not likeness.is_like("t8f3kq2 ended", "t0ab1ce ended")
    with pytest.raises(KeyError):
        likeness.here("t8f3kvv")


@pytest.mark.parametrize(
    ("told", "real", "is_like"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        (["a", "…"], ["a", "x", "y"], True),
        (["…", "z"], ["a", "z"], True),
        (["…", "z"], ["a", "b"], False),
        ([], ["a"], False),
    ],
)
def test_lines_are_all_there_but_where_dots_stand(
    likeness: Likeness, told: list[str], real: list[str], is_like: bool
) -> None:
    assert likeness.are_like(told, real) is is_like


@pytest.mark.parametrize(
    ("told", "real", "faults"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["$.a: 2, told 1"]),
        ({"a": 1}, {"a": True}, ["$.a: True, told 1"]),
        ({"a": 20}, {"a": 20.0}, []),
        ({"a": 1}, {"a": 1, "b": 2}, ["$.b: not told"]),
        ({"a": 1, "…": None}, {"a": 1, "b": 2}, []),
        ({"a": 1, "b": 2}, {"a": 1}, ["$.b: not there"]),
        ({"cpuMs": 4}, {"cpuMs": 9}, []),
        ({"cpuMs": 4}, {"cpuMs": None}, ["$.cpuMs: None, told 4"]),
        ({"endedAt": "2026-11-30T12:02:09.001Z"}, {"endedAt": "soon"}, ["$.endedAt: 'soon'"]),
        ({"signalled": [1]}, {"signalled": [7]}, []),
        ({"signalled": [1]}, {"signalled": []}, ["$.signalled: how many"]),
        ({"output": "a\n"}, {"output": "a"}, ["$.output: 'a', told 'a\\n'"]),
        ([1, 2], [1], ["$: 1 items"]),
        ([1, "…"], [1, 2, 3], []),
        ([{"a": "x"}], [{"a": "y"}], ["$[0].a: 'y', told 'x'"]),
    ],
)
def test_what_a_reply_has_too_much_too_little_or_wrong_is_told(
    likeness: Likeness, told: Any, real: Any, faults: list[str]
) -> None:
    assert likeness.faults(told, real) == faults


def test_a_transcript_is_commands_with_what_they_show() -> None:
    assert commands("$ one   # says\na\n\n$ two |\n> three\n$ four\n") == [
        ("one", ["a", ""]),
        ("two |\nthree", []),
        ("four", []),
    ]


def test_a_dialogue_is_messages_with_dots_for_what_is_left_out() -> None:
    assert messages('--> {"id": 1}\n<-- {"a": […],\n  "b": [1, …], …}\n') == [
        ("-->", {"id": 1}),
        ("<--", {"a": ["…"], "b": [1, "…"], "…": None}),
    ]


def test_a_screen_shows_what_was_drawn_last() -> None:
    assert screen("one\r\n\x1b[2Ktwo\r\n\x1b[1A\x1b[2Kthree\r\n\r\n") == ["one", "three"]
