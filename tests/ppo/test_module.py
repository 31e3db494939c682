"""What the module does around the losses, in runs of a few iterations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.nn.entity import EntityNetwork
from royale_lightning.nn.protocol import Inputs
from royale_lightning.parts import part
from royale_lightning.ppo.auxiliary import AuxiliaryLoss, Step
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.ppo.settings import PPOSettings
from royale_lightning.rollout.data import SelfPlayData
from royale_lightning.rollout.settings import RolloutSettings


class Forgetful(EntityNetwork):
    """Another trunk in training, which zeroed heads hide before the first update."""

    def _trunk(self, x: Tensor, attention: Any) -> Tensor:
        return super()._trunk(x, attention) * (1.5 if self.training else 1.0)


class Counted(AuxiliaryLoss):
    """Counts its forwards; with ``own`` it has a weight that DDP would wait for."""

    def __init__(self, inputs: Inputs, weight: Any = 1.0, own: bool = False) -> None:
        super().__init__(inputs, weight)
        self.calls = 0
        if own:
            self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls += 1
        return step.value.square().mean() * getattr(self, "scale", 1.0), {}


def fit(tmp_path: Path, module: SelfPlayModule, iterations: int, *callbacks: Callback) -> list[dict[str, float]]:
    trainer = Trainer(**defaults(
        run_dir=str(tmp_path / "run"), max_epochs=iterations, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=list(callbacks),
    ))
    rollout = RolloutSettings(battles=4, rows_per_iteration=96, minibatch_rows=32, threads=1, source="inline")
    trainer.fit(module, SelfPlayData(BattleSpec(max_ticks=400), rollout))
    return [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


def small(network: type[EntityNetwork] = EntityNetwork) -> Any:
    return part(network, width=16, layers=1, heads=2)


def test_ratios_are_checked_again_once_the_heads_have_moved(tmp_path: Path) -> None:
    class Iterations(Callback):
        ended = 0

        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            self.ended += 1

    seen = Iterations()
    with pytest.raises(RuntimeError, match="the first minibatch's probability ratios are off by"):
        fit(tmp_path, SelfPlayModule(small(Forgetful), PPOSettings(ppo_epochs=1, learning_rate=0.01)), 3, seen)
    assert seen.ended == 1


def test_explained_variance_is_of_the_whole_rollout(tmp_path: Path) -> None:
    class Rollouts(Callback):
        def __init__(self) -> None:
            self.expected: list[float] = []

        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            dataset = trainer.datamodule._dataset  # type: ignore[attr-defined]
            batches = [dataset.minibatch(i) for i in range(3)]
            choice = torch.cat([b.choice for b in batches])
            target, value = (torch.cat([getattr(b, n) for b in batches]).double() for n in ("target", "value"))
            self.expected.append(float(1 - (target - value)[choice].var() / target[choice].var()))

    seen = Rollouts()
    rows = fit(tmp_path, SelfPlayModule(small(), PPOSettings(ppo_epochs=2)), 3, seen)
    # The callback above runs before the row is written, and stands at the same iteration.
    assert [r["ppo/explained_variance"] for r in rows] == pytest.approx(seen.expected, abs=1e-5)


def test_a_term_of_weight_0_costs_nothing(tmp_path: Path) -> None:
    module = SelfPlayModule(small(), PPOSettings(ppo_epochs=1), {
        "off": part(Counted, weight=0.0), "owns": part(Counted, weight=0.0, own=True), "on": part(Counted),
    })
    (row,) = fit(tmp_path, module, 1)
    terms: Any = module.auxiliary
    assert (terms["off"].calls, terms["owns"].calls, terms["on"].calls) == (0, 3, 3)
    assert [row[f"auxiliary/{n}/weight"] for n in ("off", "owns", "on")] == [0.0, 0.0, 1.0]
    assert "auxiliary/off/loss" not in row
    assert row["auxiliary/on/loss"] >= 0.0


def test_python_and_the_command_line_clip_alike(tmp_path: Path) -> None:
    assert Trainer(**defaults(run_dir=str(tmp_path / "a"))).gradient_clip_val == 0.5
    assert Trainer(**defaults(run_dir=str(tmp_path / "b"), gradient_clip_val=None)).gradient_clip_val is None
