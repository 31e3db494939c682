"""Groups, their weights, and what is drawn inside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.restarts.buckets import DROPPED, REPLACED, STORED, Entry, SegmentBuckets
from royale_lightning.restarts.cells import NEXT_HOP, TrajectoryCellStatistics
from royale_lightning.restarts.draws import pick
from royale_lightning.restarts.selection import SegmentTable, SelectionSettings, percentile_ranks, tabulate
from royale_lightning.restarts.state import Bucket, Reference
from royale_lightning.restarts.utilities import UTILITIES

from .points import segment

A, B, C = Bucket("m", (0, 0, 0)), Bucket("m", (0, 1, 1)), Bucket("m", (2, 0, 0))


def entry(n: int, steps: int = 10, **metrics: float) -> Entry:
    made = segment(0, steps, (0, 0, 0), (0, 0, 0), metrics=tuple(sorted(metrics.items())))
    return Entry(Reference(n, 0, 1), made)


HELD = [(A, entry(0, v=0.0)), (A, entry(1, v=3.0)), (B, entry(2, v=1.0)), (C, entry(3, v=2.0))]


def table(cells: TrajectoryCellStatistics | None = None, **given_: Any) -> SegmentTable:
    return tabulate(SelectionSettings(**given_), HELD, lambda e: True, cells or TrajectoryCellStatistics())


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
    cells = TrajectoryCellStatistics()
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
    none = tabulate(SelectionSettings(), HELD, lambda e: False, TrajectoryCellStatistics())
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


def test_cell_tables() -> None:
    cells = TrajectoryCellStatistics()
    assert cells.success_rate(A) is None
    assert (cells.route_cost(A), cells.route_value(A), cells.best_successor_value(A)) == (None, 0.0, 0.0)
    cells.record_start(A)
    cells.record_reach(A, [B, B, A, C])
    cells.record_path([A, A, B, A, B, C])
    cells.record_path([A, B])
    assert cells.reach(A) == {B: 1, C: 1}
    assert cells.successors(A) == {B: 2}
    assert cells.successors(B) == {A: 1, C: 1}
    cells.record_outcome(A, 1.0, True)
    cells.record_outcome(A, 0.5, True)
    assert cells.success_rate(A) == pytest.approx(0.525 * 0.95)
    assert cells.success_rate(A, NEXT_HOP) == pytest.approx(0.525 * 0.95 + 0.05)
    cells.record_win([A, B], 3000)
    cells.record_win([B], 2000)
    assert (cells.route_cost(A), cells.route_cost(B), cells.route_cost(C)) == (3000, 2000, None)
    cells.record_value([A, B], won=True)
    assert (cells.route_value(B), cells.route_value(A)) == (1.0, pytest.approx(0.98))
    cells.record_value([A, B], won=False)
    assert cells.route_value(A) == pytest.approx(0.98), "a loss hides no win"
    cells.record_value([C, A], won=False)
    assert cells.route_value(C) == pytest.approx(0.98**2)
    assert cells.best_successor_value(A) == 1.0
    assert cells.classes() == {"mastered": 0, "learning": 1, "struggling": 0}
    copy = TrajectoryCellStatistics()
    copy.load(cells.state())
    assert copy.state() == cells.state()
    told = {name: f(cells, A) for name, f in UTILITIES.items()}
    assert told == {
        "count_pressure": pytest.approx(2**-0.5), "competence": pytest.approx(4 * 0.49875 * 0.50125),
        "frontier": pytest.approx(1 - 0.54875), "discovery": 0.0, "branch_novelty": 0.0, "quick_win": -3000.0,
    }
    assert UTILITIES["quick_win"](cells, C) == float("-inf")
    assert UTILITIES["frontier"](cells, C) == 0.0
    assert UTILITIES["competence"](cells, C) == 1.0
