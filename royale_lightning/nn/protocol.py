"""What every network is: rows in, logits over the action space and a value out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from ..battle.actions import ActionLayout
from ..battle.rows.layout import RowLayout

#: One batch of observations: every field of the row layout (``RowLayout.fields``) as a tensor ``[B, ...]``, and
#: ``action_mask`` as bool ``[B, n_actions]``.
Observation = dict[str, Tensor]


@dataclass(frozen=True)
class Inputs:
    """What a network must know about the battle before it can build its layers.

    Args:
        layout: the row it reads.
        actions: the action space it answers in.
        n_cards: size of the card catalogue; card ids in a row run from 1 to ``n_cards``.
        n_unit_types: number of unit types; type ids in a row run from 1 to ``n_unit_types``.
    """

    layout: RowLayout
    actions: ActionLayout
    n_cards: int
    n_unit_types: int


class TilesOnDemand(ABC):
    """Tile logits that are computed for the rows and slots somebody reads.

    A row reads the tiles of one slot at most, and only where a card is played: of ``[B, slots, tiles]`` that is a
    tenth. Only a network whose shapes may depend on what was drawn answers so (a CPU waits for nothing).
    """

    @abstractmethod
    def of(self, rows: Tensor, slot: Tensor) -> Tensor:
        """``[n, tiles]`` of ``rows`` (int64 ``[n]``, ascending, none twice), in one ``slot`` each (int64 ``[n]``)."""

    @abstractmethod
    def all(self) -> Tensor:
        """``[B, slots, tiles]``."""


class StagedLogits(NamedTuple):
    """Unmasked logits in two stages: first wait or which choice, then which tile of a slot.

    ``choice``: float32 ``[B, n_choices]`` (wait, slots, buttons). ``tile``: float32 ``[B, slots, tiles]``, or what
    computes parts of that (:meth:`all_tiles` is the tensor either way).
    """

    choice: Tensor
    tile: Tensor | TilesOnDemand

    def all_tiles(self) -> Tensor:
        """``[B, slots, tiles]``."""
        return self.tile if isinstance(self.tile, Tensor) else self.tile.all()


class ActorCritic(nn.Module, ABC):
    """The whole contract of a network.

    Write ``__init__(self, inputs: Inputs, **your_settings)`` and :meth:`forward`. Name it in
    ``model.network.class_path``. Parameters whose name begins with ``critic`` form the critic's parameter group;
    they are left out of snapshots.
    """

    @abstractmethod
    def forward(self, obs: Observation) -> tuple[StagedLogits | Tensor, Tensor]:
        """Logits and value of a batch.

        Returns:
            ``(logits, value)``: logits either staged or flat ``[B, n_actions]``, not masked; value ``[B]``.
        """

    def value(self, obs: Observation) -> Tensor:
        """Value ``[B]`` alone, for rows without a choice. Override it where the actor's part can be skipped."""
        return self(obs)[1]

    def introduce(self, cards: Mapping[int, int], types: Mapping[int, int]) -> None:
        """Begin what these weights never met as what they know: by new catalogue id and unit type index, the known one.

        Override it where cards or types have embeddings (``battle.kin`` says who is like whom).
        """

    def use_static_shapes(self) -> None:
        """Let every shape depend on the batch size alone, as ``torch.func.vmap`` over many frozen actors asks.

        Override it where a forward takes another path by default. A network that ``vmap`` cannot map all the same
        plays one forward per snapshot instead.
        """
