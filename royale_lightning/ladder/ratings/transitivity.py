"""Does one number per player do justice to the results, or do they go in circles? Reports, which decide nothing."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from .arrow import Arrow, independent
from .components import strong_components
from .davidson import outcomes
from .rating import Ratings

#: A match is looked at where either side is expected to score so many points. With fewer its score is far from normal
#: (Cochran 1954), and a chi-squared over hundreds of two-game matches says what the games' number says.
LEAST_POINTS = 5.0
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
    """How far results are from any ranking, by the matches in which either side could be expected to score
    :data:`LEAST_POINTS` points.

    Attributes:
        residual: sum over these matches of the squared distance of the score's logit from the ranking that fits them
            best, in standard errors; about ``freedom`` where there are no circles.
        freedom: matches - players + connected parts, the circles that the results could show.
        p: chance of so large a residual without circles; ``None`` without a degree of freedom.
        worst: the match farthest from the rating fit, and its distance in standard errors; ``None`` without a match.
        cyclicity: share of the logits' weighted energy that no ranking explains, in [0, 1] (Jiang et al. 2011). Noise
            alone gives some; ``None`` without a degree of freedom.
        triads: circles beyond chance (Bonferroni over all triads played), the clearest first.
        matches, left_out: how many were looked at, and how many were too short or too one-sided.
    """

    residual: float
    freedom: int
    p: float | None
    worst: tuple[str, str, float] | None
    cyclicity: float | None
    triads: tuple[Triad, ...]
    matches: int
    left_out: int

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "triads": [t._asdict() for t in self.triads]}


def transitivity(ratings: Ratings) -> Transitivity:
    """The report on the results behind a rating fit."""
    m = ratings.matches
    widen = 1.0 + (ratings.rho or 0.0)
    o = outcomes(ratings.fit.theta[m.first] - ratings.fit.theta[m.second], ratings.fit.eta)
    told = np.flatnonzero(m.n * np.minimum(o.score, 1.0 - o.score) >= LEAST_POINTS)
    first, second = m.first[told], m.second[told]
    n, score = m.n[told].astype(np.float64), m.scores[told]
    z = (score - o.score[told]) / np.sqrt(o.variance[told] * widen / n)
    # Half a game is added to either side, so that a swept match has a finite logit.
    smooth = (score * n + 0.5) / (n + 1.0)
    logit = np.log(smooth / (1.0 - smooth))
    weight = n * smooth * (1.0 - smooth) / widen
    there, ends = np.unique(np.concatenate([first, second]), return_inverse=True)
    i, j = ends[: told.size], ends[told.size :]
    freedom = told.size - there.size + len(set(_parts(i, j, there.size).tolist()))
    flow = hodge(i, j, logit, weight, there.size)
    residual = float((weight * flow.residual**2).sum())
    far = int(np.argmax(np.abs(z))) if told.size else 0
    return Transitivity(
        residual=residual,
        freedom=freedom,
        p=_chi_squared_tail(residual, freedom) if freedom > 0 else None,
        worst=(m.players[first[far]], m.players[second[far]], float(z[far])) if told.size else None,
        cyclicity=flow.cyclicity if freedom > 0 else None,
        triads=tuple(_triads([m.players[p] for p in there], i, j, logit, weight)),
        matches=told.size,
        left_out=len(m.first) - told.size,
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
    part = _parts(first, second, players)
    # Of each part one is held at 0: only differences are in the flow.
    held = np.zeros(players, dtype=bool)
    held[np.unique(part, return_index=True)[1]] = True
    leaf = independent(first, second, players, held)
    core = ~leaf & ~held
    place = np.where(leaf, np.cumsum(leaf) - 1, np.cumsum(core) - 1)
    border, inner = np.zeros((int(leaf.sum()), int(core.sum()))), np.zeros((int(core.sum()), int(core.sum())))
    for i, j in ((first, second), (second, first)):
        out, inside = leaf[i] & core[j], core[i] & core[j]
        border[place[i[out]], place[j[out]]] = -weight[out]
        inner[place[i[inside]], place[j[inside]]] = -weight[inside]
    total = np.bincount(first, weight, players) + np.bincount(second, weight, players)
    inner[np.diag_indices_from(inner)] = total[core]
    pull = np.bincount(first, weight * flow, players) - np.bincount(second, weight * flow, players)
    rating = np.zeros(players)
    rating[leaf], rating[core] = Arrow.of(total[leaf], border, inner).solve(pull[leaf], pull[core])
    rating -= (np.bincount(part, rating) / np.bincount(part))[part] if players else 0.0
    residual = flow - (rating[first] - rating[second])
    energy = float((weight * flow**2).sum())
    return Hodge(rating, residual, float((weight * residual**2).sum()) / energy if energy > 0.0 else 0.0)


def _triads(
    players: list[str], first: np.ndarray, second: np.ndarray, logit: np.ndarray, weight: np.ndarray
) -> list[Triad]:
    edge = {(i, j): k for k, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
    beyond: dict[int, set[int]] = {}
    for i, j in edge:
        beyond.setdefault(i, set()).add(j)
    found = []
    for (i, j), k in edge.items():
        for far in sorted(beyond[i] & beyond.get(j, set())):
            edges = [k, edge[j, far], edge[i, far]]
            curl = float(logit[edges[0]] + logit[edges[1]] - logit[edges[2]])
            z = curl / math.sqrt(float((1.0 / weight[edges]).sum()))
            a, b, c = (players[x] for x in ((i, j, far) if curl > 0.0 else (i, far, j)))
            found.append(Triad(a, b, c, abs(curl), abs(z)))
    if not found:
        return []
    limit = NormalDist().inv_cdf(1.0 - FALSE_ALARM / 2.0 / len(found))
    return sorted((t for t in found if t.z > limit), key=lambda t: (-t.z, t))


def _parts(first: np.ndarray, second: np.ndarray, players: int) -> np.ndarray:
    """Connected parts of the graph of matches, as a label per player."""
    return strong_components(players, np.concatenate([first, second]), np.concatenate([second, first]))


def _chi_squared_tail(x: float, freedom: int) -> float:
    """P(chi-squared > x), by Wilson and Hilferty's cube root (1931); within 0.01 from one degree of freedom on."""
    c = 2.0 / (9.0 * freedom)
    return 1.0 - NormalDist().cdf(((x / freedom) ** (1.0 / 3.0) - (1.0 - c)) / math.sqrt(c))
