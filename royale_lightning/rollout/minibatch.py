"""The narrow type between rollout and PPO: one minibatch, already on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class Minibatch:
    """Rows of one minibatch and what the losses need of them; all tensors ``[B]`` unless said.

    Attributes:
        rows: uint8 ``[B, row_bytes]``, the very bytes the policy acted on.
        action: int64, flat action index (0 for value-only rows).
        log_prob: float32, of ``action`` under the behaviour policy.
        advantage: float32, normalised over the iteration's choice rows; 0 for value-only rows.
        target: float32, value target (lambda return).
        value: float32, V at collection.
        choice: bool, rows of the actor's loss; the others train the critic alone.
        epoch, index: which PPO epoch, and which minibatch of it, this is.
        actor_weight: of the terms that are means over choice rows: this rank's number of them over the ranks' mean
            number, a scalar on the device; 1 on a single rank. Ranks average their gradients, and a mean of means is
            the mean over all rows only with these weights.
    """

    rows: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor
    value: Tensor
    choice: Tensor
    epoch: int
    index: int
    actor_weight: Tensor | float = 1.0

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def to(self, device: Any, **_: Any) -> Minibatch:
        """Itself: the buffer already lives on the device, so Lightning's batch transfer has nothing to do."""
        return self
