"""The Elo scale, and an online Elo that is shown and decides nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

#: Natural units (log-odds) per Elo point.
NATURAL_PER_ELO = math.log(10.0) / 400.0


def expected_score(elo: float | np.ndarray) -> float | np.ndarray:
    """Logistic score of a player this many Elo points above the other: ``1 / (1 + 10^(-elo / 400))``."""
    return 1.0 / (1.0 + 10.0 ** (-elo / 400.0))


def elo_of(score: float) -> float:
    """The inverse of :func:`expected_score`; infinite at 0 and 1, which a report prints as an open bound.

    Raises:
        ValueError: not a score in [0, 1].
    """
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"elo_of needs a score in [0, 1], was {score}")
    if score in (0.0, 1.0):
        return math.copysign(math.inf, score - 0.5)
    return math.log(score / (1.0 - score)) / NATURAL_PER_ELO


def swept_bound(pairs: int, confidence: float = 0.95) -> float:
    """The least score that all-won pairs leave credible: ``(1 - confidence)^(1 / pairs)``, one-sided.

    What to print for a player that never lost a point: its rating is the prior's choice, this bound is the data's. It
    is the exact binomial bound on the chance of winning both games of a seed, and the score is no smaller.

    Args:
        pairs: seeds of which both games were won, at least 1.
    """
    if pairs < 1:
        raise ValueError(f"swept_bound needs at least 1 pair, was {pairs}")
    return float((1.0 - confidence) ** (1.0 / pairs))


@dataclass
class OnlineElo:
    """Elo updated game by game (Elo 1978, section 1.6): a quick look at training, read by nothing.

    It never settles, depends on the order of the games and mixes the opponents met in training with strength; ratings
    come from :mod:`~royale_lightning.ladder.ratings.rating`.

    Args:
        k: points at stake in a game. 16 remembers about 43 games; against equals it wanders by 37 points.
        ratings: by player; who is not there starts at 0, the scale of the anchor.
    """

    k: float = 16.0
    ratings: dict[str, float] = field(default_factory=dict)

    def update(self, a: str, b: str, score: float) -> None:
        """Count one game of ``a`` against ``b``; ``score`` is ``a``'s."""
        ra, rb = self.ratings.get(a, 0.0), self.ratings.get(b, 0.0)
        step = self.k * (score - float(expected_score(ra - rb)))
        self.ratings[a], self.ratings[b] = ra + step, rb - step

    @property
    def sd(self) -> float:
        """Stationary standard deviation of one rating against fixed equals, Elo; to be shown beside every rating.

        ``sqrt(K / 4 * 800 / ln 10)``: variance ``K^2 / 4`` comes in per game and ``2 K ln 10 / 1600`` of it leaks out.
        """
        return math.sqrt(self.k * 0.25 * 800.0 / math.log(10.0))
