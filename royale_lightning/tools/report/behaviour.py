"""How a policy plays, counted over the battles of a run's replay pages: which cards, where, at how much elixir."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from royalegym.render import RenderError, extract_view

#: Towers as RoyaleGym's entity kinds name them.
_TOWERS = ("KING_TOWER", "PRINCESS_TOWER")


@dataclass
class ArenaShape:
    """The board as a battle had it, blue at the bottom; everything in tiles.

    Args:
        width, height: of the board.
        water: ``(x, y, size)`` of each water cell, its lower left corner.
        towers: ``(x, y, radius, team)`` of each crown tower.
    """

    width: int
    height: int
    water: list[tuple[float, float, float]]
    towers: list[tuple[float, float, float, int]]


@dataclass
class Behaviour:
    """Counts over the policy's seats.

    Args:
        battles: seats counted.
        cards: plays by card name; 0 for one that was in the hand and never played.
        tiles: plays by ``(x, y)``, the seat's own frame: its king at the bottom.
        card_tiles: the same of each card.
        elixir: plays by whole elixir before the play.
        minutes: battle time of these seats together.
        arena: the board.
    """

    battles: int = 0
    cards: Counter[str] = field(default_factory=Counter)
    tiles: Counter[tuple[int, int]] = field(default_factory=Counter)
    card_tiles: dict[str, Counter[tuple[int, int]]] = field(default_factory=dict)
    elixir: Counter[int] = field(default_factory=Counter)
    minutes: float = 0.0
    arena: ArenaShape | None = None


def read_behaviour(pages: Sequence[str]) -> Behaviour | None:
    """Count over replay pages that carry a policy's decisions; None when none does."""
    found = Behaviour()
    for text in pages:
        match = re.search(r'<script type="application/json" id="decisions-data">(.*?)</script>', text, re.S)
        if match is None:
            continue
        try:
            seats = {int(d["seat"]) for d in json.loads(match[1])["decisions"]}
            view = extract_view(text)
        except (RenderError, ValueError, KeyError, TypeError):
            continue
        _count(view, seats, found)
    return found if found.battles else None


def _count(view: dict[str, Any], seats: set[int], into: Behaviour) -> None:
    arena, frames = view["arena"], view["frames"]
    column = {n: i for i, n in enumerate(view["frame_fields"])}
    ticks = [f[column["tick"]] for f in frames]
    if into.arena is None:
        into.arena = _shape(view)
    for seat in sorted(seats):
        into.battles += 1
        # A card that was held and never played is what a reader looks for first.
        for card in {c for f in frames for c in f[column["hands"]][seat]}:
            if 0 <= card < len(view["cards"]):
                into.cards[view["cards"][card]["name"]] += 0
        into.minutes += (ticks[-1] - ticks[0]) * view["source"]["tick_ms"] / 60_000
        for d in view["deploys"]:
            if d["team"] != seat or d["status"] != 0 or not 0 <= d["card"] < len(view["cards"]):
                continue
            x, y = int(d["x"] // arena["subtile"]), int(d["y"] // arena["subtile"])
            if seat == 1:
                x, y = arena["tiles_x"] - 1 - x, arena["tiles_y"] - 1 - y
            card = view["cards"][d["card"]]["name"]
            into.cards[card] += 1
            into.tiles[x, y] += 1
            into.card_tiles.setdefault(card, Counter())[x, y] += 1
            frame = frames[max(0, bisect_right(ticks, d["tick"]) - 1)]
            into.elixir[frame[column["elixir_milli"]][seat] // 1000] += 1


def _shape(view: dict[str, Any]) -> ArenaShape:
    a, bit = view["arena"], view["arena"]["bits"]["WATER"]
    cell = 1 / a["half"]
    water = [
        (hx * cell, hy * cell, cell)
        for hy, line in enumerate(a["grid"]) for hx, v in enumerate(line) if v & bit
    ]
    e = {n: i for i, n in enumerate(view["entity_fields"])}
    kinds = {view["kinds"][k] for k in _TOWERS if k in view["kinds"]}
    first = view["frames"][0][view["frame_fields"].index("entities")]
    s = a["subtile"]
    towers = [
        (r[e["x"]] / s, r[e["y"]] / s, r[e["radius"]] / s, r[e["team"]]) for r in first if r[e["kind"]] in kinds
    ]
    return ArenaShape(a["tiles_x"], a["tiles_y"], water, towers)
