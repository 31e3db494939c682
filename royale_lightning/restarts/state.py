"""What restarts are made of: restart points, segments, routes, rungs and results, as frozen records.

Every number that tells one side from the other is seen from one seat, *own minus enemy*: a position belongs to a
battle and to a seat. Records hold plain values only, so that msgpack writes them as they stand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import msgspec
import numpy as np

from ..battle.stamp import Stamp

#: A cell: the labels of :data:`~royale_lightning.restarts.key.LABELS` as small integers, coarse first.
Key = tuple[int, ...]
#: How good a position is, compared left to right; see :func:`~royale_lightning.restarts.key.advantage_rank`.
Rank = tuple[int, ...]

#: How a restarted episode can come to nothing, beside being played to an end.
REFUSED, CRASHED, DEAD_START, CAPPED = "refused", "crashed", "dead_start", "capped"
TIMEOUTS = (REFUSED, CRASHED, DEAD_START, CAPPED)


def content_hash(data: bytes) -> str:
    """128 bits of BLAKE2b as 32 hex digits: the name of a save state's bytes."""
    return hashlib.blake2b(data, digest_size=16, person=b"royale-restart").hexdigest()


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """A moment of a battle from which an episode can begin, credited to one seat.

    Two points of one moment, one a seat, share their payload; equal payloads of two battles are still two points, so
    that retiring one leaves the other. ``id`` names all of this by content.

    Args:
        payload: a packed save state, opaque here: engine bytes, both seats' memories and frame history, rewards. It
            holds the enemy's hand and bar and goes to the engine only.
        stamp: the game it continues.
        state_hash: the engine's hash of the battle at this moment, checked after loading.
        seat: whose start it is; the only seat whose result enters a window.
        players: who played, by name, blue first. ``players[1 - seat]`` is the opponent the point was recorded against.
        key, rank: the position as ``seat`` sees it.
        partition: match-up group, such as deck and opponent class; crowding is limited inside one.
        game_step, tick: how far the battle was.
        tick_limit: the battle's limit in ticks, counted from its beginning; None for the engine's own.
        tag: why the moment was kept.
        source: ``(battle, ordinal)`` of the episode it was taken from.
        policy_version: iteration whose weights played there; old points are retired by it.
        remembered: per seat, whether the payload holds the seat's memory. A seat without one would start blind.
        blob: content hash of ``payload``.
        id: content hash of all the rest, ``blob`` included.
    """

    payload: bytes
    stamp: Stamp
    state_hash: int
    seat: int
    players: tuple[str, str]
    key: Key
    rank: Rank
    partition: str
    game_step: int
    tick: int
    tick_limit: int | None
    tag: str
    source: tuple[int, int]
    policy_version: int
    remembered: tuple[bool, bool]
    blob: str = field(default="")
    id: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.seat not in (0, 1):
            raise ValueError(f"a restart point's seat is 0 (blue) or 1 (red), was {self.seat}")
        # A record that comes with its blob's name (from a bank, which checked it) is not hashed a second time.
        object.__setattr__(self, "blob", self.blob or content_hash(self.payload))
        rest = [getattr(self, f.name) for f in fields(self) if f.name not in ("payload", "id")]
        object.__setattr__(self, "id", content_hash(msgspec.msgpack.encode(rest)))

    @property
    def opponent(self) -> str:
        """Name of the other seat's player when the point was recorded."""
        return self.players[1 - self.seat]


