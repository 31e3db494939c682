"""Whom a player should meet so that its rating is known best: where a result says most."""

from __future__ import annotations

import math

import numpy as np

from .ratings.davidson import outcomes


def informative(
    delta: np.ndarray, covariance: np.ndarray, prior: float, weight: np.ndarray, eta: float, pairs: int
) -> list[int]:
    """Opponents of ``pairs`` pairs of games, chosen one after the other.

    Each is the one that takes most off ``sum_k weight_k Var(player - opponent_k)``, given those before: a V-optimal
    design (Fedorov 1972; Glickman and Jensen 2005 for paired comparisons). A game against an opponent that always wins
    or always loses carries no information, so such an opponent is met only while that is not known.

    Args:
        delta: ``[k]``, expected strength of the player less the opponent's, natural units.
        covariance: ``[k, k]``, of the opponents' strengths.
        prior: variance of the player's own strength.
        weight: ``[k]``, how much its distance to each opponent matters.
        eta: log of the draw parameter.
        pairs: how many.

    Returns:
        An index per pair; of equal ones the first.
    """
    distance = covariance + prior
    chosen = []
    for _ in range(pairs):
        uncertain = np.diag(distance)
        # Information at an uncertain strength: a logistic curve averaged over a normal is a flatter one (MacKay 1992).
        flatter = 1.0 / np.sqrt(1.0 + math.pi / 8.0 * uncertain)
        two_games = 2.0 * flatter * outcomes(delta * flatter, eta).variance
        gain = two_games * (weight[:, None] * distance**2).sum(axis=0) / (1.0 + two_games * uncertain)
        best = int(np.argmax(gain))
        chosen.append(best)
        column = distance[:, best]
        distance = distance - two_games[best] / (1.0 + two_games[best] * uncertain[best]) * column[:, None] * column
    return chosen
