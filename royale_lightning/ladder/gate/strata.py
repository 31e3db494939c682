"""A few members that stand for a whole pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ratings.rating import Ratings


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
