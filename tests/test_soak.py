"""A thousand iterations hold what the first hundred held: no memory, file or thread is left behind by one."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from lightning.pytorch import Trainer

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.callbacks import RunCheckpoint
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.rollout.data import SelfPlayData
from royale_lightning.rollout.settings import RolloutSettings

ITERATIONS = 1000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_iterations_stay_flat(tmp_path: Path) -> None:
    module = SelfPlayModule(network={"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}})
    rollout = RolloutSettings(battles=2, rows_per_iteration=32, minibatch_rows=16, source="inline", threads=1)
    data = SelfPlayData(BattleSpec(max_ticks=300), rollout)
    settings = defaults(
        run_dir=str(tmp_path / "run"), max_epochs=ITERATIONS, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, callbacks=[RunCheckpoint(every=20, keep=2)],
    )
    Trainer(**settings).fit(module, data)
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == ITERATIONS

    def over(key: str, start: int, end: int) -> float:
        return float(np.mean([r[key] for r in rows[start:end]]))

    early, late = over("health/memory_mb", 100, 200), over("health/memory_mb", 900, 1000)
    files = [r["health/file_handles"] for r in rows]
    print(f"memory {early:.1f} -> {late:.1f} MB, files {min(files[100:])} to {max(files[100:])}")
    assert late < 1.02 * early
    # The first alarm of a run opens a log of its own.
    assert max(files[100:]) - min(files[100:]) <= 1
    assert threading.active_count() < 10
    assert not any(f"alarm/{name}" in r for r in rows for name in ("memory_grows", "files_grow"))
