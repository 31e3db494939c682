"""Banks a pool begins with: RoyaleGym's, and what is refused of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from royalegym.state_mutator import Snapshot, load_snapshots, save_snapshots

from royale_lightning.battle.environment import make_env
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.errors import UserError
from royale_lightning.restarts.pool.bank_import import read_royalegym_bank
from tests.support.restart_battles import SPEC, STAMP, minted, played


def test_royalegyms_banks_are_read(tmp_path: Path) -> None:
    points = minted(played(("learner", "learner"))).points[:6]
    states = [SaveStateCodec(STAMP).unpack(p.payload) for p in points]
    save_snapshots(tmp_path / "ours.bank", [
        Snapshot(s.engine, s.memory, p.seat, s.max_ticks, p.tag) for s, p in zip(states, points, strict=True)
    ])
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
