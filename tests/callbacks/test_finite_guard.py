"""A NaN ends the run before anything of it is saved, and leaves what it was met in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from royale_lightning.rollout.finite import NotFinite

Fit = Callable[..., Any]


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_nan_stops_with_the_last_good_checkpoint_kept(fit: Fit, tmp_path: Path, where: str) -> None:
    from royale_lightning.callbacks import RunCheckpoint
    from tests.support import tiny_run

    class Module(tiny_run.TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = self.layer(batch).square().mean()
            if self.trainer.current_epoch == 2 and batch_idx == 1:
                # The square root's slope at 0 is infinite, its value is not.
                x = x * float("nan") if where == "loss" else (x * 0).sqrt()
            return x

    class Data(tiny_run.TinyData):
        def minibatch(self, number: int) -> dict[str, torch.Tensor]:
            return {"rows": torch.full((3,), number)}

    with pytest.raises(NotFinite, match="minibatch 2 of iteration 3 is no finite number; nothing of this iteration"):
        fit(module=Module(), data=Data(), callbacks=[RunCheckpoint(every=1)], max_epochs=5)
    assert files(tmp_path) == ["iteration-000001.ckpt", "iteration-000002.ckpt", "last.ckpt", "manifest.json"]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    bundle = tmp_path / "bundles/iteration-000003"
    assert load_file(bundle / "batch.safetensors")["rows"].tolist() == [1, 1, 1]
    assert json.loads((bundle / "about.json").read_text())["iteration"] == 3


def test_a_healthy_run_is_left_alone(fit: Fit, tmp_path: Path) -> None:
    fit(max_epochs=2)
    assert not (tmp_path / "bundles").exists()
