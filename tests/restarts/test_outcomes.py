"""What the scheduler is told of an iteration."""

from __future__ import annotations

from dataclasses import replace

from royale_lightning.battle.round import POOL, TRUE, Start
from royale_lightning.restarts.moments import MarkerSettings
from royale_lightning.restarts.outcomes import DEAD_STEPS, crashed, finished_of, timeout_of
from royale_lightning.restarts.records.points import CRASHED, DEAD_START, REFUSED, EpisodeResult
from royale_lightning.restarts.scheduler import Begun
from tests.support.restarts import episode

MARKERS = MarkerSettings()


def test_an_episode_becomes_the_credited_seats_result() -> None:
    staggered = replace(episode(), staggered=True)
    (one,) = finished_of([staggered, episode()], [4, 7], [(None, None), (0.1, 0.3)], {}, MARKERS)
    assert one.result == EpisodeResult(
        round=7, battle=3, ordinal=2, players=("scripted:push", "learner"), seat=1, score=1.0, game_steps=160,
        best_rank=(1, 0), value_error=0.3, crown_margin=1,
    )
    (true,) = finished_of([episode(start=Start(TRUE))], [0], [(None, None)], {}, MARKERS)
    assert true.result.seat == 1, "the learner's"


def test_why_a_start_came_to_nothing() -> None:
    assert timeout_of(episode()) is None
    assert timeout_of(episode(game_steps=DEAD_STEPS)) == DEAD_START
    assert timeout_of(episode(choices=(9, 0))) == DEAD_START
    assert timeout_of(episode(choices=(0, 9))) is None
    assert timeout_of(episode(start=Start(TRUE))) is None
    assert timeout_of(episode(start=Start(TRUE, "d"))) == REFUSED


def test_lost_battles_crash_their_starts_and_no_others() -> None:
    begun = [
        Begun(0, 5, ("learner", "x"), POOL, POOL), Begun(1, 2, ("learner", "x"), POOL, POOL),
        Begun(2, 2, ("learner", "x"), TRUE, TRUE),
    ]
    finished = finished_of([replace(episode(), battle=1)], [0], [(None, None)], {}, MARKERS)
    running = {0: 6, 1: 3, 2: 3, 4: 1}
    assert crashed([(4, 0), (4, 1), (9, 0)], begun, finished, running) == {(0, 5): CRASHED, (4, 0): CRASHED}
