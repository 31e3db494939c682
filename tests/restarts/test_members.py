"""The package's page keeps its word: each member of theirs has ours and a reason, and each of ours is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from royale_lightning.restarts.pool.pool import PoolSettings, RestartPool
from royale_lightning.restarts.routes.borrowed_names import TrajectoryStore
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.store import StoreSettings
from tests.support.restarts import STAMP

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "royale_lightning" / "restarts" / "README.md").read_text(encoding="utf-8")

#: Every public member of the described system's two classes.
THEIRS = {
    "RestartPool": """
        choose record_episode record_timeout advance_rates selection_weights diagnostics export_points import_points
    """,
    "TrajectoryStore": """
        bucket_count wins_recorded record_win cell_statistics backward_curriculum archived_best_route
        archived_max_priority archived_path_count archived_route_ids archived_route_priorities add_path
        sample_replay_with_reference sample_start_with_reference sample_curriculum_start refresh_backward_curriculum
        curriculum_route_needing_frame_stacks set_frame_stacks curriculum_frame_stack_coverage
        curriculum_route_needing_action_restarts set_action_restarts curriculum_action_restart_coverage
        paths_needing_frame_stacks frame_stack_coverage materialize_prefix_segments materialize_slice retain_reference
        release_reference repository_path repository_diagnostics replay_metric_summary start_metric_summary
        segment_buckets_view segment_debug_bucket_weights runtime_state_dict load_runtime_state_dict
    """,
}
OURS: dict[str, Any] = {
    "RestartPool": RestartPool(PoolSettings(), 1, STAMP),
    "TrajectoryStore": TrajectoryStore(StoreSettings(curriculum=CurriculumSettings()), 1, STAMP),
}
#: Settings, counters and parts: data, documented where they are set.
DATA = {
    "settings", "seed", "stamp", "counts", "outcomes", "wins", "repository", "archive", "buckets", "statistics",
    "curriculum",
}


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, as cells."""
    body = re.split(rf"^#+ {heading}$", PAGE, flags=re.M)[1].split("\n#")[0]
    rows = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("kind", sorted(THEIRS))
def test_every_member_of_theirs_has_ours_and_a_reason(kind: str) -> None:
    rows = table(kind)
    assert [names(theirs)[0] for theirs, _, _ in rows] == THEIRS[kind].split()
    for _, ours, reason in rows:
        (name,) = names(ours)
        owner, member = name.split(".")
        assert hasattr(OURS[owner], member), f"{name} is named and does not exist"
        assert len(reason) >= len("The same."), name


@pytest.mark.parametrize("kind", sorted(THEIRS))
def test_every_member_of_ours_is_told(kind: str) -> None:
    told = {name for row in table(kind) for name in names(row[1])}
    told |= {name for row in table("Ours alone") for name in names(row[0])}
    told = {name.split(".")[1] for name in told if name.startswith(f"{kind}.")}
    public = {name for name in dir(OURS[kind]) if not name.startswith("_")} - DATA
    assert public == told


def test_every_invariant_has_its_tests() -> None:
    numbers: list[int] = []
    for invariant, tests in table("What is tested"):
        what = invariant.split(":")[0]
        for part in what.split(","):
            low, _, high = part.partition(" to ")
            numbers += range(int(low), int(high or low) + 1)
        for name in names(tests):
            path, _, test = name.partition("::")
            source = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^(def|class) {test}\b", source, flags=re.M), f"{name} is named and does not exist"
    assert sorted(numbers) == list(range(1, 31))
