"""Charts as inline SVG: pure functions of numbers, coloured by the page's style so that they follow dark and light.

They give ``Markup``: a chart has escaped what it was given, and a template must not escape it once more.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from ..bots.plays import Board

#: Colours of the page's style; a line or layer beyond them repeats one.
COLOURS = 8
#: Points of a line; a chart is no wider than this many pixels.
POINTS = 360
# Left of the plot there is room for a label of five figures at the size it has on a phone.
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 8, 24


@dataclass
class Series:
    """One line; ``low`` and ``high`` are the ends of its interval at each point."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def number(v: float) -> str:
    """Short, for an axis or a table: ``1.2M``, ``4,400``, ``0.031``, ``1.2e-05``."""
    if v == 0:
        return "0"
    size = abs(v)
    if size >= 1e6:
        return f"{v / 1e6:.3g}M"
    if size >= 1e4:
        return f"{v / 1e3:.3g}k"
    if size >= 100:
        return f"{v:,.0f}"
    return f"{v:.3g}"


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers that divide a range into about so many parts."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next((m * scale for m in (1, 2, 5) if m * scale >= raw), 10 * scale)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def thinned(s: Series, points: int = POINTS) -> Series:
    """Means over equal groups of neighbours, where a series has more points than a chart has pixels for."""
    n = len(s.x)
    if n <= points:
        return s
    cuts = [round(i * n / points) for i in range(points + 1)]

    def mean(v: Sequence[float] | None) -> list[float] | None:
        return None if v is None else [sum(v[a:b]) / (b - a) for a, b in pairwise(cuts)]

    x, y = mean(s.x), mean(s.y)
    assert x is not None
    assert y is not None
    return Series(s.name, x, y, mean(s.low), mean(s.high))


