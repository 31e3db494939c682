"""``metrics.jsonl`` and the loggers: one row per iteration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..run.jsonl import JsonLines, discard_tail
from ..screen import say
from .base import RunCallback, is_dry
from .loggers import log_settings
from .resume_rules import identity_of
from .row import iteration_row


class MetricLog(RunCallback):
    """Append the iteration's row to ``metrics.jsonl`` and give it to every logger.

    The log is ours and always written; loggers are views of the same rows, with game steps as their x-axis and the
    run's identity as its settings. A metric that was not measured, or is not finite, is left out of the row, never
    written as 0.
    """

    def __init__(self) -> None:
        self._log: JsonLines | None = None
        self._resume_at: int | None = None
        self._offset = 0

    def state_dict(self) -> dict[str, Any]:
        if self._log is not None:
            # The checkpoint must not promise rows that a power failure could still take.
            self._log.sync()
            self._offset = self._log.offset
        return {"metrics_offset": self._offset}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resume_at = self._offset = int(state_dict["metrics_offset"])

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        resume_at, self._resume_at = self._resume_at, None
        if not trainer.is_global_zero or is_dry(trainer):
            return
        path = Path(trainer.default_root_dir) / "metrics.jsonl"
        # A fork starts a log of its own, so there is nothing beyond the offset to move.
        if resume_at is not None and (aside := discard_tail(path, resume_at)) is not None:
            say(f"metrics of iterations after the checkpoint moved to {aside}")
        self._log = JsonLines(path)
        if trainer.loggers:
            identity = identity_of(trainer)
            settings = {**identity.noted, **identity.fixed, **identity.tunable, "identity": identity.digest}
            log_settings(trainer.loggers, settings)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row = iteration_row(trainer)
        if not trainer.is_global_zero:
            return
        finite = {k: v for k, v in row.items() if v is not None and math.isfinite(v)}
        if self._log is not None:
            self._log.append(finite)
        for logger in trainer.loggers:
            logger.log_metrics(finite, step=int(row["game_steps"]))
            # CSVLogger writes by itself only when the step is a multiple of a hundred.
            logger.save()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        # Lightning calls no teardown hook after an exception.
        self._close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        # An emergency checkpoint may still ask for the offset.
        if self._log is not None:
            self._offset = self._log.offset
            self._log.close()
            self._log = None
