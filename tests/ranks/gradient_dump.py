"""A callback that writes down, on every rank, each minibatch, the weights it met and the gradient it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.types import STEP_OUTPUT

from royale_lightning.rollout.minibatch import Minibatch


class GradientDump(Callback):
    """``gradient-<step>-<rank>.pt`` in the run folder; ``gradient`` is what the optimizer sees before clipping."""

    def __init__(self) -> None:
        self._batch: Minibatch | None = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Minibatch, batch_idx: int
    ) -> None:
        self._batch = batch

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        path = Path(trainer.default_root_dir) / f"gradient-{trainer.global_step}-{trainer.global_rank}.pt"
        network: Any = pl_module.network
        torch.save({
            "weights": {k: v.clone() for k, v in network.state_dict().items()},
            "gradient": {k: p.grad.clone() for k, p in network.named_parameters() if p.grad is not None},
            "batch": {k: v for k, v in vars(self._batch).items() if isinstance(v, torch.Tensor)},
        }, path)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        self._batch = None
