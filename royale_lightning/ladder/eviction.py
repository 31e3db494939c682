"""Who leaves a full pool."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..errors import UserError
from .pool import Member

#: Short names of the policies we ship.
EVICTIONS = {"spread": "royale_lightning.ladder.SpreadEviction"}


class EvictionPolicy(ABC):
    """Names the members that leave. A snapshot that leaves the pool stays on disk and keeps its games and its rating.

    Args:
        capacity: members the pool may hold. 48 are more than an iteration's battles meet, and few enough to be measured
            again and again.
    """

    def __init__(self, capacity: int = 48) -> None:
        if capacity < 3:
            raise UserError(
                f"eviction capacity is {capacity}; give at least 3, for the first, the champion and the newest"
            )
        self.capacity = capacity

    @abstractmethod
    def evict(self, members: Sequence[Member], champion: str | None, ratings: Mapping[str, float]) -> list[str]:
        """Ids to drop so that ``capacity`` remain; empty when the pool is not over it.

        Args:
            members: in the order of admission.
            champion: the present one.
            ratings: Elo by player; who is not there has no rating.
        """


class SpreadEviction(EvictionPolicy):
    """Keep the pool spread over the ratings.

    Time and again the member goes whose two neighbours in rating are closest together, the older one of equals: so the
    weakest and the strongest stay and every stratum between them keeps somebody. (Equal-count strata do not do this: a
    pool one over its capacity has one stratum with two members, and it is always the same one.) A member that was not
    rated yet stays until it is, as nobody knows what it adds; in a pool without any rating the order of admission
    stands in for it.

    The first, the present champion and the newest never leave. Former champions, given bots and the newest cycle
    members up to ``cycle_share`` of the capacity leave only when nobody else is left, also by spread.

    Args:
        capacity: of the pool.
        cycle_share: of the capacity that cycle members may hold safely. A quarter keeps the learner facing what its
            champions lose to without filling the pool with it.
    """

    def __init__(self, capacity: int = 48, cycle_share: float = 0.25) -> None:
        super().__init__(capacity)
        if not 0.0 <= cycle_share <= 1.0:
            raise UserError(f"eviction cycle_share is {cycle_share}; give a share from 0 to 1, such as 0.25")
        self.cycle_share = cycle_share

    def evict(self, members: Sequence[Member], champion: str | None, ratings: Mapping[str, float]) -> list[str]:
        left = list(members)
        if len(left) <= self.capacity:
            return []
        fixed = {left[0].snapshot, left[-1].snapshot, champion}
        cycles = [m.snapshot for m in left if m.role == "cycle"]
        safe = set(cycles[len(cycles) - min(len(cycles), int(self.cycle_share * self.capacity)) :])
        safe |= {m.snapshot for m in left if m.champion or m.role == "given"}
        out: list[str] = []
        while len(left) > self.capacity:
            free = [m.snapshot for m in left if m.snapshot not in fixed]
            gone = _least_missed([m.snapshot for m in left], [s for s in free if s not in safe] or free, ratings)
            left = [m for m in left if m.snapshot != gone]
            out.append(gone)
        return out


def _least_missed(members: Sequence[str], free: Sequence[str], ratings: Mapping[str, float]) -> str:
    """One of ``free``, by the rule of :class:`SpreadEviction`; both in the order of admission."""
    if any(m in ratings for m in members):
        place = {m: ratings[m] for m in members if m in ratings}
    else:
        place = {m: float(k) for k, m in enumerate(members)}
    order = sorted(place, key=lambda m: place[m])
    gap = {b: place[c] - place[a] for a, b, c in zip(order, order[1:], order[2:], strict=False)}
    # The ends of the scale, and who has no place on it, are missed most.
    return min(free, key=lambda m: (m not in place, gap.get(m, math.inf)))
