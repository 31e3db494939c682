"""Does one number per player do justice to the results, or do they go in circles? Reports, which decide nothing."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from .davidson import outcomes
from .rating import Ratings

#: A match with fewer games has no z worth reading.
MIN_GAMES = 30
#: Chance that a perfectly transitive set of results is reported as one that is not, per test.
FALSE_ALARM = 0.05


class Triad(NamedTuple):
    """A circle: ``a`` beats ``b`` beats ``c`` beats ``a``. ``curl`` is the sum of the three logits, ``z`` that in
    standard errors."""

    a: str
    b: str
    c: str
    curl: float
    z: float


@dataclass(frozen=True)
class Transitivity:
    """How far results are from any ranking.

    Attributes:
        residual: sum over matches of z squared, with z the score's distance from the rating fit in its own standard
            errors; about ``freedom`` where the fit is right.
        freedom: matches - players + 1, the circles that the results could show.
        p: chance of so large a residual if the fit were right; ``None`` without a degree of freedom.
        worst: the match farthest from the fit among those of :data:`MIN_GAMES` games, and its z; ``None`` without.
        cyclicity: share of the logits' weighted energy that no ranking explains, in [0, 1] (Jiang et al. 2011). Noise
            alone gives some; ``None`` without a degree of freedom.
        triads: circles beyond chance (Bonferroni over all triads played), the clearest first.
    """

    residual: float
    freedom: int
    p: float | None
    worst: tuple[str, str, float] | None
    cyclicity: float | None
    triads: tuple[Triad, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "triads": [t._asdict() for t in self.triads]}


def transitivity(ratings: Ratings) -> Transitivity:
    """The report on the results behind a rating fit."""
    m = ratings.matches
    widen = 1.0 + (ratings.rho or 0.0)
    n = m.n.astype(np.float64)
    o = outcomes(ratings.fit.theta[m.first] - ratings.fit.theta[m.second], ratings.fit.eta)
    z = (m.scores - o.score) / np.sqrt(o.variance * widen / n)
    freedom = len(n) - len(m.players) + _components(m.first, m.second, len(m.players))
    # Half a game is added to either side, so that a swept match has a finite logit.
    score = (m.scores * n + 0.5) / (n + 1.0)
    logit = np.log(score / (1.0 - score))
    weight = n * score * (1.0 - score) / widen
    flow = hodge(m.first, m.second, logit, weight, len(m.players))
    residual = float((z**2).sum())
    return Transitivity(
        residual=residual,
        freedom=freedom,
        p=_chi_squared_tail(residual, freedom) if freedom > 0 else None,
        worst=_worst(ratings, z, n),
        cyclicity=flow.cyclicity if freedom > 0 else None,
        triads=tuple(_triads(ratings, logit, weight)),
    )


class Hodge(NamedTuple):
    """``rating`` ``[players]`` that explains the flow best, what it leaves ``[m]``, and the share of energy left."""

    rating: np.ndarray
    residual: np.ndarray
    cyclicity: float


def hodge(first: np.ndarray, second: np.ndarray, flow: np.ndarray, weight: np.ndarray, players: int) -> Hodge:
    """Split a flow on a graph into a gradient and circles (Jiang, Lim, Yao and Ye 2011, section 4).

    Weighted least squares of ``flow ~ r_first - r_second``. On a graph that lacks edges the rest is curl and harmonic
    part together.

    Args:
        first, second: int ``[m]``, ends of the edges.
        flow: ``[m]``, from first to second, such as logits of scores.
        weight: ``[m]``, inverse variances.
        players: how many; ratings sum to 0 in each connected part.
    """
    root = np.sqrt(weight)
    design = np.zeros((first.size, players))
    design[np.arange(first.size), first] = root
    design[np.arange(first.size), second] -= root
    rating = np.linalg.lstsq(design, root * flow, rcond=None)[0] if first.size else np.zeros(players)
    residual = flow - (rating[first] - rating[second])
    energy = float((weight * flow**2).sum())
    return Hodge(rating, residual, float((weight * residual**2).sum()) / energy if energy > 0.0 else 0.0)


def _triads(ratings: Ratings, logit: np.ndarray, weight: np.ndarray) -> list[Triad]:
    m = ratings.matches
    edge = {(int(i), int(j)): k for k, (i, j) in enumerate(zip(m.first, m.second, strict=True))}
    beyond: dict[int, set[int]] = {i: set() for i in range(len(m.players))}
    for i, j in edge:
        beyond[i].add(j)
    found = []
    tested = 0
    for i in beyond:
        for j, k in combinations(sorted(beyond[i]), 2):
            if (j, k) not in edge:
                continue
            tested += 1
            edges = [edge[i, j], edge[j, k], edge[i, k]]
            curl = float(logit[edges[0]] + logit[edges[1]] - logit[edges[2]])
            z = curl / math.sqrt(float((1.0 / weight[edges]).sum()))
            a, b, c = (m.players[x] for x in ((i, j, k) if curl > 0.0 else (i, k, j)))
            found.append(Triad(a, b, c, abs(curl), abs(z)))
    if not tested:
        return []
    limit = NormalDist().inv_cdf(1.0 - FALSE_ALARM / 2.0 / tested)
    return sorted((t for t in found if t.z > limit), key=lambda t: (-t.z, t))


def _worst(ratings: Ratings, z: np.ndarray, n: np.ndarray) -> tuple[str, str, float] | None:
    m = ratings.matches
    told = np.flatnonzero(n >= MIN_GAMES)
    if not told.size:
        return None
    k = int(told[np.argmax(np.abs(z[told]))])
    return m.players[m.first[k]], m.players[m.second[k]], float(z[k])


def _components(first: np.ndarray, second: np.ndarray, players: int) -> int:
    """Connected parts of the graph of matches."""
    label = np.arange(players)
    for i, j in zip(first, second, strict=True):
        label[label == label[j]] = label[i]
    return len(set(label.tolist()))


def _chi_squared_tail(x: float, freedom: int) -> float:
    """P(chi-squared > x), by Wilson and Hilferty's cube root (1931); within 0.01 from one degree of freedom on."""
    c = 2.0 / (9.0 * freedom)
    return 1.0 - NormalDist().cdf(((x / freedom) ** (1.0 / 3.0) - (1.0 - c)) / math.sqrt(c))
