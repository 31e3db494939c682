"""The two stages of a gate after the champion: the anchors, and a sample of the pool."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from ...battle.streams import generator
from ..ratings.rating import Expected, Ratings
from ..seeds import anchor_seeds, gate_seeds
from .pairs import PairRequest, PairTable
from .verdict import Condition, GateContext

#: A gate's stage: yields the pairs it wants played and is sent their scores, one ``[pairs, 2]`` per request.
Stage = Generator[tuple[PairRequest, ...], Sequence[np.ndarray], Condition]

#: Chance that a stage turns down a candidate that is no worse, shared out among its comparisons (Bonferroni).
FALSE_ALARM = 0.05
#: A stage that lost more than this share of its pairs says nothing.
MOST_DROPPED = 0.01
#: Fewer members are no sample of a pool.
LEAST_MEMBERS = 4


def too_many_dropped(tables: Sequence[PairTable]) -> str | None:
    """The reason why these matches cannot be judged, if there is one."""
    dropped = sum(t.dropped for t in tables)
    asked = dropped + sum(t.pairs for t in tables)
    return f"{dropped} of {asked} pairs were not finished" if dropped > MOST_DROPPED * asked else None


def looks(seeds: range) -> tuple[range, range]:
    """The seeds of a stage's first look, a quarter of them, and the rest.

    Both stages look for harm. A first look that shows none passes the candidate: a test that may only end early in the
    candidate's favour turns no more of the harmless down, and misses a few of the harmful (of falls from 0.9 to 0.7 at
    one of two anchors 89 in a hundred are found). Most candidates get this far because they are better, and pay for the
    first look alone.
    """
    first = max(1, len(seeds) // 4)
    return seeds[:first], seeds[first:]


def against_anchors(context: GateContext, pairs: int) -> Stage:
    """No proven regression: on the same seeds, the candidate scores no less than the champion.

    For each anchor ``D_k`` is the candidate's pair score minus the champion's on seed k; the candidate is blocked where
    ``mean D < -z SE``, and passes at the first look where no anchor has a mean below 0. Seed by seed, because most of
    an anchor's results depend on the seed alone. The rule "no more than two points below the champion" blocks a third
    of the candidates that are exactly as good; and the champion's results are measured on the same seeds, never
    assumed.
    """
    if not context.anchors or context.champion is None:
        return Condition("anchors", None, "there are no anchors", 0, {})
    matches = [(p, a) for a in context.anchors for p in (context.candidate, context.champion)]
    scores = [np.empty((0, 2)) for _ in matches]
    for seeds in looks(anchor_seeds(pairs)):
        if not seeds:
            continue
        answers = yield tuple(PairRequest(p, a, seeds) for p, a in matches)
        scores = [np.concatenate(x) for x in zip(scores, answers, strict=True)]
        condition, harmless = _compared(context.anchors, scores)
        if harmless:
            break
    return condition


def _compared(anchors: Sequence[str], scores: Sequence[np.ndarray]) -> tuple[Condition, bool]:
    """The condition on what was played so far, candidate and champion by turns, and whether no anchor speaks against
    the candidate at all."""
    tables = [PairTable.of(x) for x in scores]
    battles = sum(2 * len(x) for x in scores)
    z = NormalDist().inv_cdf(1.0 - FALSE_ALARM / len(anchors))
    numbers: dict[str, Any] = {"z_limit": -z, "opponents": {}}
    worse, harmless = [], True
    for k, anchor in enumerate(anchors):
        difference = (scores[2 * k] - scores[2 * k + 1]).mean(axis=1)
        difference = difference[~np.isnan(difference)]
        mean = float(difference.mean()) if difference.size else 0.0
        se = float(difference.std(ddof=1)) / math.sqrt(difference.size) if difference.size > 1 else 0.0
        harmless &= mean >= 0.0
        if mean < -z * se:
            worse.append(anchor)
        numbers["opponents"][anchor] = {
            "candidate": tables[2 * k].as_dict(), "champion": tables[2 * k + 1].as_dict(), "difference": mean, "se": se,
        }
    if (lost := too_many_dropped(tables)) is not None:
        return Condition("anchors", False, lost, battles, numbers, judged=False), False
    why = f"worse than the champion against {', '.join(worse)}" if worse else "not proven worse against any anchor"
    return Condition("anchors", not worse, why, battles, numbers), harmless


def against_pool(context: GateContext, members: int, pairs: int) -> Stage:
    """No collapse: against a rating-stratified sample of the pool, the candidate scores what the champion is predicted
    to.

    ``z = sum_i (S_i - E_i) / sqrt(sum_i v_i + 1' C 1)`` with the predictions' covariance ``C`` (delta method on the
    rating fit); ``v_i`` is the variance of the measured mean, the larger of the model's and the observed, because near
    0 and 1 either alone may vanish. Half of :data:`FALSE_ALARM` guards the sum, half the single members. The candidate
    passes at the first look where ``z >= 0`` and no member stands out.
    """
    ratings, champion = context.ratings, context.champion
    if ratings is None or champion is None or champion not in ratings:
        return Condition("pool", None, "the champion has no rating", 0, {})
    pool = [p for p in context.pool if p not in (champion, context.candidate)]
    rng = generator(context.seed, "gate/pool", context.number)
    sample = stratified_sample(pool, ratings, members, rng)
    expected = ratings.expected(champion, sample)
    if expected is None or len(sample) < LEAST_MEMBERS:
        why = f"the pool has {len(sample)} rated members besides the champion, and a sample takes {LEAST_MEMBERS}"
        return Condition("pool", None, why, 0, {})
    split = [looks(gate_seeds(context.number, 1, k * pairs, pairs)) for k in range(len(sample))]
    scores = [np.empty((0, 2)) for _ in sample]
    for look in zip(*split, strict=True):
        if not look[0]:
            continue
        answers = yield tuple(PairRequest(context.candidate, p, s) for p, s in zip(sample, look, strict=True))
        scores = [np.concatenate(x) for x in zip(scores, answers, strict=True)]
        condition = _held(sample, scores, expected, ratings.rho or 0.0)
        if condition.passed and condition.numbers["z"] >= 0.0:
            break
    return condition


def _held(sample: Sequence[str], scores: Sequence[np.ndarray], expected: Expected, rho: float) -> Condition:
    """The condition on what was played so far."""
    tables = [PairTable.of(x) for x in scores]
    battles = sum(2 * len(x) for x in scores)
    if (lost := too_many_dropped(tables)) is not None:
        seen_so_far = {"opponents": {p: t.as_dict() for p, t in zip(sample, tables, strict=True)}}
        return Condition("pool", False, lost, battles, seen_so_far, judged=False)
    n = np.array([t.pairs for t in tables])
    score = np.array([t.scores.mean() for t in tables])
    seen = np.array([t.scores.var() for t in tables]) / n
    model = expected.game_variance / 2.0 * (1.0 + rho) / n
    variance = np.maximum(seen, model)
    surplus = score - expected.score
    each = surplus / np.sqrt(variance + np.diag(expected.covariance))
    z = float(surplus.sum() / np.sqrt(variance.sum() + expected.covariance.sum()))
    normal = NormalDist()
    limit, limit_each = (normal.inv_cdf(FALSE_ALARM / 2.0 / k) for k in (1, len(sample)))
    collapsed = [p for p, z_i in zip(sample, each, strict=True) if z_i < limit_each]
    numbers = {
        "z": z, "z_limit": limit, "z_limit_each": limit_each, "score": float(score.mean()),
        "expected": float(expected.score.mean()),
        "opponents": {
            p: {**t.as_dict(), "expected": float(e), "z": float(z_i)}
            for p, t, e, z_i in zip(sample, tables, expected.score, each, strict=True)
        },
    }
    if collapsed:
        why = f"collapses against {', '.join(collapsed)}"
    elif z < limit:
        why = "weaker against the pool than the champion is predicted to be"
    else:
        why = "holds against the sample of the pool"
    return Condition("pool", not collapsed and z >= limit, why, battles, numbers)


def stratified_sample(
    pool: Sequence[str], ratings: Ratings, members: int, rng: np.random.Generator
) -> list[str]:
    """One member from each of ``members`` equal-count strata of the pool, by rating.

    A plain draw from a pool of many late, near-equal snapshots would hardly ever meet an early one.

    Args:
        pool: ids; those without a rating are left out, since nobody knows which stratum they belong to.
        ratings: of the pool.
        members: how many; all of the pool if it has no more.
        rng: of a named stream.

    Returns:
        Distinct ids, weakest first.
    """
    rated = sorted((r.elo, p) for p in set(pool) if (r := ratings.of(p)) is not None)
    strata = np.array_split(np.arange(len(rated)), min(members, len(rated))) if rated else []
    return [rated[int(rng.choice(stratum))][1] for stratum in strata]
