"""Which devices, precisions and strategies a run takes, each refusal with its reason: silence would cost a night."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator
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


def is_here(accelerator: Any) -> bool:
    """Whether this machine has the accelerator of that name; True for what is no name, and for names of others."""
    kinds: tuple[Any, ...] = {
        "gpu": (CUDAAccelerator, MPSAccelerator), "cuda": (CUDAAccelerator,), "mps": (MPSAccelerator,)
    }.get(accelerator if isinstance(accelerator, str) else "", ())
    return not kinds or any(kind.is_available() for kind in kinds)


def check_accelerator(accelerator: Any) -> None:
    """Refuse a device that is not here.

    Raises:
        UserError: with what to give instead.
    """
    if not is_here(accelerator):
        raise UserError(
            f"trainer.accelerator is {accelerator}, and torch finds none on this machine; give --trainer.accelerator "
            "cpu, or auto, or see why with `royale-lightning doctor`"
        )


def to_measure(settings: Mapping[str, Any], typed: Collection[str]) -> tuple[dict[str, Any], str | None]:
    """Trainer settings of a run, for playing its bot on this machine, which need not be the one that trained it.

    One process plays, whatever the run trained on, and a device that is missing here is replaced by the CPU. What the
    user typed stays as it is.

    Args:
        settings: the Trainer's arguments as the run was started with.
        typed: names among them that come from this command line.

    Returns:
        The settings, and what to tell the user where the device is another one.
    """
    made, said = dict(settings), None
    accelerator = made.get("accelerator")
    if "accelerator" not in typed and not is_here(accelerator):
        said = f"the run trained on {accelerator}, and torch finds none on this machine: playing on the CPU"
        made["accelerator"] = "cpu"
    several = made.get("devices", "auto") not in ("auto", 1, "1") or made.get("strategy", "auto") != "auto"
    if several and not {"devices", "strategy", "num_nodes"} & set(typed):
        # A list names devices of the machine that trained, which here may be beyond the last.
        made |= {"devices": 1, "strategy": "auto", "num_nodes": 1}
    return made, said


def check_settings(settings: Mapping[str, Any]) -> None:
    """The checks on a Trainer's arguments, before it is made."""
    check_accelerator(settings.get("accelerator"))
    check_precision(settings.get("precision"))
    check_strategy(settings.get("strategy"))


def check_devices(trainer: Trainer) -> None:
    """Precision and strategy of a Trainer however it was made; FSDP and DeepSpeed have other bases than DDP."""
    check_precision(str(trainer.precision))
    strategy: Strategy = trainer.strategy
    launcher = getattr(strategy, "_start_method", "popen")
    check_strategy(strategy if launcher == "popen" else f"ddp_{launcher}")
