"""From a finished battle's record to restart points and routes: it is played again, and saved where it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..battle.players import LEARNER, is_scripted
from ..battle.round import EpisodeRecord, Situation
from ..battle.steps.replay import Replay
from .key import Position, advantage_rank, bucket_key
from .markers import Marker, MarkerFinder, MarkerSettings, confirmed
from .state import Key, Priority, Rank, RestartPoint, Route, Segment, Stamp, pack_commands

#: Tag of a save state that is one decision's.
DECISION = "decision"
#: Partitions of opponents that are not scripted.
MIRROR, SNAPSHOT = "mirror", "snapshot"


@dataclass(frozen=True)
class Minted:
    """What one replay of a battle gave.

    Attributes:
        points: of every learner's seat, by time, blue before red.
        routes: of the learner's seats that were asked for.
        cost: game steps replayed, saves counted as so many game steps (``battle.steps.replay.SAVE_STEPS``).
    """

    points: tuple[RestartPoint, ...]
    routes: tuple[Route, ...]
    cost: int


def position_of(situation: Situation) -> Position:
    """A battle's scoreboard as the key function reads it."""
    return Position(situation.seconds, situation.crowns, situation.tower_hp)


def partition_of(players: tuple[str, str], seat: int) -> str:
    """The match-up group of a start: who the opponent is, snapshots as one kind."""
    other = players[1 - seat]
    if other == LEARNER:
        return MIRROR
    return other if is_scripted(other) else SNAPSHOT


def learner_seats(players: tuple[str, str]) -> tuple[int, ...]:
    """Seats the learner sits in, blue (0) before red (1)."""
    return tuple(s for s in (0, 1) if players[s] == LEARNER)


def best_rank(record: EpisodeRecord, seat: int, settings: MarkerSettings) -> Rank | None:
    """The best rank among the confirmed later moments of an episode's course, on its 10 s grid; None without one."""
    keys = [
        bucket_key(position_of(situation), seat)
        for step, situation in record.course
        if step and confirmed(step, record.game_steps, settings.grace_steps)
    ]
    return max((advantage_rank(k) for k in keys if k is not None), default=None)


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


def mint(
    replay: Replay, settings: MarkerSettings, stamp: Stamp, *, policy_version: int, tick_limit: int | None,
    routes: Sequence[tuple[int, Priority]] = (),
) -> Minted:
    """Play a battle again and keep its marked moments.

    Args:
        replay: of the battle, before its first moment.
        stamp: of the game.
        policy_version: iteration whose weights played it.
        tick_limit: of the battle, in ticks from its beginning.
        routes: ``(seat, priority)`` of the routes that are wanted.

    Raises:
        ReplayMismatch: the battle went another way; nothing of it may be kept.
        Refused: the save state it began from does not load any more.
    """
    record = replay.record
    seats = learner_seats(record.players)
    finder = MarkerFinder(settings, record.game_steps, seats)
    points: list[RestartPoint] = []
    kept: dict[int, list[tuple[Marker, RestartPoint]]] = {s: [] for s in seats}
    first: dict[int, Key] = {}
    start_hash = 0
    for moment in replay.moments():
        position = position_of(moment.situation)
        if moment.game_step == 0:
            start_hash = replay.state_hash()
            first = {s: key for s in seats if (key := bucket_key(position, s)) is not None}
        found = finder.see(moment.game_step, position)
        if not found or not moment.game_step:
            # Its beginning is a start already.
            continue
        state_hash, payload = replay.save(found[0].tag)
        for marker in found:
            point = RestartPoint(
                payload=payload, stamp=stamp, state_hash=state_hash, seat=marker.seat, players=record.players,
                key=marker.key, rank=advantage_rank(marker.key), partition=partition_of(record.players, marker.seat),
                game_step=replay.before + moment.game_step, tick=moment.situation.tick, tick_limit=tick_limit,
                tag=marker.tag, source=(record.battle, record.ordinal), policy_version=policy_version,
                remembered=(True, True), blob=points[-1].blob if points and points[-1].payload is payload else "",
            )
            points.append(point)
            kept[marker.seat].append((marker, point))
    end = replay.game.situation()
    made = []
    for seat, priority in routes:
        if seat in first:
            segments = _segments(record, seat, first[seat], kept[seat], end, replay.before)
            made.append(Route(
                source=(record.battle, record.ordinal), seed=record.seed, start_hash=start_hash,
                players=record.players, seat=seat, partition=partition_of(record.players, seat),
                commands=pack_commands([(t + replay.before, s, a) for t, s, a in record.commands]),
                segments=segments, priority=priority, complete=record.from_true_start, policy_version=policy_version,
            ))
    return Minted(tuple(points), tuple(made), replay.cost)


def mint_decisions(replay: Replay, route: Route, stamp: Stamp, *, tick_limit: int | None) -> dict[int, RestartPoint]:
    """Play a route again and save it before every game step after its first: the rungs of a decision-granular
    curriculum.

    Args:
        replay: of :func:`~royale_lightning.restarts.routes.record_of` the route.
        route: complete.
        stamp: of the game.
        tick_limit: of the battle, in ticks from its beginning.

    Returns:
        Game step -> save state.

    Raises:
        ReplayMismatch: the battle went another way; nothing of it may be kept.
    """
    key, found = route.segments[0].start_key, {}
    for moment in replay.moments():
        # The tie-break has no cell; it belongs to the one before it.
        key = bucket_key(position_of(moment.situation), route.seat) or key
        if moment.game_step:
            state_hash, payload = replay.save(DECISION)
            found[moment.game_step] = RestartPoint(
                payload=payload, stamp=stamp, state_hash=state_hash, seat=route.seat, players=route.players, key=key,
                rank=advantage_rank(key), partition=route.partition, game_step=moment.game_step,
                tick=moment.situation.tick, tick_limit=tick_limit, tag=DECISION, source=route.source,
                policy_version=route.policy_version, remembered=(True, True),
            )
    return found


def _segments(
    record: EpisodeRecord, seat: int, first: Key, kept: Sequence[tuple[Marker, RestartPoint]], end: Situation,
    before: int,
) -> tuple[Segment, ...]:
    out: list[Segment] = []
    at, key = 0, first
    for marker, point in kept:
        out.append(Segment(
            start_step=before + at, end_step=point.game_step, start_key=key, end_key=marker.key, end_tick=point.tick,
            end_hash=point.state_hash, eligible=True, end=point,
        ))
        at, key = marker.game_step, marker.key
    # The tie-break has no cell; it belongs to the one before it.
    last = bucket_key(position_of(end), seat) or key
    out.append(Segment(
        start_step=before + at, end_step=before + record.game_steps, start_key=key, end_key=last, end_tick=end.tick,
        end_hash=record.state_hash, eligible=False, terminal=True, won=record.winner == seat,
        lost=record.winner == 1 - seat,
    ))
    return tuple(out)