class Bucket(NamedTuple):
    """A cell within a match-up group."""

    partition: str
    key: Key


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
    """Segments ``start`` up to but without ``stop`` of a stored route: a handle, not data."""

    route: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The game steps between two neighbouring kept moments of a battle, seen from the route's seat.

    Args:
        start_step, end_step: game steps at its two ends, counted from the battle's beginning; end after start.
        start_key, end_key: cells at its two ends.
        end_tick: the battle's tick at its end.
        end_hash: the engine's state hash at its end.
        eligible: whether an episode may begin at its end: a confirmed moment, the battle not over.
        terminal, won, lost: the outcome, told by an episode's last segment whatever ended it.
        metrics: named values, sorted by name: utilities and whatever the caller wants to select by.
        end: the save state at its end, once minted.
    """

    start_step: int
    end_step: int
    start_key: Key
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
        if self.end_step <= self.start_step:
            raise ValueError(f"a segment needs a game step, was {self.start_step} to {self.end_step}")
        if self.terminal and self.eligible:
            raise ValueError("a segment that ends the battle cannot be started from")

    @property
    def game_steps(self) -> int:
        return self.end_step - self.start_step

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
        start_hash: the engine's state hash at the route's first game step.
        players: by name, blue first.
        seat: whose route it is.
        partition: match-up group.
        commands: :func:`pack_commands` of both seats' plays from the route's first game step to its last.
        segments: without gaps, in order.
        priority: its place in the archive.
        complete: begins at a true start, directly or through an exactly matching prefix. Only such routes are archived:
            a bare tail is short, and would beat every whole win.
        policy_version: iteration whose weights played it.
        checked: measured to be more than a lucky win (:func:`~royale_lightning.restarts.archive.above_chance`); only a
            checked route leads a curriculum.
    """

    source: tuple[int, int]
    seed: int
    start_hash: int
    players: tuple[str, str]
    seat: int
    partition: str
    commands: bytes
    segments: tuple[Segment, ...]
    priority: Priority
    complete: bool
    policy_version: int
    checked: bool = False

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError("a route needs a segment")
        if self.complete and self.segments[0].start_step:
            raise ValueError(f"a complete route begins with the battle, not at game step {self.segments[0].start_step}")
        for a, b in zip(self.segments, self.segments[1:], strict=False):
            if a.end_step != b.start_step or a.end_key != b.start_key or a.terminal:
                raise ValueError(f"a route's segments must follow one another, not {a.end_step} and {b.start_step}")

    @property
    def opponent(self) -> str:
        return self.players[1 - self.seat]

    @property
    def group(self) -> str:
        """The archive's group: match-up and seat. One best route of all would fit one shuffle and one opponent."""
        return f"{self.partition}/{self.seat}"

    @property
    def first_step(self) -> int:
        return self.segments[0].start_step

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


@dataclass(frozen=True)
class EpisodeResult:
    """What an episode says about its start. Entered in ascending ``(round, battle)``, whoever played it.

    Args:
        round: number of the round in which it ended; equal rounds of several ranks interleave by battle.
        battle, ordinal: which episode.
        players: who played, blue first.
        seat: the credited seat.
        score: 1 win, 0.5 draw, 0 loss of that seat; None when cut short.
        game_steps: played in this episode, so without what lay before a restart.
        best_rank: the best rank of its confirmed later moments, None without one.
        value_error: mean absolute advantage of the seat's rows (Jiang et al. 2021, section 3, "L1 value loss"); None
            when unknown.
        crown_margin: crowns at the end, own minus enemy.
    """

    round: int
    battle: int
    ordinal: int
    players: tuple[str, str]
    seat: int
    score: float | None
    game_steps: int
    best_rank: Rank | None = None
    value_error: float | None = None
    crown_margin: int = 0

    @property
    def won(self) -> bool:
        """A draw is no win."""
        return self.score == 1.0


def pack_commands(commands: Sequence[tuple[int, int, int]]) -> bytes:
    """``(game_step, seat, action)`` in ascending game step as little-endian int32: 12 bytes a play, not 150."""
    return np.asarray(commands, dtype="<i4").reshape(-1, 3).tobytes()


def unpack_commands(packed: bytes) -> list[tuple[int, int, int]]:
    """What :func:`pack_commands` was given."""
    rows: list[list[int]] = np.frombuffer(packed, dtype="<i4").reshape(-1, 3).tolist()
    return [(step, seat, action) for step, seat, action in rows]
