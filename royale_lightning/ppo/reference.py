"""Staying near a reference policy, such as the bot that a run was warmed up with."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..bots.bot import Bot
from ..errors import UserError
from ..nn.distribution import MaskedCategorical
from ..nn.protocol import ActorCritic, Inputs
from .auxiliary import AuxiliaryLoss, Step
from .schedule import Scheduled


def kl_divergence(p: MaskedCategorical, q: MaskedCategorical) -> Tensor:
    """float32 ``[B]``: KL(p || q) in nats over whole actions of the same legal sets."""
    log_p, log_q = p.flat_log_probs(), q.flat_log_probs()
    # An illegal action has the least float in both; its probability of 0 must not meet it.
    ratio = torch.where(log_p > torch.finfo(log_p.dtype).min, log_p - log_q, 0.0)
    return (log_p.exp() * ratio).sum(-1)


class KLToReference(AuxiliaryLoss):
    """KL(policy || reference), a mean over the choice rows.

    The reference is frozen, so the term forgets nothing the reference knew while its weight lasts (Ziegler et al.
    2019, "Fine-tuning language models from human preferences", section 2; Vinyals et al. 2019 hold AlphaStar near its
    imitation policy the same way).

    Args:
        inputs: what the network sees.
        bot: a bot folder, snapshot, checkpoint or run folder.
        weight: of the term; may be scheduled. 0.05 moves about as much as the entropy bonus while the KL is 0.1.
    """

    bot_settings = ("bot",)

    def __init__(self, inputs: Inputs, bot: str, weight: Scheduled = 0.05) -> None:
        super().__init__(inputs, weight)
        # In a tuple: neither trained nor saved, for the run keeps a copy of the bot.
        self._reference: tuple[ActorCritic, ...] = ()

    def take_bots(self, bots: Mapping[str, Bot]) -> None:
        """Raises UserError where the reference reads another observation than the run makes."""
        reference, inputs = bots["bot"], self.inputs
        if reference.layout.digest != inputs.layout.digest or reference.actions != inputs.actions:
            raise UserError(
                f"the reference {reference.name!r} reads observation {reference.layout.name} "
                f"({reference.actions.n_actions} actions) and the run {inputs.layout.name} "
                f"({inputs.actions.n_actions}); give one of the same"
            )
        self._reference = (reference.network.requires_grad_(False).eval(),)

    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        (network,) = self._reference
        if next(network.parameters()).device != step.value.device:
            network.to(step.value.device)
        with torch.no_grad():
            logits, _ = network(step.obs)
            reference = MaskedCategorical(logits, step.obs["action_mask"], self.inputs.actions)
        choice = step.batch.choice
        kl = torch.where(choice, kl_divergence(step.policy, reference), 0.0).sum() / choice.sum().clamp(min=1)
        return step.batch.actor_weight * kl, {"kl": kl.detach()}
