"""What tuners do: data, module and bot of a finished fit are copied and pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

from royale_lightning import BattleSpec, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.callbacks import RestartHarvest
from royale_lightning.cli.trainer_defaults import complete

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}
NETWORK = {"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}}


def fit(folder: Path, data: SelfPlayData) -> SelfPlayModule:
    module = SelfPlayModule(NETWORK, PPOSettings(ppo_epochs=1))
    Trainer(**complete({
        "callbacks": [RestartHarvest()], "max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False,
    }, folder)).fit(module, data)
    return module


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[SelfPlayModule, SelfPlayData]:
    data = SelfPlayData(BattleSpec(max_ticks=300), RolloutSettings(4, 64, 32, threads=1))
    return fit(tmp_path_factory.mktemp("first"), data), data


@pytest.mark.parametrize("how", COPIES)
def test_the_data_of_a_finished_fit(
    fitted: tuple[SelfPlayModule, SelfPlayData], how: str, tmp_path: Path
) -> None:
    _, data = fitted
    twin = COPIES[how](data)
    assert (twin.battle, twin.rollout, twin.seed, twin.game_steps) == (
        data.battle, data.rollout, data.seed, data.game_steps
    )
    assert twin.trainer is None
    assert twin.scaler.state_dict() == data.scaler.state_dict()
    steps = data.game_steps
    fit(tmp_path, twin)
    assert twin.game_steps > steps == data.game_steps, "the copy goes on, and alone"


@pytest.mark.parametrize("how", COPIES)
def test_the_module_and_its_bot(fitted: tuple[SelfPlayModule, SelfPlayData], how: str) -> None:
    module, _ = fitted
    twin = COPIES[how](module)
    for a, b in zip(module.network.parameters(), twin.network.parameters(), strict=True):
        assert torch.equal(a, b)
    bot = module.bot()
    rows, uniforms = np.zeros((3, bot.layout.row_bytes), np.uint8), np.full((3, 2), 0.4)
    first = bot.choose(rows, uniforms)  # fills what the network keeps
    for each in (bot, bot.sharp()):
        other = COPIES[how](each)
        assert (other.mode, other.name) == (each.mode, each.name)
    assert np.array_equal(COPIES[how](bot).choose(rows, uniforms), first)
