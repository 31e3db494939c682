"""From a finished battle's record to restart points and routes: minting.

Saving every battle at every moment would cost more than playing it, and which moments matter is known only at its end.
So a battle records its seed and both seats' commands and nothing else, and the moments worth keeping are *minted*
afterwards: the battle is played again from its record, bit for bit, and its save state is written down where it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..battle.round import EpisodeRecord, Situation
from ..battle.stamp import Stamp
from ..battle.steps.replay import Replay
from .moments import Marker, MarkerFinder, MarkerSettings
from .records.episodes import learner_seats, partition_of, position_of
from .records.key import advantage_rank, bucket_key
from .records.points import Key, RestartPoint
from .records.route import Priority, Route, Segment, pack_commands

#: Tag of a save state that is one decision's.
DECISION = "decision"


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
    first_hash = 0
    for moment in replay.moments():
        position = position_of(moment.situation)
        if moment.game_step == 0:
            first_hash = replay.state_hash()
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
                source=(record.battle, record.ordinal), seed=record.seed, first_hash=first_hash,
                players=record.players, seat=seat, partition=partition_of(record.players, seat),
                commands=pack_commands([(t + replay.before, s, a) for t, s, a in record.commands]),
                segments=segments, priority=priority, complete=record.from_true_start, policy_version=policy_version,
                deal=record.deal,
            ))
    return Minted(tuple(points), tuple(made), replay.cost)


def mint_decisions(replay: Replay, route: Route, stamp: Stamp, *, tick_limit: int | None) -> dict[int, RestartPoint]:
    """Play a route again and save it before every game step after its first: the rungs of a decision-granular
    curriculum.

    Args:
        replay: of :func:`~royale_lightning.restarts.records.episodes.record_of` the route.
        route: complete.
        stamp: of the game.
        tick_limit: of the battle, in ticks from its beginning.

    Returns:
        Game step -> save state.

    Raises:
        ReplayMismatch: the battle went another way; nothing of it may be kept.
    """
    key, found = route.segments[0].first_key, {}
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
            first_step=before + at, end_step=point.game_step, first_key=key, end_key=marker.key, end_tick=point.tick,
            end_hash=point.state_hash, eligible=True, end=point,
        ))
        at, key = marker.game_step, marker.key
    # The tie-break has no cell; it belongs to the one before it.
    last = bucket_key(position_of(end), seat) or key
    out.append(Segment(
        first_step=before + at, end_step=before + record.game_steps, first_key=key, end_key=last, end_tick=end.tick,
        end_hash=record.state_hash, eligible=False, terminal=True, won=record.winner == seat,
        lost=record.winner == 1 - seat,
    ))
    return tuple(out)
