"""A real battle, begun again in its middle, is one battle with what it continues."""

from __future__ import annotations

from dataclasses import replace

from royale_lightning.battle.round import BUCKET, Start
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.steps.arena import build_games
from royale_lightning.battle.steps.replay import Replay
from royale_lightning.restarts.records.episodes import priority_of
from royale_lightning.restarts.records.route import Reference, unpack_commands
from royale_lightning.restarts.routes.cuts import stitch
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from tests.support.restart_battles import SPEC, STAMP, minted, played

PLAYERS = ("learner", "scripted:push")


def test_a_stitched_battle_replays_to_every_state_of_both_its_parts() -> None:
    """Invariant 22 with the engine: one seed and the joined commands reach the tail's end, save state by save state."""
    record = played(PLAYERS)
    (prefix,) = minted(record, routes=[(0, priority_of(record, 0))]).routes
    stop = len(prefix.segments) // 2
    point = prefix.segments[stop - 1].end
    tail_record = played(PLAYERS, Start(BUCKET, point.blob, point.payload, 0, "0/1"), seed=8)
    (tail,) = minted(tail_record, routes=[(0, priority_of(tail_record, 0))]).routes
    assert not tail.complete
    whole = stitch(prefix, stop, tail)
    assert whole is not None
    assert whole.last_step == point.game_step + tail_record.game_steps
    (game,) = build_games(SPEC, 1)
    joined = replace(
        record, commands=unpack_commands(whole.commands), game_steps=whole.last_step, state_hash=tail_record.state_hash
    )
    replay = Replay(game, SaveStateCodec(STAMP), joined)
    hashes = {m.game_step: replay.state_hash() for m in replay.moments()}
    assert [hashes[s.end_step] for s in whole.segments[:-1]] == [s.end_hash for s in whole.segments[:-1]]
    store = RouteStore(StoreSettings(), 1, STAMP)
    store.add(prefix)
    before = store.occupancy()
    store.add(tail, Reference(0, 0, stop))
    told = store.occupancy()
    assert store.repository.get(1).complete
    assert told["bytes"] < told["referenced_bytes"], "the prefix's save states are held once"
    new = sum(len(s.end.payload) for s in tail.segments if s.end is not None)
    assert told["bytes"] == before["bytes"] + new
