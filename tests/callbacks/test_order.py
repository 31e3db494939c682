"""Callbacks act in one order at an iteration's end, whatever order the YAML gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping

from royale_lightning import callbacks as shipped
from royale_lightning.callbacks import MetricLog, Phase, Progress, RunCheckpoint, SignalStop, StopAfter, in_order
from royale_lightning.callbacks.base import LoggedCallback, RunCallback, phase_of

ORDER = [
    "Interop", "FiniteGuard", "ResumeRules", "RestartHarvest", "RouteCurriculum", "SnapshotPromotion", "RatingUpdate",
    "BattleReplays", "IterationClock", "Alarms", "MetricLog", "Progress", "StopAfter", "LiveControl", "SignalStop",
    "RunCheckpoint", "RunFolder",
]
#: The phases that no callback of ours has.
OTHERS = {Phase.OWN, Phase.OTHER_CHECKPOINTS}
#: Those in which nobody acts at an iteration's end: Lightning calls checkpoint callbacks there after all others.
NOT_THEN = {*OTHERS, Phase.FOLDER}


def _calls(name: str, calls: list[str], base: type[Callback] = Callback, phase: Phase | None = None) -> Callback:
    def on_train_epoch_end(self: Any, trainer: Any, pl_module: Any) -> None:
        calls.append(name)
        super(cls, self).on_train_epoch_end(trainer, pl_module)  # type: ignore[misc]

    cls = type(name, (base,), {"on_train_epoch_end": on_train_epoch_end} | ({} if phase is None else {"phase": phase}))
    return cls()


@pytest.mark.parametrize("seed", range(3))
def test_epoch_end_order_holds_for_any_order(fit: Callable[..., Any], seed: int) -> None:
    calls: list[str] = []
    real = {c.phase: c for c in (MetricLog, Progress, StopAfter, SignalStop, RunCheckpoint)}
    # A subclass of ours under another name takes its parent's place, and so does a callback that only says its phase.
    given = [
        _calls(f"my {phase.name}", calls, real[phase]) if phase in real
        else _calls(f"my {phase.name}", calls, phase=phase)
        for phase in Phase if phase not in NOT_THEN
    ]
    given += [_calls("Mine", calls), _calls("Yours", calls)]
    random.Random(seed).shuffle(given)
    mine_first = [type(c).__name__ for c in given if type(c).__name__ in ("Mine", "Yours")]
    fit(callbacks=given, max_epochs=1)
    ours = [f"my {phase.name}" for phase in Phase if phase not in NOT_THEN]
    assert calls == [ours[0], *mine_first, *ours[1:]]


def test_every_callback_of_ours_has_a_phase_of_its_own() -> None:
    public = [getattr(shipped, name) for name in shipped.__all__]
    ours = [c for c in public if isinstance(c, type) and issubclass(c, RunCallback)]
    ours = [c for c in ours if c not in (RunCallback, LoggedCallback)]
    assert [c.__name__ for c in sorted(ours, key=lambda c: c.phase)] == ORDER
    assert {c.phase for c in ours} == set(Phase) - OTHERS


def test_foreign_checkpoint_callbacks_stay_last() -> None:
    class Theirs(Checkpoint):
        pass

    class MyCheckpoint(RunCheckpoint):
        pass

    class Odd(Callback):
        phase = "of the moon"  # a word of its own

    class Late(Callback):
        phase = Phase.SIGNALS

    ordered = in_order([Theirs(), MyCheckpoint(), Late(), StopAfter(), EarlyStopping("x"), Odd(), MetricLog()])
    names = [type(c).__name__ for c in ordered]
    assert names == ["EarlyStopping", "Odd", "MetricLog", "StopAfter", "Late", "MyCheckpoint", "Theirs"]
    assert phase_of(Theirs()) == Phase.OTHER_CHECKPOINTS


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
