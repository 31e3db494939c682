"""Which segments a bucket keeps."""

from __future__ import annotations

import pytest

from royale_lightning.restarts.records.points import Bucket
from royale_lightning.restarts.selection.buckets import DROPPED, REPLACED, STORED, SegmentBuckets
from tests.support.restarts import entry

A, B = Bucket("m", (0, 0, 0)), Bucket("m", (0, 1, 1))


def test_fifo_keeps_the_newest() -> None:
    held = SegmentBuckets(2)
    outcomes = [held.insert(A, entry(i)) for i in range(3)]
    assert [o.outcome for o in outcomes] == [STORED, STORED, REPLACED]
    assert outcomes[2].evicted == entry(0)
    assert [e.reference.route for _, e in held.entries()] == [1, 2]


def test_priority_keeps_the_best_and_of_equals_the_longest() -> None:
    held = SegmentBuckets(2, "priority", "v")
    for e in (entry(0, v=1.0), entry(1, v=2.0)):
        held.insert(A, e)
    assert held.insert(A, entry(2, v=0.5)).outcome == DROPPED
    assert held.insert(A, entry(3, v=1.0)).outcome == DROPPED
    assert held.insert(A, entry(4, steps=11, v=1.0)) == (REPLACED, entry(0, v=1.0))
    assert held.insert(A, entry(5, v=5.0)) == (REPLACED, entry(4, steps=11, v=1.0))
    with pytest.raises(KeyError, match="no metric 'v'"):
        held.insert(B, entry(6))
