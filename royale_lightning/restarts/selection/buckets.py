"""Stored segments by the bucket they end in, with a cap and a rule for who stays.

An episode that begins at a segment's end begins in that bucket, so a bucket holds the ways to begin in one situation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from ..records.points import Bucket
from ..records.route import Reference, Segment

FIFO, PRIORITY = "fifo", "priority"
RETENTIONS = (FIFO, PRIORITY)
STORED, REPLACED, DROPPED = "stored", "replaced", "dropped"


class Entry(NamedTuple):
    """One segment in a bucket."""

    reference: Reference
    segment: Segment


class Insert(NamedTuple):
    """What became of a segment: ``outcome``, and the entry it drove out."""

    outcome: str
    evicted: Entry | None


@dataclass
class SegmentBuckets:
    """Buckets of segments.

    Args:
        capacity: entries a bucket keeps.
        retention: ``fifo`` always accepts and drops the oldest; ``priority`` keeps the segments of highest ``metric``,
            of equal ones the longest.
        metric: the segments' metric that ``priority`` compares.
    """

    capacity: int
    retention: str = FIFO
    metric: str | None = None

    def __post_init__(self) -> None:
        self._buckets: dict[Bucket, list[Entry]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def entries(self) -> Iterator[tuple[Bucket, Entry]]:
        """Every entry, buckets ascending, oldest first inside."""
        for bucket in sorted(self._buckets):
            for entry in self._buckets[bucket]:
                yield bucket, entry

    def view(self) -> Mapping[Bucket, list[Entry]]:
        """Live and read-only."""
        return MappingProxyType(self._buckets)

    def insert(self, bucket: Bucket, entry: Entry) -> Insert:
        """Offer a segment.

        Raises:
            KeyError: ``priority`` compares a metric that the segment lacks.
        """
        if self.retention == PRIORITY:
            self._rank(entry)
        held = self._buckets.setdefault(bucket, [])
        if len(held) < self.capacity:
            held.append(entry)
            return Insert(STORED, None)
        if self.retention == FIFO:
            held.append(entry)
            return Insert(REPLACED, held.pop(0))
        at = min(range(len(held)), key=lambda i: self._rank(held[i]))
        if self._rank(entry) <= self._rank(held[at]):
            return Insert(DROPPED, None)
        evicted, held[at] = held[at], entry
        return Insert(REPLACED, evicted)

    def _rank(self, entry: Entry) -> tuple[float, int]:
        assert self.metric is not None
        return entry.segment.metric(self.metric), entry.segment.game_steps

    def refresh(self, route_id: int, segments: tuple[Segment, ...]) -> None:
        """A route's segments have changed (save states minted): show the new ones."""
        for held in self._buckets.values():
            for i, (reference, _) in enumerate(held):
                if reference.route == route_id:
                    held[i] = Entry(reference, segments[reference.first])

    def state(self) -> list[Any]:
        return [[*b, [list(e.reference) for e in held]] for b, held in sorted(self._buckets.items())]

    def load(self, state: list[Any], segment_of: Callable[[Reference], Segment]) -> None:
        """Take over :meth:`state` (as much of it as the capacity allows now); ``segment_of`` looks segments up."""
        self._buckets = {}
        for partition, key, references in state:
            for packed in references:
                reference = Reference(*packed)
                self.insert(Bucket(partition, tuple(key)), Entry(reference, segment_of(reference)))
