"""Untrained bots that nevertheless care what they see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.nn import ActorCritic, Inputs, Observation, StagedLogits, build_network
from royale_lightning.parts import Part
from royale_lightning.rollout.data import inputs_of


class Reflex(ActorCritic):
    """One linear layer from clock, bars and hand to choices and rows plus columns of tiles; plays at once.

    A tenth of the entity network's time on small batches, and its battles are short.
    """

    def __init__(self, inputs: Inputs, eager: float = 1.0) -> None:
        super().__init__()
        self.a, self.eager = inputs.actions, eager
        n = self.a.n_choices + self.a.tiles_y + self.a.tiles_x
        self.look = nn.Linear(12 + 16, n)
        self.critic = nn.Linear(12 + 16, 1)

    def forward(self, obs: Observation) -> tuple[StagedLogits, Tensor]:
        x = torch.cat([obs["wide"] / 4096.0, obs["hand"].flatten(1) / 64.0], -1)
        choice, y, x_ = self.look(x).split([self.a.n_choices, self.a.tiles_y, self.a.tiles_x], -1)
        choice = choice + self.eager * (torch.arange(self.a.n_choices) > 0)
        tile = (y.unsqueeze(-1) + x_.unsqueeze(-2)).flatten(1)
        return StagedLogits(choice, tile.unsqueeze(1).expand(-1, self.a.slots, -1)), self.critic(x).squeeze(-1)


def make_bot(seed: int = 0, spec: BattleSpec | None = None, run: str = "tiny", network: Part | None = None) -> Bot:
    """A bot with random weights; where layers start at zero, they are filled with noise."""
    spec = spec or BattleSpec()
    part = network or Part("tests.support.bots.Reflex")
    built = build_network(part, inputs_of(spec), seed)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in built.parameters():
            if p.dim() > 1 and not p.any():
                p.copy_(torch.randn(p.shape, generator=noise) * 0.2)
    return Bot.of(built.eval(), part, spec, game_steps=1234, run=run)


def save_checkpoint(bot: Bot, path: Path) -> None:
    """What Lightning writes of a SelfPlayModule, as far as bots are concerned."""
    weights = {f"network.{k}": v for k, v in bot.network.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": weights, "bot": bot.record.as_dict(), "epoch": 3, "loops": {}}, path)


@pytest.fixture(scope="session")
def entity_bot() -> Bot:
    """The default network, small."""
    return make_bot(network=Part("royale_lightning.nn.EntityNetwork", {"width": 16, "layers": 1}))


@pytest.fixture(scope="session")
def bot() -> Bot:
    return make_bot()


@pytest.fixture(scope="session")
def other() -> Bot:
    return make_bot(seed=1, run="other")
