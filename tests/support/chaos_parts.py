"""What a chaos run loads: a log of its episodes that a resume rewrites, iteration by iteration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback


class EpisodeLog(Callback):
    """``episodes/<iteration>.json``: battle, ordinal, seed and winner of every episode that ended in it."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        folder = Path(trainer.default_root_dir) / "episodes"
        folder.mkdir(exist_ok=True)
        path = folder / f"{trainer.current_epoch + 1}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps([[e.battle, e.ordinal, e.seed, e.winner] for e in trainer.datamodule.episodes]))
        os.replace(partial, path)
