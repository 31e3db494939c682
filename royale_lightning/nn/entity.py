"""The default network: a small transformer over the entities of a battle, with a pointer head over the board."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .entity_tokens import FIXED, GLOBAL, HAND, NEXT, EntityTokens, Tokens
from .protocol import ActorCritic, Inputs, Observation, StagedLogits

#: Axes of a row whose tail is usually empty, and the field that moves with each.
_RAGGED = (("units", "unit_wide"), ("spells", "spell_wide"), ("projectiles", "projectile_wide"))


class Block(nn.Module):
    """Pre-norm transformer block (Xiong et al. 2020, arXiv 2002.04745): attention, then a two-layer map."""

    def __init__(self, width: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x: Tensor, bias: Tensor, fused: bool) -> Tensor:
        """``x`` ``[B, L, width]``; ``bias`` ``[B, 1, 1, L]``, 0 for a key that is there and ``-inf`` else."""
        b, n, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if fused:
            q, k, v = qkv.unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        else:
            # Below some 30 tokens two batched products beat torch's CPU flash kernel by a third.
            q, k, v = qkv.contiguous().unbind(0)
            y = ((q @ k.mT) * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, n, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class BoardMap(nn.Module):
    """Entities scattered over the board at half resolution, one 3 x 3 convolution and a ReLU.

    The scatter connection of AlphaStar (Vinyals et al. 2019, supplement). A dozen entities among 144 cells make
    the convolution sparse: on a CPU each entity's nine contributions are computed and summed into their cells.
    """

    def __init__(self, width: int, channels: int, cells_y: int, cells_x: int) -> None:
        super().__init__()
        self.cells_y, self.cells_x, self.channels = cells_y, cells_x, channels
        self.kernel = nn.Linear(width, 9 * channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))
        y, x = torch.meshgrid(torch.arange(cells_y), torch.arange(cells_x), indexing="ij")
        # Cell -> cell of the grid with a border of one, where a contribution over the edge may land.
        self.bordered = (cells_y + 2) * (cells_x + 2)
        corner = torch.cat([(y * (cells_x + 2) + x).flatten(), torch.tensor([0])])
        self.register_buffer("_corner", corner, persistent=False)
        steps = torch.arange(3)
        shift = (steps.unsqueeze(-1) * (cells_x + 2) + steps).flatten()
        self.register_buffer("_shift", shift, persistent=False)

    def forward(self, x: Tensor, cell: Tensor, dense: bool) -> Tensor:
        """``[B, cells, channels]`` from features ``[B, E, width]`` and cells int64 ``[B, E]``."""
        grid = self._dense(x, cell) if dense else self._sparse(x, cell)
        return F.relu(grid + self.bias)

    def _sparse(self, x: Tensor, cell: Tensor) -> Tensor:
        b, n_cells = x.shape[0], self.cells_y * self.cells_x
        row = torch.arange(b, device=x.device).unsqueeze(-1) * self.bordered
        # Empty entities go to one cell behind all grids.
        at = torch.where(cell < n_cells, row + self._corner[cell], b * self.bordered)
        at = torch.where(at.unsqueeze(-1) < b * self.bordered, at.unsqueeze(-1) + self._shift, b * self.bordered)
        parts = self.kernel(x).view(-1, self.channels)
        out = parts.new_zeros(b * self.bordered + 1, self.channels).index_add(0, at.flatten(), parts)
        out = out[:-1].view(b, self.cells_y + 2, self.cells_x + 2, self.channels)
        return out[:, 1:-1, 1:-1].reshape(b, n_cells, self.channels)

    def _dense(self, x: Tensor, cell: Tensor) -> Tensor:
        """The same sum for an accelerator: a one-hot product, because atomic adds are not reproducible."""
        b, n_cells = x.shape[0], self.cells_y * self.cells_x
        onehot = (cell.unsqueeze(1) == torch.arange(n_cells, device=x.device).unsqueeze(-1)).to(x.dtype)
        board = (onehot @ x).transpose(1, 2).reshape(b, -1, self.cells_y, self.cells_x)
        # A contribution moves by +d where a convolution reads from -d, hence the flip.
        weight = self.kernel.weight.view(3, 3, self.channels, -1).flip(0, 1).permute(2, 3, 0, 1)
        return F.conv2d(board, weight, padding=1).flatten(2).transpose(1, 2)


class EntityNetwork(ActorCritic):
    """Transformer over units, spells, hand and one global token; pointer head over slots and tiles.

    Args:
        inputs: the ``entities`` row and a grid action space with even sides.
        width: of every token.
        layers: transformer blocks.
        heads: of attention; must divide ``width``.
        ffn: hidden width of a block's second half, as a multiple of ``width``.
        map_channels: of the board map.
        wait_logit: first logit of the no-op against 0 for each card. 1.5 keeps an untrained policy from spending
            its bar the moment it can.
        fixed_shape: padded tensors of one shape, for an accelerator and ``torch.compile``; ``None`` decides by
            the device. On a CPU the batch is sorted by its number of units, cut into buckets, and each bucket
            trimmed to its longest row, because a board holds 12 units on average and the row has room for 36.
        bucket_rows: rows of a bucket on a CPU.
    """

    def __init__(
        self,
        inputs: Inputs,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        ffn: int = 2,
        map_channels: int = 32,
        wait_logit: float = 1.5,
        fixed_shape: bool | None = None,
        bucket_rows: int = 128,
    ) -> None:
        super().__init__()
        a = inputs.actions
        self.actions, self.fixed_shape, self.bucket_rows = a, fixed_shape, bucket_rows
        self.tokens = EntityTokens(inputs, width)
        self.blocks = nn.ModuleList(Block(width, heads, ffn * width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.map = BoardMap(width, map_channels, self.tokens.cells_y, self.tokens.cells_x)
        self.wait = nn.Linear(width, 1 + a.buttons)
        self.play = nn.Linear(width, 1)
        self.query = nn.Linear(width, width)
        # One query for each of the four tiles of a cell: the map is coarse, the choice is not.
        self.map_query = nn.Linear(width, 4 * map_channels)
        # A tile is its row plus its column plus itself: the sums spread what one tile teaches.
        self.tile_y = nn.Parameter(torch.randn(a.tiles_y, 1, width) * 0.6)
        self.tile_x = nn.Parameter(torch.randn(1, a.tiles_x, width) * 0.6)
        self.tile = nn.Parameter(torch.randn(a.tiles_y, a.tiles_x, width) * 0.5)
        self.critic_hidden = nn.Linear(width + map_channels, width)
        self.critic_out = nn.Linear(width, 1)
        for layer in (self.wait, self.play, self.query, self.map_query, self.critic_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.wait.bias[0] = wait_logit

    def forward(self, obs: Observation) -> tuple[StagedLogits, Tensor]:
        choice, tile, value = self._batch(obs, actor=True)
        return StagedLogits(choice, tile), value

    def value(self, obs: Observation) -> Tensor:
        return self._batch(obs, actor=False)[0]

    def _batch(self, obs: Observation, actor: bool) -> list[Tensor]:
        """Outputs of a batch, ``(choice, tile, value)`` or ``(value,)``, by whichever path fits the device."""
        units = obs["units"]
        fixed = self.fixed_shape if self.fixed_shape is not None else units.device.type != "cpu"
        if fixed:
            return self._run(obs, actor, fixed=True)
        used = torch.stack([_used(obs[name][..., 0]) for name, _ in _RAGGED])
        n = units.shape[0]
        buckets = -(-n // self.bucket_rows)
        if buckets == 1:
            return self._run(_trim(obs, used.amax(1).tolist()), actor, fixed=False)
        order = (used[0] + used[1]).argsort(stable=True)
        rows = order.tensor_split(buckets)
        longest = torch.stack([used[:, r].amax(1) for r in rows]).tolist()
        # The mask is the distribution's; no need to reorder it.
        fields = {name: x for name, x in obs.items() if name != "action_mask"}
        parts = [
            self._run(_trim({k: x[r] for k, x in fields.items()}, cut), actor, fixed=False)
            for r, cut in zip(rows, longest, strict=True)
        ]
        # index_copy, because its backward is a gather and that of indexing a scatter.
        joined = [torch.cat(p) for p in zip(*parts, strict=True)]
        return [torch.empty_like(x).index_copy(0, order, x) for x in joined]

    def _run(self, obs: Observation, actor: bool, fixed: bool) -> list[Tensor]:
        t: Tokens = self.tokens(obs)
        bias = torch.zeros(t.present.shape, device=t.tokens.device).masked_fill(~t.present, -torch.inf)
        x = t.tokens
        for block in self.blocks:
            x = block(x, bias[:, None, None], fixed)
        x = self.norm(x)
        board = self.map(torch.cat([x[:, FIXED:], t.shots], 1), t.cell, fixed)
        # The heads run in float32 under autocast too: bfloat16 has 8 bits for a softmax over 576 tiles.
        with torch.autocast(x.device.type, enabled=False):
            x, board = x.float(), board.float()
            state = torch.cat([x[:, GLOBAL], board.mean(1)], -1)
            value = self.critic_out(F.gelu(self.critic_hidden(state))).squeeze(-1)
            if not actor:
                return [value]
            return [*self._actor(x[:, GLOBAL], x[:, HAND:NEXT], board), value]

    def _actor(self, whole: Tensor, hand: Tensor, board: Tensor) -> list[Tensor]:
        """Choice logits ``[B, n_choices]`` and tile logits ``[B, slots, tiles]``."""
        a, b = self.actions, whole.shape[0]
        wait = self.wait(whole)
        choice = torch.cat([wait[:, :1], self.play(hand).squeeze(-1), wait[:, 1:]], -1)
        tiles = (self.tile_y + self.tile_x + self.tile).flatten(0, 1)
        fine = (self.query(hand) * tiles.shape[-1] ** -0.5) @ tiles.mT
        query = self.map_query(hand) * board.shape[-1] ** -0.5
        coarse = query.view(b, 4 * a.slots, -1) @ board.mT
        coarse = coarse.view(b, a.slots, 2, 2, a.tiles_y // 2, a.tiles_x // 2).permute(0, 1, 4, 2, 5, 3)
        return [choice, (fine.view_as(coarse) + coarse).reshape(b, a.slots, a.tiles)]


def _used(ids: Tensor) -> Tensor:
    """int64 ``[B]``: how many leading entries of ``ids`` ``[B, n]`` hold all that are not 0."""
    return ((ids > 0) * torch.arange(1, ids.shape[1] + 1)).amax(1)


def _trim(obs: Observation, longest: list[int]) -> Observation:
    out = dict(obs)
    for names, n in zip(_RAGGED, longest, strict=True):
        for name in names:
            out[name] = obs[name][:, :n]
    return out
