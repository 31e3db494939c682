"""The optimizer follows today's configuration, also after a resume."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from .base import RunCallback


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


class OptimizerSettings(RunCallback):
    """Learning rates, betas, eps and the like come from the configuration, not from the checkpoint.

    ``load_state_dict`` of a torch optimizer restores its settings along with its moments, so a learning rate that was
    changed on the command line would be lost without a word. This callback notes the settings the optimizer was
    built with, puts them back after the checkpoint was loaded, and says which ones changed.
    """

    def __init__(self) -> None:
        self._configured: list[dict[str, Any]] = []
        self._checkpointed: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        # As configured, not as scheduled: only so can a resume tell a changed setting from a schedule's progress.
        return {"groups": [{k: _plain(v) for k, v in g.items()} for g in self._configured]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._checkpointed = state_dict["groups"]

    @staticmethod
    def _groups(trainer: Trainer) -> list[dict[str, Any]]:
        return [group for optimizer in trainer.optimizers for group in optimizer.param_groups]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # The optimizers exist by now, and their state has not been loaded yet. A Lightning scheduler computes the
        # learning rate from the one before, so there that one must stay.
        keep = {"params", "lr"} if trainer.lr_scheduler_configs else {"params"}
        self._configured = [{k: v for k, v in g.items() if k not in keep} for g in self._groups(trainer)]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for group, configured in zip(self._groups(trainer), self._configured, strict=True):
            group.update(configured)
        changes = []
        for i, (old, new) in enumerate(zip(self._checkpointed, self._configured, strict=False)):
            name = new.get("name", f"group {i}")
            changed = (k for k in new if k in old and old[k] != _plain(new[k]))
            changes += [f"{name} {k} {old[k]} -> {_plain(new[k])}" for k in changed]
        self._checkpointed = []
        if changes and trainer.is_global_zero:
            print(f"optimizer settings changed since the checkpoint: {', '.join(changes)}")
