"""Ratings of everyone who played rated battles, each with its standard error, from one fit over all of them.

The fit depends on the set of results and not on their order, to the last bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...battle.players import scripted_player
from ...errors import UserError
from ...metrics.intervals import Z95
from ..results import Result
from .davidson import DavidsonFit, fit_davidson, outcomes
from .elo import NATURAL_PER_ELO
from .matches import SCORES, Matches, count_matches

#: Rating 0 by definition: the opponent that never acts, so that every run has the same zero.
ANCHOR = scripted_player("noop")
#: Complete pairs from which the correlation of a seed's two games is estimated; its own error is then below 0.15.
MIN_PAIRS = 50


class Rating(NamedTuple):
    """One player's line.

    Attributes:
        elo, se: rating and standard error, Elo points above the anchor.
        games, pairs: rated games, and seeds among them that were played from both seats.
        separable: the games alone would send the rating to infinity (Ford 1957): no chain of points scored leads both
            from and to the bulk of the players. The number is then the prior's choice; see ``elo.swept_bound``.
        prior_dominated: the prior carries more information on it than its games.
    """

    player: str
    elo: float
    se: float
    games: int
    pairs: int
    separable: bool
    prior_dominated: bool


class Interval(NamedTuple):
    """A value, its standard error and the ends of its 95 % interval, Elo points."""

    elo: float
    se: float
    low: float
    high: float


class Expected(NamedTuple):
    """Predicted mean scores ``[k]`` of one player against ``k`` others, the covariance ``[k, k]`` of these predictions,
    and the variance ``[k]`` of one game's score around them."""

    score: np.ndarray
    covariance: np.ndarray
    game_variance: np.ndarray


@dataclass(frozen=True)
class Ratings:
    """A fit over a set of results. A player without rated games is absent: it has no rating, not rating 0.

    Attributes:
        matches: the counts it was fitted to.
        fit: the maximum in natural units.
        anchor: who has rating 0.
        prior_sd: of a player around the pool, Elo.
        rho: correlation of a seed's two games around the fit; ``None`` under :data:`MIN_PAIRS` complete pairs. Every
            variance here is the fit's times ``1 + rho``, since the seed and not the game is the independent unit.
    """

    matches: Matches
    fit: DavidsonFit
    anchor: str
    prior_sd: float
    rho: float | None

    @property
    def players(self) -> tuple[str, ...]:
        """Ids, sorted."""
        return self.matches.players

    @cached_property
    def _at(self) -> dict[str, int]:
        return {p: i for i, p in enumerate(self.players)}

    def __contains__(self, player: object) -> bool:
        return player in self._at

    @cached_property
    def elo(self) -> np.ndarray:
        """``[players]``, in the order of ``players``."""
        return self.fit.theta / NATURAL_PER_ELO

    @cached_property
    def covariance(self) -> np.ndarray:
        """``[players, players]``, Elo squared; the anchor's row is 0."""
        return self._natural_covariance[:-1, :-1] / NATURAL_PER_ELO**2

    @cached_property
    def _natural_covariance(self) -> np.ndarray:
        return self.fit.covariance * (1.0 + (self.rho or 0.0))

    @property
    def draw(self) -> float:
        """Davidson's nu; even players draw a share ``nu / (2 + nu)``."""
        return math.exp(self.fit.eta)

    def of(self, player: str) -> Rating | None:
        """A player's line, or ``None`` for one without rated games."""
        i = self._at.get(player)
        return None if i is None else self.table[i]

    @cached_property
    def table(self) -> tuple[Rating, ...]:
        """One line per player, in the order of ``players``."""
        m = self.matches
        games, pairs = m.per_player(m.n), m.per_player(m.pairs.sum(axis=(1, 2)))
        prior = 1.0 / (self.prior_sd * NATURAL_PER_ELO) ** 2
        separable = _separable(m)
        return tuple(
            Rating(
                player=p, elo=float(self.elo[i]), se=math.sqrt(self.covariance[i, i]), games=int(games[i]),
                pairs=int(pairs[i]), separable=bool(separable[i]),
                prior_dominated=p != self.anchor and prior > 0.5 * float(self.fit.precision[i, i]),
            )
            for i, p in enumerate(self.players)
        )

    def ranking(self) -> list[Rating]:
        """The table from strongest to weakest. Neighbours need :meth:`difference` to be told apart."""
        return sorted(self.table, key=lambda r: (-r.elo, r.player))

    def difference(self, a: str, b: str) -> Interval | None:
        """``a`` minus ``b`` with the full covariance: errors of two ratings are far from independent.

        ``None`` when one of them has no rating.
        """
        if a not in self or b not in self:
            return None
        i, j = self._at[a], self._at[b]
        c = self.covariance
        elo = float(self.elo[i] - self.elo[j])
        # Rounding may leave a player's difference from itself a hair below 0.
        se = math.sqrt(max(0.0, float(c[i, i] + c[j, j] - 2.0 * c[i, j])))
        return Interval(elo, se, elo - Z95 * se, elo + Z95 * se)

    def expected(self, player: str, opponents: Sequence[str]) -> Expected | None:
        """What the fit predicts for ``player`` against each opponent (delta method for the covariance).

        ``None`` when one of them has no rating: nothing is predicted for a player nobody saw.
        """
        if player not in self or any(o not in self for o in opponents):
            return None
        i = self._at[player]
        j = np.array([self._at[o] for o in opponents], dtype=np.int64)
        o = outcomes(self.fit.theta[i] - self.fit.theta[j], self.fit.eta)
        gradient = np.zeros((j.size, len(self.players) + 1))
        gradient[:, i] += o.variance
        gradient[np.arange(j.size), j] -= o.variance
        gradient[:, -1] = o.draw * (0.5 - o.score)
        covariance = np.einsum("ki,ij,lj->kl", gradient, self._natural_covariance, gradient)
        return Expected(o.score, covariance, o.variance)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        players = [
            {
                "id": r.player, "rating": r.elo, "se": r.se, "games": r.games, "pairs": r.pairs,
                "separable": r.separable, "prior_dominated": r.prior_dominated,
            }
            for r in self.ranking()
        ]
        return {"anchor": self.anchor, "draw": self.draw, "rho": self.rho, "players": players}


