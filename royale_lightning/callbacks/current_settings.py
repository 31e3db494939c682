"""A resumed run follows today's configuration, and says what differs from the checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from .base import RunCallback


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; tuples as lists, which is what YAML makes of them."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        elif not str(key).startswith("_"):
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """``"ppo.gamma 0.99 -> 0.5"`` for every setting that differs; ``unset`` where one side lacks it."""
    old, new = _flat(before), _flat(now)
    keys = [*new, *(k for k in old if k not in new)]
    return [
        f"{k} {old.get(k, 'unset')} -> {new.get(k, 'unset')}"
        for k in keys
        if old.get(k, "unset") != new.get(k, "unset")
    ]


class CurrentSettings(RunCallback):
    """Learning rates, betas and eps come from the configuration, not from the checkpoint.

    ``load_state_dict`` of a torch optimizer restores its settings along with its moments, so a learning rate that was
    changed on the command line would be lost without a word. This callback notes the settings the optimizer was
    built with and puts them back after the checkpoint was loaded. Every hyper-parameter of the module that differs from
    the checkpoint's is named in one printed line.
    """

    def __init__(self) -> None:
        self._configured: list[dict[str, Any]] = []

    @staticmethod
    def _groups(trainer: Trainer) -> list[dict[str, Any]]:
        return [group for optimizer in trainer.optimizers for group in optimizer.param_groups]

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        changes = changed_settings(checkpoint.get("hyper_parameters", {}), dict(pl_module.hparams))
        if changes and trainer.state.fn == TrainerFn.FITTING and trainer.is_global_zero:
            print(f"settings changed since the checkpoint: {', '.join(changes)}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # The optimizers exist by now, and their state has not been loaded yet. A Lightning scheduler computes the
        # learning rate from the one before, so there that one must stay.
        keep = {"params", "lr"} if trainer.lr_scheduler_configs else {"params"}
        self._configured = [{k: v for k, v in g.items() if k not in keep} for g in self._groups(trainer)]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for group, configured in zip(self._groups(trainer), self._configured, strict=True):
            group.update(configured)
