"""Bradley-Terry-Davidson ratings as a maximum a posteriori fit: pure functions of counts.

With ``delta = theta_i - theta_j`` and ``eta = ln nu``, ``P(i wins) : P(draw) : P(j wins) = e^(delta/2) : e^eta :
e^(-delta/2)`` (Davidson 1970, eq. 2.4). Natural units throughout; one Elo point is ``elo.NATURAL_PER_ELO``.

Nothing here calls BLAS: its sums depend on how many threads it may use, and the same games must give the same bits in
any process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Largest component of the gradient at which the fit counts as converged.
TOLERANCE = 1e-10
#: Newton steps before giving up; a fit takes 5 to 12.
MAX_STEPS = 60
#: A step must gain this share of what the gradient promises (Nocedal and Wright 2006, eq. 3.4), else it is halved.
SUFFICIENT_GAIN = 1e-4
#: Standard deviation of ``ln nu`` around 0. Two: even players may draw 1 game in 30 or 29 in 30 at one deviation.
ETA_SD = 2.0


class Outcomes(NamedTuple):
    """Per match, all ``[m]``: chances of the first player, its expected score and the score's variance per game."""

    win: np.ndarray
    draw: np.ndarray
    loss: np.ndarray
    score: np.ndarray
    variance: np.ndarray


def outcomes(delta: np.ndarray, eta: float) -> Outcomes:
    """What the model expects of one game.

    Args:
        delta: ``[m]``, strength of the first player minus the second's.
        eta: log of Davidson's draw parameter.
    """
    top = np.maximum(np.abs(delta) / 2.0, eta)
    a, d, b = np.exp(delta / 2.0 - top), np.exp(eta - top), np.exp(-delta / 2.0 - top)
    z = a + d + b
    win, draw, loss = a / z, d / z, b / z
    score = win + draw / 2.0
    # By squares, not as win + draw / 4 - score^2, which cancels when one side wins nearly always.
    variance = win * loss + draw * (win + loss) / 4.0
    return Outcomes(win, draw, loss, score, variance)


@dataclass(frozen=True)
class DavidsonFit:
    """The maximum and its curvature; ``p`` players.

    Attributes:
        theta: ``[p]``, 0 at the anchor.
        eta: log of the draw parameter.
        precision: ``[p + 1, p + 1]``, observed information of (theta, eta) with the prior's; the anchor's row is 0.
        covariance: ``[p + 1, p + 1]``, its inverse over all but the anchor, whose rows are 0.
        trace: log posterior before each Newton step and at the end.
    """

    theta: np.ndarray
    eta: float
    precision: np.ndarray
    covariance: np.ndarray
    trace: tuple[float, ...]


def fit_davidson(
    first: np.ndarray,
    second: np.ndarray,
    games: np.ndarray,
    players: int,
    anchor: int | None,
    prior_sd: float,
    pool_sd: float,
    eta_sd: float = ETA_SD,
) -> DavidsonFit:
    """Newton's method on the log posterior, from 0.

    The prior of the free ratings is ``theta_i = mu + N(0, prior_sd^2)`` with ``mu ~ N(0, pool_sd^2)`` integrated out,
    so that few games leave a player near the pool's mean; ``pool_sd`` 0 leaves it near the anchor. The posterior is
    strictly concave, so there is one maximum, also for players who never lost.

    Args:
        first, second: int ``[m]``, players of each match, in [0, players).
        games: ``[m, 3]``, the first player's losses, draws and wins.
        players: how many.
        anchor: the player held at 0; without one the prior alone says where 0 is.
        prior_sd, pool_sd, eta_sd: natural units.

    Raises:
        RuntimeError: no convergence, which finite counts cannot cause.
    """
    losses, draws, wins = (games[:, k].astype(np.float64) for k in range(3))
    n = losses + draws + wins
    free = np.array([i for i in range(players) if i != anchor] + [players], dtype=np.int64)
    prior = _prior_precision(free.size - 1, prior_sd, pool_sd, eta_sd)

    def log_posterior(x: np.ndarray) -> float:
        o = outcomes(x[first] - x[second], float(x[-1]))
        with np.errstate(divide="ignore"):
            logs = [np.where(k > 0, np.log(p), 0.0) for k, p in ((wins, o.win), (draws, o.draw), (losses, o.loss))]
        data = float(np.sum(wins * logs[0] + draws * logs[1] + losses * logs[2]))
        return data - 0.5 * float(np.sum(x[free] * _times(prior, x[free])))

    x = np.zeros(players + 1)
    value = log_posterior(x)
    trace = [value]
    for _ in range(MAX_STEPS):
        gradient, information = _derivatives(x, first, second, wins, draws, n)
        g = gradient[free] - _times(prior, x[free])
        precision = information[np.ix_(free, free)] + prior
        factor = _cholesky(precision)
        if np.abs(g).max() < TOLERANCE:
            break
        step = np.zeros_like(x)
        step[free] = _solve(factor, g)
        promised = float(np.sum(g * step[free]))
        length = 1.0
        # Near the maximum the gain drowns in the value's rounding; a whole Newton step is then the best there is.
        rounding = 1e-13 * (1.0 + abs(value))
        while (found := log_posterior(x + length * step)) < value + SUFFICIENT_GAIN * length * promised - rounding:
            length /= 2.0
            if length < 1e-12:
                raise RuntimeError("the rating fit found no step uphill; please report its counts")
        x, value = x + length * step, found
        trace.append(value)
    else:
        raise RuntimeError(f"the rating fit did not converge in {MAX_STEPS} steps; please report its counts")

    whole = np.zeros((players + 1, players + 1))
    inverse = np.zeros_like(whole)
    whole[np.ix_(free, free)] = precision
    inverse[np.ix_(free, free)] = _inverse(factor)
    return DavidsonFit(x[:-1], float(x[-1]), whole, inverse, tuple(trace))


