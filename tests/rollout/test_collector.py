"""What a rollout holds, on the real engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from royale_lightning.battle.arena import ArenaSettings
from royale_lightning.battle.opponents import ACTING
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker, exact_counts
from royale_lightning.nn import build_network
from royale_lightning.nn.distribution import MaskedCategorical
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.rollout.collector import Collector
from royale_lightning.rollout.data import inputs_of
from royale_lightning.rollout.minibatch import unpack
from royale_lightning.rollout.sources import InlineSource

SPEC = BattleSpec(max_ticks=1200)


@pytest.fixture(scope="module")
def network() -> ActorCritic:
    net = build_network(
        {"class_path": "entity", "init_args": {"width": 16, "layers": 1}}, inputs_of(SPEC), seed=1
    )
    return net.eval()


def collector(
    forced: float, battles: int = 4, mirror: float = 0.5, rows: int = 200, max_rounds: int = 5000
) -> Collector:
    source = InlineSource(SPEC, 0, battles, ArenaSettings(1, forced, 2))
    return Collector(
        source, SPEC, MixMatchmaker(1, battles, mirror, 1 - mirror, ACTING), seed=1, first=0, rows=rows,
        max_rounds=max_rounds, stagger=False, device=torch.device("cpu"), count_forced=False,
    )


def test_rows_cells_and_actions_belong_together(network: ActorCritic) -> None:
    c = collector(0.1)
    r = c.collect(network, gamma=0.99)
    n = len(r.rows)
    assert n >= 200
    index = r.cells.row[r.cells.row >= 0]
    assert sorted(index.tolist()) == list(range(n)), "every row lies in exactly one cell"
    obs = unpack(r.rows, SPEC.row_layout)
    legal = obs["action_mask"].gather(1, r.action[:, None])[:, 0]
    assert legal.all()
    several = obs["action_mask"].sum(1) > 1
    assert torch.equal(several, r.choice), "a choice row has more than one legal action, a value-only row one"
    with torch.no_grad():
        logits, value = network(obs)
    again = MaskedCategorical(logits, obs["action_mask"], SPEC.action_layout).log_prob(r.action)
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
    m = MixMatchmaker(3, 40, 0.25, 0.75, ["push"])
    kinds = [m.players(b, 0) for b in range(40)]
    assert sum(k == ("learner", "learner") for k in kinds) == 10
    seats = [m.players(b, k).index("learner") for b in range(40) for k in range(50) if m.kinds[b] == "scripted"]
    assert 0.45 < np.mean(seats) < 0.55
    assert m.players(7, 3) == MixMatchmaker(3, 40, 0.25, 0.75, ["push"]).players(7, 3)
