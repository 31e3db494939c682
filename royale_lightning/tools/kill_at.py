"""How ``verify-resume`` has a run killed."""

from __future__ import annotations

import os
import signal
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class KillAt(Callback):
    """Kills its own process in the middle of an iteration, as nothing else would.

    Args:
        iteration: counted from 1.
    """

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.current_epoch + 1 == self.iteration:
            os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
