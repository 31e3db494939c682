"""Declarations and what runs emit, held to each other both ways."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.round import EpisodeRecord
from royale_lightning.battle.rows.layout import Loss
from royale_lightning.metrics.declarations import METRICS, declared, repeats, undeclared
from royale_lightning.metrics.process import process_figures
from royale_lightning.metrics.readme import PATH, page
from royale_lightning.metrics.row import PARTS
from royale_lightning.restarts.row_metrics import curriculum_figures, pool_figures
from royale_lightning.rollout.measures import (
    SEAT_LEAST,
    TrainingScores,
    battle_figures,
    play_figures,
    source_counts,
    source_figures,
)
from tests.support.restarts import full_pool, walked

Rows = list[dict[str, float]]
WON = EpisodeRecord(
    battle=0, ordinal=1, players=("learner", "scripted:push"), seed=1, winner=0, truncated=False, ticks=3600,
    game_steps=360, crowns=(1, 0), tower_hp=(1.0, 0.5), returns=(2.0, -2.0), discounted=(1.0, -1.0), choices=(9, 9),
    plays=(5, 5), leak_steps=(0, 0),
)
#: Needs what this machine has not, battles of a minute (tests/callbacks/test_ladder_run.py looks at those) or a rollout
#: collected ahead (tests/rollout/test_overlap.py).
ELSEWHERE = {
    "health/gpu_memory_mb", "health/gpu_free_mb", "ladder/rating", "ladder/rating_se", "ladder/rating_separable",
    "ladder/champion_rating", "ladder/over_champion", "ladder/over_champion_se", "time/wait",
    "ppo/behaviour_weight", "ppo/behaviour_weight_largest", "ppo/value_loss_actor",
}


def test_every_emitted_key_is_declared(run_rows: Rows) -> None:
    assert undeclared({k for row in run_rows for k in row}) == []


def test_every_unconditional_key_is_in_every_row(run_rows: Rows) -> None:
    always = {m.name for m in METRICS if not m.when}
    for row in run_rows:
        assert always - set(row) == set()


def test_every_conditional_key_is_emitted_where_its_condition_holds(run_rows: Rows) -> None:
    """The run's own, and those whose condition a run of seconds does not meet, from the functions that measure them."""
    emitted = {k for row in run_rows for k in row}
    battles = [WON, replace(WON, winner=1, returns=(-2.0, 2.0)), replace(WON, players=("learner", "0123abcd"))]
    emitted |= set(battle_figures(battles))
    many = np.arange(1, 201)
    emitted |= set(play_figures(many, np.tile(np.arange(4), (200, 1)), many > 0, ActionLayout(), ["a", "b", "c", "d"]))
    scores = TrainingScores()
    scores.add([*battles, *[replace(WON, players=("learner", "learner"))] * SEAT_LEAST])
    emitted |= set(scores.figures())
    lost: Any = SimpleNamespace(faults={"killed": 1, "hung": 0, "raised": 0}, battles_voided=1, rows_voided=2)
    source: Any = SimpleNamespace(loss=lambda: Loss(0, 0), refused=lambda: 0)
    emitted |= set(source_figures(lost, source_counts(source), {}, processes=True))
    emitted |= set(process_figures(children=True))
    store = walked().store
    assert store is not None
    emitted |= {*pool_figures(full_pool(), {}), *curriculum_figures(store, {})}
    emitted.add("start/true/score")  # of by_start, tested with it
    found = {m.name for k in emitted if (m := declared(k)) is not None}
    assert {m.name for m in METRICS if m.when} - found == ELSEWHERE


def test_times_add_up_to_the_iteration(run_rows: Rows) -> None:
    for row in run_rows:
        parts = [row.get(f"time/{p}", 0.0) for p in (*PARTS, "rest")]
        assert sum(parts) == pytest.approx(row["time/iteration"], abs=1e-9)
        assert min(parts) > -1e-3
    assert "time/checkpoint" not in run_rows[0]
    assert all(row["time/checkpoint"] > 0 for row in run_rows[1:])


def test_parts_of_the_time_are_declared() -> None:
    own = {m.name for m in METRICS if m.group == "time"}
    assert own == {"time/iteration", "time/rest", *(f"time/{p}" for p in PARTS)}


def test_what_a_second_run_repeats_leaves_out_clocks_and_memory() -> None:
    assert repeats("ppo/loss")
    assert repeats("my/own")
    run = (
        "time/step", "speed/rows_per_s", "health/memory_mb", "health/workers_lost", "alarm/kl_high",
        "ladder/time_share",
    )
    assert not any(map(repeats, run))


def test_declarations_are_whole_and_unique() -> None:
    names = [m.name for m in METRICS]
    assert len(set(names)) == len(names)
    assert all(m.meaning and m.population for m in METRICS)


def test_a_family_covers_one_part_of_a_name() -> None:
    assert declared("score/push").name == "score/<opponent>"  # type: ignore[union-attr]
    assert declared("score/scripted").name == "score/scripted"  # type: ignore[union-attr]
    assert declared("card/Elixir Collector/play_rate") is not None
    assert declared("score/a/b") is None
    assert undeclared(["iteration", "my/own"]) == ["my/own"]


def test_the_readme_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == page(), "run python -m royale_lightning.metrics.readme"


def test_metrics_know_no_torch() -> None:
    code = "import sys; from royale_lightning.metrics import readme, process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_resident_memory_and_files_follow_what_is_held(tmp_path: Any) -> None:
    before = process_figures(children=False)
    held = np.ones(8_000_000)
    files = [(tmp_path / str(i)).open("w") for i in range(5)]
    after = process_figures(children=True)
    for f in files:
        f.close()
    assert after["health/memory_mb"] - before["health/memory_mb"] > 0.8 * held.nbytes / 1e6
    assert after["health/file_handles"] - before["health/file_handles"] == 5
    assert after["health/workers_memory_mb"] >= 0
