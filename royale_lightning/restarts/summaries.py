"""What can be said of many stored segments in a few numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .state import Segment


class MetricSummary(NamedTuple):
    """A metric over ``n`` segments; ``at_least`` of them are at or above the floor asked for."""

    n: int
    at_least: int
    mean: float
    low: float
    high: float


def metric_summary(segments: Iterable[Segment], metric: str, floor: float | None) -> MetricSummary | None:
    """None without segments.

    Raises:
        KeyError: a segment lacks the metric.
    """
    values = [s.metric(metric) for s in segments]
    if not values:
        return None
    at_least = 0 if floor is None else sum(v >= floor for v in values)
    return MetricSummary(len(values), at_least, sum(values) / len(values), min(values), max(values))


def coverage(segments: Iterable[Segment]) -> tuple[int, int]:
    """Minted and wanted: how many of the segments that an episode may begin at the end of have a save state there."""
    wanted = [s for s in segments if s.eligible]
    return sum(s.end is not None for s in wanted), len(wanted)


def unminted(segments: Iterable[Segment]) -> bool:
    """Whether a save state is missing."""
    minted, wanted = coverage(segments)
    return minted < wanted
