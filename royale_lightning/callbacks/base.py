"""What our callbacks share: their order at an iteration's end, the metric row, a log, what they refuse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, Timer

from ..errors import UserError
from ..metrics.row import MetricRow
from ..run.devices import check_devices
from ..run.jsonl import JsonLines, Mark
from ..run.ranks import Ranks

#: What a checkpoint calls the digest of a callback's log.
LOG_DIGEST = "log_digest"


class Phase(IntEnum):
    """When a callback acts at an iteration's end, ascending; its class attribute ``phase``, which subclasses inherit.

    Each acts on what those before it did: the ladder sees this iteration's results, alarms and the metric row see the
    ladder, and the checkpoint holds it all. Those of one phase keep the order in which they were given.
    """

    #: Before everybody, who may want to know what was measured.
    INTEROP = -1
    #: Callbacks without a phase, such as a user's own: early, so that the metric row can hold what they add.
    OWN = 0
    #: Nothing that follows may be of a network that is no number any more.
    GUARD = 1
    RULES = 2
    #: Restarts are minted from this iteration's battles, then the curriculum walks them.
    HARVEST = 3
    CURRICULUM = 4
    #: Who is in the pool, then how strong the learner is beside them.
    PROMOTION = 5
    RATING = 6
    REPLAYS = 7
    #: The clock is read when all that costs time of its own is done, and before what reads times.
    CLOCK = 8
    ALARMS = 9
    #: The row is complete.
    LOG = 10
    SCREEN = 11
    #: Whoever may end the run, before the checkpoint that is then due.
    LIMITS = 12
    CONTROL = 13
    SIGNALS = 14
    CHECKPOINT = 15
    #: Other people's checkpoint callbacks, where Lightning puts them.
    OTHER_CHECKPOINTS = 16
    #: The folder is let go of when nobody writes any more.
    FOLDER = 17


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


# ---- the Trainer, which declares these nowhere -----------------------------------------------------------------------
def callbacks_of(trainer: Trainer) -> list[Callback]:
    """``trainer.callbacks``."""
    return trainer.callbacks  # type: ignore[attr-defined]


def datamodule_of(trainer: Trainer) -> Any:
    """``trainer.datamodule``, ours or another: for a callback that goes without what another does not offer.

    :func:`~royale_lightning.rollout.data.data_of` is for one that needs ours.
    """
    return getattr(trainer, "datamodule", None)


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


def phase_of(callback: Callback) -> Phase:
    """When a callback acts; see :class:`Phase`."""
    phase = getattr(callback, "phase", None)
    if isinstance(phase, Phase):
        return phase
    return Phase.OTHER_CHECKPOINTS if isinstance(callback, Checkpoint) else Phase.OWN


def in_order(callbacks: Iterable[Callback]) -> list[Callback]:
    """The callbacks in the order of their phases."""
    return sorted(callbacks, key=phase_of)


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


# ---- the metric row --------------------------------------------------------------------------------------------------
def iterations_done(trainer: Trainer) -> int:
    """Iterations finished, this one included; for use inside ``on_train_epoch_end``."""
    return trainer.current_epoch + 1


def game_steps(trainer: Trainer) -> int:
    """Cumulative game steps of the run, summed over ranks; 0 for a data module that does not count them."""
    return int(getattr(datamodule_of(trainer), "game_steps", 0))


def iteration_row(trainer: Trainer) -> dict[str, float]:
    """The metrics of the iteration that just ended, values as measured (so a NaN is there to be seen).

    Call it inside ``on_train_epoch_end``, on every rank: the first call reduces the metrics over ranks, later
    ones return the same dictionary. A callback may add its own entries; those that run before ``MetricLog`` are
    logged.
    """
    return _held(trainer).of(iterations_done(trainer), lambda: _measured(trainer))


def show_row(trainer: Trainer, row: Mapping[str, float]) -> dict[str, float]:
    """Make ``trainer.callback_metrics`` hold this row and nothing of the one before, and return what it shows.

    For Lightning's callbacks that act on a figure, and those that tuners bring. Call it on every rank: all of them see
    the first rank's, so that they decide alike. Loggers read nothing of it.
    """
    here = {k: v for k, v in row.items() if v is not None and math.isfinite(v)}
    finite = Ranks.of(trainer).from_rank_zero(lambda: here)
    shown, held = trainer.callback_metrics, _held(trainer)
    for key in held.shown - finite.keys():
        shown.pop(key, None)
    # In double precision: game steps outgrow what 32 bits count.
    shown.update({k: torch.tensor(v, dtype=torch.float64) for k, v in finite.items()})
    held.shown = set(finite)
    return finite


def add_to_next_row(trainer: Trainer, key: str, value: float) -> None:
    """Log a value with the next iteration: what is measured after this one's row was written."""
    _held(trainer).note(key, value)


