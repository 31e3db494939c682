"""``fit`` for N + M iterations equals ``fit`` for N and ``fit --ckpt_path`` for M, battles in flight included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from royale_lightning.cli.console import main
from royale_lightning.tools.verify_resume import rows_without_time

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def test_a_resumed_run_is_the_unbroken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "--config", CONFIG]
    assert main([*fit, "--run_dir", "straight", "--stop.iterations", "3"]) == 0
    assert main([*fit, "--run_dir", "split", "--stop.iterations", "1"]) == 0
    assert main(["fit", "--ckpt_path", "split/checkpoints/last.ckpt", "--stop.iterations", "3"]) == 0
    a, b = (
        torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True, map_location="cpu")
        for run in ("straight", "split")
    )
    # Two runs of one seed, one of them broken: the same rows apart from time.
    rows, others = rows_without_time(Path("straight")), rows_without_time(Path("split"))
    assert list(rows) == [1, 2, 3]
    assert rows == others
    assert len(rows[3]) > 50
    assert equal(a["state_dict"], b["state_dict"])
    assert equal(a["optimizer_states"], b["optimizer_states"])
    mine = next(v for k, v in a.items() if k == "SelfPlayData" or "SelfPlayData" in str(k))
    other = next(v for k, v in b.items() if k == "SelfPlayData" or "SelfPlayData" in str(k))
    assert mine["ranks"][0]["battles"], "battles were in flight"
    assert equal(mine, other), "battles in flight, ordinals, scaler and scores"
