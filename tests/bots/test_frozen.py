"""Frozen opponents: together they act as each would alone, and only those in play stay in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from royale_lightning.battle.round import CHOICE, Assignment
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.bots import frozen
from royale_lightning.bots.bot_files import Weights
from royale_lightning.bots.frozen import FrozenActors
from royale_lightning.bots.snapshots import SnapshotStore
from royale_lightning.nn import actor_state_dict
from royale_lightning.parts import Part
from tests.support.bots import Reflex, make_bot

SPEC = BattleSpec()
ENTITY = Part("royale_lightning.nn.EntityNetwork", {"width": 8, "layers": 1, "heads": 2, "map_channels": 4})


class Branching(Reflex):
    """A network that vmap cannot map: a Python branch on its data."""

    def forward(self, obs):  # type: ignore[no-untyped-def]
        return super().forward({**obs, "wide": obs["wide"] * 1} if bool(obs["wide"].sum() > 0) else obs)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    source = InlineSource(SPEC, 0, 16, ArenaSettings(1, 0.0, 1))
    source.advance([Assignment(b, 0, ("learner", "frozen"), 1000 + b, stagger=20 + 9 * b) for b in range(16)])
    r = source.round
    found = r.rows[np.flatnonzero(r.kind == CHOICE)].copy()
    source.close()
    return found


def actors(folder: Path, networks: list[Part | None]) -> tuple[FrozenActors, list[str]]:
    store = SnapshotStore(folder)
    bots = [make_bot(seed=i, network=part) for i, part in enumerate(networks)]
    ids = [store.add(b.record, actor_state_dict(b.network)) for b in bots]
    return FrozenActors(store, SPEC, torch.device("cpu")), ids


@pytest.mark.parametrize("network", [ENTITY, None, Part("tests.bots.test_frozen.Branching")])
def test_together_as_each_alone(network: Part | None, tmp_path: Path, rows: np.ndarray) -> None:
    many, ids = actors(tmp_path, [network] * 6)
    many.require(ids)
    players = np.array([ids[i * i % 6] for i in range(len(rows))], dtype=object)
    assert len(set(players)) < 6, "some of them have no row, others several"
    players[: len(ids)] = ids
    u = np.random.default_rng(0).random((len(rows), 2))
    got = many.act(players, torch.from_numpy(rows), torch.from_numpy(u)).numpy()
    mapped = next(iter(many._architectures.values())).mapped is not None
    assert mapped == (network is None or "Branching" not in network.class_path)
    alone = [many.store.load(p).choose(rows[i : i + 1], u[i : i + 1])[0] for i, p in enumerate(players)]
    assert (got == np.array(alone)).all()
    assert len(set(got)) > 3, "they play"


def test_two_architectures_in_one_round(tmp_path: Path, rows: np.ndarray) -> None:
    many, ids = actors(tmp_path, [ENTITY, None] * 3)
    many.require(ids)
    players = np.array([ids[i % 6] for i in range(len(rows))], dtype=object)
    u = np.random.default_rng(1).random((len(rows), 2))
    got = many.act(players, torch.from_numpy(rows), torch.from_numpy(u)).numpy()
    alone = [many.store.load(p).choose(rows[i : i + 1], u[i : i + 1])[0] for i, p in enumerate(players)]
    assert (got == np.array(alone)).all()


def test_only_those_in_play_and_the_last_used_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "KEEP", 1)
    many, ids = actors(tmp_path, [None] * 5)
    many.require(ids[:3])
    assert set(many.loaded) == set(ids[:3])
    many.require([ids[3]])
    assert len(many.loaded) == 2
    assert ids[3] in many.loaded
    many.require(ids)
    assert set(many.loaded) == set(ids)


def test_weights_are_stacked_when_somebody_comes_and_not_in_every_round(
    tmp_path: Path, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "KEEP", 1)
    many, ids = actors(tmp_path, [ENTITY] * 8)
    made: list[list[str]] = []
    real = frozen._Stack.of

    def counted(weights: Mapping[str, Weights]) -> frozen._Stack:
        if "one" not in weights:  # the pair that only tries whether the network maps
            made.append(list(weights))
        return real(weights)

    monkeypatch.setattr(frozen._Stack, "of", counted)
    u = np.random.default_rng(2).random((len(rows), 2))

    def round_of(players: list[str]) -> None:
        names = np.array([players[i * i % len(players)] for i in range(len(rows))], dtype=object)
        names[: len(players)] = players
        got = many.act(names, torch.from_numpy(rows), torch.from_numpy(u)).numpy()
        alone = [many.store.load(p).choose(rows[i : i + 1], u[i : i + 1])[0] for i, p in enumerate(names)]
        assert (got == np.array(alone)).all()

    many.require(ids[:6])
    round_of(ids[:6])
    assert made == [sorted(ids[:6])]
    # Some of them, in another order, some with more rows than others: the same stack.
    round_of(ids[:5])
    round_of(ids[5:0:-1])
    assert len(made) == 1
    # One more is in play: stacked anew, once.
    many.require(ids[:7])
    round_of(ids[:7])
    round_of(ids[2:7])
    assert made[1:] == [sorted(ids[:7])]
    # The stack holds nobody who is no longer in memory.
    many.require(ids[6:])
    assert all(stack.at.keys() <= set(many.loaded) for stack in many._stacks.values())
    assert len(many.loaded) == 3
