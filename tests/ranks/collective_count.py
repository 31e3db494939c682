"""A callback that writes down, on every rank, what the ranks told each other while they updated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.profiler import ProfilerActivity, profile


class CollectiveCount(Callback):
    """``collectives-<rank>.json`` in the run folder: calls by name in the update of the second iteration.

    In the first one DDP also agrees on the order of its buckets, once. Counted by the profiler, which sees what C++
    asks for too: the gradients' sums and the broadcasts of buffers are DDP's own.
    """

    def __init__(self) -> None:
        self._seen: profile | None = None
        self._minibatches = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 1:
            self._minibatches += 1
            if self._seen is None:
                self._seen = profile(activities=[ProfilerActivity.CPU])
                self._seen.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        minibatches: Any = trainer.train_dataloader
        if self._seen is None or batch_idx + 1 < len(minibatches):
            return
        self._seen.stop()
        names = (e.name for e in self._seen.events() or ())
        calls = Counter(n.removeprefix("c10d::") for n in names if n.startswith("c10d::"))
        self._seen = None
        found = {"minibatches": self._minibatches, "calls": calls}
        (Path(trainer.default_root_dir) / f"collectives-{trainer.global_rank}.json").write_text(json.dumps(found))
