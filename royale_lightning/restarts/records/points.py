"""Restart points, the buckets they are filed in, and what an episode says about the point it began from.

A restart point is a moment of a recorded battle together with its save state, so that an episode can begin there. Every
number that tells one side from the other is seen from one seat, *own minus enemy*: a position belongs to a battle and
to a seat. Records hold plain values only, so that msgpack writes them as they stand.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import msgspec

from ...battle.stamp import Stamp

#: The name of a *cell*, the coarse situation that a position falls into: the labels of
#: :data:`~royale_lightning.restarts.records.key.LABELS` as small integers, coarse first.
Key = tuple[int, ...]
#: How good a position is, compared left to right; see :func:`~royale_lightning.restarts.records.key.advantage_rank`.
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
    """A cell within a match-up group: what points and segments are filed by, and what practice is divided between."""

    partition: str
    key: Key


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
