"""Mirrors `scripts/plotting.py` and `scripts/bench_plot.py`: what is drawn is what was measured."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts import bench_plot
from scripts.plotting import Plot, Series, number, svg, ticks

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (0, "0 1"),
        (1, "0 0.2 0.4 0.6 0.8 1"),
        (3.1, "0 1 2 3 4"),
        (64, "0 20 40 60 80"),
        (0.043, "0 0.01 0.02 0.03 0.04 0.05"),
        (10_000, "0 2,000 4,000 6,000 8,000 10,000"),
        (9_001, "0 2,000 4,000 6,000 8,000 10,000"),
        (100_000, "0 20,000 40,000 60,000 80,000 100,000"),
    ],
)
def test_an_axis_has_round_numbers_that_reach_the_highest(most: float, shown: str) -> None:
    assert " ".join(map(number, ticks(most))) == shown


def test_points_stand_where_their_numbers_say() -> None:
    plot = Plot("A & B", "callers", "ms", [Series("one", [(1, 0), (2, 5), (4, 10)])], True)
    tree = ElementTree.fromstring(svg(plot))
    dots = [(dot.get("cx"), dot.get("cy")) for dot in tree.iter(f"{SVG}circle")]
    # From 84 to 640 - 118 at even steps of a doubling; from 400 - 74 up to 86.
    assert dots == [("84.0", "326.0"), ("303.0", "206.0"), ("522.0", "86.0")]
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert texts[0] == "A & B"
    assert {"callers", "ms", "one", "1", "2", "4", "10"} <= set(texts)
    assert tree.findtext(f"{SVG}title") == "A & B"
    even = Plot("", "n", "MiB", [Series("own", [(0, 1), (500, 1), (2_000, 2)])])
    circles = ElementTree.fromstring(svg(even)).iter(f"{SVG}circle")
    assert [dot.get("cx") for dot in circles] == ["84.0", "193.5", "522.0"]


def test_names_of_lines_that_end_together_do_not_cover_each_other() -> None:
    series = [Series(name, [(0, 1), (1, 1)]) for name in ("a", "b")]
    tree = ElementTree.fromstring(svg(Plot("", "x", "y", series)))
    places = {
        t.text: float(t.get("y", "")) for t in tree.iter(f"{SVG}text") if t.text in ("a", "b")
    }
    assert places["a"] - places["b"] >= 20


def test_nothing_is_drawn_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        svg(Plot("empty", "x", "y", [Series("a", [])]))


def test_the_drawings_are_those_of_the_numbers_that_are_kept(tmp_path: Path) -> None:
    place = ROOT / "scripts" / "plots"
    data = json.loads((place / "data.json").read_text())
    bench_plot.draw(data, tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in place.glob("*.svg")}
    assert [row[0] for row in data["crowds"]] == [1, 2, 4, 8, 16, 32, 64]
    shown = set(re.findall(r"scripts/plots/(\w+\.svg)", (ROOT / "README.md").read_text()))
    assert shown == set(drawn)


def test_colours_follow_the_readers_scheme() -> None:
    text = svg(Plot("", "x", "y", [Series("a", [(0, 1)])]))
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    for kind in ("text", ".grid", ".axis", ".c0", ".d0", ".c1", ".d1"):
        assert f"{kind} {{" in light
        assert f"{kind} {{" in dark
