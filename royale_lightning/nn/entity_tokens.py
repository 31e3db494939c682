"""From an ``entities`` row to tokens: the first half of the entity network.

Column meanings, units and clips are in ``battle/rows/entities_layout.py``; here each becomes a number of order one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..battle.rows.entities_layout import ENTITIES
from ..errors import UserError
from .protocol import Inputs, Observation

#: Stored position steps per tile.
_TILE = 1125
#: Tokens of every row, before its units: the board as a whole, the hand, the next card.
GLOBAL, HAND, NEXT, FIXED = 0, 1, 5, 6

# Affine maps of units[..., 4:15]: deploy, stun, hp fraction, radius, shield, facing (2), target (2), charge, ability.
_UNIT_SCALE = (1 / 40, 1 / 40, 1 / 255, 1 / 200, 1 / 64, 1 / 128, 1 / 128, 1 / 16, 1 / 16, 1 / 255, 1 / 100)
_UNIT_ZERO = (0, 0, 0, 0, 0, 128, 128, 128, 128, 0, 0)
_ELIXIR_STEPS = 10
_MEMORY_CARDS, _MEMORY_SUMS = 4 + 8 + 8 + 1, 6
_N_GLOBAL = 2 * _ELIXIR_STEPS + 5 + 12 + 11 + 9


class Entities(NamedTuple):
    """The entities of a batch as flat lists: units, then spells, then projectiles, empty rows kept or left out.

    ``units`` uint8 ``[U, 16]`` with ``unit_wide`` int32 ``[U, 3]``, and so on for spells ``[S, ...]`` and shots
    (projectiles) ``[P, ...]``; ``row`` int64 ``[U + S + P]``, the batch row that each belongs to.
    """

    units: Tensor
    unit_wide: Tensor
    spells: Tensor
    spell_wide: Tensor
    shots: Tensor
    shot_wide: Tensor
    row: Tensor


class EntityTokens(nn.Module):
    """Embeds units, spells, projectiles, the hand and the global state.

    A unit is the sum of its type's, its card's and its cell's embedding and one linear map of its bits and
    numbers; cards share one table wherever they occur, so that what is learned of a card in the hand holds
    for the units it made.
    """

    _bit_table: Tensor
    _unit_scale: Tensor
    _unit_zero: Tensor
    _steps: Tensor
    _half: Tensor

    def __init__(self, inputs: Inputs, width: int) -> None:
        super().__init__()
        fields = {f.name: f.shape for f in inputs.layout.fields}
        missing = [f.name for f in ENTITIES.fields if f.name not in fields]
        if missing:
            raise UserError(
                f"EntityNetwork reads the 'entities' row, but the observation makes {inputs.layout.name!r} rows, "
                f"which have no {missing[0]!r}; choose the entities observation or another model.network"
            )
        if inputs.layout.frames > 1:
            raise UserError(
                f"EntityNetwork reads one frame and battle.frame_stack is {inputs.layout.frames}; set it to 1, or use "
                "a model.network of your own that reads several"
            )
        a = inputs.actions
        if a.slots != fields["hand"][0] or a.tiles_y % 2 or a.tiles_x % 2:
            raise UserError(
                f"EntityNetwork needs a grid of even sides for each of {fields['hand'][0]} hand slots, but the "
                f"action space has {a.slots} slots of {a.tiles_y} x {a.tiles_x} tiles"
            )
        self.cells_y, self.cells_x = a.tiles_y // 2, a.tiles_x // 2
        self.n_cells = self.cells_y * self.cells_x
        self.card_table = nn.Embedding(inputs.n_cards + 1, width)
        self.type_table = nn.Embedding(inputs.n_unit_types + 1, width)
        self.place_table = nn.Embedding(self.n_cells + 1, width)
        self.slot_table = nn.Embedding(a.slots + 1, width)
        for table in (self.card_table, self.type_table, self.place_table, self.slot_table):
            # Small beside the numbers of order one, or random identities drown them at the start.
            nn.init.normal_(table.weight, std=0.3)
        self.unit = nn.Linear(24 + len(_UNIT_SCALE) + 4, width)
        self.spell = nn.Linear(8 + 2 + 4, width)
        self.shot = nn.Linear(8 + 2 + 2, width)
        self.hand = nn.Linear(8 + 3, width)
        self.whole = nn.Linear(_N_GLOBAL, width)
        # Four sums to begin with: cycle, recent plays with the newest first, cards seen, Mirror's target.
        sums = torch.zeros(_MEMORY_SUMS, _MEMORY_CARDS)
        nn.init.normal_(sums, std=0.1)
        sums[0, :4] = torch.tensor([1.0, 0.8, 0.6, 0.4])
        sums[1, 4:12] = 0.8 ** torch.arange(8)
        sums[2, 12:20] = 0.5
        sums[3, 20] = 1.0
        self.memory_sums = nn.Parameter(sums)
        self.memory = nn.Linear(_MEMORY_SUMS * width, width)
        bits = (torch.arange(256).unsqueeze(-1) >> torch.arange(8)) & 1
        self.register_buffer("_bit_table", bits.float(), persistent=False)
        self.register_buffer("_unit_scale", torch.tensor(_UNIT_SCALE), persistent=False)
        self.register_buffer("_unit_zero", torch.tensor(_UNIT_ZERO, dtype=torch.float32), persistent=False)
        self.register_buffer("_steps", torch.arange(_ELIXIR_STEPS, dtype=torch.float32), persistent=False)
        sides = torch.tensor([a.tiles_x * _TILE / 2, a.tiles_y * _TILE / 2])
        self.register_buffer("_half", sides, persistent=False)

    def fixed(self, obs: Observation) -> Tensor:
        """The tokens that every row has, ``[B, 6, width]``: the whole, the hand, the next card."""
        return torch.cat([self._global(obs).unsqueeze(1), self._cards(obs)], 1)

    def entities(self, e: Entities) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens ``[U + S, width]``, features of the shots ``[P, width]``, and the cell of each, ``[U + S + P]``.

        A cell is an int64 index into the board at half resolution, ``n_cells`` for an empty row.
        """
        cell = torch.cat(
            [
                self._cell(e.unit_wide, e.units[:, 0] > 0),
                self._cell(e.spell_wide, e.spells[:, 0] > 0),
                self._cell(e.shot_wide, e.shots[:, 0] > 0),
            ]
        )
        n = e.units.shape[0] + e.spells.shape[0]
        tokens = torch.cat([self._units(e.units, e.unit_wide), self._spells(e.spells, e.spell_wide)])
        return tokens + self.place_table(cell[:n]), self._shots(e.shots, e.shot_wide), cell

    def _bits(self, x: Tensor) -> Tensor:
        """float32 ``[..., 8 n]`` of uint8 ``[..., n]``. One gather: shifting and casting is slower on a CPU."""
        return F.embedding(x.int(), self._bit_table).flatten(-2)

    def _xy(self, wide: Tensor) -> Tensor:
        """Pairs of stored positions as float32 in about [-1, 1]."""
        return (wide.float().unflatten(-1, (-1, 2)) / self._half - 1).flatten(-2)

    def _cell(self, wide: Tensor, on: Tensor) -> Tensor:
        x = (wide[..., 0] // (2 * _TILE)).clamp(0, self.cells_x - 1)
        y = (wide[..., 1] // (2 * _TILE)).clamp(0, self.cells_y - 1)
        return torch.where(on, y * self.cells_x + x, self.n_cells).long()

    def _units(self, units: Tensor, wide: Tensor) -> Tensor:
        numbers = (units[..., 4:15].float() - self._unit_zero) * self._unit_scale
        hp = wide[..., 2:3].float() / 4096
        x = torch.cat([self._bits(units[..., 1:4]), numbers, self._xy(wide[..., :2]), hp, hp.sqrt()], -1)
        return self.unit(x) + self.type_table(units[..., 0].int()) + self.card_table(units[..., 15].int())

    def _spells(self, spells: Tensor, wide: Tensor) -> Tensor:
        x = torch.cat([self._bits(spells[..., 1:2]), spells[..., 2:4].float() / 64, self._xy(wide)], -1)
        return self.spell(x) + self.card_table(spells[..., 0].int())

    def _shots(self, shots: Tensor, wide: Tensor) -> Tensor:
        aim = (shots[..., 2:4].float() - 128) / 16
        x = torch.cat([self._bits(shots[..., 1:2]), aim, self._xy(wide)], -1)
        return self.shot(x) + self.card_table((shots[..., 0].int() - 1).clamp(min=0))

    def _cards(self, obs: Observation) -> Tensor:
        """The hand and the next card, ``[B, 5, width]``."""
        hand = obs["hand"]
        cost = hand[..., 1:2].float() / 10
        spare = obs["wide"][:, 1:2].float().unsqueeze(-1) / 10_000 - cost
        x = torch.cat([self._bits(hand[..., 2:3]), cost, spare, (spare >= 0).float()], -1)
        cards = self.card_table(torch.cat([hand[..., 0], obs["small"][:, 8:9]], -1).int()) + self.slot_table.weight
        return torch.cat([cards[:, :-1] + self.hand(x), cards[:, -1:]], 1)

    def _global(self, obs: Observation) -> Tensor:
        wide, small = obs["wide"].float(), obs["small"].float()
        # A thermometer of each bar: a linear map of it is any piecewise linear function of elixir.
        bars = (wide[:, 1:3].unsqueeze(-1) / 1000 - self._steps).clamp(0, 1).flatten(1)
        left, hp = wide[:, 11:12], wide[:, 5:11]
        clock = [wide[:, :1] / 3600, left / 3600, (left / 400).clamp(max=1)]
        pace = [(wide[:, 3:4] / 1000).clamp(max=2), (wide[:, 4:5] / 100).clamp(max=3)]
        counts = [
            small[:, :1],
            small[:, 1:4] / 3,
            small[:, 4:6],
            small[:, 6:7] / 32,
            small[:, 7:8],
            small[:, 10:11] / 8,
        ]
        rate = [(small[:, 1:2] >= 2).float(), (small[:, 1:2] >= 3).float()]
        button = small[:, 11:14]
        exists = (button < 255).float()
        bits = self._bits(obs["small"][:, 11:14]).view(-1, 3, 8)[..., :2].flatten(1)
        x = torch.cat([bars, *clock, *pace, hp / 4096, (hp > 0).float(), *counts, *rate, exists, bits], -1)
        return self.whole(x) + self._memory(obs)

    def _memory(self, obs: Observation) -> Tensor:
        """Own cycle and the enemy's plays in order, the enemy's cards as a set, the Mirror's target.

        Weighted sums of the cards' embeddings: one matrix over places keeps "first" and "last" apart.
        """
        names = (obs["cycle"], obs["enemy_recent"], obs["enemy_seen"], obs["small"][:, 9:10])
        cards = self.card_table(torch.cat(names, -1).int())
        return self.memory((self.memory_sums @ cards).flatten(1))
