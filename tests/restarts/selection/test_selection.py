"""Groups, their weights, and what is drawn inside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.restarts.records.points import Bucket
from royale_lightning.restarts.selection.selection import (
    SegmentTable,
    SelectionSettings,
    percentile_ranks,
    pick,
    tabulate,
)
from royale_lightning.restarts.selection.statistics import BucketStatistics
from tests.support.restarts import entry

A, B, C = Bucket("m", (0, 0, 0)), Bucket("m", (0, 1, 1)), Bucket("m", (2, 0, 0))


HELD = [(A, entry(0, v=0.0)), (A, entry(1, v=3.0)), (B, entry(2, v=1.0)), (C, entry(3, v=2.0))]


def table(cells: BucketStatistics | None = None, **given_: Any) -> SegmentTable:
    return tabulate(SelectionSettings(**given_), HELD, lambda e: True, cells or BucketStatistics())


@pytest.mark.parametrize(
    ("given_", "groups", "weights"),
    [
        ({}, [A, B, C], [1, 1, 1]),
        ({"group_weight": "entry_count"}, [A, B, C], [2, 1, 1]),
        ({"group_by": 1, "group_weight": "distinct_store_keys"}, [Bucket("m", (0,)), Bucket("m", (2,))], [2, 1]),
        ({"group_by": 0}, [Bucket("m", ())], [1]),
        ({"metric": "v", "minimum": 1.5}, [A, C], [1, 1]),
    ],
)
def test_groups_and_weights(given_: dict, groups: list, weights: list) -> None:
    made = table(**given_)
    assert list(made.groups) == groups
    assert list(made.weights) == weights


def test_a_blend_ranks_and_leaves_nobody_out() -> None:
    cells = BucketStatistics()
    for cell, n in ((A, 9), (B, 3)):
        for _ in range(n):
            cells.record_visit(cell)
    made = table(cells, group_weight="utility_blend", blend={"count_pressure": 2.0})
    assert made.weights == pytest.approx((0.1, 0.5, 1.0)), "the most visited is last, and still met"
    even = table(cells, group_weight="utility_blend", blend={"count_pressure": 0.0})
    assert even.weights == (1.0, 1.0, 1.0), "weights of zero mean no preference, not no samples"


@given(st.lists(st.integers(0, 5), max_size=12))
def test_percentile_ranks(values: list[int]) -> None:
    ranks = percentile_ranks(values)
    if len(set(values)) < 2:
        assert ranks == [1.0] * len(values)
        return
    for v, rank in zip(values, ranks, strict=True):
        places = [i for i, w in enumerate(sorted(values)) if w == v]
        assert rank == pytest.approx(sum(places) / len(places) / (len(values) - 1))


def test_draws_follow_the_weights_and_their_address() -> None:
    made = table(group_weight="entry_count", metric="v", weighted_probability=1.0, temperature=0.5)
    drawn = [made.draw(1, "s", 0, o) for o in range(3000)]
    assert drawn == [made.draw(1, "s", 0, o) for o in range(3000)]
    count = Counter(e.reference.route for e in drawn if e)
    assert count[2] / 3000 == pytest.approx(0.25, abs=0.04)
    assert count[3] / 3000 == pytest.approx(0.25, abs=0.04)
    assert count[1] > 20 * count[0], "softmax of a difference of 3 at temperature 0.5"
    even = table(group_weight="entry_count")
    count = Counter(e.reference.route for o in range(3000) if (e := even.draw(1, "s", 0, o)))
    assert all(count[i] / 3000 == pytest.approx(0.25, abs=0.04) for i in range(4))
    none = tabulate(SelectionSettings(), HELD, lambda e: False, BucketStatistics())
    assert none.draw(1, "s", 0, 0) is None


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6).filter(lambda w: sum(w) > 0), st.floats(0, 1))
def test_pick_is_an_entry_with_a_weight(weights: list[float], u: float) -> None:
    assert weights[pick(weights, u)] > 0.0


def test_pick_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="above 0"):
        pick([0.0, 0.0], 0.5)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"group_by": 4}, "group_by"), ({"group_weight": "best"}, "group_weight"),
        ({"blend": {"frontier": 1}}, "blend"),
        ({"group_weight": "utility_blend", "blend": {"luck": 1.0}}, "luck"), ({"floor": 0.0}, "floor"),
        ({"weighted_probability": 0.5}, "metric"), ({"minimum": 0.5}, "metric"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(bad: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        SelectionSettings(**bad)
