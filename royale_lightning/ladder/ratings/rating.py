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
from .arrow import Spread, product
from .components import strong_components
from .davidson import DavidsonFit, fit_davidson, outcomes
from .elo import NATURAL_PER_ELO
from .matches import SCORES, Matches, count_matches

#: Rating 0 by definition, in every run: of the scripted opponents the one that a learner goes on losing to longest (in
#: 1 battle of 20 or 30 at the end of ``configs/first_bot.yaml``), and one that gates meet too. Nobody ever loses to
#: ``noop``: with that one at 0 every further win lifted all ratings, learning or not.
ANCHOR = scripted_player("patient")
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
        seed_rho: correlation of what one player scores against different others on one seed, such as a gate's anchor
            on its frozen seeds; 0 under :data:`MIN_PAIRS` seeds of this kind. Variances contain it too.
    """

    matches: Matches
    fit: DavidsonFit
    anchor: str
    prior_sd: float
    rho: float | None
    seed_rho: float = 0.0

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
        """``[players, players]``, Elo squared; the anchor's row is 0. For few players; see :meth:`covariance_of`."""
        return self._posterior.whole[:-1, :-1] / NATURAL_PER_ELO**2

    def covariance_of(self, players: Sequence[str]) -> np.ndarray:
        """``[k, k]``, Elo squared, of some players that have a rating."""
        return self._block([self._at[p] for p in players]) / NATURAL_PER_ELO**2

    @cached_property
    def _posterior(self) -> Spread:
        """Of (theta, eta), games of a seed counted as dependent.

        The sandwich ``C J C`` (White 1982) with seeds as clusters, but with each seed's dependence pooled over all of
        them: a player's own dozen seeds could not say how much they depend.
        """
        fit, widen = self.fit.posterior, 1.0 + (self.rho or 0.0)
        core = fit.core * widen
        if self.seed_rho:
            across = np.zeros_like(core)
            size = int(self.fit.core.sum())
            across[:size, :size] = self.seed_rho * _across(self.matches, self.fit, widen)
            core += product(product(fit.core, across), fit.core)
        return Spread(fit.rows, core, fit.own * widen)

    def _block(self, at: Sequence[int]) -> np.ndarray:
        distinct, back = np.unique(np.array(at, dtype=np.int64), return_inverse=True)
        return self._posterior.block(distinct)[np.ix_(back, back)]

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
        separable, precision = _separable(m), self.fit.precision_diagonal
        se = np.sqrt(self._posterior.variance[:-1]) / NATURAL_PER_ELO
        return tuple(
            Rating(
                player=p, elo=float(self.elo[i]), se=float(se[i]), games=int(games[i]),
                pairs=int(pairs[i]), separable=bool(separable[i]),
                prior_dominated=p != self.anchor and prior > 0.5 * float(precision[i]),
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
        c = self.covariance_of([a, b])
        elo = float(self.elo[self._at[a]] - self.elo[self._at[b]])
        # Rounding may leave a player's difference from itself a hair below 0.
        se = math.sqrt(max(0.0, float(c[0, 0] + c[1, 1] - 2.0 * c[0, 1])))
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
        # Of the player, the opponents and eta.
        gradient = np.zeros((j.size, j.size + 2))
        gradient[:, 0] = o.variance
        gradient[np.arange(j.size), 1 + np.arange(j.size)] = -o.variance
        gradient[:, -1] = o.draw * (0.5 - o.score)
        block = self._block([i, *j.tolist(), len(self.players)])
        return Expected(o.score, product(product(gradient, block), gradient.T), o.variance)

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
        pool_sd: of the pool's mean around the anchor, Elo. Bots that learned well beat the anchor; with the prior
            centred on it (0), a snapshot with few games would look weaker than one with many. 1000 leaves the gap to
            the games.
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
        shared = np.zeros(len(matches.players), dtype=bool)
        shared[matches.first[matches.shared.match]] = shared[matches.second[matches.shared.match]] = True
        fit = fit_davidson(
            matches.first, matches.second, matches.games, len(matches.players), at,
            self.prior_sd * NATURAL_PER_ELO, self.pool_sd * NATURAL_PER_ELO, core=shared,
        )
        rho = _pair_correlation(matches, fit)
        seed_rho = _seed_correlation(matches, fit, 1.0 + (rho or 0.0))
        return Ratings(matches, fit, self.anchor, self.prior_sd, rho, seed_rho)


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


def _deviations(matches: Matches, fit: DavidsonFit, widen: float) -> tuple[np.ndarray, np.ndarray]:
    """``[k]`` each, of the shared seeds' entries: the first player's points beyond the fit, and their deviation."""
    o = outcomes(fit.theta[matches.first] - fit.theta[matches.second], fit.eta)
    m, games = matches.shared.match, matches.shared.games
    n = games.sum(axis=1)
    return games @ SCORES - n * o.score[m], np.sqrt(n * o.variance[m] * np.where(n > 1, widen, 1.0))


def _seed_correlation(matches: Matches, fit: DavidsonFit, widen: float) -> float:
    """Correlation of one player's scores against different others on one seed, pooled; at most 1/2, so that every
    variance stays above 0 (an entry stands in two groups, its first player's and its second's)."""
    shared = matches.shared
    surplus, sd = _deviations(matches, fit, widen)
    player = np.concatenate([matches.first[shared.match], matches.second[shared.match]])
    _, group = np.unique(np.stack([player, np.tile(shared.seed, 2)]), axis=1, return_inverse=True)
    surplus, sd = np.concatenate([surplus, -surplus]), np.tile(sd, 2)
    several = np.bincount(group) > 1
    if several.sum() < MIN_PAIRS:
        return 0.0
    together, apart = (
        float(np.sum((np.bincount(group, x) ** 2 - np.bincount(group, x**2))[several])) for x in (surplus, sd)
    )
    return float(np.clip(together / apart, 0.0, 0.5)) if apart > 0.0 else 0.0


def _across(matches: Matches, fit: DavidsonFit, widen: float) -> np.ndarray:
    """``[core, core]``: covariance of the score vectors of different matches on shared seeds, at correlation 1."""
    shared, column = matches.shared, np.cumsum(fit.core) - 1
    _, sd = _deviations(matches, fit, widen)
    groups: dict[tuple[int, int], list[int]] = {}
    for k, (m, seed) in enumerate(zip(shared.match.tolist(), shared.seed.tolist(), strict=True)):
        for player in (int(matches.first[m]), int(matches.second[m])):
            groups.setdefault((player, seed), []).append(k)
    # Most seeds are met by the same players, so there are few kinds of groups.
    kinds: dict[tuple[int, tuple[tuple[int, float], ...]], int] = {}
    for (player, _), members in groups.items():
        if len(members) > 1:
            kind = player, tuple((int(shared.match[k]), float(sd[k])) for k in members)
            kinds[kind] = kinds.get(kind, 0) + 1
    size = int(fit.core.sum())
    out = np.zeros((size, size))
    for (player, entries), times in kinds.items():
        total = np.zeros(size)
        for m, deviation in entries:
            other = int(matches.first[m] + matches.second[m]) - player
            one = np.zeros(size)
            for p, sign in ((player, deviation), (other, -deviation)):
                if fit.core[p]:  # the anchor has no column
                    one[column[p]] = sign
            total += one
            out -= times * one[:, None] * one
        out += times * total[:, None] * total
    return out


def _separable(matches: Matches) -> np.ndarray:
    """bool ``[players]``: not in the component of "scored against" that holds the most games."""
    size = len(matches.players)
    if not size:
        return np.zeros(0, dtype=bool)
    scored = matches.games[:, 1:].any(axis=1), matches.games[:, :2].any(axis=1)
    source = np.concatenate([matches.first[scored[0]], matches.second[scored[1]]])
    target = np.concatenate([matches.second[scored[0]], matches.first[scored[1]]])
    label = strong_components(size, source, target)
    return np.asarray(label != np.argmax(np.bincount(label, matches.per_player(matches.n))))


#: Short names of the shipped raters.
RATERS = {"davidson": "royale_lightning.ladder.DavidsonRater"}
