"""Snapshots on disk: one id per actor, refusals by field, damage found and set aside."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.bot_files import WEIGHTS
from royale_lightning.bots.snapshots import (
    DamagedSnapshot,
    LostSnapshot,
    SnapshotStore,
    UnreadableSnapshot,
    check_fits,
    snapshot_id,
)
from royale_lightning.errors import UserError
from royale_lightning.nn import actor_state_dict
from tests.support.bots import make_bot


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    """The run's own."""
    return SnapshotStore(tmp_path / "run" / "snapshots", sets_aside=True)


def add(store: SnapshotStore, bot: Bot) -> str:
    return store.add(bot.record, actor_state_dict(bot.network))


def test_the_id_is_of_the_actor_and_not_of_who_made_it(store: SnapshotStore, bot: Bot, other: Bot) -> None:
    weights = actor_state_dict(bot.network)
    mine = snapshot_id(bot.record, weights)
    assert snapshot_id(replace(bot.record, run="another", game_steps=7), weights) == mine
    assert snapshot_id(other.record, actor_state_dict(other.network)) != mine
    nudged = {k: x.clone() for k, x in weights.items()}
    first = next(iter(nudged))
    nudged[first].view(-1)[0] += 1e-6
    assert snapshot_id(bot.record, nudged) != mine
    assert add(store, bot) == mine
    written = (store.path(mine) / WEIGHTS).stat().st_mtime_ns
    assert add(store, bot) == mine
    assert (store.path(mine) / WEIGHTS).stat().st_mtime_ns == written
    assert store.ids() == [mine]


def test_a_loaded_snapshot_acts_as_the_bot_did(store: SnapshotStore, bot: Bot) -> None:
    loaded = store.load(add(store, bot))
    assert loaded.name == snapshot_id(bot.record, actor_state_dict(bot.network))
    assert Bot.load(store.path(loaded.name)).name == loaded.name
    rng = np.random.default_rng(0)
    rows = np.zeros((5, bot.layout.row_bytes), dtype=np.uint8)
    rows[:] = rng.integers(0, 255, rows.shape, dtype=np.uint8)
    u = rng.random((5, 2))
    assert (loaded.choose(rows, u) == bot.choose(rows, u)).all()


def test_a_damaged_file_is_set_aside_with_one_sentence(store: SnapshotStore, bot: Bot, other: Bot) -> None:
    for spoil in ("torn", "foreign"):
        snapshot = add(store, bot)
        file = store.path(snapshot) / WEIGHTS
        if spoil == "torn":
            file.write_bytes(file.read_bytes()[:-100])
        else:
            file.write_bytes((store.path(add(store, other)) / WEIGHTS).read_bytes())
        with pytest.raises(DamagedSnapshot, match=f"snapshot {snapshot} is damaged .*was moved to"):
            store.read(snapshot)
        assert snapshot not in store
    assert sum("damaged" in p.name for p in store.folder.iterdir()) == 2
    with pytest.raises(UserError, match="there is no snapshot"):
        store.read(snapshot)


def test_only_damage_is_set_aside_and_only_by_the_run_itself(
    store: SnapshotStore, bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    snapshot = add(store, bot)
    file = store.path(snapshot) / WEIGHTS
    whole = file.read_bytes()
    guest = SnapshotStore(store.folder)
    before = sorted(store.folder.rglob("*"))
    # No more open files: what a process meets that leaks them, whoever reads.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    reads = [store.read, guest.read, store.load]
    for read in reads:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        try:
            with pytest.raises(UnreadableSnapshot) as told:
                read(snapshot)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert not isinstance(told.value, LostSnapshot)
        assert sorted(store.folder.rglob("*")) == before
    # A record of a version to come.
    with monkeypatch.context() as newer:
        newer.setattr("royale_lightning.bots.bot_files.SCHEMA", -1)
        with pytest.raises(UnreadableSnapshot, match="upgrade royale_lightning"):
            store.read(snapshot)
    assert sorted(store.folder.rglob("*")) == before
    assert store.read(snapshot)
    # Damage: a guest says so, the run moves it away.
    file.write_bytes(whole[:-100])
    with pytest.raises(DamagedSnapshot, match="bring it back from a copy"):
        guest.read(snapshot)
    assert sorted(store.folder.rglob("*")) == before
    with pytest.raises(DamagedSnapshot, match="it was moved to"):
        store.read(snapshot)
    assert snapshot not in store


def test_imports_from_another_run_and_refuses_field_by_field(store: SnapshotStore, bot: Bot, tmp_path: Path) -> None:
    bot.save(tmp_path / "elsewhere")
    assert store.add_bot(tmp_path / "elsewhere", BattleSpec(deck="random")) in store
    odd = BattleSpec(decision_ms=250, command_delay_ticks=3, frame_stack=2)
    with pytest.raises(UserError, match=r"observation .* there and .* here; battle\.decision_ms 500 there and 250"):
        check_fits(bot.record, odd, "that bot")
    with pytest.raises(UserError, match=r"battle\.command_delay_ticks 0 there and 3 here"):
        store.add_bot(tmp_path / "elsewhere", odd)


def test_shared_memory_and_odd_types_have_ids() -> None:
    tied = torch.ones(3)
    a = {"x": tied, "y": tied, "n": torch.tensor(3), "h": torch.ones(2, dtype=torch.bfloat16)}
    record = make_bot().record
    assert snapshot_id(record, a) == snapshot_id(record, {k: v.clone() for k, v in reversed(a.items())})
