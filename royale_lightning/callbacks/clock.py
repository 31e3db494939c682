"""Where an iteration's time went."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from .base import RunCallback
from .row import game_steps, iteration_row

#: The parts an iteration's time is made of, beside ``time/rest``. Not all are in every row.
PARTS = (
    "step", "inference", "wait", "collect_other", "update", "measure", "restarts", "ladder", "replays", "callbacks",
    "checkpoint",
)


class IterationClock(RunCallback):
    """Adds ``time/iteration``, its parts and ``speed/...`` to the row.

    An iteration is timed from one reading of this clock to the next (the first from its start), so that nothing falls
    between two rows: what follows the reading, such as the checkpoint, belongs to the next row. ``time/callbacks`` is
    what callbacks took after the last minibatch without a part of their own, and ``time/rest`` what is left of the
    iteration without its parts.
    """

    def __init__(self) -> None:
        self._read_at: float | None = None
        self._updated_at = 0.0
        self._steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read_at = None
        self._steps = game_steps(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._read_at is None:
            self._read_at = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._updated_at = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row = iteration_row(trainer)
        now = time.monotonic()
        assert self._read_at is not None
        row["time/iteration"] = whole = max(now - self._read_at, 1e-9)
        named = sum(row.get(f"time/{part}", 0.0) for part in ("measure", "restarts", "ladder", "replays"))
        row["time/callbacks"] = now - self._updated_at - named
        row["time/rest"] = whole - sum(row.get(f"time/{part}", 0.0) for part in PARTS)
        steps = game_steps(trainer)
        row["speed/game_steps_per_s"] = (steps - self._steps) / whole
        if "rollout/rows" in row:
            row["speed/rows_per_s"] = row["rollout/rows"] / whole
        self._read_at, self._steps = now, steps
