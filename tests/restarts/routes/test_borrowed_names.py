"""The store under the names of the system it was specified from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from royale_lightning.restarts.records.route import Reference, Route
from royale_lightning.restarts.routes.borrowed_names import MetricSummary, TrajectoryStore
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.store import StoreSettings
from tests.support.restarts import STAMP, end_of, minted, point, route

PATH = [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 2), (2, 2, 2)]


def store(**changed: Any) -> TrajectoryStore:
    settings = {"curriculum": CurriculumSettings(window=2, grace=0, first_steps=20), **changed}
    return TrajectoryStore(StoreSettings(**settings), 1, STAMP)


def rated(made: Route, value: float) -> Route:
    """With a metric that summaries are of."""
    return replace(made, segments=tuple(replace(s, metrics=(("v", value),)) for s in made.segments))


def test_nothing_recorded_changes_nothing() -> None:
    made = store()
    before = made.runtime_state_dict()
    assert made.add_path(None) == []
    assert made.runtime_state_dict() == before
    assert (made.archived_best_route, made.archived_max_priority) == (None, None)
    assert (made.sample_start_with_reference(0, 0), made.sample_curriculum_start(0, 0)) == (None, None)
    assert made.sample_replay_with_reference(0, 0) is None
    assert made.segment_debug_bucket_weights("start") == []
    assert made.replay_metric_summary("v") is None


def test_each_name_says_what_ours_says() -> None:
    made = store()
    made.add_path(minted(route(PATH)))
    made.record_win()
    made.judge_route(0, lucky=False)
    made.freeze()
    assert made.refresh_backward_curriculum() == made.archived_route_ids == made.archive.ids == [0]
    assert (made.wins_recorded, made.archived_path_count, made.bucket_count) == (1, 1, len(made.buckets))
    assert made.cell_statistics is made.statistics
    assert made.backward_curriculum is made.curriculum
    assert made.archived_best_route is made.repository_path(0) is made.repository[0]
    assert made.archived_route_priorities == {0: made.archived_max_priority} == made.archive.priorities
    for ordinal in range(20):
        assert made.sample_start_with_reference(0, ordinal) == made.bucket_start(0, ordinal) is not None
        assert made.sample_curriculum_start(0, ordinal) == made.curriculum_start(0, ordinal) is not None
    before = made.repository_diagnostics()["holds"]
    made.retain_reference(Reference(0, 0, 1), "me")
    assert made.repository_diagnostics()["holds"] == before + 1
    made.release_reference(Reference(0, 0, 1), "me")
    with pytest.raises(KeyError, match="'me' does not hold"):
        made.release_reference(Reference(0, 0, 1), "me")
    copy = store()
    copy.load_runtime_state_dict(made.runtime_state_dict())
    assert copy.runtime_state_dict() == made.runtime_state_dict() == made.state()


def test_save_states_are_attached_later() -> None:
    bare = store()
    bare.add_path(route(PATH))
    bare.judge_route(0, lucky=False)
    bare.freeze()
    assert bare.sample_curriculum_start(0, 0) is None, "nothing is minted"
    assert (bare.curriculum_route_needing_frame_stacks(), bare.paths_needing_frame_stacks(9)) == (0, [0])
    assert bare.paths_needing_frame_stacks(0) == []
    assert (bare.curriculum_frame_stack_coverage(), bare.frame_stack_coverage()) == ((0, 3), (0, 3))
    with pytest.raises(ValueError, match="not the end of segment 0"):
        bare.set_frame_stacks(0, {0: point(1)})
    assert bare.set_frame_stacks(0, {i: end_of(route(PATH), i) for i in range(3)})
    assert (bare.curriculum_route_needing_frame_stacks(), bare.paths_needing_frame_stacks(9)) == (None, [])
    assert bare.curriculum_frame_stack_coverage() == (3, 3)
    assert bare.sample_curriculum_start(0, 0) is not None
    fine = store(curriculum=CurriculumSettings(decision_granular=True))
    fine.add_path(route(PATH))
    assert (fine.curriculum_route_needing_frame_stacks(), fine.curriculum_route_needing_action_restarts()) == (None, 0)
    assert fine.set_action_restarts(0, {t: point(t, game_step=t) for t in range(1, 81)})
    assert fine.curriculum_action_restart_coverage() == (79, 79)
    assert fine.curriculum_route_needing_action_restarts() is None


def test_slices_come_from_the_archive_and_from_buckets_while_it_is_empty() -> None:
    made = store()
    made.add_path(minted(route(PATH, won=False)))
    made.freeze()
    found = [made.sample_replay_with_reference(0, i) for i in range(40)]
    assert {r.route for r in found} == {0}
    assert len(made.segment_debug_bucket_weights("replay")) == 4
    assert sum(share for _, _, share in made.segment_debug_bucket_weights("replay")) == pytest.approx(1.0)
    made.add_path(minted(route(PATH)))
    found = [made.sample_replay_with_reference(0, i) for i in range(40)]
    assert {r.route for r in found} == {1}
    assert {r.first for r in found} == {0, 1, 2, 3}
    assert found == [made.sample_replay_with_reference(0, i) for i in range(40)]
    cut = made.materialize_slice(found[0], 16, 48)
    assert 16 <= 20 * (cut.reference.stop - cut.reference.first) <= 48
    with pytest.raises(KeyError, match="not stored"):
        made.materialize_slice(Reference(9, 0, 1))
    with pytest.raises(ValueError, match="no segments"):
        made.materialize_prefix_segments(Reference(1, 0, 0))


def test_metric_summaries() -> None:
    made = store()
    for value in (1.0, 4.0):
        made.add_path(rated(minted(route(PATH, source=(0, int(value)))), value))
    assert made.replay_metric_summary("v", floor=2.0) == MetricSummary(8, 4, 2.5, 1.0, 4.0)
    assert made.start_metric_summary("v") == MetricSummary(6, 0, 2.5, 1.0, 4.0)
    with pytest.raises(KeyError, match="no metric 'w'"):
        made.start_metric_summary("w")
