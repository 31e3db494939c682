"""Bradley-Terry-Davidson ratings as a maximum a posteriori fit: pure functions of counts.

With ``delta = theta_i - theta_j`` and ``eta = ln nu``, ``P(i wins) : P(draw) : P(j wins) = e^(delta/2) : e^eta :
e^(-delta/2)`` (Davidson 1970, eq. 2.4). Natural units throughout; one Elo point is ``elo.NATURAL_PER_ELO``.

Players who met nobody but a few common opponents cost next to nothing: they are eliminated exactly (:mod:`~.arrow`).
Nothing here calls BLAS, so the same games give the same bits in any process. For the same reason a fit begins at 0 and
not at an earlier one, which would leave a trace of its history in the last bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .arrow import Arrow, Spread, independent

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
class Curvature:
    """Observed information of the games at some strengths, match by match.

    Attributes:
        first, second: int ``[m]``, players of each match.
        strength: ``[m]``, minus the second derivative by the difference of the two.
        mixed: ``[m]``, minus the derivative by that difference and eta.
        draw: minus the second derivative by eta, of all matches.
    """

    first: np.ndarray
    second: np.ndarray
    strength: np.ndarray
    mixed: np.ndarray
    draw: float

    def per_player(self, of_match: np.ndarray, players: int, sign: float = 1.0) -> np.ndarray:
        """``[players]``: a number per match summed over each player's matches, times ``sign`` where it is second."""
        return np.bincount(self.first, of_match, players) + sign * np.bincount(self.second, of_match, players)


@dataclass(frozen=True)
class DavidsonFit:
    """The maximum and its curvature; ``p`` players.

    Attributes:
        theta: ``[p]``, 0 at the anchor.
        eta: log of the draw parameter.
        posterior: covariance of (theta, eta), ``p + 1`` unknowns; 0 at the anchor. Its core are the players who met
            many, eta and the pool's mean.
        core: bool ``[p]``, who is in that core.
        curvature: of the games.
        anchor, prior_sd, pool_sd, eta_sd: as given.
        trace: log posterior before each Newton step and at the end.
    """

    theta: np.ndarray
    eta: float
    posterior: Spread
    core: np.ndarray
    curvature: Curvature
    anchor: int | None
    prior_sd: float
    pool_sd: float
    eta_sd: float
    trace: tuple[float, ...]

    @property
    def precision_diagonal(self) -> np.ndarray:
        """``[p]``: of each player alone, the games' information and the prior's; 0 at the anchor."""
        size = self.theta.size
        out = self.curvature.per_player(self.curvature.strength, size) + _prior_diagonal(
            size - (self.anchor is not None), self.prior_sd, self.pool_sd
        )
        return np.where(np.arange(size) == self.anchor, 0.0, out)

    @cached_property
    def precision(self) -> np.ndarray:
        """``[p + 1, p + 1]``, observed information of (theta, eta) with the prior's, the pool's mean integrated out;
        the anchor's row is 0. For few players."""
        c, size = self.curvature, self.theta.size
        out = np.zeros((size + 1, size + 1))
        np.add.at(out, (c.first, c.second), -c.strength)
        np.add.at(out, (c.second, c.first), -c.strength)
        out[np.arange(size), np.arange(size)] += c.per_player(c.strength, size)
        out[:size, size] = out[size, :size] = c.per_player(c.mixed, size, -1.0)
        free = [i for i in range(size) if i != self.anchor]
        n, a, b = len(free), self.prior_sd**2, self.pool_sd**2
        out[np.ix_(free, free)] -= b / (a * (a + n * b))
        out[free, free] += 1.0 / a
        out[size, size] = c.draw + 1.0 / self.eta_sd**2
        if self.anchor is not None:
            out[self.anchor, :] = out[:, self.anchor] = 0.0
        return out

    @cached_property
    def covariance(self) -> np.ndarray:
        """``[p + 1, p + 1]``, the posterior's written out; for few players."""
        return self.posterior.whole


