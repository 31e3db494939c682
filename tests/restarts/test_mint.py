"""Points and routes of real battles: minted by replay, and played again."""

from __future__ import annotations

import pytest

from royale_lightning.battle.round import POOL, EpisodeRecord, Start
from royale_lightning.battle.steps.replay import SAVE_STEPS
from royale_lightning.restarts.outcomes import best_rank
from royale_lightning.restarts.records.episodes import partition_of, priority_of
from royale_lightning.restarts.records.key import mirrored
from royale_lightning.restarts.records.route import unpack_commands
from tests.support.restart_battles import MARKERS, minted, played


@pytest.fixture(scope="module")
def mirror() -> EpisodeRecord:
    return played(("learner", "learner"))


def test_a_mirror_battle_gives_both_seats_their_own_view_of_one_moment(mirror: EpisodeRecord) -> None:
    m = minted(mirror)
    blue, red = ([p for p in m.points if p.seat == s] for s in (0, 1))
    assert len(blue) >= 5
    assert len({p.blob for p in m.points}) < len(m.points), "seats share the moment's bytes"
    both = {p.game_step: p for p in blue}
    shared = [(both[p.game_step], p) for p in red if p.game_step in both]
    assert shared
    assert all(b.key == mirrored(r.key) and b.payload is r.payload for b, r in shared)
    assert all(p.game_step + MARKERS.grace_steps < mirror.game_steps for p in m.points), "the grace period"
    assert all(p.partition == "mirror" and p.policy_version == 5 and p.source == (0, 4) for p in m.points)
    assert m.cost == mirror.game_steps + SAVE_STEPS * len({p.blob for p in m.points})


def test_a_point_is_played_and_its_episode_minted_in_turn(mirror: EpisodeRecord) -> None:
    point = minted(mirror).points[4]
    start = Start(POOL, point.blob, point.payload, point.seat, point.id)
    record = played(("learner", "scripted:push"), start)
    assert record.start.kind == POOL
    assert record.course[0][1].tick == point.tick
    again = minted(record)
    assert all(p.game_step > point.game_step and p.tick == 10 * p.game_step for p in again.points)
    assert {p.partition for p in again.points} == {"scripted:push"}
    assert [p.seat for p in again.points] == [0] * len(again.points), "only the learner's seat"


def test_a_route_holds_both_seats_plays_and_ends_in_the_outcome() -> None:
    record = played(("scripted:noop", "learner"))
    assert record.winner == 1, "the learner plays, the other does not"
    priority = priority_of(record, 1, band=3)
    assert priority[:3] == (3, 1, record.crowns[1] - record.crowns[0])
    (route,) = minted(record, routes=[(1, priority)]).routes
    assert (route.complete, route.won, route.seat, route.players) == (True, True, 1, record.players)
    assert (route.first_step, route.last_step) == (0, record.game_steps)
    assert unpack_commands(route.commands) == record.commands
    assert route.segments[-1].end_hash == record.state_hash
    assert [s.eligible for s in route.segments] == [True] * (len(route.segments) - 1) + [False]
    assert all(s.end is not None and s.end.state_hash == s.end_hash for s in route.segments[:-1])
    best = best_rank(record, 1, MARKERS)
    assert best is not None
    assert best >= max(p.rank for p in minted(record).points if p.game_step % 20 == 0)


def test_partitions_name_scripted_opponents_and_no_snapshot() -> None:
    assert partition_of(("learner", "learner"), 0) == "mirror"
    assert partition_of(("scripted:push", "learner"), 1) == "scripted:push"
    assert partition_of(("learner", "000012"), 0) == partition_of(("000013", "learner"), 1) == "snapshot"


