"""Which seeds the ladder's battles are played on: ranges that never meet.

All are small numbers, and battles of training have seeds of 63 hashed bits: nobody trained on these. ``test`` and
``evaluate`` start at ``measure.DEFAULT_SEED``, far below.
"""

from __future__ import annotations

from ..errors import UserError

#: Seeds one stage of one gate may use.
SEEDS_PER_STAGE = 50_000
_ANCHORS, _GATES, _RATINGS = 900_000_000, 1_000_000_000, 500_000_000_000


def anchor_seeds(pairs: int) -> range:
    """The frozen list on which every candidate and champion meets the anchors, so that they can be compared seed by
    seed and a champion's battles are played once."""
    return range(_ANCHORS, _ANCHORS + pairs)


def gate_seeds(gate: int, stage: int, first: int, pairs: int) -> range:
    """Fresh seeds of a gate: a candidate tuned on old ones, by chance or otherwise, gains nothing.

    Args:
        gate: the gate's number in the run, from 0.
        stage: 0 or 1.
        first: how many of the stage's seeds are used up.
        pairs: how many are wanted.
    """
    if first + pairs > SEEDS_PER_STAGE:
        raise UserError(f"a gate's stage asks for {first + pairs} seeds; at most {SEEDS_PER_STAGE} are set aside")
    start = _GATES + (2 * gate + stage) * SEEDS_PER_STAGE + first
    return range(start, start + pairs)


def rating_seeds(block: int, pairs: int) -> range:
    """Fresh seeds of a rating match.

    Args:
        block: a counter over the run's rating matches, from 0.
        pairs: at most :data:`SEEDS_PER_STAGE`.
    """
    if pairs > SEEDS_PER_STAGE:
        raise UserError(f"a rating match asks for {pairs} seeds; at most {SEEDS_PER_STAGE} are set aside")
    start = _RATINGS + block * SEEDS_PER_STAGE
    return range(start, start + pairs)
