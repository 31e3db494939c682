"""One short real run, shared: its rows are what declarations and alarms are held against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.callbacks import (
    Alarms,
    BattleReplays,
    RestartHarvest,
    RouteCurriculum,
    RunCheckpoint,
    SnapshotPromotion,
)
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.parts import part
from royale_lightning.ppo.auxiliary import AuxiliaryLoss, Step
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.ppo.settings import PPOSettings
from royale_lightning.restarts.moments import MarkerSettings
from royale_lightning.rollout.data import SelfPlayData
from royale_lightning.rollout.settings import RolloutSettings

ITERATIONS = 4


class Spread(AuxiliaryLoss):
    """A loss term with a figure of its own."""

    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        spread = step.value.var()
        return spread, {"deviation": spread.sqrt()}


def short_run(folder: Path, *more: Callback, **rollout: Any) -> list[dict[str, float]]:
    """The rows of a run of a few iterations."""
    module = SelfPlayModule(
        network={"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}},
        ppo=PPOSettings(ppo_epochs=1),
        auxiliary={"spread": part(Spread)},
    )
    sizes = {"battles": 2, "rows_per_iteration": 64, "minibatch_rows": 32, "stagger": False, "source": "inline"}
    data = SelfPlayData(BattleSpec(max_ticks=200), RolloutSettings(**(sizes | rollout)))
    always = {"class_path": "threshold", "init_args": {"name": "always", "key": "iteration", "above": 0}}
    settings = defaults(
        run_dir=str(folder), max_epochs=ITERATIONS, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, callbacks=[RunCheckpoint(every=1), Alarms(extra=[always]), *more],
    )
    Trainer(**settings).fit(module, data)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metrics") / "run"


@pytest.fixture(scope="session")
def run_rows(run_folder: Path) -> list[dict[str, float]]:
    harvest = RestartHarvest(share=0.3, budget=1.0, markers=MarkerSettings(grid_steps=4, grace_steps=2))
    snapshots = SnapshotPromotion(first_game_steps=1, share=0.0)
    return short_run(run_folder, snapshots, BattleReplays(every=3), harvest, RouteCurriculum())