def _prior_diagonal(free: int, prior_sd: float, pool_sd: float) -> float:
    """Diagonal of the inverse of ``prior_sd^2 I + pool_sd^2 1 1'`` (Sherman and Morrison)."""
    a, b = prior_sd**2, pool_sd**2
    return 1.0 / a - b / (a * (a + free * b))


def fit_davidson(
    first: np.ndarray,
    second: np.ndarray,
    games: np.ndarray,
    players: int,
    anchor: int | None,
    prior_sd: float,
    pool_sd: float,
    eta_sd: float = ETA_SD,
    core: np.ndarray | None = None,
) -> DavidsonFit:
    """Newton's method on the log posterior, from 0.

    The prior of the free ratings is ``theta_i = mu + N(0, prior_sd^2)`` with ``mu ~ N(0, pool_sd^2)``, so that few
    games leave a player near the pool's mean; ``pool_sd`` 0 leaves it near the anchor. ``mu`` is an unknown of its own,
    which keeps players who never met apart. The posterior is strictly concave, so there is one maximum, also for
    players who never lost.

    Args:
        first, second: int ``[m]``, players of each match, in [0, players); each pair once.
        games: ``[m, 3]``, the first player's losses, draws and wins.
        players: how many.
        anchor: the player held at 0; without one the prior alone says where 0 is.
        prior_sd, pool_sd, eta_sd: natural units.
        core: bool ``[players]``, who shall be in the posterior's core whatever the matches.

    Raises:
        RuntimeError: no convergence, which finite counts cannot cause.
    """
    losses, draws, wins = (games[:, k].astype(np.float64) for k in range(3))
    n = losses + draws + wins
    system = _System.of(first, second, players, anchor, core, prior_sd, pool_sd, eta_sd)

    def log_posterior(x: np.ndarray) -> float:
        o = outcomes(x[first] - x[second], float(x[players]))
        with np.errstate(divide="ignore"):
            logs = [np.where(k > 0, np.log(p), 0.0) for k, p in ((wins, o.win), (draws, o.draw), (losses, o.loss))]
        data = float(np.sum(wins * logs[0] + draws * logs[1] + losses * logs[2]))
        return data + system.log_prior(x)

    # Strengths, eta, and the pool's mean.
    x = np.zeros(players + 2)
    value = log_posterior(x)
    trace = [value]
    for _ in range(MAX_STEPS):
        o = outcomes(x[first] - x[second], float(x[players]))
        surplus = wins + draws / 2.0 - n * o.score
        curvature = Curvature(
            first, second, n * o.variance, n * o.draw * (0.5 - o.score), float(np.sum(n * o.draw * (1.0 - o.draw)))
        )
        gradient = system.prior_gradient(x)
        gradient[:players] += curvature.per_player(surplus, players, -1.0)
        gradient[players] += float(np.sum(draws - n * o.draw))
        arrow = system.precision(curvature)
        if np.abs(gradient[system.free]).max() < TOLERANCE:
            break
        step = system.step(arrow, gradient)
        promised = float(np.sum((gradient * step)[system.free]))
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
    return DavidsonFit(
        x[:players], float(x[players]), system.posterior(arrow), system.in_core, curvature, anchor, prior_sd, pool_sd,
        eta_sd, tuple(trace),
    )


