"""What is said of an iteration, against hand-counted battles and plays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.round import POOL, EpisodeRecord, Start
from royale_lightning.rollout.measures import (
    SCORE_WINDOW,
    SEAT_LEAST,
    TILES_LEAST,
    TrainingScores,
    battle_figures,
    full_battles,
    play_figures,
    return_agreement,
)

WON = EpisodeRecord(
    battle=0, ordinal=1, players=("learner", "scripted:push"), seed=1, winner=0, truncated=False, ticks=2400,
    game_steps=240, crowns=(1, 0), tower_hp=(1.0, 0.5), returns=(2.0, -2.0), discounted=(1.0, -1.0), choices=(9, 90),
    plays=(6, 50), leak_steps=(24, 0),
)
MIRROR = replace(WON, players=("learner", "learner"))
GRID = ActionLayout(slots=2, tiles_y=2, tiles_x=2, buttons=1)
NAMES = ("Knight", "Archer", "Giant")


def test_only_the_learners_seats_of_full_battles_count() -> None:
    restarted = replace(WON, plays=(100, 0), start=Start(POOL, "ab", b"", 0))
    battles = full_battles([WON, replace(WON, staggered=True, plays=(100, 0)), restarted])
    m = battle_figures(battles)
    assert m["battle/episodes"] == 1
    assert (m["policy/plays_per_battle"], m["policy/plays_per_minute"]) == (6.0, 3.0)
    assert (m["policy/choices_per_battle"], m["policy/leak_share"]) == (9.0, 0.1)
    assert (m["battle/crowns_for"], m["battle/crowns_against"]) == (1.0, 0.0)
    assert (m["battle/tower_hp_own"], m["battle/tower_hp_enemy"]) == (1.0, 0.5)
    assert "battle/return_agreement" not in m, "no battle was lost"


def test_no_battle_is_no_figure() -> None:
    assert battle_figures([]) == {"battle/episodes": 0}
    assert TrainingScores().figures() == {}


@given(st.lists(st.integers(-5, 5), max_size=8), st.lists(st.integers(-5, 5), max_size=8))
def test_return_agreement_counts_pairs(won: list[int], lost: list[int]) -> None:
    found = return_agreement(np.array(won, float), np.array(lost, float))
    if not won or not lost:
        assert found is None
        return
    pairs = [1.0 if w > x else 0.5 if w == x else 0.0 for w in won for x in lost]
    assert found == pytest.approx(sum(pairs) / len(pairs))


def test_cards_and_tiles_are_counted_over_choice_rows() -> None:
    # Slot 0 is actions 1 to 4, slot 1 is 5 to 8, 9 is a button, 0 waits.
    action = np.array([1, 1, 6, 0, 9, 3])
    offers = np.array([[0, 1], [0, -1], [-1, 1], [0, 2], [0, -1], [0, 1]])
    choice = np.array([True, True, True, True, True, False])
    m = play_figures(action, offers, choice, GRID, NAMES)
    assert not any("tile" in k for k in m), "three plays have no favourite tile"
    action, offers, choice = (np.concatenate([x] * TILES_LEAST) for x in (action, offers, choice))
    m = play_figures(action, offers, choice, GRID, NAMES)
    assert m["policy/play_rate"] == 0.8
    assert m["policy/tile_top_share"] == pytest.approx(2 / 3), "tile 0 twice, tile 1 once"
    assert m["policy/tile_entropy"] == pytest.approx(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3))
    assert m["policy/card_tile_top_share"] == pytest.approx(2 / 3)
    assert (m["card/Knight/play_rate"], m["card/Knight/play_share"]) == (pytest.approx(2 / 4), pytest.approx(2 / 3))
    assert (m["card/Archer/play_rate"], m["card/Archer/play_share"]) == (pytest.approx(1 / 2), pytest.approx(1 / 3))
    assert (m["card/Giant/play_rate"], m["card/Giant/play_share"]) == (0.0, 0.0)


def test_without_a_choice_or_a_grid_nothing_is_said_of_cards() -> None:
    none = np.zeros(0, int)
    assert play_figures(none, np.zeros((0, 4), int), none.astype(bool), GRID, NAMES) == {}
    m = play_figures(np.array([1, 0]), np.full((2, 4), -1), np.ones(2, bool), ActionLayout(0, 0, 0, 3), NAMES)
    assert m == {"policy/play_rate": 0.5}


def test_scores_by_opponent_kind_over_a_window() -> None:
    scores = TrainingScores()
    scores.add([replace(WON, winner=1)] * SCORE_WINDOW)
    scores.add([WON] * (SCORE_WINDOW // 2))
    scores.add([replace(WON, players=("scripted:defend", "learner"), winner=2)])
    scores.add([replace(WON, players=("0123abcd", "learner")), replace(WON, players=("learner", "4567cdef"))])
    scores.add([replace(WON, winner=-1, truncated=True)])
    m = scores.figures()
    # One scripted opponent was met 60 times and more, the other once.
    evidence = {"battle/score_evidence": pytest.approx(4 / (1 / SCORE_WINDOW + 1))}
    assert m == {"score/push": 0.5, "score/defend": 0.5, "score/pool": 0.5, "score/scripted": 0.5} | evidence
    again = TrainingScores()
    again.load_state_dict(scores.state_dict())
    assert again.figures() == m


def test_the_seats_are_compared_once_there_are_enough_mirror_battles() -> None:
    scores = TrainingScores()
    scores.add([MIRROR] * (SEAT_LEAST - 1))
    assert scores.figures() == {}, "a mirror battle is no score of the learner"
    scores.add([replace(MIRROR, winner=1)])
    m = scores.figures()
    assert m["battle/blue_score"] == pytest.approx((SEAT_LEAST - 1) / SEAT_LEAST)
    assert m["battle/blue_low"] < m["battle/blue_score"] < m["battle/blue_high"]
