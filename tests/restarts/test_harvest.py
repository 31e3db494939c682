"""Which battles are replayed, and what the scheduler is told of an iteration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from royale_lightning.battle.round import POOL, TRUE, EpisodeRecord, Situation, Start
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.errors import UserError
from royale_lightning.restarts.figures import pool_counts, pool_figures
from royale_lightning.restarts.harvest import Harvester, replayable
from royale_lightning.restarts.key import key_digest
from royale_lightning.restarts.markers import MarkerSettings
from royale_lightning.restarts.outcomes import DEAD_STEPS, crashed, finished_of, timeout_of
from royale_lightning.restarts.pool import PoolSettings, RestartPool
from royale_lightning.restarts.scheduler import Begun, StartScheduler
from royale_lightning.restarts.state import CRASHED, DEAD_START, REFUSED, EpisodeResult

from .points import STAMP, point
from .test_mint import played

SPEC = BattleSpec()
MARKERS = MarkerSettings()


@pytest.fixture(scope="module")
def battles() -> list[EpisodeRecord]:
    """Four battles of some 300 game steps."""
    return [replace(played(("learner", "scripted:push"), seed=n), battle=n) for n in range(4)]


def harvester(budget: float) -> Harvester:
    return Harvester(SPEC, stamp_of(SPEC, key_digest()), MARKERS, budget, seed=1)


def test_a_budget_is_kept_over_iterations_and_a_debt_is_paid(battles: list[EpisodeRecord]) -> None:
    steps = sum(b.game_steps for b in battles)
    h = harvester(0.2)
    costs, replays = [], []
    for iteration in range(1, 9):
        found = dict(h.harvest(battles, steps, iteration))
        replays.append(len(found))
        costs += [m.cost for m in found.values()]
        assert all(m.points for m in found.values())
    allowed = 8 * 0.2 * steps
    assert allowed - 0.2 * steps <= sum(costs) <= allowed + max(costs)
    assert 0 in replays, "what a battle took beyond the allowance is owed"
    assert sum(replays) == h.replays
    h.credit = 0.0
    list(h.harvest([], steps, 9))
    list(h.harvest([], steps, 10))
    assert h.credit == pytest.approx(0.2 * steps), "what is not used is not stored up"


def test_the_order_is_drawn_alike_and_apart(battles: list[EpisodeRecord]) -> None:
    h = harvester(0.01)

    def first_of(iteration: int, first: int = 0) -> int:
        h.credit = 0.0
        ((i, _),) = h.harvest(battles, 100, iteration, first)
        return i

    drawn = [first_of(i) for i in range(1, 4)]
    assert drawn == [first_of(i) for i in range(1, 4)]
    assert len(set(drawn)) > 1
    assert drawn != [first_of(i, 64) for i in range(1, 4)], "another rank's battles"


def test_what_cannot_be_replayed_is_left_alone(battles: list[EpisodeRecord]) -> None:
    whole = battles[0]
    assert replayable(whole)
    assert not replayable(replace(whole, staggered=True))
    assert not replayable(replace(whole, commands=[]))
    assert not replayable(replace(whole, players=("000012", "scripted:push")))


def test_a_battle_that_comes_out_otherwise_gives_nothing(battles: list[EpisodeRecord]) -> None:
    h = harvester(1.0)
    other = replace(battles[0], state_hash=battles[0].state_hash ^ 1)
    assert list(h.harvest([other], 10_000, 1)) == []
    assert (h.replays, h.failures) == (1, 1)
    assert h.credit < 10_000, "it cost as much"


@pytest.mark.parametrize("budget", [0.0, -0.1, 1.5])
def test_an_impossible_budget_is_refused(budget: float) -> None:
    with pytest.raises(UserError, match=f"budget is {budget}; give a share"):
        harvester(budget)


def episode(**changed: object) -> EpisodeRecord:
    course = [(20 * i, Situation(200 * i, 10.0 * i, (0, int(i > 2)), (3.0, 3.0))) for i in range(8)]
    made = EpisodeRecord(
        battle=3, ordinal=2, players=("scripted:push", "learner"), seed=1, winner=1, truncated=False, ticks=1600,
        game_steps=160, crowns=(0, 1), tower_hp=(1.0, 0.5), returns=(0.0, 0.0), discounted=(0.0, 0.0), choices=(9, 9),
        plays=(5, 5), leak_steps=(0, 0), course=course, start=Start(POOL, "d", b"x", 1, "p"),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


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


def full_pool() -> StartScheduler:
    """A scheduler whose pool has seen everything a row tells of."""
    scheduler = StartScheduler(1, RestartPool(PoolSettings(window=1, max_uses=1000), 1, STAMP))
    pool = scheduler.pool
    pool.import_points([point(0), point(1, (0, 1, 1))])
    for n in range(120):
        pool.serve(0, n, point(n % 2, ((0, 0, 0), (0, 1, 1))[n % 2]).id, point(0).players)
        pool.record_episode(EpisodeResult(0, 0, n, point(0).players, 0, float(n % 2), 100))
    return scheduler


def test_a_row_tells_what_the_pool_holds_and_what_happened() -> None:
    scheduler = full_pool()
    row = pool_figures(scheduler, {})
    assert (row["restarts/points"], row["restarts/buckets"], row["restarts/imported"]) == (2, 2, 2)
    assert (row["restarts/restarts"], row["restarts/scored"], row["restarts/in_flight"]) == (120, 120, 0)
    assert row["restarts/busiest_share"] == pytest.approx(0.5)
    assert (row["restarts/advance_rate"], row["restarts/decided"]) == (0.5, 1.0)
    assert (row["restarts/deepest_crowns"], row["restarts/deepest_hp"]) == (1, 1)
    again = pool_figures(scheduler, pool_counts(scheduler))
    assert (again["restarts/points"], again["restarts/restarts"], again["restarts/scored"]) == (2, 0, 0)
