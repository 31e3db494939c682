"""The default network: a small transformer over the entities of a battle, with a pointer head over the board."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .entity_tokens import GLOBAL, HAND, NEXT
from .entity_trunk import EntityTrunk, OnBoard, Scattered
from .protocol import ActorCritic, Inputs, Observation, StagedLogits, TilesOnDemand
from .ragged_attention import Gather, ScatterReLU


class BoardMap(nn.Module):
    """Entities scattered over the board at half resolution, one 3 x 3 convolution and a ReLU.

    The scatter connection of AlphaStar (Vinyals et al. 2019, supplement). A dozen entities among 144 cells make
    the convolution sparse: on a CPU each entity's nine contributions are computed and summed into their cells.
    """

    _near: Tensor

    def __init__(self, width: int, channels: int, cells_y: int, cells_x: int) -> None:
        super().__init__()
        self.cells_y, self.cells_x, self.channels = cells_y, cells_x, channels
        self.kernel = nn.Linear(width, 9 * channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))
        # near[c]: the nine cells that an entity in cell c adds to; n_cells where that is over the edge, and
        # everywhere for an empty row (c = n_cells).
        n = cells_y * cells_x
        bordered = F.pad(torch.arange(n).view(cells_y, cells_x), (1, 1, 1, 1), value=n)
        near = bordered.unfold(0, 3, 1).unfold(1, 3, 1).reshape(n, 9)
        self.register_buffer("_near", torch.cat([near, torch.full((1, 9), n)]), persistent=False)

    def sparse(self, x: Tensor, cell: Tensor, row: Tensor, rows: int) -> Tensor:
        """``[rows, cells, channels]`` from features ``[E, width]``, cells and batch rows int64 ``[E]``."""
        n = self.cells_y * self.cells_x
        near = self._near[cell]
        # What falls over the edge goes to one cell behind all boards.
        at = torch.where(near < n, near + row.unsqueeze(-1) * n, rows * n).flatten()
        parts = self.kernel(x).view(-1, self.channels)
        return ScatterReLU.apply(parts.float(), self.bias, at, rows * n).view(rows, n, self.channels)

    def dense(self, x: Tensor, cell: Tensor) -> Tensor:
        """The same for ``[B, E, width]`` and ``[B, E]``: by a one-hot product, as atomic adds do not reproduce."""
        n = self.cells_y * self.cells_x
        onehot = (cell.unsqueeze(1) == torch.arange(n, device=x.device).unsqueeze(-1)).to(x.dtype)
        board = (onehot @ x).mT.unflatten(-1, (self.cells_y, self.cells_x))
        # A contribution moves by +d where a convolution reads from -d, hence the flip.
        weight = self.kernel.weight.view(3, 3, self.channels, -1).flip(0, 1).permute(2, 3, 0, 1)
        return F.relu(F.conv2d(board, weight, self.bias, padding=1)).flatten(2).mT


class EntityNetwork(EntityTrunk, ActorCritic):
    """Transformer over units, spells, hand and one global token; pointer head over slots and tiles.

    214,305 parameters; 4.0 MFLOP a row forward; 4,390 rows/s trained (batches of 256), 7,000 rows/s acting (batches of
    48) on two shared cores: ``README.md`` beside this says how that was measured.

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

    _order: Tensor
    _inverse: Tensor
    _order_one: Tensor
    _inverse_one: Tensor

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
        super().__init__(inputs, width, layers, heads, ffn, fixed_shape, bucket_rows)
        a = inputs.actions
        self.actions, self.width = a, width
        self.map = BoardMap(width, map_channels, self.tokens.cells_y, self.tokens.cells_x)
        self.wait = nn.Linear(width, 1 + a.buttons)
        self.play = nn.Linear(width, 1)
        self.query = nn.Linear(width, width)
        # One query for each of the four tiles of a cell: the map is coarse, the choice is not.
        self.map_query = nn.Linear(width, 4 * map_channels)
        # Places of [slot, y, x] in [cell y, cell x, slot, y in the cell, x in the cell], and back.
        at = torch.arange(a.slots * a.tiles).view(a.tiles_y // 2, a.tiles_x // 2, a.slots, 2, 2)
        self.register_buffer("_order", at.permute(2, 0, 3, 1, 4).flatten(), persistent=False)
        self.register_buffer("_inverse", self._order.argsort(), persistent=False)
        # The same of a single slot.
        one = torch.arange(a.tiles).view(a.tiles_y // 2, a.tiles_x // 2, 2, 2).permute(0, 2, 1, 3).flatten()
        self.register_buffer("_order_one", one, persistent=False)
        self.register_buffer("_inverse_one", one.argsort(), persistent=False)
        # A tile is its row plus its column plus itself: the sums spread what one tile teaches.
        self.tile_y = nn.Parameter(torch.randn(a.tiles_y, 1, width) * 0.6)
        self.tile_x = nn.Parameter(torch.randn(1, a.tiles_x, width) * 0.6)
        self.tile = nn.Parameter(torch.randn(a.tiles_y, a.tiles_x, width) * 0.5)
        self.critic_hidden = nn.Linear(2 * width, width)
        self.critic_out = nn.Linear(width, 1)
        for layer in (self.wait, self.play, self.query, self.map_query, self.critic_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.wait.bias[0] = wait_logit

    def forward(self, obs: Observation) -> tuple[StagedLogits, Tensor]:
        fixed, on_board, pooled = self.trunk_of(obs)
        board = self._board(on_board)
        # The heads run in float32 under autocast too: bfloat16 has 8 bits for a softmax over 576 tiles.
        with torch.autocast(fixed.device.type, enabled=False):
            whole, hand = fixed[:, GLOBAL].float(), fixed[:, HAND:NEXT].float()
            wait = self.wait(whole)
            choice = torch.cat([wait[:, :1], self.play(hand).squeeze(-1), wait[:, 1:]], -1)
            tiles: Tensor | TilesOnDemand
            if isinstance(board, Tensor):
                tiles = self.all_tiles(hand, board.float())
            else:
                tiles = _DrawnTiles(self, hand, board)
            return StagedLogits(choice, tiles), self._value(whole, pooled)

    def value(self, obs: Observation) -> Tensor:
        fixed, _, pooled = self.trunk_of(obs)
        with torch.autocast(fixed.device.type, enabled=False):
            return self._value(fixed[:, GLOBAL].float(), pooled)

    @torch.no_grad()
    def introduce(self, cards: Mapping[int, int], types: Mapping[int, int]) -> None:
        for table, pairs in ((self.tokens.card_table, cards), (self.tokens.type_table, types)):
            if pairs:
                new, known = torch.tensor(list(pairs.items())).T + 1  # 0 is nothing
                table.weight[new] = table.weight[known]

    def use_static_shapes(self) -> None:
        self.fixed_shape = True

    def _value(self, whole: Tensor, pooled: Tensor) -> Tensor:
        state = torch.cat([whole, pooled.float()], -1)
        return self.critic_out(F.gelu(self.critic_hidden(state))).squeeze(-1)

    def _board(self, e: OnBoard) -> Tensor | Scattered:
        """The board of a padded batch, ``[B, cells, channels]``; of a packed one what it is made of."""
        if isinstance(e, Scattered):
            return e
        return self.map.dense(torch.cat([e.entities, e.shots.to(e.entities.dtype)], 1), e.cell)

    def all_tiles(self, hand: Tensor, board: Tensor) -> Tensor:
        """``[B, slots, tiles]`` from hand tokens ``[B, slots, width]`` and the board ``[B, cells, channels]``."""
        a, b = self.actions, hand.shape[0]
        fine = (self.query(hand) * self.width**-0.5) @ self._tile_keys().mT
        query = self.map_query(hand).view(b, 4 * a.slots, -1) * board.shape[-1] ** -0.5
        # The board on the left of the product keeps its gradient contiguous.
        coarse = self._in_order((board @ query.mT).flatten(1), self._order, self._inverse)
        return fine + coarse.view(b, a.slots, a.tiles)

    def drawn_tiles(self, hand: Tensor, board: Tensor) -> Tensor:
        """``[n, tiles]`` from one hand token a row, ``[n, width]``, and its board ``[n, cells, channels]``."""
        fine = (self.query(hand) * self.width**-0.5) @ self._tile_keys().mT
        query = self.map_query(hand).view(hand.shape[0], 4, board.shape[-1]) * board.shape[-1] ** -0.5
        return fine + self._in_order((board @ query.mT).flatten(1), self._order_one, self._inverse_one)

    def _tile_keys(self) -> Tensor:
        """``[tiles, width]``."""
        return (self.tile_y + self.tile_x + self.tile).flatten(0, 1)

    @staticmethod
    def _in_order(coarse: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return Gather.apply(coarse, 1, order, inverse)
        return coarse.index_select(1, order)  # vmap maps no autograd.Function of this form


class _DrawnTiles(TilesOnDemand):
    """Boards and tiles of the rows that play a card."""

    def __init__(self, network: EntityNetwork, hand: Tensor, on_board: Scattered) -> None:
        self._network, self._hand, self._on_board = network, hand, on_board

    def of(self, rows: Tensor, slot: Tensor) -> Tensor:
        on, b, n = self._on_board, self._hand.shape[0], rows.shape[0]
        with torch.autocast(self._hand.device.type, enabled=False):
            at = rows.new_full((b,), -1).index_copy_(0, rows, torch.arange(n)).index_select(0, on.row)
            here = (at >= 0).nonzero().squeeze(-1)
            board = self._network.map.sparse(
                on.features().index_select(0, here), on.cell.index_select(0, here), at.index_select(0, here), n
            )
            return self._network.drawn_tiles(self._hand[rows, slot], board)

    def all(self) -> Tensor:
        on = self._on_board
        with torch.autocast(self._hand.device.type, enabled=False):
            return self._network.all_tiles(
                self._hand, self._network.map.sparse(on.features(), on.cell, on.row, self._hand.shape[0])
            )
