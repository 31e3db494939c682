"""The default critic: one block over the entities, told what the other seat holds."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..battle.rows.hidden import HIDDEN_FIELDS, OPPONENTS
from .critic import Critic, Hidden
from .entity_tokens import GLOBAL
from .entity_trunk import EntityTrunk
from .protocol import Inputs, Observation

#: Sets of cards among the hidden fields; their order says nothing but where one is next.
_CARDS = ("own_deck", "enemy_deck", "enemy_hand", "enemy_next")
_ELIXIR_STEPS = 10


class EntityCritic(EntityTrunk, Critic):
    """A small transformer over units, spells, hand and a global token, which also carries what is hidden.

    Args:
        inputs: the ``entities`` row.
        width, layers, heads, ffn, fixed_shape, bucket_rows: as :class:`~royale_lightning.nn.EntityNetwork` takes them.
            One block of width 48: a rollout's values cost a third of its policy's forward.
        hidden: whether what the seat does not see is told. Off, this is a critic apart that knows what the actor
            knows: what to compare with.
    """

    def __init__(
        self, inputs: Inputs, width: int = 48, layers: int = 1, heads: int = 4, ffn: int = 2,
        fixed_shape: bool | None = None, bucket_rows: int = 128, hidden: bool = True,
    ) -> None:
        super().__init__(inputs, width, layers, heads, ffn, fixed_shape, bucket_rows)
        self.hidden = hidden
        if hidden:
            self.opponent_table = nn.Embedding(OPPONENTS, width)
            nn.init.normal_(self.opponent_table.weight, std=0.3)
            self.sets = nn.Linear(len(_CARDS) * width, width)
            self.bar = nn.Linear(_ELIXIR_STEPS + 1, width)
        self.state = nn.Linear(3 * width, 2 * width)
        self.out = nn.Linear(2 * width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, obs: Observation, hidden: Hidden) -> Tensor:
        told = self._told(hidden) if self.hidden else None
        fixed, on_board, pooled = self.trunk_of(obs, told)
        with torch.autocast(fixed.device.type, enabled=False):
            shots = self.shots_of(on_board, fixed.shape[0])
            state = torch.cat([fixed[:, GLOBAL].float(), pooled.float(), shots.float()], -1)
            value: Tensor = self.out(F.gelu(self.state(state))).squeeze(-1)
            return value

    def _told(self, hidden: Hidden) -> Tensor:
        """``[B, width]``: sums of the cards' embeddings, the bar as a thermometer, seat and opponent."""
        sums = [
            # Of order one whatever the size of the set.
            self.tokens.card_table(hidden[name].int()).sum(1) * HIDDEN_FIELDS[name][1] ** -0.5
            for name in _CARDS
        ]
        elixir = hidden["enemy_elixir"].float() / 20
        steps = torch.arange(_ELIXIR_STEPS, device=elixir.device, dtype=torch.float32)
        bar = torch.cat([(elixir - steps).clamp(0, 1), hidden["seat"].float()], -1)
        opponent = self.opponent_table(hidden["opponent"].squeeze(-1).int())
        told: Tensor = self.sets(torch.cat(sums, -1)) + self.bar(bar) + opponent
        return told
