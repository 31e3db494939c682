"""Points and routes of real battles: minted by replay, played again, exchanged with RoyaleGym."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from royalegym.state_mutator import Snapshot, load_snapshots, save_snapshots

from royale_lightning.battle.environment import make_env
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, POOL, RUNNING, TRUE_START, Assignment, EpisodeRecord, Round, Start
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena, build_games
from royale_lightning.battle.steps.replay import SAVE_STEPS, Replay
from royale_lightning.errors import UserError
from royale_lightning.restarts.key import key_digest, mirrored
from royale_lightning.restarts.markers import MarkerSettings
from royale_lightning.restarts.mint import Minted, best_rank, mint, partition_of, priority_of
from royale_lightning.restarts.royalegym_bank import read_royalegym_bank, write_royalegym_bank
from royale_lightning.restarts.state import unpack_commands

SPEC = BattleSpec()
STAMP = stamp_of(SPEC, key_digest())
MARKERS = MarkerSettings()


def played(players: tuple[str, str], start: Start = TRUE_START, seed: int = 3) -> EpisodeRecord:
    """One whole battle, the learner random-legal."""
    r = Round(1, prepare(SPEC).row_layout.row_bytes)
    arena = build_arena(SPEC, 0, 1, r, ArenaSettings(seed=7, forced_share=0.0))
    rng = np.random.default_rng(seed)
    fresh = [Assignment(0, 4, players, 500 + seed, keep_commands=True, start=start)]
    while True:
        arena.advance(fresh)
        fresh = []
        if r.end[0] != RUNNING:
            return replace(r.episodes[0], start=start)
        for slot in np.flatnonzero(r.kind == CHOICE):
            layout = prepare(SPEC).row_layout
            mask = layout.unpack_mask(layout.views(r.rows)["action_mask"][slot : slot + 1])[0]
            r.action[slot] = 0 if rng.random() < 0.7 else rng.choice(np.flatnonzero(mask)[1:])


def minted(record: EpisodeRecord, **more: object) -> Minted:
    (game,) = build_games(SPEC, 1)
    replay = Replay(game, SaveStateCodec(STAMP), record)
    return mint(replay, MARKERS, STAMP, policy_version=5, tick_limit=None, **more)  # type: ignore[arg-type]


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


def test_royalegym_banks_are_read_and_written(mirror: EpisodeRecord, tmp_path: Path) -> None:
    points = minted(mirror).points[:6]
    write_royalegym_bank(tmp_path / "ours.bank", points, STAMP)
    theirs = load_snapshots(tmp_path / "ours.bank")
    assert [(s.seat, s.tag) for s in theirs] == [(p.seat, p.tag) for p in points]
    env = make_env(replace(SPEC, arena="env", observation="spatial"))
    env.reset(seed=0, options={"snapshot": theirs[3]})
    assert env.engine.state_hash() == points[3].state_hash
    save_snapshots(tmp_path / "theirs.bank", [env.snapshot(tag="own"), theirs[0]])
    back = read_royalegym_bank(tmp_path / "theirs.bank", SPEC, STAMP)
    assert [(p.seat, p.state_hash, p.tag) for p in back] == [
        (0, points[3].state_hash, "own"), (1, points[3].state_hash, "own"),
        (points[0].seat, points[0].state_hash, points[0].tag),
    ]
    assert back[-1].key == points[0].key
    assert SaveStateCodec(STAMP).unpack(back[-1].payload).tick == points[0].tick
    assert [p for p in back if p.remembered != (True, True)] == []
    for bad, why in (
        (Snapshot(theirs[0].blob), "has no memory"),
        (Snapshot(theirs[0].blob[:-9], theirs[0].memory), "does not load in these battles"),
        (Snapshot(theirs[0].blob, theirs[1].memory if points[1].tick != points[0].tick else b"x"), "does not load"),
    ):
        save_snapshots(tmp_path / "bad.bank", [theirs[0], bad])
        with pytest.raises(UserError, match=f"snapshot 1 of .*bad.bank' {why}"):
            read_royalegym_bank(tmp_path / "bad.bank", SPEC, STAMP)
    (tmp_path / "torn.bank").write_bytes((tmp_path / "ours.bank").read_bytes()[:-20])
    with pytest.raises(UserError, match="is no snapshot bank"):
        read_royalegym_bank(tmp_path / "torn.bank", SPEC, STAMP)
