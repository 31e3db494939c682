"""A route is tried before it leads: from its middle, against its loser, by the learner."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from royale_lightning.restarts.curriculum import CurriculumSettings
from royale_lightning.restarts.fronts import Vote
from royale_lightning.restarts.store import StoreSettings, TrajectoryStore
from royale_lightning.restarts.trials import TRIAL, TRIAL_GAMES, middle

from .points import FROZEN, STAMP, minted, route

PATH = [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 2), (2, 2, 2), (3, 2, 2)]


def store(routes: int = 1) -> TrajectoryStore:
    made = TrajectoryStore(StoreSettings(curriculum=CurriculumSettings()), 1, STAMP)
    for i in range(routes):
        made.add_path(minted(route(PATH, source=(0, i))))
    made.freeze()
    return made


def play(made: TrajectoryStore, wins: int, games: int = TRIAL_GAMES) -> Vote:
    """So many games of the first route's trial, the wins first."""
    vote = made.sample_curriculum_start(0, 0).vote
    for i in range(games):
        assert made.record_vote(vote, i < wins, 0)
    return vote


@pytest.mark.parametrize(("wins", "leads"), [(16, True), (12, True), (11, False), (0, False)])
def test_a_lucky_win_leads_nowhere(wins: int, leads: bool) -> None:
    """12 of 16 even games happen once in 26, 11 once in 10."""
    made = store()
    start = made.sample_curriculum_start(0, 0)
    assert start.vote == Vote(0, TRIAL, 1)
    assert start.reference == (0, 0, 2), "its win can be stitched"
    assert start.point.game_step == 40, "of 100"
    vote = play(made, wins)
    assert made.archived_route_ids == ([0] if leads else [])
    assert made.diagnostics()["trials/confirmed"] == leads
    assert made.diagnostics()["trials/lucky"] == (not leads)
    assert made.diagnostics()["on_trial"] == 0
    assert not made.record_vote(vote, True, 0), "it is judged"
    made.freeze()
    after = made.sample_curriculum_start(0, 1)
    if leads:
        assert after.vote.generation == 0
        front = made.backward_curriculum.front(0)
        assert front.rungs[1].reference_rate == wins / 16
    else:
        assert after is None


def test_a_trial_takes_its_sixteen_games() -> None:
    made = store()
    vote = play(made, 15, games=15)
    assert made.backward_curriculum.route_ids == []
    assert not made.record_vote(vote, True, 0, by_learner=False), "nobody else is asked"
    assert not made.record_vote(Vote(7, TRIAL, 1), True, 0)
    assert made.backward_curriculum.route_ids == []
    assert made.record_vote(vote, True, 0)
    assert made.backward_curriculum.route_ids == [0]


def test_trials_and_fronts_share_by_what_lies_before_them() -> None:
    made = store(2)
    made.judge_route(0, lucky=False)
    made.freeze()
    front = made.backward_curriculum.front(0)
    assert front.remaining == 60
    kinds = Counter(made.sample_curriculum_start(0, o).vote.generation == TRIAL for o in range(4000))
    assert kinds[True] / 4000 == pytest.approx(40 / 100, abs=0.03)


def test_nobody_is_tried_against_who_cannot_be_met_or_from_what_is_not_minted() -> None:
    made = store()
    made.freeze(playable=["snapshot-2"])
    assert made.sample_curriculum_start(0, 0) is None
    made.freeze(playable=[FROZEN])
    assert made.sample_curriculum_start(0, 0) is not None
    bare = TrajectoryStore(StoreSettings(curriculum=CurriculumSettings()), 1, STAMP)
    bare.add_path(route(PATH))
    bare.freeze()
    assert bare.sample_curriculum_start(0, 0) is None
    assert middle(route(PATH)) is None
    one = minted(route(PATH))
    late = tuple(replace(s, end=None) if i < 3 else s for i, s in enumerate(one.segments))
    assert middle(replace(one, segments=late)) == 3


def test_a_trial_goes_on_after_a_resume() -> None:
    made = store()
    play(made, 6, games=6)
    copy = TrajectoryStore(StoreSettings(curriculum=CurriculumSettings()), 1, STAMP)
    copy.load_runtime_state_dict(msgspec.msgpack.decode(msgspec.msgpack.encode(made.runtime_state_dict())))
    copy.freeze()
    play(copy, 6, games=10)
    assert copy.backward_curriculum.route_ids == [0], "12 of 16"


def test_a_displaced_route_takes_its_trial_with_it() -> None:
    made = TrajectoryStore(StoreSettings(archive_size=1, curriculum=CurriculumSettings()), 1, STAMP)
    made.add_path(minted(route(PATH)))
    made.freeze()
    vote = play(made, 5, games=5)
    made.add_path(minted(route(PATH, margin=2)))
    assert not made.record_vote(vote, True, 0)
    made.freeze()
    play(made, 16)
    assert made.backward_curriculum.route_ids == [1]
