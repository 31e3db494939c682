"""What restarts tell the metric row."""

from __future__ import annotations

import pytest

from royale_lightning.restarts.row_metrics import curriculum_counts, curriculum_figures, pool_counts, pool_figures
from tests.support.restarts import CELLS, full_pool, minted, route, walked


def test_a_row_tells_what_the_pool_holds_and_what_happened() -> None:
    scheduler = full_pool()
    row = pool_figures(scheduler, {})
    assert (row["restarts/points"], row["restarts/buckets"], row["restarts/imported"]) == (2, 2, 2)
    assert (row["restarts/restarts"], row["restarts/scored"], row["restarts/in_flight"]) == (120, 120, 0)
    assert row["restarts/busiest_share"] == pytest.approx(0.5)
    assert (row["restarts/advance_rate"], row["restarts/decided"]) == (0.5, 1.0)
    assert (row["restarts/deepest_crowns"], row["restarts/deepest_hp"]) == (1, 1)
    again = pool_figures(scheduler, pool_counts(scheduler))
    assert (again["restarts/points"], again["restarts/restarts"], again["restarts/scored"]) == (2, 0, 0)


def test_a_row_tells_where_the_fronts_stand() -> None:
    store = walked().store
    assert store is not None
    row = curriculum_figures(store, {})
    assert (row["curriculum/archived"], row["curriculum/routes"], row["curriculum/walking"]) == (1, 1, 1)
    assert (row["curriculum/rate"], row["curriculum/coverage"], row["curriculum/served"]) == (0.5, 1.0, 1)
    assert row["curriculum/front_steps_left"] == minted(route(CELLS)).last_step - 80
    assert (row["curriculum/best_crowns"], row["curriculum/best_ticks"]) == (1, 10 * minted(route(CELLS)).last_step)
    assert curriculum_figures(store, curriculum_counts(store))["curriculum/served"] == 0
