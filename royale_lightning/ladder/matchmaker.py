"""Who plays whom: an assignment is a pure function of the seed, the battle, its ordinal and the iteration's table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..battle.players import LEARNER, scripted_player
from ..battle.streams import generator
from .pfsp import check_pfsp

MIRROR, POOL, SCRIPTED = "mirror", "pool", "scripted"


@dataclass(frozen=True)
class OpponentTable:
    """The snapshots that may be met in an iteration, frozen at its start.

    Args:
        snapshots: their ids.
        probabilities: of being drawn, as long as ``snapshots``, summing to 1.
    """

    snapshots: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class PfspSettings:
    """Whom of the pool the learner meets (prioritized fictitious self-play, ``ladder.pfsp``).

    Args:
        weighting: ``hard`` (whom the learner loses to, the default), ``variance`` (who is near its strength, for a
            learner that is too weak to gain from the others), ``linear`` or ``uniform``.
        uniform_share: of draws that look at nothing, so that everybody is measured again now and then.
        prior_games: pseudo-games at the score that the ratings predict, or at one half before there is a rating. Four
            keep the first two wins from emptying an opponent's weight.
    """

    weighting: str = "hard"
    uniform_share: float = 0.2
    prior_games: float = 4.0

    def __post_init__(self) -> None:
        check_pfsp(self.weighting, self.uniform_share, self.prior_games)


class Matchmaker(ABC):
    """Gives both seats of a battle's next episode. The same arguments give the same answer, whenever asked.

    Write ``__init__(self, seed: int, battles: int, mirror: float, pool: float, scripted: float,
    scripted_opponents: Sequence[str], **your_settings)`` and :meth:`players`; name the class in
    ``data.opponents.matchmaker``. ``battles`` are those of all ranks.
    """

    @abstractmethod
    def players(self, battle: int, ordinal: int, table: OpponentTable) -> tuple[str, str]:
        """Names for (blue, red): ``learner``, ``scripted:NAME`` or a snapshot's id."""


def exact_counts(shares: Sequence[float], n: int) -> list[int]:
    """``n`` split by shares into whole numbers, largest remainders first."""
    total = sum(shares)
    ideal = [s / total * n for s in shares]
    counts = [int(x) for x in ideal]
    by_rest = sorted(range(len(shares)), key=lambda i: (counts[i] - ideal[i], i))
    for i in by_rest[: n - sum(counts)]:
        counts[i] += 1
    return counts


class MixMatchmaker(Matchmaker):
    """Fixed kinds per battle, opponent and seat redrawn per episode.

    The kinds are exact counts of battles, spread by a seeded permutation: drawing them per episode would let
    the stored rows drift between iterations (a bug RoyaleLearn had). While there is no snapshot, a battle of the
    pool's share is played as mirror.

    Args:
        seed: of the named streams.
        battles: battles over all ranks.
        mirror, pool, scripted: shares.
        scripted_opponents: names of the scripted opponents.
    """

    def __init__(
        self, seed: int, battles: int, mirror: float, pool: float, scripted: float, scripted_opponents: Sequence[str]
    ) -> None:
        self.seed = seed
        self.scripted_opponents = tuple(scripted_opponents)
        mirrors, pools, _ = exact_counts([mirror, pool, scripted], battles)
        order = generator(seed, "match/kinds").permutation(battles)
        self.kinds = np.full(battles, SCRIPTED, dtype=object)
        self.kinds[order[:mirrors]] = MIRROR
        self.kinds[order[mirrors : mirrors + pools]] = POOL

    def players(self, battle: int, ordinal: int, table: OpponentTable) -> tuple[str, str]:
        kind = self.kinds[battle]
        if kind == MIRROR or (kind == POOL and not table.snapshots):
            return LEARNER, LEARNER
        rng = generator(self.seed, "match", battle, ordinal)
        if kind == POOL:
            # The sum may end a rounding error below 1.
            at = int(np.searchsorted(np.cumsum(table.probabilities), rng.random(), side="right"))
            other = table.snapshots[min(at, len(table.snapshots) - 1)]
        else:
            other = scripted_player(self.scripted_opponents[int(rng.integers(len(self.scripted_opponents)))])
        return (LEARNER, other) if rng.integers(2) == 0 else (other, LEARNER)


#: Short names of the shipped matchmakers.
MATCHMAKERS = {"mix": "royale_lightning.ladder.MixMatchmaker"}
