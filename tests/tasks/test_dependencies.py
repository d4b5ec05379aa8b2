from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Status
from engine.tasks.dependencies import START, Decision, Dependencies, key_of


class Ends(dict[str, Status]):
    """Handle -> how it ended; what is not in has not."""

    def __call__(self, handle: str) -> Status | None:
        return self.get(key_of(handle))


@pytest.mark.parametrize(
    ("handle", "key"), [("t8f3kr9", "8f3kr9"), ("k8f3kr9", "8f3kr9"), ("r8f3kr9", "r8f3kr9")]
)
def test_a_task_and_its_kickoff_are_one_and_a_round_is_another(handle: str, key: str) -> None:
    assert key_of(handle) == key


def test_what_has_ended_before_decides_at_once() -> None:
    waiting = Dependencies[str](Ends({"a": Status.SUCCEEDED, "b": Status.FAILED}))
    assert waiting.add("x", 1, ["ta"], "succeeded") == START
    assert waiting.add("x", 2, ["ka", "tb"], "ended") == START
    assert waiting.add("x", 3, ["tb", "tc"], "succeeded") == Decision("after tb, which failed")
    assert waiting.add("x", 4, ["ka"], "failed") == Decision("after ka, which succeeded")
    assert (len(waiting), "x" in waiting, waiting.has_dependents("c")) == (0, False, False)


def test_the_last_of_those_that_are_waited_for_decides() -> None:
    waiting = Dependencies[str](Ends({"a": Status.SUCCEEDED}))
    assert waiting.add("x", 1, ["ta", "kb", "tc"], "succeeded") is None
    assert waiting.open("x") == ["kb", "tc"]
    assert waiting.dependents("b") == ["x"]
    assert waiting.hear("x", "b", Status.SUCCEEDED) is None
    assert waiting.hear("x", "b", Status.FAILED) is None  # it has been heard of
    assert (waiting.open("x"), waiting.has_dependents("b")) == (["tc"], False)
    assert waiting.hear("x", "c", Status.SUCCEEDED) == START
    assert waiting.hear("x", "c", Status.SUCCEEDED) is None  # it waits no more
    assert (len(waiting), waiting.open("x"), waiting.place("x")) == (0, [], None)


def test_the_first_that_ends_wrong_decides_whatever_else_is_waited_for() -> None:
    waiting = Dependencies[str](Ends())
    waiting.add("x", 1, ["ta", "tb"], "succeeded")
    assert waiting.hear("x", "b", Status.TIMED_OUT) == Decision("after tb, which timed out")
    assert ("x" in waiting, waiting.has_dependents("a")) == (False, False)


def test_one_that_was_taken_out_hears_of_nothing() -> None:
    waiting = Dependencies[str](Ends())
    waiting.add("x", 1, ["ta"], "ended")
    assert waiting.remove("x")
    assert not waiting.remove("x")
    assert waiting.hear("x", "a", Status.SUCCEEDED) is None
    assert not waiting.has_dependents("a")


def test_their_places_are_by_acceptance() -> None:
    waiting = Dependencies[str](Ends())
    for order, item in ((5, "z"), (1, "x"), (3, "y")):
        waiting.add(item, order, ["ta"], "ended")
    assert [waiting.place(item) for item in "xyz"] == [1, 2, 3]
    waiting.remove("x")
    assert [waiting.place(item) for item in "xyz"] == [None, 1, 2]


GOOD = {
    "succeeded": {"succeeded"},
    "failed": {"failed", "timed_out", "lost"},
    "ended": {"succeeded", "failed", "cancelled", "timed_out", "lost", "skipped", "denied"},
}
ends = st.sampled_from(sorted(GOOD["ended"]))


@given(
    st.dictionaries(st.sampled_from("abcde"), ends, min_size=1),
    st.sampled_from(sorted(GOOD)),
    st.data(),
)
def test_it_starts_exactly_when_all_have_ended_as_it_wants_in_whatever_order(
    told: dict[str, str], when: str, data: st.DataObject
) -> None:
    before = data.draw(st.sets(st.sampled_from(sorted(told))))
    standing = Ends({name: Status(told[name]) for name in before})
    waiting = Dependencies[str](standing)
    decision = waiting.add("x", 1, [f"t{name}" for name in told], when)
    for name in data.draw(st.permutations(sorted(set(told) - before))):
        decision = waiting.hear("x", name, Status(told[name])) or decision
    assert decision is not None
    is_to_start = all(status in GOOD[when] for status in told.values())
    assert (decision.skipped_for is None) == is_to_start
    assert (len(waiting), any(map(waiting.has_dependents, told))) == (0, False)


def test_its_head_is_the_one_that_has_waited_longest() -> None:
    waiting = Dependencies[str](Ends({}))
    assert list(waiting.heads()) == []
    waiting.add("x", 1, ["ta"], "ended")
    waiting.add("y", 2, ["ta"], "ended")
    assert list(waiting.heads()) == ["x"]
    waiting.remove("x")
    assert list(waiting.heads()) == ["y"]
