"""A policy as one graph from observation to action, for programs that know neither this package nor Python."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..battle.actions import ActionLayout
from ..battle.rows.layout import MASK, RowLayout
from .distribution import MaskedCategorical
from .protocol import ActorCritic

#: The inputs behind the observation's fields, and the outputs.
UNIFORMS, ACTION, LOG_PROBS = "uniforms", "action", "log_probs"


class PolicyGraph(nn.Module):
    """Masking and sampling around a network; positional arguments, as graph formats want them.

    Its inputs, in the order of :attr:`input_names`: every field of the observation ``[B, *shape]`` as
    ``rollout.minibatch.unpack`` gives it, ``action_mask`` bool ``[B, n_actions]``, and ``uniforms`` float64 ``[B, 2]``
    in [0, 1). Randomness comes in, so that the graph is a pure function and a battle can be played again.

    Its outputs: ``action`` int64 ``[B]``, and ``log_probs`` float32 ``[B, n_actions]`` of the masked policy, whose
    illegal actions have the least float.

    Args:
        network: in evaluation mode; one with ``use_static_shapes`` is told to use them.
        layout: the row it reads.
        actions: the space it answers in.
        sharp: wait or play is drawn, then the best card and tile are taken.
    """

    def __init__(self, network: ActorCritic, layout: RowLayout, actions: ActionLayout, sharp: bool = False) -> None:
        super().__init__()
        if hasattr(network, "use_static_shapes"):
            network.use_static_shapes()
        self.network = network
        self.actions = actions
        self.sharp = sharp
        self.input_names = [*(f.name for f in layout.fields), MASK, UNIFORMS]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        obs = dict(zip(self.input_names[:-1], inputs[:-1], strict=True))
        logits, _ = self.network(obs)
        policy = MaskedCategorical(logits, obs[MASK], self.actions)
        action = policy.sharp(inputs[-1]) if self.sharp else policy.sample(inputs[-1])
        return action, policy.flat_log_probs()

    def arguments(self, obs: dict[str, Tensor], uniforms: Tensor) -> tuple[Tensor, ...]:
        """An observation and its draws as :meth:`forward` takes them."""
        return (*(obs[name] for name in self.input_names[:-1]), uniforms)


def batch_is_free(arguments: Sequence[Tensor]) -> tuple[dict[int, torch.export.Dim], ...]:
    """Dynamic shapes for ``torch.export``: the first axis of every input is the batch."""
    batch = torch.export.Dim("batch", min=1, max=4096)
    return tuple({0: batch} for _ in arguments)
