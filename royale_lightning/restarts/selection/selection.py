"""Weighted choices: of anything, from named streams (:func:`draw`, :func:`pick`); and of a stored segment, a group by
weight and then an entry inside it.

A choice is addressed and not queued: the same address gives the same choice, whoever asks and when.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ...battle.streams import uniforms
from ...errors import UserError
from ..records.key import LABELS
from ..records.points import Bucket
from .buckets import Entry
from .statistics import UTILITIES, BucketStatistics

UNIFORM, ENTRY_COUNT, STORE_KEYS, BLEND = "uniform", "entry_count", "distinct_store_keys", "utility_blend"
GROUP_WEIGHTS = (UNIFORM, ENTRY_COUNT, STORE_KEYS, BLEND)


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


@dataclass(frozen=True)
class SelectionSettings:
    """How a stored segment is drawn.

    Args:
        group_by: how many leading labels of the key form a group; 3 is the whole key, 0 puts each match-up in one bag.
            The groups decide how practice spreads.
        group_weight: ``uniform``; ``entry_count``; ``distinct_store_keys`` (buckets in the group); or
            ``utility_blend`` of ``blend``.
        blend: utility name to weight; each utility counts by its rank among the groups, since their scales differ.
        floor: least weight of a group beside the heaviest, so that the lowest ranked is still met.
        weighted_probability: share of draws inside a group that follow ``metric`` instead of being even.
        metric: of the segments; larger is drawn more.
        temperature: of the softmax over ``metric``.
        minimum: segments whose ``metric`` is below are no candidates.
    """

    group_by: int = len(LABELS)
    group_weight: str = UNIFORM
    blend: Mapping[str, float] | None = None
    floor: float = 0.1
    weighted_probability: float = 0.0
    metric: str | None = None
    temperature: float = 1.0
    minimum: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.group_by <= len(LABELS):
            raise UserError(f"group_by is {self.group_by}; give 0 to {len(LABELS)}, the labels of a key")
        if self.group_weight not in GROUP_WEIGHTS:
            raise UserError(f"group_weight is {self.group_weight!r}; give one of {', '.join(GROUP_WEIGHTS)}")
        if (self.group_weight == BLEND) != bool(self.blend):
            raise UserError(f"blend is {self.blend!r} and group_weight {self.group_weight!r}; the two go together")
        for name, weight in (self.blend or {}).items():
            if name not in UTILITIES or weight < 0.0:
                raise UserError(f"blend gives {name!r} the weight {weight}; name {', '.join(UTILITIES)}, from 0 up")
        if not 0.0 < self.floor <= 1.0 or not 0.0 <= self.weighted_probability <= 1.0 or self.temperature <= 0.0:
            raise UserError(
                f"floor {self.floor} lies in (0, 1], weighted_probability {self.weighted_probability} in [0, 1] and "
                f"temperature {self.temperature} above 0"
            )
        if self.metric is None and (self.weighted_probability > 0.0 or self.minimum is not None):
            raise UserError("weighted_probability and minimum speak of a metric; name it in metric")


@dataclass(frozen=True)
class SegmentTable:
    """Candidates frozen for an iteration: groups in order, with their weights."""

    settings: SelectionSettings
    groups: tuple[Bucket, ...]
    weights: tuple[float, ...]
    entries: tuple[tuple[Entry, ...], ...]

    def draw(self, seed: int, stream: str, battle: int, ordinal: int) -> Entry | None:
        """The entry at this address of a named stream; None without candidates."""
        if not self.groups:
            return None
        first, second, third = draw(seed, stream, battle, ordinal, 3)
        inside = self.entries[pick(self.weights, first)]
        s = self.settings
        if s.metric is None or second >= s.weighted_probability:
            return inside[pick([1.0] * len(inside), third)]
        values = [e.segment.metric(s.metric) / s.temperature for e in inside]
        top = max(values)
        return inside[pick([math.exp(v - top) for v in values], third)]


def tabulate(
    settings: SelectionSettings,
    entries: Sequence[tuple[Bucket, Entry]],
    eligible: Callable[[Entry], bool],
    statistics: BucketStatistics,
) -> SegmentTable:
    """Group the eligible entries and weigh the groups.

    Args:
        entries: of all buckets, ascending.
        eligible: which of them are candidates.
        statistics: what utilities read. A group's utility is the largest of its buckets'.
    """
    groups: dict[Bucket, list[tuple[Bucket, Entry]]] = {}
    for bucket, entry in entries:
        low = settings.minimum is not None and settings.metric is not None and (
            entry.segment.metric(settings.metric) < settings.minimum
        )
        if eligible(entry) and not low:
            groups.setdefault(Bucket(bucket.partition, bucket.key[: settings.group_by]), []).append((bucket, entry))
    held = list(groups.values())
    if settings.group_weight == ENTRY_COUNT:
        weights = [float(len(g)) for g in held]
    elif settings.group_weight == STORE_KEYS:
        weights = [float(len({b for b, _ in g})) for g in held]
    elif settings.group_weight == BLEND:
        weights = _blend(settings, held, statistics)
    else:
        weights = [1.0] * len(held)
    return SegmentTable(settings, tuple(groups), tuple(weights), tuple(tuple(e for _, e in g) for g in held))


def _blend(
    settings: SelectionSettings, held: Sequence[Sequence[tuple[Bucket, Entry]]], statistics: BucketStatistics
) -> list[float]:
    weights = [0.0] * len(held)
    for name, weight in (settings.blend or {}).items():
        values = [max(UTILITIES[name](statistics, b) for b, _ in g) for g in held]
        for i, rank in enumerate(percentile_ranks(values)):
            weights[i] += weight * rank
    top = max(weights, default=0.0)
    return [max(settings.floor, w / top) if top > 0.0 else 1.0 for w in weights]


def percentile_ranks(values: Sequence[float]) -> list[float]:
    """Each value's rank from 0 (lowest) to 1; equal values share the mean of theirs, and all equal give 1."""
    ordered = sorted(values)
    n = len(values)
    if n < 2 or ordered[0] == ordered[-1]:
        return [1.0] * n
    return [(bisect_left(ordered, v) + bisect_right(ordered, v) - 1) / (2.0 * (n - 1)) for v in values]
