"""The Elo scale, and an online Elo that is shown and decides nothing."""

from __future__ import annotations

import math

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
