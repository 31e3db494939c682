"""When the ladder plays and against whom: functions of counts, so that a resumed run plays what the unbroken one did.

The ladder's means are a share of the game steps of training. A battle of it that costs no more than one of training,
where every step is also learned from, keeps its wall time in that share too; where battles cost more, their game steps
are charged as more (:mod:`~.price`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..battle.opponents import LADDER
from ..battle.players import is_live, is_scripted, scripted_player
from ..bots.evaluate import PlannedGame, paired_games
from .pairing import informative
from .ratings.elo import NATURAL_PER_ELO
from .ratings.rating import Ratings

#: A rating is of no use before the run has grown by this share since the last one.
RATING_GROWTH = 0.01
#: How much the learner's distance to the anchor, which is its rating, counts beside its mean distance to all others. In
#: simulated runs 2 and 8 both left it less well known after 300 battles (138 and 126 against 118 Elo for a learner that
#: scores 0.95 against the anchor), and with 20 new snapshots are not met at all.
ANCHOR_WEIGHT = 4.0


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


def rating_due(game_steps: int, rated: int | None) -> bool:
    """Whether the learner has changed enough since it was last rated.

    A run's ratings are players of its fit for ever, so their number follows the run's logarithm once there are a
    hundred: about 70 more each time the run doubles, a thousand after a trillion game steps.

    Args:
        game_steps: trained so far.
        rated: game steps at the last rating; None before the first.
    """
    return rated is None or game_steps >= (1.0 + RATING_GROWTH) * rated


def rating_games(live: str, members: Sequence[str], known: Ratings, seeds: Sequence[int]) -> list[PlannedGame]:
    """A rating of the live learner: battles where they say most of its distance to the anchor and to its pool.

    Opponents that are not rated yet are thought to be as strong as those that are, and the learner as strong as its
    last rated self. On fresh seeds, each from both seats.

    Args:
        live: the learner's player id.
        members: snapshots, oldest first.
        known: ratings of all battles so far.
        seeds: one pair of games each.
    """
    scripted = [scripted_player(rung) for rung in LADDER] + [known.anchor] * is_scripted(known.anchor)
    others = list(dict.fromkeys([*scripted, *reversed(members)]))
    rated = [o for o in others if o in known]
    elo = {r.player: r.elo for r in known.table}
    middle = float(np.mean([elo[o] for o in rated])) if rated else 0.0
    selves = [p for p in known.players if is_live(p)]
    mine = elo[max(selves, key=lambda p: int(p.split(":")[1]))] if selves else middle
    prior = (known.prior_sd * NATURAL_PER_ELO) ** 2
    covariance = np.diag([0.0 if o == known.anchor else prior for o in others])
    at = [k for k, o in enumerate(others) if o in known]
    covariance[np.ix_(at, at)] = known.covariance_of(rated) * NATURAL_PER_ELO**2
    delta = NATURAL_PER_ELO * (mine - np.array([elo.get(o, 0.0 if o == known.anchor else middle) for o in others]))
    weight = np.array([1.0 / len(others) + ANCHOR_WEIGHT * (o == known.anchor) for o in others])
    chosen = informative(delta, covariance, prior, weight, known.fit.eta, len(seeds))
    return [g for k, seed in zip(chosen, seeds, strict=True) for g in paired_games(live, others[k], 2, seed)]
