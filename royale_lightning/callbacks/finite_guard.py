"""Stop at the first NaN of an update, before anything of it is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from safetensors.torch import save
from torch import Tensor

from ..rollout.finite import NotFinite
from ..run.atomic import write_atomic
from ..run.ranks import Ranks
from ..run.screen import say, shown
from .base import Phase, RunCallback, datamodule_of, game_steps, is_dry, iterations_done


class FiniteGuard(RunCallback):
    """Loss and gradient of every minibatch are looked at on the device, and asked for once, at the iteration's end.

    A NaN or an infinity ends the run with one sentence. It comes before the ladder, the metric row and the checkpoint,
    so that nothing of the spoiled iteration is kept, and the minibatch (or the rows of a rollout that was refused) is
    written to ``bundles/iteration-000123/batch.safetensors`` in the run folder.
    """

    phase = Phase.GUARD

    def __init__(self) -> None:
        self._first_bad: Tensor | None = None
        self._step = 0
        self._gradient: Tensor | None = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_bad, self._step = None, 0

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        # Under fp16 an infinite gradient is the loss scaler's daily business: it skips the step.
        if str(trainer.precision) != "16-mixed":
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            if gradients:
                self._gradient = torch.isfinite(torch.nn.utils.get_total_norm(gradients, foreach=True))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        fine = torch.isfinite(loss)
        if self._gradient is not None:
            fine, self._gradient = fine & self._gradient, None
        if self._first_bad is None:
            self._first_bad = torch.full((), -1, dtype=torch.int64, device=loss.device)
        here = torch.full_like(self._first_bad, self._step)
        self._first_bad = torch.where((self._first_bad < 0) & ~fine, here, self._first_bad)
        self._step += 1

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        at = -1 if self._first_bad is None else int(self._first_bad)
        if not Ranks.of(trainer).any(at >= 0):
            return
        rebuild = getattr(datamodule_of(trainer), "minibatch", None)
        tensors = rebuild(at) if rebuild is not None and at >= 0 else {}
        raise NotFinite(
            f"the loss or the gradient of minibatch {at + 1} of iteration {iterations_done(trainer)} is no finite "
            "number; nothing of this iteration was saved: look at the batch, then continue from the last checkpoint "
            "with a lower learning rate or a mended network", tensors,
        )

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, NotFinite) and exception.tensors and not is_dry(trainer):
            folder = Path(trainer.default_root_dir) / "bundles" / f"iteration-{iterations_done(trainer):06d}"
            if trainer.world_size > 1:
                folder = folder.with_name(f"{folder.name}-rank-{trainer.global_rank}")
            try:
                tensors = {k: v.detach().cpu().contiguous().clone() for k, v in exception.tensors.items()}
                write_atomic(folder / "batch.safetensors", save(tensors))
                about = {
                    "iteration": iterations_done(trainer), "game_steps": game_steps(trainer), "found": str(exception)
                }
                write_atomic(folder / "about.json", json.dumps(about, indent=1).encode() + b"\n")
                say(f"the batch is in {shown(folder)}")
            except OSError as failure:  # the run is ending; whatever went wrong must not hide why
                say(f"no bundle: {failure}")
