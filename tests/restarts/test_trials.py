"""A route is tried before it leads: from its middle, against its loser, by the learner."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from royale_lightning.restarts.curriculum import CurriculumSettings
from royale_lightning.restarts.fronts import Vote
from royale_lightning.restarts.store import StoreSettings, TrajectoryStore
from royale_lightning.restarts.trials import TRIAL, TRIAL_GAMES, Trials, halfway

from .points import FROZEN, STAMP, minted, route

PATH = [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 2), (2, 2, 2), (3, 2, 2)]


def empty(archive_size: int = 4) -> TrajectoryStore:
    return TrajectoryStore(StoreSettings(archive_size=archive_size, curriculum=CurriculumSettings()), 1, STAMP)


def store(routes: int = 1) -> TrajectoryStore:
    made = empty()
    for i in range(routes):
        made.add_path(minted(route(PATH, source=(0, i))))
    made.freeze()
    return made


def play(made: TrajectoryStore, wins: int, games: int = TRIAL_GAMES) -> Vote:
    """So many games of the first route's trial, the wins first."""
    made.freeze()
    vote = made.sample_curriculum_start(0, 0).vote
    assert vote.generation == TRIAL
    for i in range(games):
        assert made.record_vote(vote, i < wins, 0)
    return vote


@pytest.mark.parametrize("wins", [12, 16])
def test_a_win_that_can_be_repeated_leads_from_where_it_was(wins: int) -> None:
    """12 of 16 even games happen once in 26."""
    made = store()
    start = made.sample_curriculum_start(0, 0)
    assert start.vote == Vote(0, TRIAL, 1)
    assert start.reference == (0, 0, 2), "its win can be stitched"
    assert start.point.game_step == 40, "of 100"
    vote = play(made, wins)
    assert not made.record_vote(vote, True, 0), "it is judged"
    front = made.backward_curriculum.front(0)
    assert front.rungs[front.index] == (40, 60, wins / 16)
    told = made.diagnostics()
    assert (told["trials/confirmed"], told["trials/lucky"], told["on_trial"]) == (1, 0, 0)
    made.freeze()
    assert made.sample_curriculum_start(0, 1).vote.generation == 0


def test_a_later_place_is_tried_and_a_win_that_holds_nowhere_was_luck() -> None:
    """11 of 16 even games happen once in 10."""
    made = store()
    first = play(made, 11)
    assert not made.record_vote(first, True, 0), "a late result of the old place says nothing of the new one"
    second = play(made, 11)
    assert (first.rung, second.rung) == (1, 2)
    third = play(made, 0)
    assert third.rung == 3, "the last moment before the end"
    assert made.archived_route_ids == []
    assert made.diagnostics()["trials/lucky"] == 1
    made.freeze()
    assert made.sample_curriculum_start(0, 0) is None
    other = store()
    play(other, 11)
    play(other, 12)
    front = other.backward_curriculum.front(0)
    assert front.rungs[front.index] == (60, 40, 0.75)


def test_wins_are_compared_with_those_from_true_starts() -> None:
    """Against one who is never beaten, 2 of 16 from the middle are worth following; against an equal they are not."""
    weak, equal = store(), store()
    for i in range(300):
        weak.record_true_start(FROZEN, False)
        equal.record_true_start(FROZEN, i % 2 == 0)
        equal.record_true_start("snapshot-2", False)
    play(weak, 2)
    play(equal, 2)
    assert weak.backward_curriculum.route_ids == [0]
    assert equal.backward_curriculum.route_ids == []
    trials = Trials(1)
    assert trials.chance(FROZEN) == 0.5
    for won in [True] * 400 + [False] * 1000:
        trials.record_true(FROZEN, won)
    assert trials.chance(FROZEN) == pytest.approx(0.01, abs=0.001), "the latest hundred count"


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
    kinds = Counter(made.sample_curriculum_start(0, o).vote.generation == TRIAL for o in range(2000))
    assert kinds[True] / 2000 == pytest.approx(40 / 100, abs=0.04)


def test_nobody_is_tried_against_who_cannot_be_met_or_from_what_is_not_minted() -> None:
    made = store()
    made.freeze(playable=["snapshot-2"])
    assert made.sample_curriculum_start(0, 0) is None
    made.freeze(playable=[FROZEN])
    assert made.sample_curriculum_start(0, 0) is not None
    bare = empty()
    bare.add_path(route(PATH))
    bare.freeze()
    assert bare.sample_curriculum_start(0, 0) is None
    one = minted(route(PATH))
    late = replace(one, segments=tuple(replace(s, end=None) if i < 3 else s for i, s in enumerate(one.segments)))
    assert [halfway(r) for r in (route(PATH), one, late)] == [None, 1, 3]
    assert [halfway(one, after) for after in (0, 1, 2, 3)] == [2, 2, 3, None]


def test_a_trial_goes_on_after_a_resume() -> None:
    made = store()
    play(made, 6, games=6)
    made.record_true_start(FROZEN, True)
    data = msgspec.msgpack.encode(made.runtime_state_dict())
    copy = empty()
    copy.load_runtime_state_dict(msgspec.msgpack.decode(data))
    assert msgspec.msgpack.encode(copy.runtime_state_dict()) == data
    play(copy, 9, games=10)
    assert copy.backward_curriculum.route_ids == [0], "15 of 16, with 2 in 3 from true starts"


def test_a_displaced_route_takes_its_trial_with_it() -> None:
    made = empty(archive_size=1)
    made.add_path(minted(route(PATH)))
    vote = play(made, 5, games=5)
    made.add_path(minted(route(PATH, margin=2)))
    assert not made.record_vote(vote, True, 0)
    play(made, 16)
    assert made.backward_curriculum.route_ids == [1]
