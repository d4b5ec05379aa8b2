"""Mirrors `engine/jobs/keeperwords.py`: what stands in a keeper's place says what it likes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.jobs.keeperwords import is_word

END = {
    "pid": 7,
    "cause": "exit",
    "exitCode": 0,
    "signal": None,
    "error": None,
    "startedAt": 5,
    "endedAt": 6,
    "durationMs": 1,
    "cpuMs": 0,
    "cwd": "/",
    "survivors": [],
    "sizes": [3],
    "dropped": [[[0, 1]]],
}
SIZES = {"sizes": [3], "dropped": [[[0, 1]]]}
STARTED = {"pid": 7, "startedAt": 5, "cwd": "/a\udcff"}  # a byte that is no UTF-8
SESSION = {"identity": "1 2 x", "pid": 3, "version": "3", "executable": "/p", "busy": None}


@pytest.mark.parametrize(
    "message",
    [
        {"ev": "started", **STARTED, "cwdMissing": None},
        {"ev": "state", **STARTED, "record": None, **SIZES},
        {"ev": "state", **STARTED, "record": END, **SIZES},
        {"ev": "grew", **SIZES},
        {"ev": "ended", "record": END, "payload": 9},
        {"ev": "ended", "record": END, "settling": "/\udcff"},
        {"ev": "settled", "payload": 9},
        {"ev": "settled", "mishap": "killed", "stateLeft": 1},
        {"ev": "gone"},
        {"ev": "gone", **SIZES},
        {"ev": "refused", "message": "x", "errno": 28},
        {"ev": "refused", "message": "x"},
        {"ev": "signalled", "pids": [1, 2]},
        {"ev": "survivors", "survivors": [{"pid": 1, "command": "sleep 9"}]},
        {"ev": "written", "taken": 5, "isOpen": True},
        {"ev": "failed", "errno": 2, "message": "x", "exitCode": 127},
        {"ev": "opened", **SESSION, "isOpen": True},
        {"ev": "session", **SESSION, "isOpen": False},
        {"ev": "busy", "dir": "/x/aaaaaa"},
        *({"ev": word} for word in ("taken", "absent", "accepted", "closed", "closing")),
    ],
    ids=lambda message: message["ev"],
)
def test_what_keepers_say_is_taken(message: dict[str, Any]) -> None:
    assert is_word(message)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"ev": None},
        {"ev": ["grew"]},
        {"ev": "\ud800"},
        {"ev": "unheard of"},
        {"ev": "started", **STARTED, "startedAt": "5"},
        {"ev": "started", **STARTED, "startedAt": 10**18},
        {"ev": "state", **STARTED, "record": {"pid": 7}, **SIZES},
        {"ev": "state", **STARTED, "record": None},
        {"ev": "grew", "sizes": 3, "dropped": []},
        {"ev": "grew", "sizes": [-1], "dropped": [[]]},
        {"ev": "grew", "sizes": [1 << 60], "dropped": [[]]},
        {"ev": "grew", "sizes": [3], "dropped": [[[0]]]},
        {"ev": "ended"},
        {"ev": "ended", "record": END, "settling": 1},
        {"ev": "settled", "mishap": None},
        {"ev": "settled", "stateLeft": -1},
        {"ev": "ended", "record": None},
        {"ev": "ended", "record": {**END, "cause": ["exit"]}},
        {"ev": "ended", "record": {**END, "cause": "\ud800"}},
        {"ev": "ended", "record": {**END, "endedAt": 1 << 62}},
        {"ev": "gone", "sizes": [3]},
        {"ev": "refused", "message": "x", "errno": "28"},
        {"ev": "written", "taken": None, "isOpen": True},
        {"ev": "opened", **SESSION},
    ],
    ids=repr,
)
def test_what_they_do_not_say_is_not(message: dict[str, Any]) -> None:
    assert not is_word(message)
