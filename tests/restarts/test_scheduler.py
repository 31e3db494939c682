"""The one authority on starts: shares of game steps, who plays, and what is entered at the boundary."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.round import BUCKET, CURRICULUM, POOL, START_KINDS, TRUE, TRUE_START
from royale_lightning.errors import UserError
from royale_lightning.restarts.pool.pool import PoolSettings, RestartPool
from royale_lightning.restarts.records.points import CAPPED, REFUSED, Bucket, EpisodeResult
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from royale_lightning.restarts.scheduler import Begun, Finished, StartScheduler
from royale_lightning.restarts.shares import TRUE_RESERVE, EpisodeLengths, StartShares, start_chances
from tests.support.restarts import FROZEN, STAMP, minted, point, route

PLAYERS = ("learner", "scripted:push")
CELLS = [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 2), (2, 2, 2)]
ALL = StartShares(pool=0.3, curriculum=0.2, bucket=0.2)
SETTINGS = StoreSettings(curriculum=CurriculumSettings(window=2, grace=0, first_steps=20))


def result(battle: int, ordinal: int, score: float | None = 1.0, **changed: Any) -> EpisodeResult:
    given_: dict[str, Any] = {
        "round": 0, "battle": battle, "ordinal": ordinal, "players": ("learner", FROZEN), "seat": 0, "score": score,
        "game_steps": 100,
    }
    return EpisodeResult(**{**given_, **changed})


def scheduler(points: int = 6, routes: int = 1) -> StartScheduler:
    """With so many points, and so many judged wins in its store."""
    made = StartScheduler(1, RestartPool(PoolSettings(), 1, STAMP), RouteStore(SETTINGS, 1, STAMP))
    made.pool.import_points([point(i, CELLS[i % 4]) for i in range(points)])
    for i in range(routes):
        made.store.add(minted(route(CELLS, source=(50, i))))
    for i in made.store.archive.ids:
        made.store.judge_route(i, lucky=False)
    made.freeze(0, ALL)
    return made


def begin(made: StartScheduler, n: int = 200) -> list[Begun]:
    for at in range(n):
        made.begin(at, 0, PLAYERS)
    return made.drain()


def of_kind(begun: list[Begun], kind: str) -> Begun:
    return next(b for b in begun if b.kind == kind)


# ---- shares ----------------------------------------------------------------------------------------------------
@given(
    st.tuples(*[st.floats(0.0, 0.23)] * 3),
    st.fixed_dictionaries({k: st.floats(1.0, 600.0) for k in START_KINDS}),
)
def test_shares_are_of_game_steps(asked: tuple[float, float, float], lengths: dict[str, float]) -> None:
    shares = StartShares(*asked)
    chances = start_chances(shares, lengths)
    assert sum(chances.values()) == pytest.approx(1.0)
    steps = {k: chances[k] * lengths[k] for k in START_KINDS}
    for kind, share in shares.of_kinds().items():
        assert steps[kind] / sum(steps.values()) == pytest.approx(share)
    assert steps[TRUE] / sum(steps.values()) >= TRUE_RESERVE
    unmeasured = start_chances(shares, {TRUE: lengths[TRUE]})
    assert unmeasured == pytest.approx({TRUE: 1.0 - sum(asked), **shares.of_kinds()})
    assert start_chances(shares, {}) == pytest.approx(unmeasured)


def test_half_the_episodes_with_half_the_battle_left_are_a_third() -> None:
    chances = start_chances(StartShares(pool=1 / 3), {TRUE: 360.0, POOL: 180.0})
    assert chances[POOL] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"pool": -0.1}, "share of pool"), ({"bucket": 1.5}, "share of bucket"),
        ({"pool": 0.4, "curriculum": 0.4}, "sum to 0.8"),
    ],
)
def test_true_starts_keep_their_reserve(bad: dict[str, float], says: str) -> None:
    with pytest.raises(UserError, match=says):
        StartShares(**bad)


def test_true_starts_below_their_reserve_get_an_iteration_of_their_own() -> None:
    made = scheduler()
    for _ in range(40):
        made.close([], steps={TRUE: 10, POOL: 90})
    made.freeze(1, ALL)
    assert {b.kind for b in begin(made)} == {TRUE}
    assert made.diagnostics()["held_back"] == 1
    for _ in range(3):
        made.close([], steps={TRUE: 100})
    made.freeze(2, ALL)
    assert len({b.kind for b in begin(made)}) == 4


def test_lengths_are_means_that_follow() -> None:
    lengths = EpisodeLengths()
    for n in (100, 200, 300):
        lengths.record(TRUE, n)
    assert lengths.means[TRUE] == pytest.approx(200.0)
    for _ in range(1000):
        lengths.record(TRUE, 50)
    assert lengths.means[TRUE] == pytest.approx(50.0, abs=1.0)
    copy = EpisodeLengths()
    copy.load(msgspec.msgpack.decode(msgspec.msgpack.encode(lengths.state())))
    assert copy.state() == lengths.state()


# ---- what is begun -----------------------------------------------------------------------------------------------
def test_each_kind_is_begun_by_its_chance() -> None:
    made = scheduler()
    kinds = Counter(b.kind for b in begin(made, 4000))
    for kind in START_KINDS:
        assert kinds[kind] / 4000 == pytest.approx(made.chances[kind], abs=0.03)


def test_answers_depend_on_battle_and_ordinal_alone() -> None:
    a, b = scheduler(), scheduler()
    order = [(x, y) for x in range(8) for y in range(8)]
    first = {at: a.begin(*at, PLAYERS) for at in order}
    assert {at: b.begin(*at, PLAYERS) for at in reversed(order)} == first
    assert {a.begin(*at, PLAYERS)[1].kind for at in order} == set(START_KINDS)


def test_no_share_never_restarts_and_nothing_to_begin_from_gives_a_true_start() -> None:
    """Invariant 4, for shares: 0 never restarts, and whenever a filled pool is drawn it serves."""
    made = scheduler()
    assert not any(b.kind == POOL != b.wanted for b in begin(made))
    assert all(b.kind == b.wanted for b in begin(made))
    made.freeze(0, StartShares(0.0))
    assert {b.wanted for b in begin(made)} == {TRUE}
    for empty in (scheduler(0, 0), StartScheduler(1, RestartPool(PoolSettings(), 1, STAMP))):
        empty.freeze(0, ALL)
        begun = begin(empty)
        assert {b.kind for b in begun} == {TRUE}
        assert empty.begin(1, 1, PLAYERS) == (PLAYERS, TRUE_START)
        empty.close(begun)
        told = empty.diagnostics()
        assert all(told[f"starved/{k}"] == sum(b.wanted == k for b in begun) > 0 for k in (POOL, CURRICULUM, BUCKET))


def test_starved_and_served_are_all_attempts() -> None:
    """Invariant 27."""
    made = scheduler(0, 0)
    made.close(begin(made))
    made.store.add(minted(route(CELLS)))
    made.store.judge_route(made.store.archive.ids[0], lucky=False)
    made.freeze(1, ALL)
    for at in range(200):
        made.begin(at, 1, PLAYERS)
    made.close(made.drain())
    told = made.store.curriculum.diagnostics()
    assert told["starved"] > 0
    assert told["served"] > 0
    assert told["starved"] + told["served"] == told["attempts"]
    assert told["starved_streak"] == 0


def test_a_start_is_played_against_whom_it_was_recorded() -> None:
    made = scheduler()
    made.pool.import_points([point(90 + i, seat=1, players=(FROZEN, "learner"), source=(1, i)) for i in range(6)])
    for playable, others in ((None, {FROZEN}), ([], {"scripted:push", "learner"})):
        made.freeze(0, ALL, playable)
        seen = set()
        for at in range(200):
            for told in (PLAYERS, ("learner", "learner"), ("scripted:push", "learner")):
                players, start = made.begin(at, 0, told)
                if start.kind == TRUE:
                    assert players == told
                    continue
                assert players[start.seat] == "learner"
                seen.add(players[1 - start.seat])
                assert start.kind != CURRICULUM or playable is None, "its frozen loser cannot be met"
        assert seen == others


# ---- what is entered ---------------------------------------------------------------------------------------------
def test_a_curriculum_start_votes_and_its_win_is_stitched() -> None:
    made = scheduler()
    one = of_kind(begun := begin(made), CURRICULUM)
    made.close(begun)
    curriculum, store = made.store.curriculum, made.store
    rung = int(one.ref.split("/")[2])
    tail = route(
        CELLS[rung + 1 :], first=20 * (rung + 1), source=(one.battle, 0), first_hash=1000 + 20 * (rung + 1), margin=3
    )
    before = len(curriculum.front(0).votes)
    made.close([], [Finished(result(one.battle, 0), routes=[tail])])
    assert len(curriculum.front(0).votes) + curriculum.counts["uncredited"] == before + 1
    assert len(store.archive) == 2
    assert store.repository.get(max(store.archive.ids)).complete
    assert store.wins == 1
    assert store.statistics.starts(Bucket(one.partition, one.key)) >= 1
    assert store.statistics.success_rate(Bucket(one.partition, one.key)) > 0.5


def test_a_pools_tail_is_never_a_whole_route() -> None:
    """Invariant 21, the two authorities' trap: a restart's short win fills buckets and is archived nowhere."""
    made = scheduler(routes=0)
    one = of_kind(begun := begin(made), POOL)
    made.close(begun)
    tail = minted(route(CELLS[1:], first=20, source=(one.battle, 0)))
    made.close([], [Finished(result(one.battle, 0), [point(77)], [tail])])
    assert len(made.store.archive) == 0
    assert len(made.store.buckets) > 0
    assert made.pool.counts["scored"] == 1
    assert made.pool.counts["stored"] == 1


def test_what_is_held_for_an_episode_is_released_whatever_happens() -> None:
    """Invariants 6, 19 and 30: a recorder that throws, a refusal, a cut, a battle that moved on."""
    made = scheduler()
    begun = [b for b in begin(made) if b.kind != TRUE]
    made.close(begun)
    assert made.pool.in_flight == [(b.battle, 0) for b in begun if b.kind == POOL]
    idle = scheduler().store.occupancy()["holds"]
    assert made.store.occupancy()["holds"] == idle + sum(b.kind != POOL for b in begun)
    foreign = point(1, stamp=replace(STAMP, cards="another"))
    timeouts, cut = {}, []
    for i, b in enumerate(begun):
        if i % 4 == 0:
            with pytest.raises(ValueError, match="another game"):
                made.close([], [Finished(result(b.battle, 0), [foreign])])
            assert (b.battle, 0) not in made.pool.in_flight
            with pytest.raises(KeyError):
                made.store.repository.release(0, f"episode {b.battle}/0")
        elif i % 4 == 1:
            timeouts[b.battle, 0] = REFUSED
        elif i % 4 == 2:
            cut.append(Finished(result(b.battle, 0, None)))
    made.close([], cut, timeouts)
    made.close([Begun(b.battle, 1, PLAYERS, TRUE, TRUE) for b in begun])
    assert made.pool.in_flight == []
    assert made.store.occupancy()["holds"] == idle
    assert made.diagnostics()["in_flight"] == 0
    counts = made.pool.counts
    ended = ("scored", REFUSED, CAPPED, "abandoned")
    assert counts["restarts"] == sum(counts[n] for n in ended)
    assert all(counts[n] for n in ended)


def test_battles_that_a_run_goes_on_without_are_forgotten() -> None:
    made = scheduler()
    idle = made.store.occupancy()["holds"]
    begun = begin(made)
    made.close(begun)
    made.forget(100)
    assert made.pool.in_flight == [(b.battle, 0) for b in begun if b.kind == POOL and b.battle < 100]
    assert made.store.occupancy()["holds"] == idle + sum(b.kind not in (TRUE, POOL) for b in begun if b.battle < 100)
    made.close([Begun(b.battle, 7, PLAYERS, TRUE, TRUE) for b in begun])
    made.forget(100)
    again = [b for b in begun if b.battle >= 100]  # the same battles, from their first episode on
    made.close(again)
    assert {at for at in made.pool.in_flight if at[0] >= 100} == {(b.battle, 0) for b in again if b.kind == POOL}


def test_every_rank_enters_the_same_whatever_the_order() -> None:
    one, two = scheduler(), scheduler()
    begun = begin(one)
    begin(two)
    ended = [
        Finished(result(b.battle, 0, (0.0, 0.5, 1.0)[b.battle % 3], round=b.battle % 5), [point(200 + b.battle)])
        for b in begun
    ]
    mixed = random.Random(3)
    for made in (one, two):
        made.close(begun, ended, {(4, 0): CAPPED}, {TRUE: 60, POOL: 40})
        mixed.shuffle(begun)
        mixed.shuffle(ended)
    assert msgspec.msgpack.encode(one.state()) == msgspec.msgpack.encode(two.state())
    assert one.lengths.means[TRUE] == 100.0
    assert one.true_share == pytest.approx(0.96)


def test_a_loaded_scheduler_goes_on_as_it_would_have() -> None:
    """Invariant 5."""
    made = scheduler()
    begun = begin(made)
    made.close(begun, [Finished(result(b.battle, 0, 0.0)) for b in begun[::3]], steps={TRUE: 60, POOL: 40})
    data = msgspec.msgpack.encode(made.state())
    copy = StartScheduler(1, RestartPool(PoolSettings(), 1, STAMP), RouteStore(SETTINGS, 1, STAMP))
    copy.load(msgspec.msgpack.decode(data))
    assert msgspec.msgpack.encode(copy.state()) == data
    assert copy.diagnostics() | {f"chance/{k}": 0 for k in START_KINDS} == made.diagnostics() | {
        f"chance/{k}": 0 for k in START_KINDS
    }
    for each in (made, copy):
        each.freeze(1, ALL)
    assert begin(copy) == begin(made)
    for each in (made, copy):
        each.close([], [Finished(result(b.battle, 0, 1.0)) for b in begun[1::3]])
    assert msgspec.msgpack.encode(copy.state()) == msgspec.msgpack.encode(made.state())
    bare = StartScheduler(1, RestartPool(PoolSettings(), 1, STAMP))
    bare.load(msgspec.msgpack.decode(data))
    bare.close([Begun(b.battle, 1, PLAYERS, TRUE, TRUE) for b in begun])
    assert bare.diagnostics()["in_flight"] == 0
