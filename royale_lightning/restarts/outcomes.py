"""An iteration's finished episodes, as the scheduler is told of them: what each says about the point it began from, or
why it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..battle.players import LEARNER
from ..battle.round import POOL, EpisodeRecord
from .mint import Minted
from .moments import MarkerSettings, confirmed
from .records.episodes import position_of
from .records.key import advantage_rank, bucket_key
from .records.points import CRASHED, DEAD_START, REFUSED, EpisodeResult, Rank
from .scheduler import Begun, Finished

#: A restarted battle that is over within so many game steps (2 s) was decided when it began: a dead start, as is one in
#: which the learner never had a choice.
DEAD_STEPS = 4


def timeout_of(record: EpisodeRecord) -> str | None:
    """Why an episode says nothing about its start; None where it does, or began at a true one."""
    if record.refused:
        return REFUSED
    seat = record.start.seat
    dead = seat is not None and (record.game_steps <= DEAD_STEPS or not record.choices[seat])
    return DEAD_START if dead else None


def best_rank(record: EpisodeRecord, seat: int, settings: MarkerSettings) -> Rank | None:
    """The best rank among the confirmed later moments of an episode's course, on its 10 s grid; None without one."""
    keys = [
        bucket_key(position_of(situation), seat)
        for step, situation in record.course
        if step and confirmed(step, record.game_steps, settings.grace_steps)
    ]
    return max((advantage_rank(k) for k in keys if k is not None), default=None)


def finished_of(
    episodes: Sequence[EpisodeRecord], ended_in: Sequence[int],
    value_errors: Sequence[tuple[float | None, float | None]], minted: Mapping[int, Minted], markers: MarkerSettings,
) -> list[Finished]:
    """The episodes that the scheduler is told of; staggered ones were nobody's own.

    Args:
        episodes: finished in an iteration.
        ended_in: their rounds.
        value_errors: per episode and seat, mean absolute advantage.
        minted: what replays gave of some of them, by index.
        markers: which moments count as got to.
    """
    out = []
    for i, e in enumerate(episodes):
        if e.staggered:
            continue
        seat = e.start.seat
        if seat is None:
            seat = next((s for s in (0, 1) if e.players[s] == LEARNER), 0)
        result = EpisodeResult(
            round=ended_in[i], battle=e.battle, ordinal=e.ordinal, players=e.players, seat=seat, score=e.score(seat),
            game_steps=e.game_steps, best_rank=best_rank(e, seat, markers), value_error=value_errors[i][seat],
            crown_margin=e.crowns[seat] - e.crowns[1 - seat],
        )
        gave = minted.get(i)
        out.append(Finished(result, gave.points, gave.routes) if gave is not None else Finished(result))
    return out


def crashed(
    in_flight: Iterable[tuple[int, int]], begun: Iterable[Begun], finished: Iterable[Finished],
    running: Mapping[int, int],
) -> dict[tuple[int, int], str]:
    """Timeouts of the pool's starts that were lost with a worker: their battles went on without a result.

    Args:
        in_flight: ``(battle, ordinal)`` of the pool's starts before this iteration.
        begun: in this iteration, by this rank.
        finished: in this iteration, by this rank.
        running: battle of this rank -> ordinal of its latest episode.
    """
    heard = {(f.result.battle, f.result.ordinal) for f in finished}
    awaited = {*in_flight, *((b.battle, b.ordinal) for b in begun if b.kind == POOL)}
    return {at: CRASHED for at in sorted(awaited - heard) if at[0] in running and running[at[0]] > at[1]}
