"""A callback that writes down, on every rank, what the ranks must share and what they must not."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning.battle.round import IDLE
from royale_lightning.callbacks import iteration_row
from royale_lightning.metrics.declarations import repeats

#: What a row says of all ranks alike.
SHARED = ("battle", "card", "health", "policy", "score", "start")


def digest(tensors: Iterable[torch.Tensor]) -> str:
    h = hashlib.sha256()
    for x in tensors:
        h.update(x.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()


class RankDigest(Callback):
    """One JSON line an iteration into ``rank-<rank>.jsonl`` of the run folder.

    Args:
        dies: rank that kills itself at the second iteration's end, or -1.
        loses: rank that kills one of its worker processes then, or -1.
        ends: rank that sends itself SIGTERM in the middle of the third iteration, or -1.
    """

    def __init__(self, dies: int = -1, loses: int = -1, ends: int = -1) -> None:
        self.dies, self.loses, self.ends = dies, loses, ends

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.ends == trainer.global_rank and trainer.current_epoch == 2 and batch_idx == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        collector, starts = data.collector, data.plan.starts
        here = collector.source.round
        line = {
            "iteration": data.iteration,
            "game_steps": data.game_steps,
            "weights": digest(pl_module.parameters()),
            "return_scale": data.scaler.scale,
            "rows": hashlib.sha256(here.rows[here.kind != IDLE].tobytes()).hexdigest(),
            "battles": sorted(b.assignment.battle for b in collector.source.save()),
            "starts": hashlib.sha256(repr(starts.state()).encode()).hexdigest() if starts is not None else "",
            "points": len(starts.pool.export_points()) if starts is not None else 0,
            "pool": [data.ladder.pool.ids, data.ladder.pool.champion],
            "epochs": int(pl_module.iteration_metrics()["ppo/ppo_epochs_done"]),
            "seen": {k: float(v) for k, v in trainer.callback_metrics.items()},
            "figures": {k: v for k, v in iteration_row(trainer).items() if k.split("/")[0] in SHARED and repeats(k)},
        }
        with open(Path(trainer.default_root_dir) / f"rank-{trainer.global_rank}.jsonl", "a") as f:
            f.write(json.dumps(line) + "\n")
        if self.dies == trainer.global_rank and data.iteration == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.loses == trainer.global_rank and data.iteration == 2:
            os.kill(collector.source.pids[0], signal.SIGKILL)
