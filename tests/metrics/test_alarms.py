"""Every alarm: a planted fault trips it after its patience, and a recorded healthy run trips none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.metrics.alarms import HALT, FellFromBest, Grew, NonFinite, Panel, Threshold, assemble
from royale_lightning.metrics.declarations import declared, undeclared
from royale_lightning.metrics.shipped import shipped_alarms
from royale_lightning.rollout.measures import TrainingScores
from tests.support.plants import PLANTS, WON, Rig

Row = dict[str, float]
#: Seventy iterations of configs/first_bot.yaml with a pool, ratings, restarts, a curriculum and two workers, on two
#: busy cores; the figures to four digits and without those of single cards.
HEALTHY: list[Row] = [json.loads(x) for x in (Path(__file__).parent / "healthy.jsonl").read_text().splitlines()]
NAMES = [a.name for a in shipped_alarms()]


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
    # A GPU, and a bucket of a hundred results.
    elsewhere = {"health/gpu_free_mb", "restarts/decided"}
    asked = {k for a in shipped_alarms() for k in a.keys}
    assert {k for k in asked if not any(k in row for row in HEALTHY)} == elsewhere, "it answers all other questions"


@pytest.mark.parametrize("name", NAMES)
def test_its_planted_fault_trips_it_after_its_patience(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the shipped settings, in rows as whoever writes them tells them; a run that is well trips none of them."""
    well, ill = PLANTS[name](Rig(tmp_path, monkeypatch))
    panel = Panel(shipped_alarms())
    alarm = panel.alarms[name]
    for _ in range(40):  # past every warm-up
        panel.judge(well)
        assert name not in panel.active
    # A median of five turns with the third bad row.
    late = 2 if isinstance(alarm, FellFromBest) and alarm.window == 5 else 0
    for i in range(alarm.patience + late):
        assert name not in panel.active, f"on after {i} of {alarm.patience} rows"
        events = panel.judge(ill)
    assert name in [e.alarm.name for e in events if e.on]
    told = next(e.text for e in events if e.alarm.name == name)
    assert told
    assert all(f"{ill[k]:.4g}" in told for k in alarm.keys)
    assert undeclared([*well, *ill]) == []


@pytest.mark.parametrize("alarm", shipped_alarms(), ids=NAMES)
def test_what_it_reads_is_declared_and_it_says_why_and_what_to_do(alarm: Any) -> None:
    assert all(declared(k) for k in alarm.keys)
    assert alarm.reason
    assert alarm.advice


def test_a_fault_in_play_trips_its_own_alarms_alone() -> None:
    def alarms_on(figures: Row) -> set[str]:
        panel = Panel(shipped_alarms())
        for _ in range(30):
            panel.judge(figures)
        return set(panel.active)

    cases = [
        ("reward_misleads", {"reward_misleads"}), ("plays_stopped", {"plays_few", "plays_stopped"}),
        ("elixir_leaks", {"elixir_leaks"}), ("draws", {"draws"}), ("no_battles", {"no_battles"}),
        ("blue_favoured", {"blue_favoured"}), ("red_favoured", {"red_favoured"}),
        ("tile_spam", {"tile_spam", "artefact_exploit"}), ("artefact_exploit", {"artefact_exploit"}),
    ]
    rig: Any = None
    for name, on in cases:
        well, ill = PLANTS[name](rig)
        assert alarms_on(well) == set(), name
        assert alarms_on(ill) == on


# ---- forgetting --------------------------------------------------------------------------------------------------
OTHERS = [f"scripted:{n}" for n in ("random", "push", "defend", "patient", "punish")]


def scores_of(rates: Iterable[float], opponents: Sequence[str], games: int, seed: int) -> list[Row]:
    """Rows of a learner that wins this share of its battles in one iteration after the other."""
    rng, scores, rows = np.random.default_rng(seed), TrainingScores(), []
    played = {(o, w): replace(WON, players=("learner", o), winner=w) for o in opponents for w in (0, 1)}
    for rate in rates:
        met = rng.choice(list(opponents), games)
        scores.add([played[o, int(rng.random() >= rate)] for o in met.tolist()])
        rows.append(scores.figures())
    return rows


def first_forgotten(rows: Iterable[Row]) -> int | None:
    (alarm,) = [a for a in shipped_alarms() if a.name == "forgetting"]
    panel = Panel([alarm])
    return next((i for i, row in enumerate(rows) if panel.judge(row)), None)


def test_one_game_won_is_nothing_to_forget() -> None:
    """A first battle that was won, and a learner that then loses: a healthy run's first minutes."""
    scores = TrainingScores()
    rows = []
    for winner in [0, *[1] * 60]:
        scores.add([replace(WON, players=("learner", OTHERS[len(rows) % 5]), winner=winner)])
        rows.append(scores.figures())
    assert rows[0]["score/scripted"] == 1.0
    assert first_forgotten(rows) is None


@pytest.mark.parametrize("opponents", [OTHERS, OTHERS[:1]])
@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_luck_is_not_forgotten_in_a_long_run(opponents: list[str], rate: float) -> None:
    for seed in range(3):
        assert first_forgotten(scores_of([rate] * 1000, opponents, 8, seed)) is None


def test_a_learner_that_forgets_is_found_and_one_that_meets_more_is_not() -> None:
    at = first_forgotten(scores_of([0.8] * 100 + [0.4] * 60, OTHERS, 10, 1))
    assert at is not None
    assert 100 < at < 140
    one = first_forgotten(scores_of([0.9] * 100 + [0.3] * 60, OTHERS[:1], 10, 1))
    assert one is not None
    assert one > 100
    # An opponent it has never met, and loses to: the mean falls by nearly a half, and nothing was forgotten.
    scores, rows = TrainingScores(), []
    for i in range(200):
        met = OTHERS[:1] if i < 100 else OTHERS[:2]
        scores.add([replace(WON, players=("learner", o), winner=int(o != OTHERS[0])) for o in met for _ in range(4)])
        rows.append(scores.figures())
    assert rows[-1]["score/scripted"] == 0.5
    assert first_forgotten(rows) is None


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
