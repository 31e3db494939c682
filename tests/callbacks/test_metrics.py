"""The metric row, its log, and what a resume does to the log."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback

from royale_lightning.callbacks import iteration_row
from royale_lightning.run.jsonl import JsonLines, discard_tail

Fit = Callable[..., Any]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_row_holds_what_was_measured_and_nothing_else(fit: Fit, tmp_path: Path) -> None:
    from tests.support import tiny_run

    module = tiny_run.TinyModule()
    module.extra = {"infinite": float("inf")}
    fit(module=module, max_epochs=2)
    first, _ = rows(tmp_path)
    assert (first["iteration"], first["game_steps"], first["loss"], first["rows"]) == (1, 100, 0.5, 12.0)
    assert not {"absent", "infinite"} & set(first)
    assert module.events.count("metrics") == 2, "the module is asked once per iteration"


def test_a_callback_may_add_to_the_row_and_see_its_nans(fit: Fit, tmp_path: Path) -> None:
    seen: list[float] = []

    class RatingUpdate(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            iteration_row(trainer)["rating/elo"] = 1200.0

    class Alarms(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            seen.append(iteration_row(trainer)["absent"])

    fit(callbacks=[Alarms(), RatingUpdate()], max_epochs=1)
    assert rows(tmp_path)[0]["rating/elo"] == 1200.0
    assert math.isnan(seen[0])


def test_the_next_row_says_what_the_checkpoint_cost(fit: Fit, tmp_path: Path) -> None:
    from royale_lightning.callbacks import RunCheckpoint

    fit(callbacks=[RunCheckpoint(every=1)], max_epochs=2)
    assert ["time/checkpoint" in r for r in rows(tmp_path)] == [False, True]


def test_the_checkpoint_knows_the_logs_length(fit: Fit, tmp_path: Path) -> None:
    import torch

    fit(max_epochs=2)
    state = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["callbacks"]["MetricLog"]
    assert state == {"metrics_offset": (tmp_path / "metrics.jsonl").stat().st_size}


def test_a_trainer_that_fits_twice_keeps_one_log(fit: Fit, tmp_path: Path) -> None:
    trainer, module, data = fit(max_epochs=1)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, datamodule=data)
    assert [r["iteration"] for r in rows(tmp_path)] == [1, 2]


def test_tails_are_moved_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = JsonLines(path)
    log.append({"n": 1})
    at = log.offset
    log.append({"n": 2})
    log.close()
    assert discard_tail(path, log_size := path.stat().st_size) is None
    assert discard_tail(path, at) == tmp_path / "log.jsonl.discarded-1"
    assert path.stat().st_size == at < log_size
    path.write_bytes(path.read_bytes() + b'{"torn')
    JsonLines(path).close()
    assert (tmp_path / "log.jsonl.discarded-2").read_bytes() == b'{"torn'
    assert path.read_bytes() == b'{"n": 1}\n'
    assert discard_tail(tmp_path / "absent", 0) is None


def test_a_line_must_be_json(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.append({"x": float("nan")})
    log.close()
