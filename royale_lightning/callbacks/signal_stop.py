"""Ctrl-C and SIGTERM: finish the iteration, or stop now."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer

from ..run.signals import StopSignals
from .base import RunCallback


class SignalStop(RunCallback):
    """The first SIGINT or SIGTERM stops at the iteration's end, the second stops now.

    After the first, the run ends like any other, its checkpoint written. The second raises
    :class:`~royale_lightning.run.signals.StopNow`, and ``RunCheckpoint`` saves a checkpoint marked mid-iteration. Works
    in a notebook too, where Lightning alone would end the cell with ``SystemExit`` and leave SIGINT ignored.
    """

    def __init__(self) -> None:
        self._signals = StopSignals()

    @property
    def received(self) -> int | None:
        """The signal that stopped the last run, if one did."""
        return self._signals.received

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._signals.remember()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Not earlier: Lightning registers its handlers after on_fit_start, and would wrap ours in its own, which
        # raises in the middle of an iteration.
        self._signals.install()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # SIGTERM may reach one rank only; all must agree to stop.
        if trainer.strategy.reduce_boolean_decision(self.received is not None, all=False):
            trainer.should_stop = True

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # After an exception Lightning calls no teardown hook, but restores all handlers itself.
        self._signals.restore()
