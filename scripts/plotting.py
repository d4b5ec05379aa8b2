"""Lines over an axis as SVG text, for a page that is light or dark. Pure.

Colours follow the reader's scheme, each line has its name at its end and not in a legend, and what
an axis counts stands at it with its unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 84, 118, 86, 74  # margins
MOST_TICKS: Final = 6
_NICE: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
# Told apart by those who see few colours, on white as on nearly black.
_STYLE: Final = """
text { font: 19px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.grid { stroke: #d1d9e0 }
.axis { stroke: #59636e }
.line { fill: none; stroke-width: 3 }
.c0 { stroke: #0969da } .d0 { fill: #0969da }
.c1 { stroke: #bc4c00 } .d1 { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .grid { stroke: #3d444d }
  .axis { stroke: #9198a1 }
  .c0 { stroke: #4493f8 } .d0 { fill: #4493f8 }
  .c1 { stroke: #f0883e } .d1 { fill: #f0883e }
}"""


class Series(NamedTuple):
    """Points in the order of x; `name` stands at the last one."""

    name: str
    points: Sequence[tuple[float, float]]


class Plot(NamedTuple):
    """`x` and `y` say what is counted, with the unit. `is_doubling`: x goes by powers of two."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    is_doubling: bool = False


def ticks(most: float) -> list[float]:
    """Round numbers from 0 on, the last of them not below `most`; at most `MOST_TICKS` steps."""
    if most <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    step = next(n * power for n in _NICE if n * power * MOST_TICKS >= most * (1 - 1e-9))
    return [i * step for i in range(math.ceil(most / step - 1e-9) + 1)]


def number(value: float) -> str:
    """`0`, `2.5`, `10,000`: no more digits than are needed."""
    return f"{value:,.0f}" if value == round(value) else f"{value:.6g}"


def svg(plot: Plot) -> str:
    """The drawing, which has its title as text. Raises ValueError without points."""
    points = [point for series in plot.series for point in series.points]
    if not points:
        raise ValueError(f"{plot.title}: nothing to draw")
    tops = ticks(max(y for _, y in points))
    xs = sorted({x for x, _ in points}) if plot.is_doubling else ticks(max(x for x, _ in points))
    ends = (xs[0], xs[-1])
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(plot.title)}</title><style>{_STYLE}\n</style>",
        f'<text class="title" x="12" y="30">{escape(plot.title)}</text>',
        *_grid(plot, xs, tops, ends),
    ]
    taken: list[float] = []
    for index, series in enumerate(plot.series):
        places = [(_x(plot, x, ends), _y(y, tops)) for x, y in series.points]
        out += _line(series.name, places, index % 2, taken)
    return "\n".join([*out, "</svg>", ""])


def _x(plot: Plot, value: float, ends: tuple[float, float]) -> float:
    first, last = (math.log2(end) if plot.is_doubling else end for end in ends)
    at = math.log2(value) if plot.is_doubling else value
    return round(LEFT + (at - first) / ((last - first) or 1) * (WIDTH - LEFT - RIGHT), 1)


def _y(value: float, tops: list[float]) -> float:
    return round(HEIGHT - BOTTOM - value / tops[-1] * (HEIGHT - TOP - BOTTOM), 1)


def _grid(plot: Plot, xs: list[float], tops: list[float], ends: tuple[float, float]) -> list[str]:
    right, low = WIDTH - RIGHT, HEIGHT - BOTTOM
    out = []
    for value in tops:
        y = _y(value, tops)
        kind = "grid" if value else "axis"
        out.append(f'<line class="{kind}" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        out.append(f'<text text-anchor="end" x="{LEFT - 10}" y="{y + 6}">{number(value)}</text>')
    for value in xs:
        x = _x(plot, value, ends)
        out.append(f'<line class="axis" x1="{x}" y1="{low}" x2="{x}" y2="{low + 6}"/>')
        out.append(f'<text text-anchor="middle" x="{x}" y="{low + 28}">{number(value)}</text>')
    middle = (LEFT + right) / 2
    out.append(f'<text text-anchor="middle" x="{middle}" y="{HEIGHT - 14}">{escape(plot.x)}</text>')
    # Not turned on its side: what has to be read with the head tilted is not read.
    out.append(f'<text x="12" y="{TOP - 28}">{escape(plot.y)}</text>')
    return out


def _line(
    name: str, places: list[tuple[float, float]], colour: int, taken: list[float]
) -> list[str]:
    path = " ".join(f"{x},{y}" for x, y in places)
    dots = [f'<circle class="d{colour}" cx="{x}" cy="{y}" r="4"/>' for x, y in places]
    x, y = places[-1]
    while any(abs(y - other) < 22 for other in taken):  # names do not cover each other
        y -= 22
    taken.append(y)
    text = f'<text class="d{colour}" x="{x + 10}" y="{y + 6}">{escape(name)}</text>'
    return [f'<polyline class="line c{colour}" points="{path}"/>', *dots, text]
