"""Rows that an older copy of the learner played, and what the learner itself gives them before it learns from them.

Decoupled PPO (Hilton, Cobbe and Schulman 2022, "Batch size-invariance for policy optimization"): the policy that an
update must stay near, the proximal one, need not be the policy that acted, the behaviour policy. The first is the
network as the update finds it, the second enters by importance weights alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..battle.actions import ActionLayout
from ..battle.rows.layout import RowLayout
from ..nn.distribution import MaskedCategorical
from ..nn.protocol import ActorCritic
from ..nn.rows import unpack
from .collector import Rollout

#: Where a row's weight is cut (Ionides 2008, "Truncated Importance Sampling": a little bias for a bounded variance; the
#: paper above cuts nothing). An update that ends at a KL of 0.06, twice the default limit, leaves log-weights with a
#: deviation of sqrt(2 * 0.06) = 0.35, of which log 5 is 4.6: the cut meets accidents alone. Uncut, one of them would
#: outweigh the rest of its minibatch, since the ratio's clip no longer bounds what it multiplies.
MOST_WEIGHT = 5.0


def behaviour_weight(proximal: Tensor, behaviour: Tensor, choice: Tensor) -> Tensor:
    """``min(exp(proximal - behaviour), MOST_WEIGHT)`` of log-probabilities, float32 ``[n]``; 1 where there is no
    ``choice`` (bool ``[n]``)."""
    return torch.where(choice, (proximal - behaviour).exp().clamp(max=MOST_WEIGHT), 1.0)


@torch.no_grad()
def proximal_log_prob(
    network: ActorCritic, r: Rollout, layout: RowLayout, actions: ActionLayout, chunk: int
) -> Tensor:
    """Log-probabilities of a rollout's actions under the network as it stands, float32 ``[n]``; those of value-only
    rows, which nobody reads, stay. Forwards are of at most ``chunk`` rows. Waits for the device once."""
    out = r.log_prob.clone()
    at = r.choice.nonzero().squeeze(-1)
    for i in range(0, len(at), chunk):
        part = at[i : i + chunk]
        obs = unpack(r.take(part), layout)
        logits, _ = network(obs)
        out[part] = MaskedCategorical(logits, obs["action_mask"], actions).log_prob(r.action[part])
    return out