def add_seconds(row: dict[str, float], key: str, seconds: float) -> None:
    """Add to a time that more than one callback spends."""
    row[key] = row.get(key, 0.0) + seconds


def add_growth(row: dict[str, float], before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Add to figures that more than one callback tells what has come to their running totals."""
    for key, total in now.items():
        row[key] = row.get(key, 0) + total - before[key]


def _held(trainer: Trainer) -> MetricRow:
    """The run's row. A data module that is not ours, or the module of a run without one, is given one to hold."""
    data = datamodule_of(trainer)
    owner = trainer.lightning_module if data is None else data
    held = getattr(owner, "metric_row", None)
    if not isinstance(held, MetricRow):
        held = owner.metric_row = MetricRow()
    return held


def _measured(trainer: Trainer) -> dict[str, float]:
    row: dict[str, float] = {"iteration": iterations_done(trainer), "game_steps": game_steps(trainer)}
    for source in (trainer.lightning_module, datamodule_of(trainer)):
        metrics = getattr(source, "iteration_metrics", None)
        if metrics is not None:
            row.update(metrics())
    return row


# ---- callbacks -------------------------------------------------------------------------------------------------------
class RunCallback(Callback):
    """Base of our callbacks: brings the Trainer's callbacks into order before a run starts."""

    phase: ClassVar[Phase] = Phase.OWN

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            check_trainer(trainer)
            _held(trainer).clear()
            if is_dry(trainer):
                # fast_dev_run turns validation on, whatever limit_val_batches says.
                trainer.limit_val_batches = 0
        # A new list: Lightning is iterating over the old one.
        trainer.callbacks = in_order(callbacks_of(trainer))  # type: ignore[attr-defined]


class LoggedCallback(RunCallback):
    """A callback with a log of its own in the run folder, which a resume takes back to where its checkpoint stood.

    Rank 0 writes it, in a run that is more than a trial.

    Attributes:
        log_file: the log's name in the run folder.
        offset_key: what a checkpoint calls the log's offset.
    """

    log_file: ClassVar[str]
    offset_key: ClassVar[str]

    def __init__(self) -> None:
        self._log: JsonLines | None = None
        self._mark = Mark(0)
        self._resume_at: Mark | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        mark, self._resume_at = self._resume_at, None
        self._log = None

        def begin() -> None:
            self._log = JsonLines(Path(trainer.default_root_dir) / self.log_file, mark)

        if not is_dry(trainer):
            # What is refused on one rank alone would leave the others waiting.
            Ranks.of(trainer).from_rank_zero(begin)

    def append(self, line: Mapping[str, Any]) -> None:
        """Log one line, where this process logs."""
        if self._log is not None:
            self._log.append(line)

    def state_dict(self) -> dict[str, Any]:
        if self._log is not None:
            # The checkpoint must not promise lines that a power failure could still take.
            self._mark = self._log.mark()
        return {self.offset_key: self._mark.offset, LOG_DIGEST: self._mark.digest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resume_at = self._mark = Mark(int(state_dict[self.offset_key]), state_dict.get(LOG_DIGEST, ""))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        # Lightning calls no teardown hook after an exception.
        self._close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        # An emergency checkpoint may still ask where it stands, and a second fit goes on with it.
        if self._log is not None:
            self._log.close()
