"""Mirrors `engine/store/thinning.py`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.store import lines, thinning
from engine.store.lines import NewLine, Wanted
from engine.store.thinning import fair_level, share, thin_out

INFO, ERROR = 1, 4
EVERYTHING = Wanted(floor=INFO)


def opened() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(lines.SCHEMA)
    lines.prepare(connection)
    return connection


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(opened()) as connection:
        yield connection


def new(text: str, *, level: int = INFO, caller: str | None = "ci") -> NewLine:
    return NewLine(5, level, caller, None, "output", text)


def write(connection: sqlite3.Connection, sizes: Mapping[str | None, int], seq: int = 0) -> int:
    """So many lines of each caller."""
    for caller, size in sizes.items():
        seq = lines.insert(connection, seq, [new("x", caller=caller)] * size)
    return seq


def kept(connection: sqlite3.Connection) -> dict[str | None, int]:
    """How many lines there are of each caller; the sums that the journal keeps say the same."""
    found = dict(connection.execute("SELECT caller, count(*) FROM line GROUP BY caller"))
    sums = dict(connection.execute("SELECT caller, sum(lines) FROM volume GROUP BY caller"))
    assert {caller or "": size for caller, size in found.items()} == sums
    return found


# -- shares ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "most", "level"),
    [
        ({}, 5, 0),
        ({3: 2}, 6, 3),  # all fit
        ({3: 2}, 5, 2),
        ({1: 4, 100: 1}, 20, 16),  # who has less keeps all
        ({1: 4, 100: 2}, 20, 8),
        ({10: 100_000}, 1_000_000, 10),
        ({10: 100_000, 11: 1}, 1_000_000, 9),
        ({7: 3}, 2, 0),  # more callers than lines
    ],
)
def test_the_fair_level_is_the_highest_at_which_all_fits(
    sizes: dict[int, int], most: int, level: int
) -> None:
    assert fair_level(sizes, most) == level


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(0, 120))
def test_it_is_that_of_taking_line_for_line_from_the_noisiest(sizes: list[int], most: int) -> None:
    left = list(sizes)
    while sum(left) > most:
        left[left.index(max(left))] -= 1
    level = fair_level(Counter(sizes), most)
    assert sum(min(size, level) for size in sizes) <= most
    assert max(left, default=0) - level in (0, 1)  # lines that are left over go to some
    for before, after in zip(sizes, left, strict=True):
        assert after - min(before, level) in (0, 1)


@pytest.mark.parametrize(
    ("sizes", "most", "cut_to"),
    [
        ({50_000: 1, 1_000: 10}, 50_000, 39_000),  # 2 percent fewer than the limit
        ({10_001: 5}, 50_000, 10_000),  # what each is to keep fits, and a step more does not
        ({20_000: 4, 10_000: 1}, 50_000, 10_000),
        ({10_001: 5, 1: 1}, 50_000, 9_799),  # it does not fit
        ({200: 5_000, 20: 1}, 1_000_000, 195),
    ],
)
def test_a_share_leaves_some_room_but_never_at_the_cost_of_ten_thousand_lines(
    sizes: dict[int, int], most: int, cut_to: int
) -> None:
    assert share(sizes, most) == cut_to


# -- dropping --------------------------------------------------------------------------------------


def test_the_noisiest_caller_loses_its_least_severe_lines_first(
    database: sqlite3.Connection,
) -> None:
    many = [new(str(i), caller="loud") for i in range(14_000)]
    some = [new("bad", caller="loud", level=ERROR)] * 2_000
    few = [new("quiet", caller="quiet")] * 9_000
    last = lines.insert(database, 0, few + some + many)
    assert last == 25_000
    thin_out(database, 20_000)
    # 5,000 too many, and 2 percent of 20,000 more.
    rest = Wanted(floor=INFO, whose="loud")
    assert lines.count(database, Wanted(floor=INFO), 0, last) == 19_600
    assert lines.count(database, Wanted(floor=ERROR, whose="loud"), 0, last) == 2_000
    assert lines.count(database, Wanted(floor=INFO, whose="quiet"), 0, last) == 9_000
    oldest = lines.after(database, rest, 11_000, last, 1)
    assert [line.text for line in oldest] == ["5400"]
    # Told once, where they would have stood; of other levels and callers there is no gap.
    assert lines.gap(database, rest, 0, oldest[0].seq) == 5_400
    assert lines.gap(database, rest, oldest[0].seq, last) == 0
    assert lines.gap(database, rest, 0, 12_000) == 0  # a page that ends before
    assert lines.gap(database, Wanted(floor=ERROR), 0, last) == 0
    assert lines.gap(database, Wanted(floor=INFO, whose="quiet"), 0, last) == 0


def test_each_caller_keeps_ten_thousand_lines_where_that_fits(
    database: sqlite3.Connection,
) -> None:
    write(database, {"a": 10_200, "b": 12_000, None: 11_000, "c": 30})
    thin_out(database, 30_030)
    assert kept(database) == {"a": 10_000, "b": 10_000, None: 10_000, "c": 30}


def test_where_it_does_not_fit_all_are_cut_to_one_level(database: sqlite3.Connection) -> None:
    write(database, {"a": 11_000, "b": 20_000, None: 11_000, "c": 30})
    thin_out(database, 10_030)
    # 98 percent of 10,030 is 9,830: 30 and three times 3,266, and two lines are left over.
    found = kept(database)
    assert found.pop("c") == 30
    assert (min(found.values()), sum(found.values())) == (3_266, 9_800)


def test_a_caller_of_many_names_takes_nothing_of_the_limit(database: sqlite3.Connection) -> None:
    last = write(database, {"ci": 2_000})
    for number in range(20):
        last = write(database, {f"c{number}-{i}": 25 for i in range(40)}, last)
        thin_out(database, 10_000)
        assert sum(kept(database).values()) <= 10_000
    # 800 names and one more: twelve lines each and somewhat more is what fits.
    found = kept(database)
    assert len(found) == 801
    assert (min(found.values()), max(found.values())) == (12, 13)
    assert lines.gap(database, EVERYTHING, 0, last) == last - sum(found.values()) > 10_000


def test_who_was_never_noisy_loses_nothing_to_one_of_many_names(
    database: sqlite3.Connection,
) -> None:
    write(database, {"quiet": 5, **{f"c{i}": 100 for i in range(200)}})
    thin_out(database, 10_000)
    assert kept(database)["quiet"] == 5


@given(
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=8),
    most=st.integers(10, 60),
)
def test_a_cut_leaves_each_its_share_and_no_more_than_the_limit_in_all(
    sizes: list[tuple[int, int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, closing(opened()) as database:
        patch.setattr(thinning, "KEPT_LINES", 6)
        patch.setattr(thinning, "THIN_STEP", 0.2)
        seq = 0
        for number, (info, errors) in enumerate(sizes):
            caller = f"c{number}" if number else None
            seq = lines.insert(database, seq, [new("x", caller=caller)] * info)
            seq = lines.insert(database, seq, [new("x", caller=caller, level=ERROR)] * errors)
        thin_out(database, most)
        left = kept(database)
        assert sum(left.values()) <= most or sum(map(sum, sizes)) <= most
        level, step = 0, int(most * 0.2)  # by counting up, with no rule of the code's
        while sum(min(sum(size), level + 1) for size in sizes) <= most - step and level < 24:
            level += 1
        if sum(min(sum(size), 6) for size in sizes) <= most:
            level = max(level, 6)
        for number, (info, errors) in enumerate(sizes):
            caller = f"c{number}" if number else None
            lost = info + errors - left.get(caller, 0)
            assert info + errors - lost >= min(info + errors, level)
            severe = Wanted(floor=ERROR, whose=caller) if caller else None
            if severe:
                assert lines.count(database, severe, 0, seq) == errors - max(0, lost - info)
        assert lines.gap(database, EVERYTHING, 0, seq) + sum(left.values()) == seq


def test_one_transaction_drops_so_many_lines_at_most_and_the_next_ones_the_rest(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "MOST_DROPPED", 3_000)
    write(database, {"a": 12_000, "b": 8_000})
    totals = []
    for _ in range(5):
        thin_out(database, 10_000)
        totals.append(sum(kept(database).values()))
    # 2 percent below the limit at the end, and then nothing is to be done.
    assert totals == [17_000, 14_000, 11_000, 9_800, 9_800]


def test_so_many_callers_are_cut_at_a_time_and_more_only_where_the_limit_wants_it(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "MOST_CUTS", 10)
    write(database, {f"c{i}": 100 for i in range(100)})
    write(database, {"c0": 5, "c1": 5}, 10_000)
    thin_out(database, 10_000)
    # Ten lines too many: two of the callers had them; the step of 200 is not worth 98 more cuts.
    found = Counter(kept(database).values())
    assert found == {98: 10, 100: 90}
    write(database, {f"c{i}": 20 for i in range(100)}, 20_000)
    thin_out(database, 10_000)
    # As many as need be, and the step would be 9,800.
    assert 9_970 < sum(kept(database).values()) <= 10_000


def test_gaps_beyond_a_number_become_one_and_none_is_forgotten(
    database: sqlite3.Connection,
) -> None:
    last = 0
    for _ in range(100):
        last = lines.insert(database, last, [new("x")] * 600)
        thin_out(database, 10_000)
    (rows,) = database.execute("SELECT count(*) FROM thinned").fetchone()
    assert rows == 64
    wanted = Wanted(floor=INFO)
    kept = lines.count(database, wanted, 0, last)
    assert kept + lines.gap(database, wanted, 0, last) == last == 60_000


def test_gaps_of_many_names_are_bounded_and_their_sum_is_not_forgotten(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "MOST_ALL_GAPS", 100)
    last = 0
    for number in range(30):
        last = write(database, {f"c{number}-{i}": 100 for i in range(10)}, last)
        thin_out(database, 1_000)
        (rows,) = database.execute("SELECT count(*) FROM thinned").fetchone()
        assert rows <= 100 + 10
    everything = lines.count(database, EVERYTHING, 0, last)
    assert everything + lines.gap(database, EVERYTHING, 0, last) == last == 30_000
    # Of a name that lost its lines lately it is known; of who lost them long ago it is not.
    assert lines.gap(database, Wanted(floor=INFO, whose="c28-5"), 0, last) > 0
    assert lines.gap(database, Wanted(floor=INFO, whose="c0-5"), 0, last) == 0


def test_names_that_have_no_lines_left_are_not_kept(database: sqlite3.Connection) -> None:
    write(database, {f"c{i}": 1 for i in range(1_000)})
    thin_out(database, 100)
    assert database.execute("SELECT count(*) FROM volume").fetchone() == (98,)
