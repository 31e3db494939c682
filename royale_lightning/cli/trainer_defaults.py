"""The Trainer settings and callbacks of a run, the same from Python and from the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint, ProgressBar

from ..callbacks import (
    Alarms,
    FiniteGuard,
    Interop,
    IterationClock,
    LiveControl,
    MetricLog,
    Progress,
    ResumeRules,
    RunCheckpoint,
    RunFolder,
    SignalStop,
    StopAfter,
)
from ..callbacks.base import MAX_STEPS_REFUSED, MAX_TIME_REFUSED
from ..errors import UserError
from ..run import folder as run_folder
from ..run.devices import check_settings

TRAINER_DEFAULTS: dict[str, Any] = {
    # One epoch is one iteration; StopAfter says when to stop.
    "max_epochs": -1,
    # The norm of every measured recipe. Adam's step hardly depends on a gradient's size, but one huge gradient stays in
    # its moments for many steps.
    "gradient_clip_val": 0.5,
    # Validation inside an epoch would fall into the middle of a rollout. trainer.validate plays all the same (Interop).
    "limit_val_batches": 0,
    "num_sanity_val_steps": 0,
    # metrics.jsonl is always written; loggers are views of it that one asks for.
    "logger": False,
    # MetricLog calls the loggers, once per iteration; logging by optimizer step would mix two x-axes.
    "log_every_n_steps": 0,
    # Each rank collects its own battles, so there is no sampler to distribute.
    "use_distributed_sampler": False,
}


#: What Lightning says at every start and nobody asked: which seed, which devices there are, what else it sells.
_GREETINGS = ("Seed set to", "GPU available:", "TPU available:", "💡")


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().lstrip("[rank: 0123456789]").startswith(_GREETINGS)


def quiet_lightning() -> None:
    """Drop Lightning's greetings; everything else it says stays, that a GPU lies idle too."""
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.seed"):
        logging.getLogger(name).addFilter(_is_news)


def with_our_callbacks(callbacks: Iterable[Callback], settings: Mapping[str, Any]) -> list[Callback]:
    """The given callbacks and those of ours that nothing given replaces.

    ``enable_checkpointing: false`` leaves out ``RunCheckpoint``, ``enable_progress_bar: false`` leaves out
    ``Progress``; any other progress bar, or a subclass of one of ours, takes its place.
    """
    given = list(callbacks)
    barebones = bool(settings.get("barebones"))
    ours: list[tuple[type[Callback], type[Callback], bool]] = [
        (RunFolder, RunFolder, True),
        (Interop, Interop, True),
        (FiniteGuard, FiniteGuard, True),
        (ResumeRules, ResumeRules, True),
        (IterationClock, IterationClock, True),
        (Alarms, Alarms, True),
        (MetricLog, MetricLog, True),
        (StopAfter, StopAfter, True),
        (LiveControl, LiveControl, True),
        (SignalStop, SignalStop, True),
        (Progress, ProgressBar, settings.get("enable_progress_bar") is not False and not barebones),
        (RunCheckpoint, RunCheckpoint, settings.get("enable_checkpointing") is not False and not barebones),
    ]
    return given + [cls() for cls, kind, wanted in ours if wanted and not any(isinstance(c, kind) for c in given)]


def complete(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Trainer arguments for a run in ``folder``: our defaults, overridden by ``settings``."""
    if settings.get("max_time") is not None:
        raise UserError(MAX_TIME_REFUSED)
    if settings.get("max_steps", -1) != -1:
        raise UserError(MAX_STEPS_REFUSED)
    check_settings(settings)
    quiet_lightning()
    full = {**TRAINER_DEFAULTS, **settings}
    given = full.get("callbacks") or []
    callbacks = with_our_callbacks([given] if isinstance(given, Callback) else given, full)
    full["callbacks"] = callbacks
    # With True Lightning would add a ModelCheckpoint of its own, with False refuse ours.
    full["enable_checkpointing"] = any(isinstance(c, Checkpoint) for c in callbacks)
    full["default_root_dir"] = str(run_folder.resolved(folder))
    return full


def defaults(run_dir: str | None = None, **settings: Any) -> dict[str, Any]:
    """Arguments for a Trainer that runs self-play::

        trainer = Trainer(**defaults(max_epochs=10))
        trainer.fit(SelfPlayModule(), SelfPlayData())

    Args:
        run_dir: the run's folder; the next free ``runs/run-<n>`` if left out. To continue a run from a checkpoint,
            leave it out and pass ``ckpt_path`` to ``fit``, with ``default_root_dir`` set to that run's folder.
            Lightning's ``ckpt_path="last"`` knows its own checkpoints alone: give the file.
        settings: Trainer arguments that override ours.
    """
    root = settings.pop("default_root_dir", None)
    if root is not None and run_dir is not None:
        raise UserError(f"run_dir is {run_dir!r} and default_root_dir {str(root)!r}; give one of them")
    folder = Path(root) if root is not None else run_folder.choose(run_dir, None, "run")
    return complete(settings, folder)
