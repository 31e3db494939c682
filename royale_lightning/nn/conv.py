"""A residual convolutional network over RoyaleGym's spatial planes, with a pointer head over the board."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError
from .protocol import ActorCritic, Inputs, Observation, StagedLogits

#: Where the hand begins in RoyaleGym's vector: a one-hot over the catalogue and "empty" for each slot, then for
#: all slots their costs, whether they can be paid, and whether a play is pending.
_HAND_AT, _HAND_NUMBERS = 2, 3


def decode(obs: Observation) -> tuple[Tensor, Tensor]:
    """Planes float32 ``[B, P, ny, nx]`` and vector float32 ``[B, V]`` of a row.

    The one place that knows how a ``spatial`` row stores them; a compact encoding is expanded here.
    """
    return obs["spatial"].float(), obs["vector"].float()


class Residual(nn.Module):
    """``x + GN(conv(relu(GN(conv(x)))))``, then ReLU (He et al. 2016; GroupNorm of Wu and He 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class ConvNetwork(ActorCritic):
    """Residual trunk over the board; the vector is added to every cell; pointer head over slots and tiles.

    The shape of RoyaleLearn's default network at a quarter of its width, for comparison with it and for rows that are
    byte for byte RoyaleGym's. Where you have the choice, the entity network is faster and learns sooner.

    195,971 parameters; 21.6 MFLOP a row forward; 790 rows/s trained (batches of 128), 4,250 rows/s acting on two shared
    cores; at stride 1, 50.8 MFLOP, 535 and 1,920.

    Args:
        inputs: a row with fields ``spatial`` (planes of the action grid's size) and ``vector``.
        channels: of the trunk, a multiple of 8 (the groups of its norms).
        blocks: residual blocks.
        stride: 1, or 2 to run the blocks at half resolution and add them back to the stem by nearest upsampling.
        vector_width: of the vector's embedding.
        wait_logit: first logit of the no-op against 0 for each card.
    """

    def __init__(
        self,
        inputs: Inputs,
        channels: int = 32,
        blocks: int = 2,
        stride: int = 2,
        vector_width: int = 64,
        wait_logit: float = 1.5,
    ) -> None:
        super().__init__()
        a = inputs.actions
        shapes = {f.name: f.shape for f in inputs.layout.fields}
        planes, vector = shapes.get("spatial", ()), shapes.get("vector", ())
        hand_end = _HAND_AT + a.slots * (inputs.n_cards + 1 + _HAND_NUMBERS)
        if planes[1:] != (a.tiles_y, a.tiles_x) or len(vector) != 1 or vector[0] < hand_end:
            raise UserError(
                f"ConvNetwork reads rows with 'spatial' planes of {a.tiles_y} x {a.tiles_x} and a 'vector' that "
                f"begins with the hand, but the observation makes {inputs.layout.name!r} rows; choose the spatial "
                "observation or another model.network"
            )
        if stride not in (1, 2) or channels % 8:
            raise UserError(f"ConvNetwork takes stride 1 or 2 and channels in eights, not {stride} and {channels}")
        self.actions, self.stride, self.n_cards = a, stride, inputs.n_cards
        self.vector = nn.Linear(vector[0], vector_width)
        self.spread = nn.Linear(vector_width, channels)
        self.stem = nn.Conv2d(planes[0], channels, 3, padding=1)
        # What a convolution cannot tell: where on the board it is. A learned sum of a row and a column.
        self.at_y = nn.Parameter(torch.randn(channels, a.tiles_y, 1) * 0.1)
        self.at_x = nn.Parameter(torch.randn(channels, 1, a.tiles_x) * 0.1)
        self.norm = nn.GroupNorm(8, channels)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1) if stride == 2 else nn.Identity()
        self.blocks = nn.Sequential(*(Residual(channels) for _ in range(blocks)))
        # The last row is the empty slot.
        self.card = nn.Embedding(inputs.n_cards + 1, channels)
        nn.init.normal_(self.card.weight, std=0.3)
        self.hand = nn.Linear(_HAND_NUMBERS + vector_width, channels)
        state = 2 * channels + vector_width
        self.wait = nn.Linear(state, 1 + a.buttons)
        self.play = nn.Linear(channels + state, 1)
        self.query = nn.Linear(channels, channels)
        self.key = nn.Conv2d(channels, channels, 1)
        self.critic_hidden = nn.Linear(state, 128)
        self.critic_out = nn.Linear(128, 1)
        for layer in (self.wait, self.play, self.query, self.critic_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.wait.bias[0] = wait_logit

    def forward(self, obs: Observation) -> tuple[StagedLogits, Tensor]:
        planes, vector = decode(obs)
        board, whole, state = self._trunk(planes, vector)
        hand = F.relu(self._hand(vector, whole))
        with torch.autocast(board.device.type, enabled=False):
            board, state, hand = board.float(), state.float(), hand.float()
            b, a = board.shape[0], self.actions
            wait = self.wait(state)
            play = self.play(torch.cat([hand, state.unsqueeze(1).expand(-1, a.slots, -1)], -1)).squeeze(-1)
            key = self.key(board).flatten(2)
            tile = (self.query(hand) * key.shape[1] ** -0.5) @ key
            return StagedLogits(torch.cat([wait[:, :1], play, wait[:, 1:]], -1), tile), self._value(state).view(b)

    def value(self, obs: Observation) -> Tensor:
        state = self._trunk(*decode(obs))[2]
        with torch.autocast(state.device.type, enabled=False):
            return self._value(state.float())

    def _value(self, state: Tensor) -> Tensor:
        return self.critic_out(F.relu(self.critic_hidden(state))).squeeze(-1)

    def _trunk(self, planes: Tensor, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Board ``[B, channels, ny, nx]``, embedded vector ``[B, vector_width]``, pooled state ``[B, ...]``."""
        whole = F.relu(self.vector(vector))
        x = self.stem(planes) + self.at_y + self.at_x + self.spread(whole)[..., None, None]
        x = F.relu(self.norm(x))
        y = self.blocks(self.down(x))
        if self.stride == 2:
            x = x + F.interpolate(y, size=x.shape[-2:], mode="nearest")
        else:
            x = y
        flat = y.flatten(2)
        return x, whole, torch.cat([flat.mean(-1), flat.amax(-1), whole], -1)

    def _hand(self, vector: Tensor, whole: Tensor) -> Tensor:
        """One feature vector for each slot, ``[B, slots, channels]``: its card, its price, the vector."""
        slots, n = self.actions.slots, self.n_cards + 1
        end = _HAND_AT + slots * n
        onehot = vector[:, _HAND_AT:end].unflatten(1, (slots, n))
        numbers = vector[:, end : end + _HAND_NUMBERS * slots].unflatten(1, (_HAND_NUMBERS, slots)).mT
        features = torch.cat([numbers, whole.unsqueeze(1).expand(-1, slots, -1)], -1)
        return onehot @ self.card.weight + self.hand(features)
