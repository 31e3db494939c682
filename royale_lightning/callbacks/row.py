"""The metric row: one dictionary per iteration, assembled once and read by whoever needs it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from lightning.pytorch import Trainer

_ROWS: WeakKeyDictionary[Trainer, tuple[int, dict[str, float]]] = WeakKeyDictionary()
_NEXT: WeakKeyDictionary[Trainer, dict[str, float]] = WeakKeyDictionary()


def iterations_done(trainer: Trainer) -> int:
    """Iterations finished, this one included; for use inside ``on_train_epoch_end``."""
    return trainer.current_epoch + 1


def game_steps(trainer: Trainer) -> int:
    """Cumulative game steps of the run, summed over ranks; 0 for a data module that does not count them."""
    return int(getattr(trainer.datamodule, "game_steps", 0))  # type: ignore[attr-defined]


def iteration_row(trainer: Trainer) -> dict[str, float]:
    """The metrics of the iteration that just ended, values as measured (so a NaN is there to be seen).

    Call it inside ``on_train_epoch_end``, on every rank: the first call reduces the metrics over ranks, later
    ones return the same dictionary. A callback may add its own entries; those that run before ``MetricLog`` are
    logged.
    """
    iteration = iterations_done(trainer)
    cached = _ROWS.get(trainer)
    if cached is not None and cached[0] == iteration:
        return cached[1]
    started = time.monotonic()
    row: dict[str, float] = {"iteration": iteration, "game_steps": game_steps(trainer)}
    for source in (trainer.lightning_module, trainer.datamodule):  # type: ignore[attr-defined]
        metrics = getattr(source, "iteration_metrics", None)
        if metrics is not None:
            row.update(metrics())
    row.update(_NEXT.pop(trainer, {}))
    row["time/measure"] = time.monotonic() - started
    _ROWS[trainer] = (iteration, row)
    return row


def add_seconds(row: dict[str, float], key: str, seconds: float) -> None:
    """Add to a time that more than one callback spends."""
    row[key] = row.get(key, 0.0) + seconds


def add_growth(row: dict[str, float], before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Add to figures that more than one callback tells what has come to their running totals."""
    for key, total in now.items():
        row[key] = row.get(key, 0) + total - before[key]


def add_to_next_row(trainer: Trainer, key: str, value: float) -> None:
    """Log a value with the next iteration: what is measured after this one's row was written."""
    _NEXT.setdefault(trainer, {})[key] = value


def forget_row(trainer: Trainer) -> None:
    """Called when a run starts: a Trainer that fits twice may reach the same iteration again."""
    _ROWS.pop(trainer, None)
    _NEXT.pop(trainer, None)
