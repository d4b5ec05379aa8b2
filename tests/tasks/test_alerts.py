"""Mirrors `engine/tasks/alerts.py`."""

from __future__ import annotations

from engine.tasks.alerts import Alert, Once


class Told:
    """What one caller was told of one thing, and who was called about it."""

    def __init__(self, once: Once | None = None) -> None:
        self.once = once or Once()
        self.calls: list[str] = []

    def alert(self, delivery: str, *categories: str) -> Alert:
        keep, wake = (lambda word=word: self.calls.append(word) for word in ("keep", "wake"))
        return Alert(self.once, categories, delivery, keep, wake)


def test_what_a_reply_carries_no_other_tells() -> None:
    told = Told()
    assert told.alert("d1", "input").marked == set()
    assert (set(told.once.shown), told.once.sent) == ({"input"}, {"input": "d1"})
    assert (told.once.received, told.calls) == (set(), [])


def test_what_was_acknowledged_is_told_never_again() -> None:
    told = Told()
    told.alert("d1", "input", "idle").receive()
    assert (set(told.once.shown), told.once.sent) == ({"input", "idle"}, {})
    assert told.calls == ["keep"]


def test_a_reply_that_was_not_written_leaves_all_as_it_was() -> None:
    told = Told()
    told.alert("d1", "input").take_back(may_be_told=False)
    assert (set(told.once.shown), told.once.sent) == (set(), {})
    assert told.calls == ["keep", "wake"]
    assert told.alert("d2", "input").marked == set()


def test_what_may_have_been_told_is_told_again_with_the_mark() -> None:
    told = Told()
    told.alert("d1", "input").take_back(may_be_told=True)
    assert (set(told.once.shown), told.once.sent) == (set(), {"input": "d1"})
    again = told.alert("d2", "input", "idle")
    assert again.marked == {"input"}
    again.take_back(may_be_told=False)  # what was in doubt before it still is
    assert told.alert("d3", "input").marked == {"input"}


def test_what_an_engine_before_was_about_to_tell_has_the_mark() -> None:
    told = Told(Once(("idle",), {"input": "d1"}))
    assert set(told.once.shown) == {"idle"}
    assert told.alert("d2", "input", "lane").marked == {"input"}


def test_the_id_of_a_delivery_acknowledges_what_was_in_doubt_of_it() -> None:
    once = Once((), {"input": "d1", "idle": "d2"})
    assert not once.acknowledge("d9")
    assert once.acknowledge("d1")
    assert (set(once.shown), once.sent) == ({"input"}, {"idle": "d2"})


def test_what_was_acknowledged_meanwhile_is_not_taken_back() -> None:
    told = Told(Once((), {"input": "d1"}))
    again = told.alert("d2", "input")
    told.once.acknowledge("d1")
    again.take_back(may_be_told=True)
    assert (set(told.once.shown), told.once.sent) == ({"input"}, {})
