"""Drawn decks in arenas: the same in both kinds, in processes, after a resume, in replays and restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, RUNNING, TRUE_START, Assignment, Deal, EpisodeRecord, Round, Start
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena, build_games
from royale_lightning.battle.steps.processes import ProcessSource
from royale_lightning.battle.steps.replay import Replay, ReplayMismatch
from royale_lightning.battle.steps.sources import InlineSource, RolloutSource
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import build_network
from royale_lightning.parts import Part
from royale_lightning.restarts.mint import mint
from royale_lightning.restarts.moments import MarkerSettings
from royale_lightning.restarts.records.episodes import priority_of, record_of
from royale_lightning.restarts.records.key import key_digest
from royale_lightning.restarts.records.route import Route
from royale_lightning.restarts.routes.repository import pack_routes, unpack_routes
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import inputs_of
from tests.battle.test_decks import BAIT, GIANT, HOG
from tests.support.rounds import drive, same

#: Whoever plays, and whenever, makes a difference here.
DECK: dict[str, Any] = {
    "own": {"hog": HOG, "bait": BAIT, "giant": GIANT}, "enemy": {"widen": [[0, 12], [1000, "all"]]},
}
PLAYERS = [("learner", "learner"), ("learner", "scripted:push"), ("scripted:random", "learner")]


def decks_of(game: Any) -> list[list[int]]:
    """Both decks as they are dealt in a game that stands at its beginning, each sorted."""
    state = game.env.battle_state if hasattr(game, "env") else None
    if state is None:
        from royale_lightning.battle.engine.engine import decode_state

        state = decode_state(game.battle)
    return [sorted(p.deck) for p in state.players]


@pytest.mark.parametrize("deck", ["mirrored", "shipped", DECK, [{"own": "random", "share": 2}, {"own": "starter"}]])
def test_both_arenas_deal_the_same(deck: Any) -> None:
    spec = BattleSpec(deck=deck)
    assert prepare(spec).batched
    env = replace(spec, arena="env")
    one, two = build_games(spec, 1)[0], build_games(env, 1)[0]
    for seed in range(4):
        for deal in (Deal(), Deal(0, 500), Deal(1, 2000)):
            assignment = Assignment(0, 0, ("a", "b"), seed, deal=deal)
            one.reset(assignment, (True, True))
            two.reset(assignment, (True, True))
            assert one.state_hash() == two.state_hash()
            assert decks_of(one) == decks_of(two) == [sorted(d.cards) for d in spec.dealt(seed, deal)]
    kwargs: dict[str, Any] = {"players": PLAYERS, "deal": Deal(1, 500)}
    same(drive(spec, 40, **kwargs), drive(env, 40, **kwargs))


# ---- a run -----------------------------------------------------------------------------------------------------
def collector(spec: BattleSpec, source: RolloutSource, game_steps: int) -> Collector:
    made = Collector(
        source, spec, MixMatchmaker(1, 4, 0.5, 0, 0.5, ["random", "patient"]), seed=1, first=0, rows=200,
        max_rounds=2000, stagger=False, count_forced=False, device=torch.device("cpu"), keep_commands=True,
    )
    made.game_steps = game_steps
    return made


def test_battles_keep_their_decks_through_a_resume_and_in_processes() -> None:
    spec = BattleSpec(deck=DECK, max_ticks=400)
    network = build_network(Part("tests.support.bots.Reflex"), inputs_of(spec), 0)

    def inline() -> RolloutSource:
        return InlineSource(spec, 0, 4, ArenaSettings(1, 0.05, 1))

    def as_tensors(r: Rollout) -> list[np.ndarray]:
        return [r.rows.numpy(), r.action.numpy(), r.cells.reward.numpy()]

    straight = collector(spec, inline(), 500)
    straight.collect(network)
    state = straight.state_dict()
    assert {b["assignment"]["deal"]["game_steps"] for b in state["battles"]} == {500}
    straight.game_steps = 1500
    reference = straight.collect(network)
    # Those in flight were dealt when they began, those after them by the run's steps then.
    assert {e.deal.game_steps for e in reference.episodes} == {500, 1500}
    for e in reference.episodes:
        one_learner = sum(p == "learner" for p in e.players) == 1
        assert e.deal.own == (e.players.index("learner") if one_learner else None)
    for source in (inline(), ProcessSource(spec, 0, 4, ArenaSettings(1, 0.05, 1), 2)):
        resumed = collector(spec, source, 1500)
        resumed.load_state_dict(state)
        again = resumed.collect(network)
        for a, b in zip(as_tensors(reference), as_tensors(again), strict=True):
            assert np.array_equal(a, b)
        assert [e.state_hash for e in again.episodes] == [e.state_hash for e in reference.episodes]
        source.close()


def test_a_checkpoint_from_before_there_were_deals_still_loads() -> None:
    spec = BattleSpec(deck="random", max_ticks=400)
    network = build_network(Part("tests.support.bots.Reflex"), inputs_of(spec), 0)
    straight = collector(spec, InlineSource(spec, 0, 4, ArenaSettings(1, 0.05, 1)), 0)
    straight.collect(network)
    state = straight.state_dict()
    for battle in state["battles"]:
        del battle["assignment"]["deal"]
    resumed = collector(spec, InlineSource(spec, 0, 4, ArenaSettings(1, 0.05, 1)), 10**6)
    resumed.load_state_dict(state)
    assert np.array_equal(straight.collect(network).rows.numpy(), resumed.collect(network).rows.numpy())


# ---- played again ----------------------------------------------------------------------------------------------
def played(spec: BattleSpec, deal: Deal, start: Start = TRUE_START) -> EpisodeRecord:
    """One battle of the learner on red, random-legal."""
    layout = prepare(spec).row_layout
    r = Round(1, layout.row_bytes)
    arena = build_arena(spec, 0, 1, r, ArenaSettings(seed=7, forced_share=0.0))
    rng = np.random.default_rng(3)
    fresh = [Assignment(0, 2, ("scripted:push", "learner"), 505, keep_commands=True, start=start, deal=deal)]
    while True:
        arena.advance(fresh)
        fresh = []
        if r.end[0] != RUNNING:
            return r.episodes[0]
        for slot in np.flatnonzero(r.kind == CHOICE):
            mask = layout.unpack_mask(layout.views(r.rows)["action_mask"][slot : slot + 1])[0]
            r.action[slot] = 0 if rng.random() < 0.7 else rng.choice(np.flatnonzero(mask)[1:])


def test_replays_routes_and_restarts_keep_a_battles_decks() -> None:
    spec = BattleSpec(deck=DECK, max_ticks=2500)
    stamp = stamp_of(spec, key_digest())
    codec = SaveStateCodec(stamp)
    deal = Deal(1, 500)
    record = played(spec, deal)
    assert record.deal == deal
    (game,) = build_games(spec, 1)
    made = mint(
        Replay(game, codec, record), MarkerSettings(), stamp, policy_version=1, tick_limit=None,
        routes=[(1, priority_of(record, 1))],
    )
    # A route holds what its battle was dealt by, in a checkpoint too; one from before there were deals has none.
    (route,) = made.routes
    packed = pack_routes([route])
    (again,) = unpack_routes(packed, stamp)
    assert again == route
    assert record_of(again).deal == deal
    assert isinstance(route, Route)
    del packed["routes"][0][-3]
    assert unpack_routes(packed, stamp)[0].deal == Deal()
    for _ in Replay(game, codec, record_of(again)).moments():
        pass
    with pytest.raises(ReplayMismatch):
        for _ in Replay(game, codec, replace(record, deal=Deal(0, 500))).moments():
            pass
    # An episode that begins in the middle has the decks of the battle it is the middle of.
    point = made.points[0]
    own = [sorted(d.cards) for d in spec.dealt(505, deal)]
    for arena in ("auto", "env"):
        (other,) = build_games(replace(spec, arena=arena), 1)
        state = codec.unpack(point.payload)
        other.load(state, Assignment(3, 3, ("a", "b"), 999, deal=Deal(0, 10**7)), (True, True))
        assert decks_of(other) == own
