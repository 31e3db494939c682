"""What Lightning's own callbacks and methods expect of a Trainer, and a run would not give them."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer

from .base import Phase, RunCallback, iteration_row, show_row


class Interop(RunCallback):
    """Figures for ``EarlyStopping``, ``ModelCheckpoint(monitor=...)`` and pruning; ``trainer.validate`` that plays.

    At an iteration's end ``trainer.callback_metrics`` holds what was measured of it before anybody's
    ``on_train_epoch_end``, and the whole row once ``MetricLog`` has written it, which is before Lightning's two look. A
    figure that this iteration did not measure is not there: ``EarlyStopping("ladder/rating", strict=False)``.

    ``limit_val_batches: 0`` keeps validation out of an iteration, where it does not fit; while the Trainer validates it
    is set aside.
    """

    phase = Phase.INTEROP

    def __init__(self) -> None:
        self._limit: int | float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._put_back(trainer)  # a stage that failed had no teardown
        if stage == "validate" and trainer.limit_val_batches == 0:
            self._limit, trainer.limit_val_batches = trainer.limit_val_batches, 1.0
        super().setup(trainer, pl_module, stage)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._put_back(trainer)

    def _put_back(self, trainer: Trainer) -> None:
        if self._limit is not None:
            trainer.limit_val_batches, self._limit = self._limit, None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        show_row(trainer, iteration_row(trainer))
