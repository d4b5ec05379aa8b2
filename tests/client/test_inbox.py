"""Mirrors `engine/client/inbox.py`."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.client.inbox import InboxCursor, Known, News, Untold
from engine.client.requests import list_tasks
from engine.protocol.parts import RoundUpdate, Update
from engine.protocol.results import Finished, Kickoff, TaskPage, WaitAny


def update(id_: str, ready: str | None = "ended", **more: Any) -> dict[str, Any]:
    facts = {"status": "succeeded" if ready == "ended" else "running", "as": "ci"}
    return {"id": id_, "ready": ready, "kickoffId": "k" + id_[1:], **facts, **more}


def entry(ready: str, *tasks: str, **more: Any) -> dict[str, Any]:
    seats = {f"s{n}": {"taskId": task, "status": "failed"} for n, task in enumerate(tasks)}
    return {"roundId": "r8f3ku0", "ready": ready, "seats": seats, **more}


def reply(*news: dict[str, Any], delivery: str | None = "d-1", reason: str = "ready") -> WaitAny:
    return msgspec.convert(
        {
            "reason": reason,
            "updates": [each for each in news if "id" in each],
            "rounds": [each for each in news if "roundId" in each],
            "pending_ids": [],
            "all_finished": True,
            "delivery": delivery,
            "notices": [],
        },
        WaitAny,
    )


def hand_out(cursor: InboxCursor, answer: WaitAny, most: int = 99) -> list[str]:
    """What a program is handed of a reply, of which it takes so many."""
    found: list[News] = cursor.take(answer)[:most]
    for each in found:
        cursor.handed(each)
    return [each.id if isinstance(each, Update) else each.round_id for each in found]


def test_what_was_handed_out_is_acknowledged_when_more_is_asked_for() -> None:
    cursor = InboxCursor("ci", {})
    assert cursor.request().params == {"as": "ci", "wait_seconds": 240.0}
    assert hand_out(cursor, reply(update("t1"), update("t2"))) == ["t1", "t2"]
    assert cursor.request().params["ack"] == "d-1"
    hand_out(cursor, reply(delivery=None, reason="wait_elapsed"))
    assert "ack" not in cursor.request().params


def test_what_a_wait_tells_that_has_run_out_is_no_news() -> None:
    cursor = InboxCursor("ci", {})
    assert hand_out(cursor, reply(update("t1", None), reason="wait_elapsed", delivery=None)) == []
    assert not cursor.is_empty
    hand_out(cursor, reply(reason="nothing_pending", delivery=None))
    assert cursor.is_empty


def test_an_end_that_was_handed_out_and_is_told_again_is_not_handed_out_again() -> None:
    known: Known = {}
    assert hand_out(InboxCursor("ci", known), reply(update("t1"), update("t2")), most=1) == ["t1"]
    again = reply(update("t1", redelivered=True), update("t2", redelivered=True), delivery="d-2")
    later = InboxCursor("ci", known)  # another reading of the same program
    assert hand_out(later, again) == ["t2"]
    assert later.request().params["ack"] == "d-2"  # also for the one that was kept back


def test_a_mark_alone_keeps_nothing_back() -> None:
    assert hand_out(InboxCursor("ci", {}), reply(update("t1", redelivered=True))) == ["t1"]


def test_a_round_that_was_run_again_ends_again() -> None:
    cursor = InboxCursor("ci", {})
    assert hand_out(cursor, reply(entry("ended", "t1", "t2"))) == ["r8f3ku0"]
    assert hand_out(cursor, reply(entry("ended", "t1", "t2", redelivered=True))) == []
    assert hand_out(cursor, reply(entry("ended", "t1", "t3", redelivered=True))) == ["r8f3ku0"]


def test_what_blocks_is_handed_out_as_often_as_it_is_told() -> None:
    cursor = InboxCursor("ci", {})
    blocked = update("t1", "execution_blocked", category="input", redelivered=True)
    assert hand_out(cursor, reply(blocked)) == hand_out(cursor, reply(blocked)) == ["t1"]


def page(latest: int, after: int) -> TaskPage:
    return msgspec.convert(
        {
            "tasks": [],
            "hasMore": False,
            "next": None,
            "latestSeq": latest,
            "nextChangedAfter": after,
        },
        TaskPage,
    )


def test_where_nothing_is_pending_it_waits_for_what_has_changed_since_it_looked() -> None:
    cursor = InboxCursor("ci", {})
    assert cursor.changes() == list_tasks(limit=1, as_="ci")
    cursor.changed(page(latest=40, after=40))
    assert cursor.changes() == list_tasks(changed_after=40, limit=500, timeout_secs=55.0, as_="ci")
    cursor.changed(page(latest=90, after=70))
    assert cursor.changes().params["changed_after"] == 70
    cursor.changed(page(latest=3, after=70))  # an engine that begins anew
    assert cursor.changes().params["changed_after"] == 3


CALL = {"kickoffId": "k1", "as": "ci", "logs": [], "logsDropped": 0, "notices": []}
KICKOFF = msgspec.convert(
    {**CALL, "status": "running", "queuePosition": 1, "queueReason": "", "hint": ""}, Kickoff
)
# Members that a reply must have, but nobody here looks at.
REST = ("signal", "cwd", "startedAt", "durationMs", "cpuMs", "maxRssBytes", "exitCode")
COUNTS = ("outputBytes", "omittedBytes", "omittedLines", "droppedBytes")
TEXTS = ("reason", "outputPath", "createdAt", "endedAt")
FINISHED = msgspec.convert(
    {
        **CALL,
        **dict.fromkeys(REST),
        **dict.fromkeys(COUNTS, 0),
        **dict.fromkeys(TEXTS, ""),
        "status": "failed",
        "taskId": "t1",
        "survivors": [],
    },
    Finished,
)


def test_an_end_that_came_last_is_acknowledged_by_a_last_word_of_its_caller() -> None:
    untold = Untold()
    for caller, result in (("a", FINISHED), ("b", KICKOFF), ("c", reply(update("t1")))):
        untold.asks(caller)
        untold.answered(caller, result)
    untold.answered("d", reply(delivery=None, reason="wait_elapsed"))
    untold.answered("e", FINISHED)
    untold.asks("e")  # any call of its own has said so
    assert untold.due("a") == []
    assert untold.last_words() == [list_tasks(limit=1, as_="a"), list_tasks(limit=1, as_="c")]
    assert untold.last_words() == []


def test_while_the_inbox_of_its_caller_is_read_it_is_acknowledged_at_once() -> None:
    untold = Untold()
    untold.answered("a", FINISHED)
    untold.answered("b", FINISHED)
    with untold.reading("a"), untold.reading("a"):
        assert untold.due("a") == [list_tasks(limit=1, as_="a")]
        assert untold.due("a") == untold.due("b") == []
        untold.answered("a", FINISHED)
    assert untold.due("a") == []
    assert len(untold.last_words()) == 2


def test_a_round_is_told_apart_by_the_tasks_of_its_seats() -> None:
    known: Known = {}
    cursor = InboxCursor("ci", known)
    [news] = cursor.take(reply(entry("ended", "t1", "t2")))
    assert isinstance(news, RoundUpdate)
    cursor.handed(news)
    assert known == {("r8f3ku0", "t1", "t2"): None}
