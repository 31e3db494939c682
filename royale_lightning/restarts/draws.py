"""Weighted choices from named streams: the same address gives the same choice, whoever asks and when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..battle.streams import uniforms


def draw(seed: int, stream: str, battle: int, ordinal: int, count: int) -> list[float]:
    """``count`` uniform draws in [0, 1) that belong to one episode of one battle."""
    return [float(u) for u in uniforms(seed, stream, battle, ordinal, np.arange(count))]


def pick(weights: Sequence[float], u: float) -> int:
    """The index that a uniform draw falls on, an entry's chance being its share of the weights.

    Raises:
        ValueError: no weight is above 0.
    """
    sums = list(accumulate(weights))
    if not sums or sums[-1] <= 0.0:
        raise ValueError("a draw needs a weight above 0")
    target = u * sums[-1]
    for i, upper in enumerate(sums):
        if target < upper:
            return i
    # u * sum may round up to the sum.
    return max(i for i, w in enumerate(weights) if w > 0.0)
