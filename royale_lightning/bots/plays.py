"""What a policy played in a recorded battle, and where: the data beside a replay, for reports and loggers.

A replay's page is for people; whoever counts reads this file instead, ``<replay>.json``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec
from royalegym.protocol import BIT_WATER, DeployStatus, EntityKind
from royalegym.replay import Trace

from ..run.atomic import write_atomic

SCHEMA = 1
_TOWERS = (EntityKind.KING_TOWER, EntityKind.PRINCESS_TOWER)
Seat = Annotated[int, msgspec.Meta(ge=0, le=1)]


class Board(msgspec.Struct, frozen=True):
    """The board a battle was played on, blue at the bottom; everything in tiles.

    Args:
        width, height: of the board.
        water: ``(x, y, size)`` of each water cell, its lower left corner.
        towers: ``(x, y, radius, team)`` of each crown tower.
    """

    width: int
    height: int
    water: list[tuple[float, float, float]]
    towers: list[tuple[float, float, float, int]]


class Play(msgspec.Struct, frozen=True):
    """One card that was played.

    Args:
        seat: 0 blue, 1 red.
        tick: of the battle, before it.
        card: its name.
        x, y: the tile it was aimed at, ``y`` from blue's end of the board.
        elixir: in the seat's bar before it.
    """

    seat: Seat
    tick: int
    card: str
    x: int
    y: int
    elixir: float


class BattlePlays(msgspec.Struct, frozen=True):
    """One battle.

    Args:
        title: who played and how it went.
        seats: those that a policy played; the others' plays are left out.
        seconds: length of the battle.
        held: per seat of ``seats``, the cards that were in its hand at any time.
        plays: in the order of the battle.
        board: where.
        schema: of this file.
    """

    title: str
    seats: list[Seat]
    seconds: float
    held: list[list[str]]
    plays: list[Play]
    board: Board
    schema: int = SCHEMA


def plays_of(trace: Trace, title: str, seats: Collection[int]) -> BattlePlays:
    """Read a trace.

    Args:
        trace: with a frame at each decision at least.
        title: of the battle.
        seats: whose plays are kept.
    """
    head, frames = trace.header, trace.frames
    ticks = [f.tick for f in frames]
    kept = sorted(seats)
    held = [sorted({_name(trace, c) for f in frames for c in f.hands[seat]} - {""}) for seat in kept]
    plays = []
    for step in trace.steps:
        before = frames[max(0, bisect_right(ticks, step.tick) - 1)]
        for command, status in zip(step.commands, step.statuses, strict=True):
            seat, slot = command.team, command.hand_slot
            # Buttons of champions lie beyond the hand.
            if seat not in kept or status != DeployStatus.OK or not 0 <= slot < len(before.hands[seat]):
                continue
            card = _name(trace, before.hands[seat][slot])
            if card:
                x, y = command.x // head.subtile, command.y // head.subtile
                plays.append(Play(seat, step.tick, card, int(x), int(y), before.elixir_milli[seat] / 1000))
    seconds = (ticks[-1] - ticks[0]) * head.tick_ms / 1000
    return BattlePlays(title, kept, seconds, held, plays, _board(trace))


def _name(trace: Trace, card: int) -> str:
    return trace.header.cards[card].name if 0 <= card < len(trace.header.cards) else ""


def _board(trace: Trace) -> Board:
    head = trace.header
    cell = 1 / head.half
    water = [
        (x * cell, y * cell, cell)
        for y, line in enumerate(head.grid) for x, bits in enumerate(line) if bits & BIT_WATER
    ]
    s = head.subtile
    towers = [(e.x / s, e.y / s, e.radius / s, e.team) for e in trace.frames[0].entities if e.kind in _TOWERS]
    return Board(head.tiles_x, head.tiles_y, water, towers)


def plays_file(replay: Path) -> Path:
    """Where the plays of a replay lie, named by its trace or its page."""
    return replay.with_suffix(".json")


def write_plays(plays: BattlePlays, replay: Path) -> Path:
    """Write them beside a replay, atomically."""
    path = plays_file(replay)
    write_atomic(path, msgspec.json.encode(plays) + b"\n")
    return path


def read_plays(replay: Path) -> BattlePlays | None:
    """Those beside a replay; None where there are none: an older version wrote it, or the file is of another shape."""
    try:
        found = msgspec.json.decode(plays_file(replay).read_bytes(), type=BattlePlays)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema == SCHEMA and len(found.held) == len(found.seats) else None
