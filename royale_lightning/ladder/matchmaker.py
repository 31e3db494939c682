"""Who plays whom: an assignment is a pure function of the seed, the battle and its ordinal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ..battle.arena import LEARNER
from ..battle.opponents import PREFIX
from ..battle.streams import generator

MIRROR, SCRIPTED = "mirror", "scripted"


class Matchmaker(ABC):
    """Gives both seats of a battle's next episode. The same arguments give the same answer, whenever asked."""

    @abstractmethod
    def players(self, battle: int, ordinal: int) -> tuple[str, str]:
        """Names for (blue, red): ``learner``, ``scripted:NAME`` or a snapshot's name."""


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
    the stored rows drift between iterations (a bug RoyaleLearn had).

    Args:
        seed: of the named streams.
        battles: battles over all ranks.
        mirror, scripted: shares.
        scripted_opponents: names of the scripted opponents.
    """

    def __init__(
        self, seed: int, battles: int, mirror: float, scripted: float, scripted_opponents: Sequence[str]
    ) -> None:
        self.seed = seed
        self.scripted_opponents = tuple(scripted_opponents)
        mirrors, _ = exact_counts([mirror, scripted], battles)
        order = generator(seed, "match/kinds").permutation(battles)
        self.kinds = np.full(battles, SCRIPTED, dtype=object)
        self.kinds[order[:mirrors]] = MIRROR

    def players(self, battle: int, ordinal: int) -> tuple[str, str]:
        if self.kinds[battle] == MIRROR:
            return LEARNER, LEARNER
        rng = generator(self.seed, "match", battle, ordinal)
        other = PREFIX + self.scripted_opponents[int(rng.integers(len(self.scripted_opponents)))]
        return (LEARNER, other) if rng.integers(2) == 0 else (other, LEARNER)
