"""How practice is divided between the kinds of start, counted in game steps.

A restarted battle is shorter: begun half the time with half of it left, it is a third of the game steps. So shares are
asked for in game steps, and turned into chances of an episode with the lengths that were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..battle.round import BUCKET, CURRICULUM, POOL, START_KINDS, TRUE
from ..errors import UserError

#: Game steps that belong to true starts at all times: only they are scored, and a policy that stops practising the
#: opening loses it.
TRUE_RESERVE = 0.3
#: Episodes of a kind that its mean length remembers.
_MEMORY = 100


@dataclass(frozen=True)
class StartShares:
    """Shares of the game steps that restarted episodes are to have; the rest belongs to true starts.

    Upper bounds: where a kind has nothing to begin from, a true start is played.

    Args:
        pool: KataGo begins 4 to 7 % of its games from odd positions; 0.2 is the most that is sensible without a
            curriculum.
        curriculum: up to 0.5 while one is walking.
        bucket: of the trajectory store's segments.
    """

    pool: float = 0.2
    curriculum: float = 0.0
    bucket: float = 0.0

    def __post_init__(self) -> None:
        for name, share in self.of_kinds().items():
            if not 0.0 <= share <= 1.0:
                raise UserError(f"the share of {name} starts is {share}; give a share of the game steps from 0 to 1")
        total = self.pool + self.curriculum + self.bucket
        if total > 1.0 - TRUE_RESERVE + 1e-9:
            raise UserError(
                f"the shares of pool {self.pool}, curriculum {self.curriculum} and bucket {self.bucket} sum to "
                f"{total:g}; {TRUE_RESERVE} of the game steps belong to true starts, so let them sum to at most "
                f"{1.0 - TRUE_RESERVE:g}"
            )

    def of_kinds(self) -> dict[str, float]:
        """By kind of start, without true ones."""
        return {POOL: self.pool, CURRICULUM: self.curriculum, BUCKET: self.bucket}


def start_chances(shares: StartShares, lengths: Mapping[str, float]) -> dict[str, float]:
    """Chance of each kind of start for an episode, so that kind ``k`` has share ``s_k`` of the game steps.

    Of ``n`` episodes, ``p_k n`` last ``L_k`` steps each, hence ``s_k`` is proportional to ``p_k L_k`` and ``p_k`` to
    ``s_k / L_k``.

    Args:
        shares: asked for.
        lengths: mean game steps of an episode by kind. A kind without one is taken to be as long as a true start: its
            share then falls short, and never over.

    Returns:
        By every kind of :data:`~royale_lightning.battle.round.START_KINDS`, summing to 1.
    """
    wanted = shares.of_kinds()
    wanted = {TRUE: 1.0 - sum(wanted.values()), **wanted}
    whole = lengths.get(TRUE, 1.0)
    odds = {k: wanted[k] / lengths.get(k, whole) if TRUE in lengths else wanted[k] for k in START_KINDS}
    total = sum(odds.values())
    return {k: v / total for k, v in odds.items()}


class EpisodeLengths:
    """Mean game steps of an episode by kind of start: of all at first, then an average that follows the policy."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def record(self, kind: str, game_steps: int) -> None:
        n = self._counts[kind] = min(_MEMORY, self._counts.get(kind, 0) + 1)
        mean = self.means.get(kind, 0.0)
        self.means[kind] = mean + (max(1, game_steps) - mean) / n

    def state(self) -> list[list[str | float | int]]:
        return [[k, self.means[k], self._counts[k]] for k in sorted(self.means)]

    def load(self, state: list[tuple[str, float, int]]) -> None:
        self.means = {k: mean for k, mean, _ in state}
        self._counts = {k: n for k, _, n in state}
