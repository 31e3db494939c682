"""Which precisions and strategies a run takes, each refusal with its reason: silence would cost a night."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy

from ..errors import UserError

#: What ``trainer.precision`` may be. Log-probabilities, losses and advantages are float32 in each of them.
PRECISIONS = (None, 32, "32", "32-true", "bf16", "bf16-mixed")
#: What ``trainer.strategy`` may be by name.
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_false", "ddp_find_unused_parameters_true")

_BF16_TRUE = (
    "keeps the weights themselves in bfloat16, whose steps are 0.4 % of a weight: most of Adam's steps at PPO's "
    "learning rates would round to nothing"
)
_FP16 = (
    "has a largest number of 65,504 and a scaler that skips steps when it is passed, so the number of optimizer steps "
    "of an iteration would no longer be known"
)
_REASONS = {
    "bf16-true": _BF16_TRUE, "16": _FP16, "16-mixed": _FP16, "16-true": _FP16,
    "64": "computes what the stored bytes cannot hold, at half the speed",
    "64-true": "computes what the stored bytes cannot hold, at half the speed",
}
_SHARDED = (
    "shards weights over ranks, and a rank acts with whole ones in every round of a rollout (the networks here have "
    "fewer than a million weights, which any device holds)"
)
_FORKED = (
    "starts ranks by copying this process, with its battles, threads and open files; use ddp, which starts each "
    "anew (from a notebook, start the command line)"
)


def check_precision(precision: Any) -> None:
    """Refuse a precision whose run would not learn what a float32 run learns.

    Raises:
        UserError: with the reason and the remedy.
    """
    if precision in PRECISIONS:
        return
    why = _REASONS.get(str(precision), "has not been tried here")
    raise UserError(f"trainer.precision is {precision}, which {why}; use bf16-mixed or 32-true")


def check_strategy(strategy: Any) -> None:
    """Refuse a strategy that this project's loop does not fit.

    Args:
        strategy: the Trainer's argument: a name or a ``Strategy``.

    Raises:
        UserError: with the reason and the remedy.
    """
    if strategy is None or strategy in STRATEGIES or isinstance(strategy, (SingleDeviceStrategy, DDPStrategy)):
        return
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    low = name.lower()
    if "fsdp" in low or "deepspeed" in low or "modelparallel" in low or "model_parallel" in low:
        why = _SHARDED
    elif any(word in low for word in ("spawn", "fork", "notebook")):
        why = _FORKED
    else:
        why = "has not been tried here"
    raise UserError(f"trainer.strategy is {name}, which {why}; use ddp")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Both checks on a Trainer's arguments, before it is made."""
    check_precision(settings.get("precision"))
    check_strategy(settings.get("strategy"))


def check_devices(trainer: Trainer) -> None:
    """Both checks on a Trainer however it was made; FSDP and DeepSpeed derive from other classes than DDP."""
    check_precision(str(trainer.precision))
    strategy: Strategy = trainer.strategy
    launcher = getattr(strategy, "_start_method", "popen")
    check_strategy(strategy if launcher == "popen" else f"ddp_{launcher}")
