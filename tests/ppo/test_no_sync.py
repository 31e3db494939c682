"""The update never waits for the device between PPO epochs: nothing in a minibatch asks a tensor for its value."""

from __future__ import annotations

import traceback
from collections import Counter
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

#: What makes Python wait until a device has computed.
WAITING = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "cpu", "numpy", "nonzero")


class Counting(Callback):
    """Counts the calls of :data:`WAITING` from a minibatch's start to its end, optimizer step included.

    Not those of Adam itself, which keeps its step count on the host, and not in the first two iterations, whose first
    optimizer step waits on purpose for the ratio check.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.batches = 0
        self._real: dict[str, Any] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch < 2:
            return
        self.batches += 1
        for name in WAITING:
            real = self._real[name] = getattr(torch.Tensor, name)

            def counted(tensor: torch.Tensor, *args: Any, _name: str = name, _real: Any = real, **more: Any) -> Any:
                if not any("torch/optim" in Path(f.filename).as_posix() for f in traceback.extract_stack(limit=4)):
                    self.calls[_name] += 1
                return _real(tensor, *args, **more)

            setattr(torch.Tensor, name, counted)

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        for name, real in self._real.items():
            setattr(torch.Tensor, name, real)


@pytest.fixture
def counting() -> Any:
    kept = {name: getattr(torch.Tensor, name) for name in WAITING}
    yield Counting()
    for name, real in kept.items():
        setattr(torch.Tensor, name, real)


def test_no_minibatch_asks_a_tensor_for_its_value(counting: Counting, tmp_path: Path) -> None:
    small = part(EntityNetwork, width=16, layers=1, heads=2, fixed_shape=True)
    trainer = Trainer(**defaults(
        run_dir=str(tmp_path / "run"), max_epochs=3, accelerator="cpu", gradient_clip_val=0.5,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[counting],
    ))
    rollout = RolloutSettings(battles=2, rows_per_iteration=64, minibatch_rows=32, threads=1, source="inline")
    trainer.fit(SelfPlayModule(small, PPOSettings(ppo_epochs=2)), SelfPlayData(rollout=rollout))
    assert counting.batches == 4
    assert not counting.calls, f"the update waits for the device: {dict(counting.calls)}"
