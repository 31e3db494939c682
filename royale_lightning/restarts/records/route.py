"""Routes: whole episodes of one seat, as the segments between their kept moments.

A pool's point is a place to begin; a route also says how its battle went on from there, so that a won one can be walked
back from its end and its decisions be imitated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...battle.round import DEAL, Deal
from .points import Key, RestartPoint


class Priority(NamedTuple):
    """A route's place in the archive, compared field by field from the left; larger is better.

    Kept as a tuple: packed into one float32, differences below 64 vanish beside an offset of 1e9.

    Attributes:
        opponent_band: rating band of the opponent beaten, a whole number.
        won: 1 for a win.
        crown_margin: crowns, own minus enemy.
        hp_margin: sum of the towers' hp fractions, own minus enemy.
        minus_ticks: length of the battle, negated: of two equal wins the quicker one.
    """

    opponent_band: int
    won: int
    crown_margin: int
    hp_margin: float
    minus_ticks: int


class Reference(NamedTuple):
    """Segments ``first`` up to but without ``stop`` of a stored route: a handle, not data."""

    route: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The game steps between two neighbouring kept moments of a battle, seen from the route's seat.

    Args:
        first_step, end_step: game steps at its two ends, counted from the battle's beginning; end after start.
        first_key, end_key: cells at its two ends.
        end_tick: the battle's tick at its end.
        end_hash: the engine's state hash at its end.
        eligible: whether an episode may begin at its end: a confirmed moment, the battle not over.
        terminal, won, lost: the outcome, told by an episode's last segment whatever ended it.
        metrics: named values, sorted by name: utilities and whatever the caller wants to select by.
        end: the save state at its end, once minted.
    """

    first_step: int
    end_step: int
    first_key: Key
    end_key: Key
    end_tick: int
    end_hash: int
    eligible: bool
    terminal: bool = False
    won: bool = False
    lost: bool = False
    metrics: tuple[tuple[str, float], ...] = ()
    end: RestartPoint | None = None

    def __post_init__(self) -> None:
        if self.end_step <= self.first_step:
            raise ValueError(f"a segment needs a game step, was {self.first_step} to {self.end_step}")
        if self.terminal and self.eligible:
            raise ValueError("a segment that ends the battle cannot be started from")

    @property
    def game_steps(self) -> int:
        return self.end_step - self.first_step

    def metric(self, name: str) -> float:
        """A named value.

        Raises:
            KeyError: the segment has none of that name; the message lists what it has.
        """
        for key, value in self.metrics:
            if key == name:
                return value
        raise KeyError(f"no metric {name!r} on this segment; it has {', '.join(k for k, _ in self.metrics) or 'none'}")


@dataclass(frozen=True, slots=True)
class Route:
    """One episode of one seat, from a battle's beginning (or, incomplete, from a restart) to its end.

    A battle can only be played again jointly, so ``commands`` holds both seats'. With ``seed`` and ``players`` they
    replay a complete route exactly; its save states are minted that way.

    Args:
        source: ``(battle, ordinal)`` of the episode.
        seed: of the battle's true start.
        first_hash: the engine's state hash at the route's first game step.
        players: by name, blue first.
        seat: whose route it is.
        partition: match-up group.
        commands: :func:`pack_commands` of both seats' plays from the route's first game step to its last.
        segments: without gaps, in order.
        priority: its place in the archive.
        complete: begins at a true start, directly or through an exactly matching prefix. Only such routes are archived:
            a bare tail is short, and would beat every whole win.
        policy_version: iteration whose weights played it.
        checked: measured to be more than a lucky win
            (:func:`~royale_lightning.restarts.routes.judging.above_chance`); only a checked route leads a curriculum.
        deal: what the decks of the battle's true start were drawn by.
    """

    source: tuple[int, int]
    seed: int
    first_hash: int
    players: tuple[str, str]
    seat: int
    partition: str
    commands: bytes
    segments: tuple[Segment, ...]
    priority: Priority
    complete: bool
    policy_version: int
    checked: bool = False
    deal: Deal = DEAL

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError("a route needs a segment")
        if self.complete and self.segments[0].first_step:
            raise ValueError(f"a complete route begins with the battle, not at game step {self.segments[0].first_step}")
        for a, b in zip(self.segments, self.segments[1:], strict=False):
            if a.end_step != b.first_step or a.end_key != b.first_key or a.terminal:
                raise ValueError(f"a route's segments must follow one another, not {a.end_step} and {b.first_step}")

    @property
    def opponent(self) -> str:
        return self.players[1 - self.seat]

    @property
    def group(self) -> str:
        """The archive's group: match-up and seat. One best route of all would fit one shuffle and one opponent."""
        return f"{self.partition}/{self.seat}"

    @property
    def first_step(self) -> int:
        return self.segments[0].first_step

    @property
    def last_step(self) -> int:
        return self.segments[-1].end_step

    @property
    def won(self) -> bool:
        return self.segments[-1].won


class Rung(NamedTuple):
    """A place on a route where the curriculum can start an episode, ordered by time.

    Attributes:
        game_step: of the moment.
        steps_left: game steps from there to the route's end; the distance that survives a change of route.
        reference_rate: win rate of the policy that played the route, measured from here; None where not measured.
    """

    game_step: int
    steps_left: int
    reference_rate: float | None = None


def pack_commands(commands: Sequence[tuple[int, int, int]]) -> bytes:
    """``(game_step, seat, action)`` in ascending game step as little-endian int32: 12 bytes a play, not 150."""
    return np.asarray(commands, dtype="<i4").reshape(-1, 3).tobytes()


def unpack_commands(packed: bytes) -> list[tuple[int, int, int]]:
    """What :func:`pack_commands` was given."""
    rows: list[list[int]] = np.frombuffer(packed, dtype="<i4").reshape(-1, 3).tolist()
    return [(step, seat, action) for step, seat, action in rows]