class Rater(ABC):
    """Turns results into ratings. The same set of results gives the same numbers, whatever their order."""

    @abstractmethod
    def rate(self, results: Iterable[Result]) -> Ratings:
        """Ratings from the results of kind ``eval``; others are passed over."""


class DavidsonRater(Rater):
    """Bradley-Terry with Davidson's draws, a Gaussian prior and an anchor; see :mod:`~.davidson`.

    Rejected: online Elo, Glicko and TrueSkill are one-pass filters, so the order of the games moves the numbers, and
    they drop the covariance that intervals of differences need. Snapshots stand still, and the log is small enough to
    fit whole.

    Args:
        prior_sd: of a player around the pool's mean, Elo. 400 weighs three quarters of one even, decisive game, so a
            player who won everything gets a finite number and everyone else hardly feels it.
        pool_sd: of the pool's mean around the anchor, Elo. Bots that learned anything beat an opponent that never acts;
            with the prior centred on that anchor (0), a snapshot with few games would look weaker than one with many.
            1000 leaves the gap to the games.
        anchor: who has rating 0.
    """

    def __init__(self, prior_sd: float = 400.0, pool_sd: float = 1000.0, anchor: str = ANCHOR) -> None:
        if not prior_sd > 0.0 or not math.isfinite(prior_sd):
            raise UserError(f"rater prior_sd is {prior_sd}; give a number of Elo points above 0, such as 400")
        if not pool_sd >= 0.0 or not math.isfinite(pool_sd):
            raise UserError(f"rater pool_sd is {pool_sd}; give 0 or more Elo points, such as 1000")
        self.prior_sd, self.pool_sd, self.anchor = prior_sd, pool_sd, anchor

    def rate(self, results: Iterable[Result]) -> Ratings:
        return self.rate_matches(count_matches(results))

    def rate_matches(self, matches: Matches) -> Ratings:
        """:meth:`rate` of results that are counted already."""
        at = matches.players.index(self.anchor) if self.anchor in matches.players else None
        fit = fit_davidson(
            matches.first, matches.second, matches.games, len(matches.players), at,
            self.prior_sd * NATURAL_PER_ELO, self.pool_sd * NATURAL_PER_ELO,
        )
        return Ratings(matches, fit, self.anchor, self.prior_sd, _pair_correlation(matches, fit))


def _pair_correlation(matches: Matches, fit: DavidsonFit) -> float | None:
    """Covariance of a seed's two games around the fit over the model's variance, pooled over matches.

    The games of one seed share decks and hands; taken as independent they would give intervals that cover 91 to 98 %
    where 95 is claimed. Deviations from the fit, and not from each match's mean, so that misfit widens the errors too.
    """
    n = matches.pairs.sum(axis=(1, 2)).astype(np.float64)
    if n.sum() < MIN_PAIRS:
        return None
    o = outcomes(fit.theta[matches.first] - fit.theta[matches.second], fit.eta)
    deviation = SCORES - o.score[:, None]
    together = np.sum(matches.pairs * deviation[:, :, None] * deviation[:, None, :])
    apart = np.sum(n * o.variance)
    return float(np.clip(together / apart, -0.9, 0.9)) if apart > 0.0 else None


def _separable(matches: Matches) -> np.ndarray:
    """bool ``[players]``: not in the component of "scored against" that holds the most games."""
    size = len(matches.players)
    reach = np.eye(size, dtype=bool)
    for m, (i, j) in enumerate(zip(matches.first, matches.second, strict=True)):
        loss, draw, win = matches.games[m] > 0
        reach[i, j] |= win or draw
        reach[j, i] |= loss or draw
    for k in range(size):  # Warshall's closure
        reach |= reach[:, k, None] & reach[k]
    mutual = reach & reach.T
    games = np.where(mutual, matches.per_player(matches.n), 0.0).sum(axis=1)
    return ~mutual[int(np.argmax(games))] if size else np.zeros(0, dtype=bool)


#: Short names of the shipped raters.
RATERS = {"davidson": "royale_lightning.ladder.DavidsonRater"}
