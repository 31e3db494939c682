"""``metrics.jsonl`` and the loggers: one row per iteration, with where its time went."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..metrics.row import PARTS
from .base import LoggedCallback, Phase, RunCallback, game_steps, iteration_row, show_row
from .loggers import log_settings
from .resume_rules import identity_of


class MetricLog(LoggedCallback):
    """Append the iteration's row to ``metrics.jsonl`` and give it to every logger.

    The log is ours and always written; loggers are views of the same rows, with game steps as their x-axis and the
    run's identity as its settings. A metric that was not measured, or is not finite, is left out of the row, never
    written as 0. ``trainer.callback_metrics`` holds the same.
    """

    phase = Phase.LOG
    log_file = "metrics.jsonl"
    offset_key = "metrics_offset"

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        if self._log is not None and trainer.loggers:
            identity = identity_of(trainer)
            settings = {**identity.noted, **identity.fixed, **identity.tunable, "identity": identity.digest}
            log_settings(trainer.loggers, settings)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row = show_row(trainer, iteration_row(trainer))
        if not trainer.is_global_zero:
            return
        self.append(row)
        for logger in trainer.loggers:
            logger.log_metrics(row, step=int(row["game_steps"]))
            # CSVLogger writes by itself only when the step is a multiple of a hundred.
            logger.save()


class IterationClock(RunCallback):
    """Adds ``time/iteration``, its parts and ``speed/...`` to the row.

    An iteration is timed from one reading of this clock to the next (the first from its start), so that nothing falls
    between two rows: what follows the reading, such as the checkpoint, belongs to the next row. ``time/callbacks`` is
    what callbacks took after the last minibatch without a part of their own, and ``time/rest`` what is left of the
    iteration without its parts.
    """

    phase = Phase.CLOCK

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
