"""What restarts read off the record of a finished battle, and a stored route as such a record again."""

from __future__ import annotations

from ...battle.players import LEARNER, is_scripted
from ...battle.round import EpisodeRecord, SeatCounters, Situation
from .key import Position
from .route import Priority, Route, unpack_commands

#: Partitions of opponents that are not scripted.
MIRROR, SNAPSHOT = "mirror", "snapshot"


def position_of(situation: Situation) -> Position:
    """A battle's scoreboard as the key function reads it."""
    return Position(situation.seconds, situation.crowns, situation.tower_hp)


def partition_of(players: tuple[str, str], seat: int) -> str:
    """The match-up group of a seat's moments: who the opponent is, snapshots as one kind."""
    other = players[1 - seat]
    if other == LEARNER:
        return MIRROR
    return other if is_scripted(other) else SNAPSHOT


def learner_seats(players: tuple[str, str]) -> tuple[int, ...]:
    """Seats the learner sits in, blue (0) before red (1)."""
    return tuple(s for s in (0, 1) if players[s] == LEARNER)


def replayable(record: EpisodeRecord) -> bool:
    """Whether a battle's record holds what playing it again needs, and a learner's moments are in it."""
    known = bool(record.commands) or not any(record.plays)
    return known and not record.staggered and bool(learner_seats(record.players))


def priority_of(record: EpisodeRecord, seat: int, band: int = 0) -> Priority:
    """Where an episode stands among the archived ones.

    Args:
        band: the opponent's rating band.
    """
    return Priority(
        opponent_band=band,
        won=int(record.winner == seat),
        crown_margin=record.crowns[seat] - record.crowns[1 - seat],
        hp_margin=round(record.tower_hp[seat] - record.tower_hp[1 - seat], 6),
        minus_ticks=-record.ticks,
    )


def record_of(route: Route) -> EpisodeRecord:
    """A complete route as the record that a replay takes; figures that no replay reads are left at 0.

    Raises:
        ValueError: the route does not begin at its battle's true start.
    """
    if not route.complete:
        raise ValueError("a route without its beginning cannot be replayed")
    last = route.segments[-1]
    return EpisodeRecord(
        battle=route.source[0], ordinal=route.source[1], players=route.players, seed=route.seed,
        winner=route.seat if last.won else 1 - route.seat if last.lost else -1, truncated=False, ticks=last.end_tick,
        game_steps=route.last_step, crowns=(0, 0), tower_hp=(0.0, 0.0), commands=unpack_commands(route.commands),
        state_hash=last.end_hash, deal=route.deal, **SeatCounters.pairs(SeatCounters(), SeatCounters()),
    )
