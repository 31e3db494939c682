"""What callbacks want of the battles is said before these exist, and by one of them each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningDataModule, Trainer

from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.errors import UserError
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.rollout.data import SelfPlayData, data_of
from royale_lightning.rollout.plan import RunPlan
from royale_lightning.rollout.settings import RolloutSettings


class Starts:
    def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> Any:
        raise AssertionError


def test_what_is_registered_adds_up_and_a_new_run_forgets_it() -> None:
    data, starts = SelfPlayData(), Starts()
    data.register(keep_commands=True)
    data.register(starts=starts)
    data.register()
    assert data.plan == RunPlan(keep_commands=True, starts=starts)
    with pytest.raises(UserError, match="a Starts and a Starts both give the run its starts"):
        data.register(starts=Starts())
    data.setup("fit")
    assert data.plan == RunPlan()


def test_accumulation_that_would_mix_two_epochs_is_one_sentence_before_anything_is_built(tmp_path: Path) -> None:
    data = SelfPlayData(rollout=RolloutSettings(battles=2, rows_per_iteration=192, minibatch_rows=64))
    trainer = Trainer(**defaults(
        default_root_dir=str(tmp_path), enable_progress_bar=False, accelerator="cpu", accumulate_grad_batches=2
    ))
    with pytest.raises(UserError, match=r"accumulate_grad_batches is 2 and a PPO epoch has 3 minibatches"):
        trainer.fit(SelfPlayModule(), data)


def test_another_data_module_is_one_sentence() -> None:
    class Other(LightningDataModule):
        pass

    trainer = Trainer(logger=False, enable_checkpointing=False, callbacks=[Callback()], accelerator="cpu")
    with pytest.raises(UserError, match="the run has no data module, and what it is to do needs a SelfPlayData"):
        data_of(trainer)
    trainer.datamodule = Other()  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="the run has a Other"):
        data_of(trainer)
    mine = type("Mine", (SelfPlayData,), {})()
    trainer.datamodule = mine  # type: ignore[attr-defined]
    assert data_of(trainer) is mine
