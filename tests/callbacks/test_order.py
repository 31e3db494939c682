"""Callbacks act in one order at an iteration's end, whatever order the YAML gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping

from royale_lightning.callbacks import MetricLog, Progress, RunCheckpoint, SignalStop, StopAfter, in_order
from royale_lightning.callbacks.base import EPOCH_END_ORDER


def _named(name: str, calls: list[str], base: type[Callback] = Callback) -> Callback:
    def on_train_epoch_end(self: Any, trainer: Any, pl_module: Any) -> None:
        calls.append(name)
        super(cls, self).on_train_epoch_end(trainer, pl_module)  # type: ignore[misc]

    cls = type(name, (base,), {"on_train_epoch_end": on_train_epoch_end})
    return cls()


@pytest.mark.parametrize("seed", range(3))
def test_epoch_end_order_holds_for_any_order(fit: Callable[..., Any], seed: int) -> None:
    calls: list[str] = []
    real = {c.__name__: c for c in (MetricLog, Progress, StopAfter, SignalStop, RunCheckpoint)}
    callbacks = [_named(name, calls, real.get(name, Callback)) for name in EPOCH_END_ORDER]
    callbacks += [_named("Mine", calls), _named("Yours", calls)]
    random.Random(seed).shuffle(callbacks)
    mine_first = [type(c).__name__ for c in callbacks if type(c).__name__ in ("Mine", "Yours")]
    fit(callbacks=callbacks, max_epochs=1)
    assert calls == [*mine_first, *EPOCH_END_ORDER]


def test_foreign_checkpoint_callbacks_stay_last() -> None:
    class Theirs(Checkpoint):
        pass

    class MyCheckpoint(RunCheckpoint):
        pass

    ordered = in_order([Theirs(), MyCheckpoint(), StopAfter(), EarlyStopping("x"), MetricLog()])
    names = [type(c).__name__ for c in ordered]
    assert names == ["EarlyStopping", "MetricLog", "StopAfter", "MyCheckpoint", "Theirs"]


@pytest.mark.parametrize("left_out", [MetricLog, Progress, StopAfter, SignalStop, RunCheckpoint])
def test_each_can_be_left_out(tmp_path: Any, left_out: type[Callback]) -> None:
    from lightning.pytorch import Trainer

    from royale_lightning.cli.trainer_defaults import complete
    from tests.support import tiny_run

    settings = complete({"max_epochs": 2, "enable_model_summary": False}, tmp_path)
    settings["callbacks"] = [c for c in settings["callbacks"] if not isinstance(c, left_out)]
    if left_out is RunCheckpoint:
        settings["enable_checkpointing"] = False
    if left_out is Progress:
        settings["enable_progress_bar"] = False
    trainer = Trainer(**settings)
    trainer.fit(tiny_run.TinyModule(), datamodule=tiny_run.TinyData())
    assert trainer.current_epoch == 2
