"""A device without float64, as Apple's GPU is: stood in for by this one, with every float64 result refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from royale_lightning import BattleSpec, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.battle.prepare import prepare
from royale_lightning.bots import bot
from royale_lightning.cli.trainer_defaults import complete
from royale_lightning.nn import distribution
from royale_lightning.nn.rows import rows_to_tensor
from royale_lightning.ppo import module
from royale_lightning.rollout import collector
from royale_lightning.rollout.dataset import SelfPlayDataset

NARROW = torch.device("mps")


class NoDoubles(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.lift_fresh.default:
            return out  # numpy's memory, which lies on the host
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.dtype is torch.float64 and x.numel():
                raise TypeError(f"{func} gives float64, which the device does not have")
        return out


def without_doubles(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with NoDoubles():
            return function(*args, **kwargs)

    return run


def test_a_run_computes_nothing_in_float64_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert distribution.widest_float(NARROW) is torch.float32
    for where in (distribution, collector, bot, module):
        monkeypatch.setattr(where, "widest_float", lambda _: torch.float32)
    for owner, name in (
        (collector.Collector, "collect"), (SelfPlayDataset, "_advantages"), (SelfPlayModule, "training_step"),
        (SelfPlayModule, "iteration_metrics"), (bot.Bot, "choose"),
    ):
        monkeypatch.setattr(owner, name, without_doubles(getattr(owner, name)))
    data = SelfPlayData(BattleSpec(max_ticks=300), RolloutSettings(4, 64, 32, threads=1))
    network = {"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}}
    learner = SelfPlayModule(network, PPOSettings(ppo_epochs=1))
    trainer = Trainer(**complete({
        "max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": False,
    }, tmp_path))
    trainer.fit(learner, data)
    rows = np.zeros((2, prepare(data.battle).row_layout.row_bytes), np.uint8)
    learner.bot().choose(rows, np.full((2, 2), 0.5))
    with pytest.raises(TypeError, match="float64"), NoDoubles():
        torch.ones(2).double()


def test_rows_are_copied_before_their_memory_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    class Rows:
        def to(self, device: torch.device, non_blocking: bool) -> None:
            asked.append((device.type, non_blocking))

    monkeypatch.setattr(torch, "from_numpy", lambda _: Rows())
    for kind in ("cpu", "mps", "cuda"):
        rows_to_tensor(np.zeros((1, 4), np.uint8), torch.device(kind))
    assert asked == [("cpu", False), ("mps", False), ("cuda", True)]
