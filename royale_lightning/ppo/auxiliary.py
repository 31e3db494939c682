"""Further terms of the loss, ours and a user's own: imitation, staying near a reference, consistency, exploration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..bots.bot import Bot
from ..errors import UserError
from ..nn.distribution import MaskedCategorical
from ..nn.protocol import ActorCritic, Inputs, Observation
from ..parts import Part
from ..rollout.minibatch import Minibatch
from .schedule import Scheduled, schedule_of

#: Short names of the shipped terms.
TERMS = {
    "self_imitation": "royale_lightning.ppo.SelfImitation",
    "kl_to_reference": "royale_lightning.ppo.KLToReference",
}


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
    """One term, added to PPO's loss in every training step, times its weight. ``model.auxiliary`` gives it a name.

    Write ``__init__(self, inputs: Inputs, weight: Scheduled = ..., **your_settings)`` and :meth:`forward`. Parameters
    of its own are trained with the actor's and saved in checkpoints, not in bots.

    Args:
        inputs: what the network sees.
        weight: of the term in the loss; may be scheduled. It may be changed while a run goes on.

    Attributes:
        bot_settings: names of the settings that are bots' paths. A run knows these by what they held when it began, and
            keeps copies: see :meth:`take_bots`.
    """

    bot_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, inputs: Inputs, weight: Scheduled = 1.0) -> None:
        super().__init__()
        self.inputs = inputs
        self.schedule = schedule_of(weight, "weight")

    def take_bots(self, bots: Mapping[str, Bot]) -> None:
        """Called when a fit begins, with a bot for each of :attr:`bot_settings` that is set."""
        del bots

    def begin(self, data: Any) -> None:
        """Called with the run's data module before each iteration; for a term that draws on more than its minibatch."""
        del data

    @abstractmethod
    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        """The term before its weight, a scalar, and figures to log (detached scalars on the device, means over the
        rows).

        A term that is a mean over choice rows is multiplied by ``step.batch.actor_weight``, so that the average over
        ranks is the mean over all their rows. Not called while the weight is 0, unless the term has parameters.
        """


def build_terms(parts: Mapping[str, Part], inputs: Inputs) -> nn.ModuleDict:
    """The terms of ``model.auxiliary`` by name.

    Raises:
        UserError: a name that metrics cannot have, or a class that is no term.
    """
    terms = nn.ModuleDict()
    for name, part in parts.items():
        where = f"model.auxiliary.{name}"
        if not name.isidentifier() or hasattr(terms, name):
            raise UserError(f"{where}: a term is named by letters, digits and _, and not like a method of a dict")
        terms[name] = part.build(where, inputs, kind=AuxiliaryLoss)
    return terms


def gradient_shares(losses: Sequence[Tensor], parameters: Iterable[nn.Parameter]) -> Tensor:
    """float32 ``[n]``: norm of each loss's gradient over the sum of all their norms.

    It says how much of a step each term asks for, which its size does not. The graph is kept for the step itself.
    """
    wanted = [p for p in parameters if p.requires_grad]
    norms = []
    for loss in losses:
        found = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True) if loss.requires_grad else ()
        squares = [g.detach().float().square().sum() for g in found if g is not None]
        norms.append(torch.stack(squares).sum().sqrt() if squares else loss.new_zeros(()))
    total = torch.stack(norms)
    return total / total.sum().clamp(min=torch.finfo(total.dtype).tiny)
