"""Acting and training compute alike under mixed precision, in whichever thread battles are played."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning import BattleSpec, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.ppo.module import ratio_tolerance
from tests.support.bots import Reflex

SPEC = BattleSpec(max_ticks=600)
#: Of each forward: thread, whether with gradient, dtype of the linear layer's answer.
CALLS: set[tuple[str, bool, torch.dtype]] = set()


class Telling(Reflex):
    def forward(self, obs):  # type: ignore[no-untyped-def]
        logits, value = super().forward(obs)
        name = "ahead" if threading.current_thread().name.startswith("collect-ahead") else "main"
        CALLS.add((name, torch.is_grad_enabled(), value.dtype))
        return logits, value


class FromNow(Callback):
    """Forgets the forward by which a network is tried when it is built."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        CALLS.clear()


class Errors(Callback):
    def __init__(self) -> None:
        self.found: list[float] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SelfPlayModule)
        self.found.append(pl_module.iteration_metrics()["ppo/ratio_error"])


def fit(folder: Path, module: SelfPlayModule, *callbacks: Callback, **rollout: Any) -> None:
    trainer = Trainer(**defaults(
        default_root_dir=str(folder), max_epochs=2, accelerator="cpu", precision="bf16-mixed",
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, callbacks=list(callbacks),
    ))
    sizes = {"battles": 4, "rows_per_iteration": 128, "minibatch_rows": 128, "threads": 1, "source": "inline"}
    trainer.fit(module, SelfPlayData(SPEC, RolloutSettings(**{**sizes, **rollout})))


@pytest.mark.parametrize("overlap", [False, True])
def test_every_forward_of_the_learner_is_at_the_precision_of_training(overlap: bool, tmp_path: Path) -> None:
    module = SelfPlayModule("tests.rollout.test_precision.Telling", PPOSettings(ppo_epochs=1))
    fit(tmp_path, module, FromNow(), overlap=overlap)
    want = {("main", True, torch.bfloat16), ("ahead" if overlap else "main", False, torch.bfloat16)}
    if overlap:  # the proximal policy of a rollout that was collected ahead
        want.add(("main", False, torch.bfloat16))
    assert want == CALLS
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("overlap", [False, True])
def test_a_trained_policy_acts_as_it_learns(overlap: bool, tmp_path: Path) -> None:
    """The shipped bot's probabilities in float32 are up to 4.5e-2 from those in bfloat16."""
    errors = Errors()
    fit(tmp_path, SelfPlayModule(ppo=PPOSettings(ppo_epochs=1), init_from="first_bot"), errors, overlap=overlap)
    assert len(errors.found) == 2
    assert max(errors.found) < 2e-3 < ratio_tolerance("bf16-mixed")


def test_tolerances_of_precisions() -> None:
    assert ratio_tolerance("32-true") == 1e-3
    assert ratio_tolerance("bf16-mixed") < ratio_tolerance("bf16-mixed", compiled=True) == 5e-2
