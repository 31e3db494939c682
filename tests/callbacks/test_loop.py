"""The Lightning facts we stand on: one epoch is one iteration, and nothing happens outside its hooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from royale_lightning.callbacks import StopAfter
from royale_lightning.cli.trainer_defaults import TRAINER_DEFAULTS, defaults
from royale_lightning.errors import UserError

Fit = Callable[..., Any]
EPOCH = ["epoch start", "collect", "step 0", "step 1", "step 2", "step 3", "metrics", "epoch end"]


def test_one_rollout_per_epoch_after_the_start_hook_and_nothing_after_the_last_minibatch(fit: Fit) -> None:
    _, module, data = fit(max_epochs=3)
    assert module.events == EPOCH * 3
    assert (data.iteration, data.game_steps) == (3, 300)


def test_the_unwrapped_dataset_is_sized(fit: Fit) -> None:
    trainer, _, _ = fit(max_epochs=1)
    from tests.support import tiny_run

    assert isinstance(trainer.train_dataloader, tiny_run.TinyDataset)
    assert trainer.num_training_batches == len(trainer.train_dataloader) == 4


@pytest.mark.parametrize("at", [1, 3])
def test_a_generator_that_returns_early_ends_the_epoch_like_any_other(fit: Fit, tmp_path: Path, at: int) -> None:
    from tests.support import tiny_run

    data = tiny_run.TinyData()
    data.stop_early_at = (2, at)
    trainer, module, _ = fit(data=data, max_epochs=3)
    short = [e for e in EPOCH if not (e.startswith("step") and int(e[-1]) >= at)]
    assert module.events == EPOCH + short + EPOCH
    assert trainer.global_step == 8 + at
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_checkpoint_after_an_early_return_resumes_at_the_next_epoch(fit: Fit, tmp_path: Path) -> None:
    from tests.support import tiny_run

    data = tiny_run.TinyData()
    data.stop_early_at = (2, 2)
    fit(data=data, max_epochs=2)
    trainer, module, data = fit(ckpt_path=tmp_path / "checkpoints/last.ckpt", max_epochs=4)
    assert module.events == EPOCH * 2
    assert trainer.current_epoch == 4
    assert data.game_steps == 400


def test_a_resumed_run_equals_an_unbroken_one(fit: Fit, tmp_path: Path) -> None:
    def weights(module: Any) -> list[float]:
        return torch.cat([p.detach().flatten() for p in module.parameters()]).tolist()

    torch.manual_seed(0)
    _, whole, _ = fit(max_epochs=4, default_root_dir=tmp_path / "a")
    torch.manual_seed(0)
    fit(max_epochs=2, default_root_dir=tmp_path / "b")
    _, parts, _ = fit(ckpt_path=tmp_path / "b/checkpoints/last.ckpt", max_epochs=4, default_root_dir=tmp_path / "b")
    assert weights(parts) == weights(whole)


def test_lightning_adds_no_checkpoint_callback_of_its_own(fit: Fit) -> None:
    trainer, _, _ = fit(max_epochs=1)
    assert [type(c).__name__ for c in trainer.checkpoint_callbacks] == ["RunCheckpoint"]
    settings = defaults(enable_checkpointing=False, default_root_dir="x")
    assert Trainer(**settings).checkpoint_callbacks == []


def test_a_fit_can_be_followed_by_a_test(fit: Fit, tmp_path: Path) -> None:
    from royale_lightning.bots.measure import Measure

    trainer, _, data = fit(max_epochs=1)
    data.measure = Measure("test", 1, 0, tmp_path)
    with pytest.warns(UserWarning, match="best model of the previous"):
        trainer.test(datamodule=data)


def test_validation_from_python_plays_before_and_after_a_fit(fit: Fit, tmp_path: Path) -> None:
    """Also where a stage ended in the middle and the Trainer goes on."""
    from royale_lightning.bots.measure import Measure
    from tests.support import tiny_run

    class Fails(tiny_run.TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            played.append(self.trainer.current_epoch)
            if len(played) == 2:
                raise RuntimeError("in the middle")

    played: list[int] = []
    module, data = Fails(), tiny_run.TinyData()
    data.measure = Measure("validate", 1, 0, tmp_path)  # type: ignore[attr-defined]
    trainer = Trainer(**defaults(default_root_dir=str(tmp_path), max_epochs=2, enable_model_summary=False))
    trainer.validate(module, datamodule=data, verbose=False)
    with pytest.raises(RuntimeError, match="in the middle"):
        trainer.validate(module, datamodule=data, verbose=False)
    module.train()  # which Lightning forgot
    trainer.fit(module, datamodule=data)
    assert trainer.limit_val_batches == 0
    trainer.validate(module, datamodule=data, verbose=False)
    assert played == [0, 0, 2], "none of them in the fit"


def test_from_python_the_run_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR", raising=False)
    assert defaults()["default_root_dir"] == str(tmp_path / "runs/run-1")
    assert defaults()["default_root_dir"] == str(tmp_path / "runs/run-2")
    assert defaults(run_dir="mine")["default_root_dir"] == str(tmp_path / "mine")
    assert set(TRAINER_DEFAULTS) <= set(defaults(run_dir="other"))
    monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_time": "00:00:01:00"}, "max_time stops"),
        ({"max_steps": 3}, "max_steps stops"),
        ({"reload_dataloaders_every_n_epochs": 1}, "twice"),
        ({"limit_val_batches": 1}, "limit_val_batches must be 0"),
        ({"overfit_batches": 1}, "overfit_batches trains on"),
        ({"limit_train_batches": 0}, "limit_train_batches is 0,"),
        ({"limit_train_batches": 0.5}, "limit_train_batches is 0.5,"),
    ],
)
def test_trainers_made_by_hand_are_checked_too(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    from tests.support import tiny_run

    plain: dict[str, Any] = {"max_epochs": 1, "logger": False, "enable_progress_bar": False, "limit_val_batches": 0}
    plain |= {"enable_checkpointing": False, "default_root_dir": tmp_path, "callbacks": [StopAfter()]}
    trainer = Trainer(**(plain | settings))
    with pytest.raises(UserError, match=told):
        trainer.fit(tiny_run.TinyModule(), datamodule=tiny_run.TinyData())


def test_should_stop_is_set_at_the_epochs_end_only(fit: Fit) -> None:
    seen: list[bool] = []

    class Watch(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            seen.append(trainer.should_stop)

    trainer, _, _ = fit(callbacks=[StopAfter(iterations=2), Watch()])
    assert trainer.current_epoch == 2
    assert seen == [False] * 8
