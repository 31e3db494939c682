"""What only a CUDA device can show; skipped elsewhere. ``make gpu-check`` runs these and a throughput table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.nn.entity import EntityNetwork
from royale_lightning.parts import part
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.ppo.settings import PPOSettings
from royale_lightning.rollout.data import SelfPlayData
from royale_lightning.rollout.settings import RolloutSettings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class NoWaiting(Callback):
    """CUDA raises at whatever waits for the device inside a minibatch, from the second iteration on."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        torch.cuda.set_sync_debug_mode("error" if trainer.current_epoch else "default")

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")


def fit(
    folder: Path, *callbacks: Callback, precision: str = "32-true", compile: bool = False
) -> list[dict[str, float]]:
    """Three iterations of a small network; the metric rows."""
    trainer = Trainer(**defaults(
        run_dir=str(folder), max_epochs=3, accelerator="gpu", devices=1, precision=precision, gradient_clip_val=0.5,
        enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
    ))
    rollout = RolloutSettings(battles=8, rows_per_iteration=256, minibatch_rows=64)
    small = part(EntityNetwork, width=32, layers=1)
    trainer.fit(SelfPlayModule(small, PPOSettings(ppo_epochs=2), compile=compile), SelfPlayData(rollout=rollout))
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_update_never_waits_for_the_device(tmp_path: Path) -> None:
    assert len(fit(tmp_path / "run", NoWaiting())) == 3


@pytest.mark.parametrize(("precision", "limit"), [("32-true", 1e-3), ("bf16-mixed", 1e-2)])
def test_the_first_ratios_are_one(precision: str, limit: float, tmp_path: Path) -> None:
    for row in fit(tmp_path / "run", precision=precision):
        assert row["ppo/ratio_error"] <= limit


def test_a_compiled_run_reaches_the_same_first_loss(tmp_path: Path) -> None:
    plain, compiled = fit(tmp_path / "a"), fit(tmp_path / "b", compile=True)
    assert compiled[0]["ppo/ratio_error"] <= 1e-3
    assert compiled[0]["ppo/loss"] == pytest.approx(plain[0]["ppo/loss"], abs=1e-3)


def test_a_seed_gives_the_same_rows_twice(tmp_path: Path) -> None:
    def told(rows: list[dict[str, float]]) -> list[dict[str, float]]:
        return [{k: v for k, v in r.items() if k.startswith(("ppo/", "rollout/"))} for r in rows]

    assert told(fit(tmp_path / "a")) == told(fit(tmp_path / "b"))
