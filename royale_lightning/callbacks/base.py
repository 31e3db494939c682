"""What our callbacks share: their order at an iteration's end, and the Trainer settings they refuse."""

from __future__ import annotations

from collections.abc import Iterable

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, Timer

from ..errors import UserError
from ..run.devices import check_devices
from .row import forget_row

#: Epoch-end order, by class name (a subclass takes its parent's place). Each acts on what those before it did: the
#: ladder sees this iteration's results, alarms and the metric row see the ladder, and the checkpoint holds it all.
EPOCH_END_ORDER = (
    "FiniteGuard",
    "ResumeRules",
    "RestartHarvest",
    "RouteCurriculum",
    "SnapshotPromotion",
    "RatingUpdate",
    "BattleReplays",
    "IterationClock",
    "Alarms",
    "MetricLog",
    "Progress",
    "StopAfter",
    "LiveControl",
    "SignalStop",
    "RunCheckpoint",
)

MAX_TIME_REFUSED = (
    "max_time stops in the middle of an iteration; use StopAfter(minutes | game_steps), "
    "on the command line --stop.minutes or --stop.game_steps"
)
MAX_STEPS_REFUSED = (
    "max_steps stops in the middle of an iteration; use StopAfter(game_steps | iterations), "
    "on the command line --stop.game_steps or --stop.iterations"
)
RELOAD_REFUSED = "reload_dataloaders_every_n_epochs would collect each rollout twice; leave it at 0"
OVERFIT_REFUSED = (
    "overfit_batches trains on the first few minibatches again and again, and here each iteration collects its own; "
    "leave it at 0 (a small data.rollout.rows_per_iteration makes a small iteration)"
)
VALIDATION_REFUSED = (
    "limit_val_batches must be 0 in fit: validation inside an epoch does not fit a rollout; "
    "scores during a run come from callbacks, and `royale-lightning validate` gives them at any time"
)


def callbacks_of(trainer: Trainer) -> list[Callback]:
    """``trainer.callbacks``, which Lightning declares nowhere."""
    return trainer.callbacks  # type: ignore[attr-defined]


def is_whole(limit: int | float | None) -> bool:
    """Whether ``limit_train_batches`` leaves an iteration whole: 1.0 is all of it, 1 a single minibatch."""
    return limit is None or (isinstance(limit, float) and limit == 1.0)


def limit_refused(limit: int | float | None) -> str:
    """Why ``limit_train_batches`` is refused."""
    return (
        f"limit_train_batches is {limit}, and an iteration trains on all minibatches of its rollout; leave it out, and "
        "set data.rollout.rows_per_iteration or model.ppo.ppo_epochs for less"
    )


def is_dry(trainer: Trainer) -> bool:
    """Whether this is a ``fast_dev_run``: a trial that leaves nothing behind."""
    return bool(trainer.fast_dev_run)  # type: ignore[attr-defined]


def _place(callback: Callback) -> int:
    for cls in type(callback).__mro__:
        if cls.__name__ in EPOCH_END_ORDER:
            return EPOCH_END_ORDER.index(cls.__name__) + 1
    # A user's callbacks run first, so that the metric row can hold what they add; other people's checkpoint
    # callbacks stay last, where Lightning puts them.
    return len(EPOCH_END_ORDER) + 1 if isinstance(callback, Checkpoint) else 0


def in_order(callbacks: Iterable[Callback]) -> list[Callback]:
    """The callbacks in epoch-end order; those that have no place in it keep their relative order, in front."""
    return sorted(callbacks, key=_place)


def check_trainer(trainer: Trainer) -> None:
    """Refuse Trainer settings that would break an iteration, however the Trainer was made."""
    check_devices(trainer)
    if any(isinstance(c, Timer) and getattr(c, "_interval", None) == "step" for c in callbacks_of(trainer)):
        raise UserError(MAX_TIME_REFUSED)
    if trainer.max_steps != -1 and not is_dry(trainer):
        raise UserError(MAX_STEPS_REFUSED)
    if trainer.reload_dataloaders_every_n_epochs:  # type: ignore[attr-defined]
        raise UserError(RELOAD_REFUSED)
    if trainer.overfit_batches and not is_dry(trainer):  # type: ignore[attr-defined]
        raise UserError(OVERFIT_REFUSED)
    if not is_whole(trainer.limit_train_batches) and not is_dry(trainer):
        raise UserError(limit_refused(trainer.limit_train_batches))
    if trainer.enable_validation and not is_dry(trainer):
        raise UserError(VALIDATION_REFUSED)


class RunCallback(Callback):
    """Base of our callbacks: brings the Trainer's callbacks into order before a run starts."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            check_trainer(trainer)
            forget_row(trainer)
            if is_dry(trainer):
                # fast_dev_run turns validation on, whatever limit_val_batches says.
                trainer.limit_val_batches = 0
        # A new list: Lightning is iterating over the old one.
        trainer.callbacks = in_order(callbacks_of(trainer))  # type: ignore[attr-defined]
