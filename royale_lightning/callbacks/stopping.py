"""When a run stops: at its limits and at Ctrl-C or SIGTERM, each at an iteration's end."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..errors import UserError
from ..run.ranks import Ranks
from ..run.signals import StopSignals
from .base import Phase, RunCallback, game_steps, iterations_done
from .checkpoint import STAMP


class StopAfter(RunCallback):
    """Stop at the end of the iteration that reaches the first of the given limits.

    Not part of a run's identity: a run may be continued with other limits. Schedules follow their own horizon.

    Args:
        minutes: wall time of this start of the run, from the first iteration on.
        game_steps: game steps of the whole run, resumed parts included.
        iterations: iterations of the whole run, resumed parts included.
    """

    phase = Phase.LIMITS

    def __init__(
        self, minutes: float | None = None, game_steps: int | None = None, iterations: int | None = None
    ) -> None:
        for name, value in (("minutes", minutes), ("game_steps", game_steps), ("iterations", iterations)):
            if value is not None and value <= 0:
                raise UserError(f"stop.{name} is {value}; it must be greater than 0, or left out")
        self.minutes = minutes
        self.game_steps = game_steps
        self.iterations = iterations
        self._started = time.monotonic()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # Before anything of the run is moved or written; the Trainer's own counters are the checkpoint's only later.
        self._refuse_if_done(trainer, int(checkpoint.get(STAMP, {}).get("iteration", 0)))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.monotonic()
        self._refuse_if_done(trainer, trainer.current_epoch)

    def _refuse_if_done(self, trainer: Trainer, iterations: int) -> None:
        """A finished run that is continued unchanged would otherwise train one more iteration, each time."""
        for name, limit, done in (
            ("game_steps", self.game_steps, game_steps(trainer)),
            ("iterations", self.iterations, iterations),
        ):
            if limit is not None and done >= limit:
                raise UserError(f"the run already has {done} {name} and stop.{name} is {limit}; raise it to go on")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        reached = (self.game_steps is not None and game_steps(trainer) >= self.game_steps) or (
            self.iterations is not None and iterations_done(trainer) >= self.iterations
        )
        if self.minutes is not None:
            # Clocks differ between ranks; one that stopped alone would leave the others waiting for it.
            late = time.monotonic() - self._started >= 60 * self.minutes
            reached = Ranks.of(trainer).any(late) or reached
        if reached:
            trainer.should_stop = True

    def seconds_left(self, steps: int, iterations: int, seconds_per_step: float, seconds_per_iteration: float) -> float:
        """Time until the first limit is reached, at the given speeds; infinite without limits."""
        left = [float("inf")]
        if self.minutes is not None:
            left.append(60 * self.minutes - (time.monotonic() - self._started))
        if self.game_steps is not None:
            left.append((self.game_steps - steps) * seconds_per_step)
        if self.iterations is not None:
            left.append((self.iterations - iterations) * seconds_per_iteration)
        return max(0.0, min(left))


def _nothing_to_tell() -> None:
    pass


class SignalStop(RunCallback):
    """The first SIGINT or SIGTERM stops at the iteration's end, the second stops now.

    After the first, the run ends like any other, its checkpoint written. The second raises
    :class:`~royale_lightning.run.signals.StopNow`, and ``RunCheckpoint`` saves a checkpoint marked mid-iteration. Works
    in a notebook too, where Lightning alone would end the cell with ``SystemExit`` and leave SIGINT ignored.
    """

    phase = Phase.SIGNALS

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
        # Under DDP Lightning (2.6) has rank 0 tell the others before each minibatch whether its handler was called, and
        # everybody waits for the device to say so. It no longer is called, and the end of an iteration asks all ranks.
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _nothing_to_tell  # type: ignore[method-assign]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # SIGTERM may reach one rank only; all must agree to stop.
        if Ranks.of(trainer).any(self.received is not None):
            trainer.should_stop = True

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # After an exception Lightning calls no teardown hook, but restores all handlers itself.
        self._signals.restore()
