"""Further terms of the loss, from a user's own package: imitation, consistency, exploration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from ..nn.distribution import MaskedCategorical
from ..nn.protocol import ActorCritic, Inputs, Observation
from ..rollout.minibatch import Minibatch


@dataclass(frozen=True)
class Step:
    """What a term may read of a training step.

    Attributes:
        batch: the minibatch.
        obs: its unpacked observation.
        policy: the distribution over its rows' actions, with gradient.
        value: float32 ``[B]``, with gradient.
        network: the network itself, for a forward of the term's own.
    """

    batch: Minibatch
    obs: Observation
    policy: MaskedCategorical
    value: Tensor
    network: ActorCritic


class AuxiliaryLoss(nn.Module, ABC):
    """One term, added to PPO's loss in every training step. Name it in ``model.auxiliary``.

    Write ``__init__(self, inputs: Inputs, **your_settings)`` and :meth:`forward`. Parameters of its own are trained
    with the actor's and saved in checkpoints, not in bots. ``name`` stands in front of its metrics.
    """

    name: str = "auxiliary"

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs

    @abstractmethod
    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted term, a scalar, and figures to log (detached scalars on the device, means over the rows)."""
