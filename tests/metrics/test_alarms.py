"""Every alarm: a planted fault trips it after its patience, and a recorded healthy run trips none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.round import CHOICE, Assignment, EpisodeRecord
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.errors import UserError
from royale_lightning.metrics.alarms import HALT, FellFromBest, Grew, NonFinite, Panel, Threshold, assemble
from royale_lightning.metrics.declarations import declared
from royale_lightning.metrics.shipped import shipped_alarms
from royale_lightning.rollout.measures import (
    TrainingScores,
    battle_figures,
    play_figures,
    source_counts,
    source_figures,
)

Row = dict[str, float]
#: A run of configs/first_bot.yaml on two busy cores, its figures to four digits and without those of single cards.
HEALTHY: list[Row] = [json.loads(x) for x in (Path(__file__).parent / "healthy.jsonl").read_text().splitlines()]
NAMES = [a.name for a in shipped_alarms()]
#: What each alarm is there for, as the figures that then stand in a row.
PLANTS: dict[str, Row] = {
    "nonfinite": {"ppo/value_loss": float("nan")},
    "actions_refused": {"health/actions_refused": 3.0},
    "ratio_error": {"ppo/ratio_error": 0.3},
    "codec_rounded": {"health/codec_rounded": 1.0},
    "codec_clipped": {"health/codec_clipped": 7.0},
    "clip_pinned": {"ppo/clip_fraction": 0.7},
    "kl_high": {"ppo/approx_kl": 0.08},
    "kl_dead": {"ppo/approx_kl": 1e-7},
    "dual_clip": {"ppo/dual_clip_fraction": 0.2},
    "value_useless": {"ppo/explained_variance": -0.2},
    "value_gap": {"ppo/value_loss_forced": 1.0},
    "rewards_clipped": {"rollout/rewards_clipped": 12.0},
    "rows_unused": {"rollout/rows_unused": 0.4},
    "plays_stopped": {"policy/plays_per_minute": 0.2},
    "plays_few": {"policy/plays_per_minute": 1.0},
    "elixir_leaks": {"policy/leak_share": 0.7},
    "play_decided": {"ppo/entropy_play": 0.01},
    "tile_spam": {"policy/tile_top_share": 0.5},
    "artefact_exploit": {"policy/card_tile_top_share": 0.8},
    "draws": {"battle/draws": 0.9},
    "blue_favoured": {"battle/blue_low": 0.6},
    "red_favoured": {"battle/blue_high": 0.4},
    "reward_misleads": {"battle/return_agreement": 0.4},
    "forgetting": {"score/scripted": 0.3},
    "gate_starved": {"ladder/rejections": 5.0},
    "restarts_missing": {"restarts/restarts": 0.0, "restarts/wanted_share": 0.2},
    "restarts_few": {"start/pool/step_share": 0.01, "restarts/wanted_share": 0.2},
    "pool_empty": {"restarts/points": 0.0},
    "harvest_idle": {"restarts/offered": 0.0},
    "harvest_rejected": {"restarts/stored": 0.0, "restarts/offered": 9.0},
    "replays_failed": {"restarts/replays_failed": 1.0},
    "restarts_refused": {"restarts/refused": 1.0},
    "restarts_crashed": {"restarts/crashed": 1.0},
    "restarts_dead": {"restarts/dead_start": 2.0, "restarts/restarts": 8.0},
    "restarts_one_bucket": {"restarts/busiest_share": 0.7},
    "restarts_decided": {"restarts/decided": 0.9},
    "restarts_slow": {"time/restarts": 20.0, "time/iteration": 110.0},
    "archive_empty": {"curriculum/archived": 0.0},
    "routes_lucky": {"curriculum/lucky": 20.0, "curriculum/judged": 21.0},
    "curriculum_starved": {"curriculum/starved_streak": 700.0},
    "rungs_missing": {"curriculum/coverage": 0.5},
    "curriculum_stalled": {"curriculum/stalled": 3.0, "curriculum/walking": 3.0},
    "true_starts_few": {"start/true/step_share": 0.01},
    "no_battles": {"battle/episodes": 0.0},
    "workers_lost": {"health/workers_lost": 1.0},
    "workers_keep_failing": {"health/workers_lost": 1.0},
    "update_slow": {"speed/update_rows_per_s": 50.0},
    "collect_slow": {"speed/collect_game_steps_per_s": 20.0},
    "overhead": {"time/rest": 100.0, "time/iteration": 110.0},
    "memory_grows": {"health/memory_mb": 9000.0},
    "workers_memory_grows": {"health/workers_memory_mb": 9000.0},
    "files_grow": {"health/file_handles": 500.0},
    "gpu_memory_low": {"health/gpu_free_mb": 90.0},
}


def warmed_up() -> Panel:
    """A panel that has seen the healthy run, as a run with workers and a GPU would have shown it."""
    panel = Panel(shipped_alarms())
    for row in HEALTHY:
        panel.judge(row | {"health/workers_memory_mb": 800.0, "health/workers_lost": 0.0, "health/gpu_free_mb": 9e3})
    assert panel.active == []
    return panel


def test_at_least_the_peers_number_and_each_has_a_plant() -> None:
    assert len(NAMES) >= 25
    assert set(PLANTS) == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_a_healthy_run_trips_none() -> None:
    panel = Panel(shipped_alarms())
    for row in HEALTHY:
        assert panel.judge(row) == [], row["iteration"]
    elsewhere = ("health/workers", "health/gpu", "ladder/", "restarts/", "time/restarts", "start/pool/", "curriculum/")
    asked = [k for a in shipped_alarms() for k in a.keys if not k.startswith(elsewhere)]
    assert {k for k in asked if not any(k in row for row in HEALTHY)} == set(), "the healthy run answers every question"


@pytest.mark.parametrize("name", NAMES)
def test_its_planted_fault_trips_it_after_its_patience(name: str) -> None:
    panel = warmed_up()
    alarm = panel.alarms[name]
    # A median of five turns with the third bad row.
    late = 2 if isinstance(alarm, FellFromBest) and alarm.window == 5 else 0
    for i in range(alarm.patience + late):
        assert name not in panel.active, f"on after {i} of {alarm.patience} rows"
        events = panel.judge(HEALTHY[-1] | PLANTS[name])
    assert name in [e.alarm.name for e in events if e.on]
    assert all(f"{v:.4g}" in next(e.text for e in events if e.alarm.name == name) for v in PLANTS[name].values())


@pytest.mark.parametrize("alarm", shipped_alarms(), ids=NAMES)
def test_what_it_reads_is_declared_and_it_says_why_and_what_to_do(alarm: Any) -> None:
    assert all(declared(k) for k in alarm.keys)
    assert alarm.reason
    assert alarm.advice


# ---- faults planted in what is measured, instead of in the row ---------------------------------------------------
WON = EpisodeRecord(
    battle=0, ordinal=1, players=("learner", "scripted:push"), seed=1, winner=0, truncated=False, ticks=3600,
    game_steps=360, crowns=(1, 0), tower_hp=(1.0, 0.5), returns=(2.0, -2.0), discounted=(1.0, -1.0), choices=(90, 90),
    plays=(30, 30), leak_steps=(0, 0),
)
MIRROR = replace(WON, players=("learner", "learner"))
GRID = ActionLayout()


def alarms_on(figures: Row, times: int = 30) -> set[str]:
    panel = Panel(shipped_alarms())
    for _ in range(times):
        panel.judge(figures)
    return set(panel.active)


def plays(action: np.ndarray) -> Row:
    offers = np.tile(np.arange(4), (len(action), 1))
    return play_figures(action, offers, np.ones(len(action), bool), GRID, ["a", "b", "c", "d"])


def seats(winners: list[int]) -> Row:
    scores = TrainingScores()
    scores.add([replace(MIRROR, winner=w) for w in winners])
    return scores.figures()


@pytest.mark.parametrize(
    ("figures", "on"),
    [
        (battle_figures([WON, replace(WON, winner=1, returns=(-1.0, 1.0))]), set()),
        (battle_figures([WON, replace(WON, winner=1, returns=(3.0, -3.0))]), {"reward_misleads"}),
        (battle_figures([replace(WON, plays=(4, 30))]), {"plays_few"}),
        (battle_figures([replace(WON, plays=(1, 30))]), {"plays_few", "plays_stopped"}),
        (battle_figures([replace(WON, leak_steps=(200, 0))]), {"elixir_leaks"}),
        (battle_figures([replace(WON, winner=2)] * 3), {"draws"}),
        (battle_figures([]), {"no_battles"}),
        (seats([0, 1] * 60), set()),
        (seats([0] * 90 + [1] * 30), {"blue_favoured"}),
        (seats([1] * 90 + [0] * 30), {"red_favoured"}),
        (plays(1 + np.arange(2304)), set()),
        (plays(np.full(400, 5)), {"tile_spam", "artefact_exploit"}),
        (plays(1 + np.arange(400) % 6), {"artefact_exploit"}),
    ],
)
def test_faults_in_play_reach_their_alarm(figures: Row, on: set[str]) -> None:
    assert alarms_on(figures) == on


def test_an_action_the_engine_refuses_reaches_its_alarm() -> None:
    source = InlineSource(BattleSpec(), 0, 1, ArenaSettings(1, 0.0, 1))
    rollout: Any = None
    source.advance([Assignment(0, 0, ("learner", "learner"), 5)])
    while not (source.round.kind == CHOICE).any():
        source.advance([])
    assert alarms_on(source_figures(rollout, source_counts(source), {}, processes=False), 1) == set()
    # The enemy's back row, which the mask forbids for every troop.
    source.round.action[source.round.kind == CHOICE] = 1 + 31 * 18
    source.advance([])
    assert alarms_on(source_figures(rollout, source_counts(source), {}, processes=False), 1) == {"actions_refused"}
    source.close()


# ---- how they judge ------------------------------------------------------------------------------------------------
def test_a_missing_key_is_no_answer() -> None:
    panel = Panel([Threshold("low", "x", below=1.0, patience=2)])
    assert panel.judge({"x": 0.0}) == []
    assert panel.judge({}) == [], "it neither counts"
    assert [e.on for e in panel.judge({"x": 0.0})] == [True], "nor breaks the count"
    assert panel.judge({}) == []
    assert panel.active == ["low"], "nor ends the alarm"
    assert [e.on for e in panel.judge({"x": 2.0})] == [False]
    assert panel.active == []


@given(st.lists(st.sampled_from([0.0, 1.0, None]), max_size=30), st.integers(1, 4))
def test_patience_counts_tripping_rows_in_a_row(values: list[float | None], patience: int) -> None:
    panel = Panel([Threshold("high", "x", above=0.5, patience=patience)])
    asked: list[float] = []
    for v in values:
        panel.judge({} if v is None else {"x": v})
        if v is not None:
            asked.append(v)
        on = len(asked) >= patience and all(asked[-patience:])
        assert (panel.active == ["high"]) == on


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.integers(0, 40))
def test_a_resumed_panel_judges_as_the_unbroken_one(values: list[float], at: int) -> None:
    def made() -> Panel:
        return Panel([
            Threshold("high", "x", above=6.0, patience=2),
            FellFromBest("fell", "x", to=0.6, window=3), FellFromBest("far", "x", by=3.0, window=1, patience=2),
        ])

    whole, first = made(), made()
    rows = [{"x": v} for v in values]
    for row in rows:
        whole.judge(row)
    for row in rows[:at]:
        first.judge(row)
    second = made()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for row in rows[at:]:
        second.judge(row)
    assert set(second.active) == set(whole.active)
    assert second.state_dict() == whole.state_dict() | {"active": second.active}


def test_a_run_continued_after_a_halt_gets_its_patience_again() -> None:
    def made() -> Panel:
        return Panel([Threshold("high", "x", above=0.0, patience=2, severity=HALT)])

    panel = made()
    panel.judge({"x": 1.0})
    assert [e.on for e in panel.judge({"x": 1.0})] == [True]
    resumed = made()
    resumed.load_state_dict(panel.state_dict())
    assert resumed.judge({"x": 1.0}) == []
    assert [e.on for e in resumed.judge({"x": 1.0})] == [True]


def test_growth_is_measured_from_a_warm_process() -> None:
    alarm = Grew("grows", "x", factor=1.5, warm_up=3)
    assert [alarm.trips({"x": v}) for v in (1.0, 4.0, 2.0)] == [None] * 3
    assert [alarm.trips({"x": v}) for v in (4.0, 5.9, 6.1, 5.0)] == [False, False, True, False]


def test_a_users_own_nan_is_their_own() -> None:
    assert NonFinite("n").trips({"mine/loss": float("nan"), "ppo/loss": 1.0}) is False
    assert NonFinite("n").trips({"ppo/loss": float("-inf")}) is True


def test_alarms_are_replaced_extended_and_left_out_by_name() -> None:
    mine = Threshold("kl_high", "ppo/approx_kl", above=0.5)
    found = assemble(shipped_alarms(), [mine, Threshold("new", "x", above=1)], ["draws"])
    assert {a.name for a in found} == {*NAMES, "new"} - {"draws"}
    assert mine in found
    with pytest.raises(UserError, match="did you mean 'draws'"):
        assemble(shipped_alarms(), [], ["drawz"])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "give either above or below"),
        ({"above": 1, "below": 0}, "give either above or below"),
        ({"above": 1, "patience": 0}, "patience is 0"),
        ({"above": 1, "severity": "fatal"}, "severity is 'fatal'"),
    ],
)
def test_an_alarm_that_cannot_be_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Threshold("mine", "x", **settings)


def test_what_belongs_to_a_machine_stays_out_of_a_checkpoint() -> None:
    state = warmed_up().state_dict()
    kept = {"nonfinite", "kl_high", "forgetting"}
    assert kept <= set(state["streak"])
    machine = {"update_slow", "collect_slow", "overhead", "memory_grows", "files_grow"}
    assert not machine & {*state["streak"], *state["alarms"]}


def test_no_restart_is_missed_where_none_is_asked_for() -> None:
    """``RestartHarvest`` with a share of 0 mints routes for the curriculum alone."""
    (alarm,) = [a for a in shipped_alarms() if a.name == "restarts_missing"]
    assert alarm.trips({"restarts/restarts": 0.0, "restarts/wanted_share": 0.2})
    assert alarm.trips({"restarts/restarts": 1.0, "restarts/wanted_share": 0.2}) is False
    assert alarm.trips({"restarts/restarts": 0.0, "restarts/wanted_share": 0.0}) is None
