"""What counts as a result, by where an episode began."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from royale_lightning.battle.round import CURRICULUM, POOL, TRUE, EpisodeRecord, Start
from royale_lightning.rollout.measures import by_start, learner_scores, value_errors

WON = EpisodeRecord(
    battle=0, ordinal=1, players=("learner", "scripted:push"), seed=1, winner=0, truncated=False, ticks=3600,
    game_steps=360, crowns=(1, 0), tower_hp=(1.0, 0.5), returns=(2.0, -2.0), discounted=(1.0, -1.0), choices=(9, 9),
    plays=(5, 5), leak_steps=(0, 0),
)
POINT = Start(POOL, "ab", b"", 1)


def test_figures_are_split_by_kind() -> None:
    lost = replace(WON, winner=1, ticks=600, returns=(-1.0, 1.0), start=replace(POINT, seat=0))
    errors = [(0.5, 9.0), (9.0, 9.0), (0.25, None)]
    m = by_start([WON, replace(WON, staggered=True, winner=1), lost], {TRUE: 300, POOL: 100, CURRICULUM: 0}, errors)
    assert (m["start/true/value_error"], m["start/pool/value_error"]) == (0.5, 0.25)
    assert m["start/true/episodes"] == m["start/pool/episodes"] == 1
    assert (m["start/true/score"], m["start/pool/score"]) == (1.0, 0.0)
    assert (m["start/true/step_share"], m["start/pool/step_share"]) == (0.75, 0.25)
    assert (m["start/true/return"], m["start/pool/return"]) == (2.0, -1.0)
    assert m["start/pool/ticks"] == 600
    assert not any("curriculum" in k for k in m)


def test_a_running_restart_counts_steps_and_nothing_else() -> None:
    assert by_start([], {POOL: 7}, []) == {"start/pool/episodes": 0, "start/pool/step_share": 1.0}


@pytest.mark.parametrize(
    ("change", "scores"),
    [
        ({}, [(0, 1.0)]),
        ({"players": ("learner", "learner")}, []),
        ({"players": ("learner", "learner"), "start": POINT}, [(1, 0.0)]),
        ({"winner": 2}, [(0, 0.5)]),
        ({"winner": -1, "truncated": True}, []),
    ],
)
def test_a_mirror_battle_scores_its_credited_seat_alone(change: dict, scores: list) -> None:
    assert learner_scores(replace(WON, **change)) == scores


def test_an_episodes_value_error_is_over_its_own_rows() -> None:
    # Battle 7 (slots 0, 1) ends in rounds 1 and 3; battle 8 in round 3.
    row = np.array([[0, -1, 1, -1], [2, -1, -1, -1], [3, 4, -1, 5], [-1, 6, 7, -1], [8, -1, -1, -1]])
    advantage = np.array([1.0, 2.0, -3.0, 4.0, -5.0, 6.0, 7.0, -8.0, 9.0], dtype=np.float32)
    episodes = [replace(WON, battle=7), replace(WON, battle=7), replace(WON, battle=8)]
    assert value_errors(row, advantage, episodes, [1, 3, 3], 7) == [(2.0, None), (4.0, 6.0), (5.0, 6.0)]
