"""What a route's seat saw and did, rebuilt: the very bytes that it acted on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, RUNNING, Assignment, EpisodeRecord, Round
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena, build_games
from royale_lightning.battle.steps.replay import SAVE_STEPS, Replay, ReplayMismatch
from royale_lightning.restarts.harvest import Harvester
from royale_lightning.restarts.mint import mint
from royale_lightning.restarts.moments import MarkerSettings
from royale_lightning.restarts.records.episodes import priority_of, record_of
from royale_lightning.restarts.records.key import key_digest
from royale_lightning.restarts.records.route import Route, unpack_commands
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.demonstrations import RouteDemonstrations
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings

SPEC = BattleSpec()
STAMP = stamp_of(SPEC, key_digest())


@pytest.fixture(scope="module")
def battle() -> tuple[EpisodeRecord, np.ndarray, np.ndarray]:
    """A battle that red won, with the rows it acted on and what it did."""
    r = Round(1, prepare(SPEC).row_layout.row_bytes)
    arena = build_arena(SPEC, 0, 1, r, ArenaSettings(seed=7, forced_share=0.0))
    rng = np.random.default_rng(3)
    fresh = [Assignment(0, 4, ("scripted:noop", "learner"), 503, keep_commands=True)]
    rows, actions = [], []
    while True:
        arena.advance(fresh)
        fresh = []
        if r.end[0] != RUNNING:
            return r.episodes[0], np.stack(rows), np.array(actions)
        if r.kind[1] == CHOICE:
            mask = prepare(SPEC).row_layout.unpack_mask(prepare(SPEC).row_layout.views(r.rows)["action_mask"][1:2])[0]
            r.action[1] = 0 if rng.random() < 0.7 else rng.choice(np.flatnonzero(mask)[1:])
            rows.append(r.rows[1].copy())
            actions.append(int(r.action[1]))


@pytest.fixture(scope="module")
def route(battle: tuple[EpisodeRecord, np.ndarray, np.ndarray]) -> Route:
    record = battle[0]
    assert record.winner == 1
    (game,) = build_games(SPEC, 1)
    replay = Replay(game, SaveStateCodec(STAMP), record)
    wanted = [(1, priority_of(record, 1))]
    return mint(replay, MarkerSettings(), STAMP, policy_version=1, tick_limit=None, routes=wanted).routes[0]


def demonstrations(*routes: Route) -> RouteDemonstrations:
    store = RouteStore(StoreSettings(curriculum=CurriculumSettings()), 1, STAMP)
    for r in routes:
        store.add(r)
    return RouteDemonstrations(SPEC, store)


def test_every_choice_is_rebuilt_to_the_byte(
    battle: tuple[EpisodeRecord, np.ndarray, np.ndarray], route: Route
) -> None:
    _, rows, actions = battle
    found = demonstrations().decisions(route)
    assert np.array_equal(found.action, actions)
    assert np.array_equal(found.rows, rows)
    assert (np.diff(found.game_step) > 0).all()


def test_slices_are_drawn_by_their_stream(route: Route) -> None:
    shown = demonstrations(route)
    a, b = (shown.demonstrations(np.random.default_rng(1), 40) for _ in range(2))
    c = shown.demonstrations(np.random.default_rng(2), 40)
    fresh = demonstrations(route).demonstrations(np.random.default_rng(1), 40)
    assert a is not None
    assert b is not None
    assert c is not None
    assert fresh is not None
    rows, actions = a
    assert rows.shape == (40, prepare(SPEC).row_layout.row_bytes)
    assert actions.shape == (40,)
    assert np.array_equal(rows, b[0])
    assert np.array_equal(rows, fresh[0]), "whatever was replayed before"
    assert not np.array_equal(rows, c[0])
    known = {row.tobytes() for row in shown.decisions(route).rows}
    assert all(row.tobytes() in known for row in rows)


def test_an_empty_archive_shows_nothing(route: Route) -> None:
    assert demonstrations().demonstrations(np.random.default_rng(1), 40) is None


def test_only_what_replays_is_shown(route: Route) -> None:
    broken = replace(route, segments=(*route.segments[:-1], replace(route.segments[-1], end_hash=1)))
    with pytest.raises(ReplayMismatch):
        demonstrations().decisions(broken)
    with pytest.raises(ValueError, match="without its beginning"):
        record_of(replace(route, complete=False))


def test_every_decision_of_a_route_is_minted_and_leads_to_its_end(route: Route) -> None:
    store = RouteStore(StoreSettings(curriculum=CurriculumSettings(decision_granular=True)), 1, STAMP)
    store.add(route)
    (route_id,) = store.archive.ids
    assert store.route_to_mint() == route_id
    harvester = Harvester(SPEC, STAMP, MarkerSettings(), 1.0, 1)
    points, cost = harvester.mint_decisions(route)
    assert points is not None
    assert sorted(points) == list(range(1, route.last_step))
    assert cost == route.last_step + SAVE_STEPS * len(points)
    assert store.set_decisions(route_id, points)
    assert store.route_to_mint() is None
    minted_ends = {s.end_step: s.end for s in route.segments if s.end is not None}
    for step, end in minted_ends.items():
        assert (points[step].state_hash, points[step].key) == (end.state_hash, end.key)
    # From any of them the recorded plays lead to the recorded end.
    (game,), codec = build_games(SPEC, 1), SaveStateCodec(STAMP)
    plays = {(step, seat): action for step, seat, action in unpack_commands(route.commands)}
    for at in (1, route.last_step // 2, route.last_step - 1):
        game.load(codec.unpack(points[at].payload), Assignment(0, 0, route.players, 0), (True, True))
        for step in range(at, route.last_step):
            game.step(plays.get((step, 0), 0), plays.get((step, 1), 0))
        assert game.state_hash() == route.segments[-1].end_hash


def test_a_route_that_does_not_replay_gives_no_decisions(route: Route) -> None:
    harvester = Harvester(SPEC, STAMP, MarkerSettings(), 1.0, 1)
    points, cost = harvester.mint_decisions(replace(route, seed=route.seed + 1))
    assert points is None
    assert cost > 0
    assert harvester.failures == 1
