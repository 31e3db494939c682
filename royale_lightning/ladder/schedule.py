"""When the ladder plays and against whom: functions of counts, so that a resumed run plays what the unbroken one did.

The ladder's means are a share of the game steps of training. A battle of it that costs no more than one of training,
where every step is also learned from, keeps its wall time in that share too; where battles cost more, their game steps
are charged as more (:mod:`~.price`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..battle.opponents import LADDER, PREFIX
from ..bots.evaluate import PlannedGame, paired_games


def affordable(share: float, game_steps: int, spent: int, battle_steps: float, price: int = 1) -> int:
    """Battles that a share of the run's game steps still pays for.

    Args:
        share: of the game steps of training.
        game_steps: trained so far.
        spent: game steps of the battles played from this share.
        battle_steps: game steps of one battle.
        price: what a game step of these is charged as.
    """
    return int((share * game_steps - price * spent) / (price * battle_steps))


def snapshot_due(game_steps: int, newest: int | None, first: int, growth: float) -> bool:
    """Whether it is time for the next snapshot.

    The gap grows with the run: a ten-minute run and one of a week both meet selves from every tenth of their past, and
    nothing must be known about how long the run will go on.

    Args:
        game_steps: trained so far.
        newest: game steps of the newest snapshot of this run; None before the first.
        first: game steps before the first.
        growth: the next one is due this share of ``newest`` later, and never less than ``first * growth`` later.
    """
    if newest is None:
        return game_steps >= first
    return game_steps >= newest + growth * max(newest, first)


def rating_games(
    live: str, members: Sequence[str], played: Mapping[str, int], turn: int, seeds: Sequence[int]
) -> list[PlannedGame]:
    """A rating of the live learner: half its seeds against scripted opponents, half against snapshots.

    Scripted opponents in turn, so that the anchor and every rung are met again and again; the snapshots with the
    fewest rated games, the newest first, so that a rating of the learner is one of theirs too.

    Args:
        live: the learner's player id.
        members: snapshots, oldest first.
        played: rated games per player.
        turn: how many ratings there were before.
        seeds: one pair of games each.
    """
    against_scripted = len(seeds) - len(seeds) // 2 if members else len(seeds)
    rungs = [PREFIX + LADDER[(turn * against_scripted + i) % len(LADDER)] for i in range(against_scripted)]
    fewest = sorted(members, key=lambda s: (played.get(s, 0), -members.index(s)))
    snapshots = [fewest[i % len(fewest)] for i in range(len(seeds) - against_scripted)]
    return [
        game for other, seed in zip([*rungs, *snapshots], seeds, strict=True)
        for game in paired_games(live, other, 2, seed)
    ]
