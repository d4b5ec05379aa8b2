from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.tasks.turns import Turns


def filled(*items: str) -> Turns[str]:
    """Turns taken by items whose first letter is their caller."""
    turns: Turns[str] = Turns()
    for item in items:
        turns.take(item[0], item)
    return turns


def test_the_first_has_the_turn_and_the_others_wait_in_order() -> None:
    turns: Turns[str] = Turns()
    assert [turns.take("a", item) for item in ("a1", "a2", "a3")] == [True, False, False]
    assert turns.take("a", "a1")  # it has it
    assert turns.holder("a") == "a1"
    assert [turns.place("a", item) for item in ("a1", "a2", "a3")] == [None, 1, 2]
    assert (turns.end("a", "a1"), turns.end("a", "a2"), turns.end("a", "a3")) == ("a2", "a3", None)
    assert turns.holder("a") is None


def test_callers_do_not_wait_for_each_other() -> None:
    turns = filled("a1", "a2", "b1")
    assert turns.take("c", "c1")
    assert (len(turns), list(turns)) == (1, ["a2"])
    assert turns.end("b", "b1") is None


def test_one_that_leaves_the_line_is_passed_over() -> None:
    turns = filled("a1", "a2", "a3")
    assert turns.remove("a", "a2")
    assert not turns.remove("a", "a2")
    assert not turns.remove("a", "a1")
    assert not turns.remove("b", "a1")
    assert turns.end("a", "a2") is None  # it had no turn
    assert turns.end("a", "a1") == "a3"


def test_the_next_waits_for_all_that_were_begun_before() -> None:
    turns = filled("a1", "a2")
    turns.join("a", "a0")
    turns.join("a", "a0")
    assert turns.end("a", "a1") is None
    assert turns.holder("a") == "a0"
    assert turns.end("a", "a0") == "a2"


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 30)), max_size=60))
def test_nobody_is_lost_and_nobody_overtakes(steps: list[str | int]) -> None:
    turns: Turns[str] = Turns()
    inside: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for number, step in enumerate(steps):
        if isinstance(step, str):
            item = f"{step}{number}"
            assert turns.take(step, item) == (not inside[step])
            inside[step].append(item)
        else:
            caller = "abc"[step % 3]
            if inside[caller]:
                ended = inside[caller].pop(0)
                following = inside[caller][0] if inside[caller] else None
                assert turns.end(caller, ended) == following
        assert len(turns) == len(list(turns)) == sum(max(0, len(i) - 1) for i in inside.values())
        assert [turns.holder(c) for c in "abc"] == [i[0] if i else None for i in inside.values()]
