"""What is written into the tables by bucket, and what utilities read off them."""

from __future__ import annotations

import pytest

from royale_lightning.restarts.records.points import Bucket
from royale_lightning.restarts.selection.statistics import NEXT_HOP, UTILITIES, BucketStatistics

A, B, C = Bucket("m", (0, 0, 0)), Bucket("m", (0, 1, 1)), Bucket("m", (2, 0, 0))


def test_tables_and_utilities() -> None:
    cells = BucketStatistics()
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
    copy = BucketStatistics()
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