class _Frame:
    """Axes of a chart and the map from numbers to pixels."""

    def __init__(
        self, width: int, height: int, x: tuple[float, float], y: tuple[float, float], label: str, unit: str
    ) -> None:
        self.width, self.height, self.x, self.y = width, height, x, y
        self.label, self.unit = label, unit

    def sx(self, v: float) -> float:
        a, b = self.x
        return _LEFT + (v - a) / (b - a or 1) * (self.width - _LEFT - _RIGHT)

    def sy(self, v: float) -> float:
        a, b = self.y
        return _TOP + (b - v) / (b - a or 1) * (self.height - _TOP - _BOTTOM)

    def wrap(self, inside: str, data: str = "") -> Markup:
        grid = "".join(
            f'<line class="grid" x1="{_LEFT}" x2="{self.width - _RIGHT}" y1="{self.sy(t):.1f}" y2="{self.sy(t):.1f}"/>'
            f'<text x="{_LEFT - 5}" y="{self.sy(t) + 3.5:.1f}" text-anchor="end">{number(t)}{self.unit}</text>'
            for t in ticks(*self.y)
        )
        axis = "".join(
            f'<text x="{self.sx(t):.1f}" y="{self.height - 8}" text-anchor="middle">{number(t)}</text>'
            for t in ticks(*self.x, about=max(2, self.width // 130))
        )
        return Markup(
            f'<svg class="chart w{self.width}" viewBox="0 0 {self.width} {self.height}" role="img" tabindex="0" '
            f'aria-label="{html.escape(self.label)}"{data}>{grid}{axis}{inside}</svg>'
        )


def lines(
    series: Sequence[Series], label: str, *, width: int = 720, height: int = 240,
    y: tuple[float | None, float | None] = (None, None), unit: str = "", mark: tuple[float, str] | None = None,
) -> Markup:
    """Lines over game steps with their intervals as bands; ``mark`` is a level worth knowing, with its name.

    ``y`` fixes the ends of the axis where it gives any. Without a point there is no chart: an empty string.
    """
    series = [thinned(s) for s in series if len(s.x)]
    if not series:
        return Markup()
    xs = [v for s in series for v in s.x]
    ys = [v for s in series for part in (s.y, s.low or (), s.high or ()) for v in part]
    if mark is not None:
        ys.append(mark[0])
    low = min(ys) if y[0] is None else y[0]
    high = max(ys) if y[1] is None else y[1]
    if high <= low:
        room = (abs(low) or 1) / 2
        low, high = low - room if y[0] is None else low, low + room
    elif y == (None, None):
        low, high = low - (high - low) * 0.05, high + (high - low) * 0.05
    f = _Frame(width, height, (min(0.0, *xs) if len(xs) > 1 else 0.0, max(xs)), (low, high), label, unit)
    out = []
    if mark is not None:
        at = f.sy(mark[0])
        out.append(f'<line class="mark" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        # Below the line where there is no room above it.
        beside = at - 3 if at > _TOP + 12 else at + 12
        out.append(f'<text x="{width - _RIGHT}" y="{beside:.1f}" text-anchor="end">{html.escape(mark[1])}</text>')
    for i, s in enumerate(series):
        if s.low is not None and s.high is not None:
            there = [f"{f.sx(x):.1f},{f.sy(v):.1f}" for x, v in zip(s.x, s.high, strict=True)]
            back = [f"{f.sx(x):.1f},{f.sy(v):.1f}" for x, v in zip(s.x, s.low, strict=True)]
            out.append(f'<polygon class="b{i % COLOURS}" points="{" ".join(there + back[::-1])}"/>')
    for i, s in enumerate(series):
        path = " ".join(f"{f.sx(x):.1f},{f.sy(v):.1f}" for x, v in zip(s.x, s.y, strict=True))
        if len(s.x) == 1:
            out.append(f'<circle class="d{i % COLOURS}" cx="{f.sx(s.x[0]):.1f}" cy="{f.sy(s.y[0]):.1f}" r="3"/>')
        else:
            out.append(f'<polyline class="l{i % COLOURS}" points="{path}"/>')
    data = {
        "x": [_LEFT, width - _RIGHT, f.x[0], f.x[1]],
        "series": [{"name": s.name, "x": [_digits(v) for v in s.x], "y": [_digits(v) for v in s.y]} for s in series],
    }
    chart = f.wrap("".join(out), f' data-chart="{html.escape(json.dumps(data, separators=(",", ":")))}"')
    return chart + (legend([s.name for s in series]) if len(series) > 1 else Markup())


def _digits(v: float) -> float:
    return float(f"{v:.4g}") if abs(v) < 1e5 else round(v)


def legend(names: Sequence[str]) -> Markup:
    """Names beside the colours they are drawn in."""
    items = "".join(f'<li><i class="s{i % COLOURS}"></i>{html.escape(n)}</li>' for i, n in enumerate(names))
    return Markup(f'<ul class="legend">{items}</ul>')


def stacked(x: Sequence[float], parts: Mapping[str, Sequence[float]], label: str, *, width: int = 720) -> Markup:
    """Areas on top of each other, in seconds; ``parts`` from the bottom up, each as long as ``x``."""
    if not len(x) or not parts:
        return Markup()
    height = 220
    thin = {k: thinned(Series(k, x, v)) for k, v in parts.items()}
    at = next(iter(thin.values())).x
    total = [0.0] * len(at)
    layers = []
    for name, s in thin.items():
        below = list(total)
        total = [a + b for a, b in zip(total, s.y, strict=True)]
        layers.append((name, below, list(total)))
    # The first iteration compiles; it would flatten all others.
    top = sorted(total)[int(0.98 * (len(total) - 1))] * 1.1 or 1.0
    f = _Frame(width, height, (0.0, max(at)), (0.0, top), label, "s")
    out = []
    for i, (_, low, high) in enumerate(layers):
        there = [f"{f.sx(a):.1f},{f.sy(min(v, top)):.1f}" for a, v in zip(at, high, strict=True)]
        back = [f"{f.sx(a):.1f},{f.sy(min(v, top)):.1f}" for a, v in zip(at, low, strict=True)]
        out.append(f'<polygon class="a{i % COLOURS}" points="{" ".join(there + back[::-1])}"/>')
    return f.wrap("".join(out)) + legend(list(parts))


def bars(items: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """Horizontal bars from the top down: ``(name, length, what to print)``."""
    if not items:
        return Markup()
    top = max(v for _, v, _ in items) or 1.0
    height = 22 * len(items) + 6
    rows = "".join(
        f'<text x="128" y="{22 * i + 17}" text-anchor="end">{html.escape(n)}</text>'
        f'<rect class="s0" x="134" y="{22 * i + 5}" width="{max(1.0, 180 * v / top):.1f}" height="16" rx="3"/>'
        f'<text x="{140 + 180 * v / top:.1f}" y="{22 * i + 17}">{html.escape(t)}</text>'
        for i, (n, v, t) in enumerate(items)
    )
    head = f'<svg class="bars narrow" viewBox="0 0 460 {height}" role="img" aria-label="{html.escape(label)}">'
    return Markup(f"{head}{rows}</svg>")


def whiskers(items: Sequence[tuple[str, float, float, float, str]], label: str) -> Markup:
    """Scores from 0 to 1 with their intervals: ``(name, score, low, high, note)``."""
    if not items:
        return Markup()
    height = 24 * len(items) + 26

    def sx(v: float) -> float:
        return 130 + 380 * v

    grid = "".join(
        f'<line class="grid" x1="{sx(t)}" x2="{sx(t)}" y1="4" y2="{height - 20}"/>'
        f'<text x="{sx(t)}" y="{height - 6}" text-anchor="middle">{t:g}</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    rows = "".join(
        f'<text x="122" y="{24 * i + 19}" text-anchor="end">{html.escape(n)}</text>'
        f'<line class="whisker" x1="{sx(a):.1f}" x2="{sx(b):.1f}" y1="{24 * i + 15}" y2="{24 * i + 15}"/>'
        f'<circle class="d0" cx="{sx(s):.1f}" cy="{24 * i + 15}" r="5"/>'
        f'<text x="524" y="{24 * i + 19}">{html.escape(t)}</text>'
        for i, (n, s, a, b, t) in enumerate(items)
    )
    head = f'<svg class="bars" viewBox="0 0 720 {height}" role="img" aria-label="{html.escape(label)}">'
    return Markup(f"{head}{grid}{rows}</svg>")


def heat(board: Board, tiles: dict[tuple[int, int], int], label: str, *, scale: int = 12) -> Markup:
    """Plays on the board, drawn to scale with the own side at the bottom; the darker a tile, the more plays."""
    w, h = board.width * scale, board.height * scale
    top = max(tiles.values(), default=1)
    out = [f'<rect class="ground" width="{w}" height="{h}" rx="4"/>']
    out += [
        f'<rect class="water" x="{x * scale:.1f}" y="{(board.height - y - s) * scale:.1f}" '
        f'width="{s * scale + 0.3:.1f}" height="{s * scale + 0.3:.1f}"/>'
        for x, y, s in board.water
    ]
    for x, y, radius, team in board.towers:
        side = 2 * radius * scale
        out.append(
            f'<rect class="tower{team}" x="{(x - radius) * scale:.1f}" y="{(board.height - y - radius) * scale:.1f}" '
            f'width="{side:.1f}" height="{side:.1f}" rx="3"/>'
        )
    for (x, y), n in sorted(tiles.items()):
        out.append(
            f'<rect class="heat" x="{x * scale}" y="{(board.height - 1 - y) * scale}" width="{scale}" height="{scale}" '
            f'opacity="{0.2 + 0.8 * math.sqrt(n / top):.2f}"><title>tile {x}, {y}: {n}</title></rect>'
        )
    head = f'<svg class="arena" viewBox="0 0 {w} {h}" role="img" aria-label="{html.escape(label)}">'
    return Markup(f"{head}{''.join(out)}</svg>")