@dataclass(frozen=True)
class _System:
    """Where each unknown stands in the arrow matrix of the fit.

    Attributes:
        leaf, core: int, players of the two parts; the anchor is in neither.
        row: int ``[players]``, a leaf's place; -1 for others.
        column: int ``[players]``, a core player's place; -1 for others. Behind them stand eta and the pool's mean.
        free: bool ``[players + 2]``, the unknowns that may move.
    """

    players: int
    leaf: np.ndarray
    core: np.ndarray
    row: np.ndarray
    column: np.ndarray
    free: np.ndarray
    prior: float
    pool: float
    eta: float

    @classmethod
    def of(
        cls, first: np.ndarray, second: np.ndarray, players: int, anchor: int | None, core: np.ndarray | None,
        prior_sd: float, pool_sd: float, eta_sd: float,
    ) -> _System:
        held = np.arange(players) == anchor
        # Who met the anchor alone is still a leaf: the anchor is no unknown.
        inner = (first != anchor) & (second != anchor)
        chosen = independent(first[inner], second[inner], players, held if core is None else held | core)
        leaf, rest = np.flatnonzero(chosen), np.flatnonzero(~chosen & ~held)
        row, column = np.full(players, -1), np.full(players, -1)
        row[leaf], column[rest] = np.arange(leaf.size), np.arange(rest.size)
        # A pool's mean that must be 0 is no unknown.
        free = np.append(~held, [True, pool_sd > 0.0])
        pool = pool_sd**-2 if pool_sd > 0.0 else 0.0
        return cls(players, leaf, rest, row, column, free, prior_sd**-2, pool, eta_sd**-2)

    @property
    def in_core(self) -> np.ndarray:
        return self.column >= 0

    @property
    def _moving(self) -> np.ndarray:
        """int, the core's unknowns among all ``players + 2``, in the order of its columns."""
        return np.concatenate([self.core, self.players + np.flatnonzero(self.free[self.players :])])

    def _apart(self, x: np.ndarray) -> np.ndarray:
        """``[players]``: distance from the pool's mean; 0 for the anchor, which has no prior."""
        return np.where(self.free[: self.players], x[: self.players] - x[-1], 0.0)

    def log_prior(self, x: np.ndarray) -> float:
        square = self.prior * float(np.sum(self._apart(x) ** 2))
        return -0.5 * (square + self.pool * float(x[-1]) ** 2 + self.eta * float(x[-2]) ** 2)

    def prior_gradient(self, x: np.ndarray) -> np.ndarray:
        pull = self.prior * self._apart(x)
        return np.append(-pull, [-self.eta * x[-2], float(np.sum(pull)) - self.pool * x[-1]])

    def precision(self, c: Curvature) -> Arrow:
        """Of all unknowns, games and prior."""
        at_eta, at_mean, size = self.core.size, self.core.size + 1, self.core.size + 2
        diagonal = c.per_player(c.strength, self.players) + self.prior
        mixed = c.per_player(c.mixed, self.players, -1.0)
        border, core = np.zeros((self.leaf.size, size)), np.zeros((size, size))
        for i, j in ((c.first, c.second), (c.second, c.first)):
            out = (self.row[i] >= 0) & (self.column[j] >= 0)
            np.add.at(border, (self.row[i[out]], self.column[j[out]]), -c.strength[out])
            inside = (self.column[i] >= 0) & (self.column[j] >= 0)
            np.add.at(core, (self.column[i[inside]], self.column[j[inside]]), -c.strength[inside])
        border[:, at_eta], border[:, at_mean] = mixed[self.leaf], -self.prior
        here = np.arange(self.core.size)
        core[here, here] = diagonal[self.core]
        core[here, at_eta] = core[at_eta, here] = mixed[self.core]
        core[here, at_mean] = core[at_mean, here] = -self.prior
        core[at_eta, at_eta] = c.draw + self.eta
        core[at_mean, at_mean] = self.prior * (self.leaf.size + self.core.size) + self.pool
        kept = size - (not self.free[-1])
        return Arrow.of(diagonal[self.leaf], border[:, :kept], core[:kept, :kept])

    def step(self, arrow: Arrow, gradient: np.ndarray) -> np.ndarray:
        """Newton's, ``[players + 2]``."""
        out = np.zeros(self.players + 2)
        out[self.leaf], out[self._moving] = arrow.solve(gradient[self.leaf], gradient[self._moving])
        return out

    def posterior(self, arrow: Arrow) -> Spread:
        """Of the players and eta."""
        inverse = arrow.core_inverse
        rows = np.zeros((self.players + 1, inverse.shape[0]))
        rows[self.leaf] = -arrow.pull
        rows[self.core, np.arange(self.core.size)] = 1.0
        rows[-1, self.core.size] = 1.0
        own = np.zeros(self.players + 1)
        own[self.leaf] = 1.0 / arrow.own
        return Spread(rows, inverse, own)
