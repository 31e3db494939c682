"""What a rollout holds, on the real engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from royale_lightning.battle.opponents import ACTING
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.bots.bot_files import BotRecord
from royale_lightning.bots.frozen import FrozenActors
from royale_lightning.bots.snapshots import SnapshotStore
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MIRROR, POOL, MixMatchmaker, OpponentTable, exact_counts
from royale_lightning.nn import actor_state_dict, build_network
from royale_lightning.nn.distribution import MaskedCategorical
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.nn.rows import unpack
from royale_lightning.parts import Part
from royale_lightning.rollout.collector import Collector
from royale_lightning.rollout.data import inputs_of

SPEC = BattleSpec(max_ticks=1200)


@pytest.fixture(scope="module")
def network() -> ActorCritic:
    net = build_network(
        {"class_path": "entity", "init_args": {"width": 16, "layers": 1}}, inputs_of(SPEC), seed=1
    )
    return net.eval()


def collector(
    forced: float, battles: int = 4, mirror: float = 0.5, rows: int = 200, max_rounds: int = 5000, pool: float = 0.0
) -> Collector:
    source = InlineSource(SPEC, 0, battles, ArenaSettings(1, forced, 2))
    return Collector(
        source, SPEC, MixMatchmaker(1, battles, mirror, pool, 1 - mirror - pool, ACTING), seed=1, first=0, rows=rows,
        max_rounds=max_rounds, stagger=False, device=torch.device("cpu"), count_forced=False,
    )


def test_rows_cells_and_actions_belong_together(network: ActorCritic) -> None:
    c = collector(0.1)
    r = c.collect(network, gamma=0.99)
    n = len(r.rows)
    assert n >= 200
    index = r.cells.row[r.cells.row >= 0]
    assert sorted(index.tolist()) == list(range(n)), "every row lies in exactly one cell"
    obs = unpack(r.rows, prepare(SPEC).row_layout)
    legal = obs["action_mask"].gather(1, r.action[:, None])[:, 0]
    assert legal.all()
    several = obs["action_mask"].sum(1) > 1
    assert torch.equal(several, r.choice), "a choice row has more than one legal action, a value-only row one"
    with torch.no_grad():
        logits, value = network(obs)
    again = MaskedCategorical(logits, obs["action_mask"], prepare(SPEC).action_layout).log_prob(r.action)
    assert torch.allclose(again, r.log_prob, atol=1e-4)
    assert torch.allclose(value, r.value, atol=1e-4)
    assert (r.log_prob[~r.choice] == 0).all()
    assert r.game_steps == int(r.cells.duration[:, ::2].sum())
    c.source.close()


def test_mirror_battles_store_both_seats_and_scripted_ones_one(network: ActorCritic) -> None:
    c = collector(0.0, battles=4, mirror=0.5)
    r = c.collect(network)
    per_battle = r.cells.learner.reshape(r.rounds, 4, 2).sum(2)
    assert sorted(per_battle[0].tolist()) == [1, 1, 2, 2]
    assert (r.cells.row[~r.cells.learner] == -1).all()
    c.source.close()


def test_keeping_every_forced_decision_makes_a_round_a_game_step(network: ActorCritic) -> None:
    c = collector(1.0, battles=2, mirror=1.0, rows=300)
    r = c.collect(network)
    assert r.cells.duration.max() == 1
    assert (~r.choice).sum() > 0
    c.source.close()


def test_a_rollout_goes_on_where_the_last_one_was_cut(network: ActorCritic) -> None:
    c = collector(0.0, battles=2, mirror=1.0, rows=60)
    a = c.collect(network)
    waiting = c.source.round.rows[c.source.round.kind > 0].copy()
    b = c.collect(network)
    assert np.array_equal(b.rows[: len(waiting)].numpy(), waiting)
    assert a.game_steps > 0
    c.source.close()


def test_too_few_rounds_halt_with_one_sentence(network: ActorCritic) -> None:
    c = collector(0.0, battles=1, rows=300, max_rounds=5)
    with pytest.raises(UserError, match=r"5 rounds and holds \d+ of 300 rows"):
        c.collect(network)
    c.source.close()


def test_shares_are_exact_counts() -> None:
    assert exact_counts([0.5, 0.35, 0.15], 96) == [48, 34, 14]
    assert sum(exact_counts([1, 1, 1], 10)) == 10
    table = OpponentTable(("a", "b"), (0.25, 0.75))
    m = MixMatchmaker(3, 40, 0.25, 0.25, 0.5, ["push"])
    met = [m.players(b, 0, table) for b in range(40)]
    assert sum(p == ("learner", "learner") for p in met) == 10
    assert sum(bool({"a", "b"} & set(p)) for p in met) == 10
    pools = [b for b in range(40) if m.kinds[b] == POOL]
    assert all(m.players(b, 0, OpponentTable()) == ("learner", "learner") for b in pools), "an empty pool is mirror"
    many = [m.players(b, k, table) for b in range(40) for k in range(50) if m.kinds[b] != MIRROR]
    assert 0.45 < np.mean([p.index("learner") for p in many]) < 0.55
    assert 0.70 < np.mean(["b" in p for p in many if "scripted:push" not in p]) < 0.80
    assert m.players(7, 3, table) == MixMatchmaker(3, 40, 0.25, 0.25, 0.5, ["push"]).players(7, 3, table)


def test_a_pool_that_comes_later_leaves_the_other_battles_alone() -> None:
    without = MixMatchmaker(3, 40, 0.5, 0, 0.5, ["push", "defend"])
    with_pool = MixMatchmaker(3, 40, 0.5, 0.1, 0.4, ["push", "defend"])
    table = OpponentTable(("a",), (1.0,))
    same = [
        without.players(b, k, OpponentTable()) == with_pool.players(b, k, table)
        for b in range(40) for k in range(5) if with_pool.kinds[b] != POOL
    ]
    assert all(same)


class Recorder(FrozenActors):
    """Frozen actors that note whom they were asked for."""

    asked: set[tuple[str, int]]

    def act(self, snapshots: np.ndarray, rows: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        assert set(snapshots) <= set(self.loaded)
        self.asked |= set(snapshots)
        return super().act(snapshots, rows, uniforms)


def test_battles_in_flight_keep_their_opponents_through_a_resume(network: ActorCritic, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    record = BotRecord.of(SPEC, Part("royale_lightning.nn.EntityNetwork", {"width": 16, "layers": 1}))
    weights = actor_state_dict(network)
    ids = []
    for i in range(3):
        first = next(iter(weights))
        ids.append(store.add(record, {**weights, first: weights[first] + i}))

    def start() -> Collector:
        c = collector(0.0, battles=6, mirror=0.0, pool=1.0)
        c.frozen = Recorder(store, SPEC, torch.device("cpu"))
        c.frozen.asked = set()  # type: ignore[attr-defined]
        return c

    c = start()
    c.table = OpponentTable(tuple(ids[:2]), (0.5, 0.5))
    c.collect(network)
    assert c.frozen.asked == set(ids[:2])  # type: ignore[union-attr]
    before, ended = list(c.players), c.ended.copy()
    assert (~ended).any(), "battles are in flight"
    state = c.state_dict()
    c.table = OpponentTable((ids[2],), (1.0,))
    went_on = c.collect(network)
    c.source.close()

    again = start()
    again.load_state_dict(state)
    assert [p for p, e in zip(again.players, ended, strict=True) if not e] == [
        p for p, e in zip(before, ended, strict=True) if not e
    ]
    again.table = OpponentTable((ids[2],), (1.0,))
    resumed = again.collect(network)
    again.source.close()
    assert torch.equal(went_on.rows, resumed.rows)
    assert [e.players for e in went_on.episodes] == [e.players for e in resumed.episodes]
    assert any(ids[2] in e.players for e in went_on.episodes) or ids[2] in str(again.players)

    (store.path(ids[0]) / "actor.safetensors").write_bytes(b"torn")
    lost = start()
    lost.load_state_dict(state)
    gone = [b for b in range(6) if ids[0] in before[b] and not ended[b]]
    assert gone
    assert all(lost.ended[b] for b in gone), "their battles begin anew"
    lost.table = OpponentTable((ids[1],), (1.0,))
    assert len(lost.collect(network).rows) >= 200
    lost.source.close()