def _prior_precision(free: int, prior_sd: float, pool_sd: float, eta_sd: float) -> np.ndarray:
    """Inverse of ``prior_sd^2 I + pool_sd^2 1 1'`` (Sherman and Morrison), and eta's in the last place."""
    a, b = prior_sd**2, pool_sd**2
    out = np.zeros((free + 1, free + 1))
    out[:free, :free] = -b / (a * (a + free * b))
    out[np.arange(free), np.arange(free)] += 1.0 / a
    out[free, free] = 1.0 / eta_sd**2
    return out


def _derivatives(
    x: np.ndarray, first: np.ndarray, second: np.ndarray, wins: np.ndarray, draws: np.ndarray, n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient ``[p + 1]`` of the log likelihood and its observed information ``[p + 1, p + 1]``."""
    size = x.size
    o = outcomes(x[first] - x[second], float(x[-1]))
    surplus = wins + draws / 2.0 - n * o.score
    gradient = np.bincount(first, surplus, size) - np.bincount(second, surplus, size)
    gradient[-1] = np.sum(draws - n * o.draw)
    v, k = n * o.variance, n * o.draw * (0.5 - o.score)
    information = np.zeros((size, size))
    np.add.at(information, (first, second), -v)
    np.add.at(information, (second, first), -v)
    information[np.arange(size), np.arange(size)] += np.bincount(first, v, size) + np.bincount(second, v, size)
    cross = np.bincount(first, k, size) - np.bincount(second, k, size)
    information[:, -1] += cross
    information[-1, :] += cross
    information[-1, -1] = np.sum(n * o.draw * (1.0 - o.draw))
    return gradient, information


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.asarray((matrix * vector).sum(axis=1))


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    """Lower triangle ``L`` with ``L L' = matrix``, by columns (Golub and Van Loan 2013, algorithm 4.2.1)."""
    rest = matrix.copy()
    for k in range(rest.shape[0]):
        rest[k:, k] /= np.sqrt(rest[k, k])
        column = rest[k + 1 :, k]
        rest[k + 1 :, k + 1 :] -= column[:, None] * column
    return np.tril(rest)


def _solve(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``x`` with ``L L' x = right``; ``right`` is ``[n]`` or ``[n, k]``."""
    x = right.astype(np.float64).copy()
    n = factor.shape[0]
    column = (slice(None),) + (None,) * (x.ndim - 1)
    for k in range(n):
        x[k] /= factor[k, k]
        x[k + 1 :] -= factor[k + 1 :, k][column] * x[k]
    for k in range(n - 1, -1, -1):
        x[k] /= factor[k, k]
        x[:k] -= factor[k, :k][column] * x[k]
    return x


def _inverse(factor: np.ndarray) -> np.ndarray:
    out = _solve(factor, np.eye(factor.shape[0]))
    return (out + out.T) / 2.0
