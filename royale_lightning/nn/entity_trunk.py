"""Tokens of a row through a small transformer: what the entity network and the entity critic share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .entity_tokens import FIXED, GLOBAL, EntityTokens
from .protocol import Inputs, Observation
from .ragged_attention import PackedAttention, PaddedAttention, packed, padded


class Block(nn.Module):
    """Pre-norm transformer block (Xiong et al. 2020, arXiv 2002.04745): attention, then a two-layer map."""

    def __init__(self, width: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x: Tensor, attention: PaddedAttention | PackedAttention) -> Tensor:
        """``x`` ``[N, width]``, the tokens of all rows in the order that ``attention`` knows."""
        x = x + self.out(attention.attend(self.qkv(self.norm1(x)), self.heads))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Scattered(NamedTuple):
    """What a board is made of: features of units and spells ``[E, width]`` and of shots ``[P, width]``, and of each, in
    this order, its cell and its batch row, int64 ``[E + P]``."""

    entities: Tensor
    shots: Tensor
    cell: Tensor
    row: Tensor

    def features(self) -> Tensor:
        """float32 ``[E + P, width]``."""
        return torch.cat([self.entities, self.shots.to(self.entities.dtype)]).float()


class Padded(NamedTuple):
    """The same of a padded batch: entities ``[B, n, width]``, shots ``[B, p, width]`` and cells ``[B, n + p]``."""

    entities: Tensor
    shots: Tensor
    cell: Tensor


OnBoard = Scattered | Padded


class EntityTrunk(nn.Module):
    """Transformer over units, spells, hand and one global token.

    Args:
        inputs, width, layers, heads, ffn, fixed_shape, bucket_rows: as
            :class:`~royale_lightning.nn.EntityNetwork` takes them.
    """

    def __init__(
        self, inputs: Inputs, width: int, layers: int, heads: int, ffn: int, fixed_shape: bool | None, bucket_rows: int
    ) -> None:
        super().__init__()
        self.heads = heads
        self.fixed_shape, self.bucket_rows = fixed_shape, bucket_rows
        self.tokens = EntityTokens(inputs, width)
        self.blocks = nn.ModuleList(Block(width, heads, ffn * width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def trunk_of(self, obs: Observation, told: Tensor | None = None) -> tuple[Tensor, OnBoard, Tensor]:
        """Fixed tokens ``[B, 6, width]``, what lies on the board, mean entity ``[B, width]``.

        By whichever path fits the device.

        Args:
            told: ``[B, width]``, added to the global token.
        """
        on_cpu = obs["units"].device.type == "cpu"
        fixed = self.fixed_shape if self.fixed_shape is not None else not on_cpu
        tokens = self.tokens.fixed(obs)
        if told is not None:
            tokens = torch.cat([(tokens[:, GLOBAL] + told).unsqueeze(1), tokens[:, GLOBAL + 1 :]], 1)
        return self._padded(obs, tokens) if fixed else self._packed(obs, tokens)

    def shots_of(self, on_board: OnBoard, rows: int) -> Tensor:
        """Sum of the projectiles' features, ``[B, width]``; they are no tokens, and only a board shows them else."""
        if isinstance(on_board, Padded):
            there = on_board.cell[:, on_board.entities.shape[1] :] < self.tokens.n_cells
            return torch.where(there.unsqueeze(-1), on_board.shots, 0.0).sum(1)
        row = on_board.row[on_board.entities.shape[0] :]
        return on_board.shots.new_zeros(rows, on_board.shots.shape[-1]).index_add(0, row, on_board.shots)

    def _trunk(self, x: Tensor, attention: PaddedAttention | PackedAttention) -> Tensor:
        for block in self.blocks:
            x = block(x, attention)
        return self.norm(x)

    def _padded(self, obs: Observation, fixed: Tensor) -> tuple[Tensor, Padded, Tensor]:
        e, attention = padded(obs)
        b, sizes = obs["units"].shape[0], [e.units.shape[0], e.spells.shape[0], e.shots.shape[0]]
        tokens, shots, cell = self.tokens.entities(e)
        rows = [x.unflatten(0, (b, -1)) for x in (*tokens.split(sizes[:2]), shots)]
        x = torch.cat([fixed, *rows[:2]], 1)
        x = self._trunk(x.flatten(0, 1), attention).view(b, x.shape[1], -1)
        fixed, entities = x[:, :FIXED], x[:, FIXED:]
        cells = torch.cat([c.view(b, -1) for c in cell.split(sizes)], 1)
        on = (attention.bias[:, FIXED:] == 0).to(x.dtype)
        pooled = (on.unsqueeze(1) @ entities).squeeze(1)
        return fixed, Padded(entities, rows[2], cells), pooled / on.sum(1, keepdim=True).clamp(min=1)

    def _packed(self, obs: Observation, fixed: Tensor) -> tuple[Tensor, Scattered, Tensor]:
        """The same from the entities that are there."""
        b = obs["units"].shape[0]
        e, attention, count = packed(obs, self.bucket_rows, self.heads)
        tokens, shots, cell = self.tokens.entities(e)
        x = self._trunk(torch.cat([fixed.flatten(0, 1), tokens]), attention)
        fixed, entities = x.split([b * FIXED, tokens.shape[0]])
        pooled = entities.new_zeros(b, x.shape[-1]).index_add(0, e.row[: tokens.shape[0]], entities)
        on_board = Scattered(entities, shots, cell, e.row)
        return fixed.view(b, FIXED, -1), on_board, pooled / count.clamp(min=1).unsqueeze(-1)
