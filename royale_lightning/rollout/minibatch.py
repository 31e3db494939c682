"""The narrow type between rollout and PPO: one minibatch, already on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..nn.rows import rows_to_tensor


class Staging:
    """Copies chosen rows of a round to the device.

    To a GPU through page-locked memory, which a copy can leave while the host goes on; on a CPU there is nothing to
    stage. The memory is used anew at each call: the actions of the rows put before must have been read back by then,
    which waits for their copy too.

    Args:
        rows: the most one call brings.
        row_bytes: of a row.
        device: where to.
        pinned: whether to stage; unset, on CUDA.
    """

    def __init__(self, rows: int, row_bytes: int, device: torch.device, pinned: bool | None = None) -> None:
        self._device = device
        self._host: Tensor | None = None
        cuda = device.type == "cuda"
        if cuda if pinned is None else pinned:
            self._host = torch.empty((rows, row_bytes), dtype=torch.uint8, pin_memory=cuda)

    def put(self, rows: np.ndarray, at: np.ndarray) -> Tensor:
        """Rows ``at`` of uint8 ``[slots, row_bytes]``, on the device."""
        if self._host is None:
            return rows_to_tensor(rows[at], self._device)
        np.take(rows, at, axis=0, out=self._host.numpy()[: len(at)])
        return self._host[: len(at)].to(self._device, non_blocking=self._device.type == "cuda")


@dataclass
class Minibatch:
    """Rows of one minibatch and what the losses need of them; all tensors ``[B]`` unless said.

    Attributes:
        rows: uint8 ``[B, row_bytes]``, the very bytes the policy acted on.
        action: int64, flat action index (0 for value-only rows).
        log_prob: float32, of ``action`` under the proximal policy: the network as the update finds it, which is also
            who acted unless the rollout was collected ahead.
        advantage: float32, normalised over the iteration's choice rows; 0 for value-only rows.
        target: float32, value target (lambda return).
        value: float32, V at collection.
        choice: bool, rows of the actor's loss; the others train the critic alone.
        epoch, index: which PPO epoch, and which minibatch of it, this is.
        actor_weight: of the terms that are means over choice rows: this rank's number of them over the ranks' mean
            number, a scalar on the device; 1 on a single rank. Ranks average their gradients, and a mean of means is
            the mean over all rows only with these weights.
        weight: float32, probability of ``action`` under the proximal policy over that under the behaviour policy, which
            acted (:func:`~royale_lightning.rollout.proximal.behaviour_weight`); the number 1 where they are one.
        hidden: uint8 ``[B, HIDDEN_BYTES]``, what a critic apart from the actor may know beside the rows
            (:mod:`~royale_lightning.battle.rows.hidden`); None where there is none to read it.
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
    weight: Tensor | float = 1.0
    hidden: Tensor | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def to(self, device: Any, **_: Any) -> Minibatch:
        """Itself: the buffer already lives on the device, so Lightning's batch transfer has nothing to do."""
        return self
