"""Commands written into a run folder while the run goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import Callback

from royale_lightning.callbacks import RunCheckpoint
from royale_lightning.callbacks.live_control import read_commands

Fit = Callable[..., Any]


class Writes(Callback):
    """Puts a control file there in the middle of an iteration."""

    def __init__(self, folder: Path, at: dict[int, str]) -> None:
        self.folder, self.at = folder, at

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        text = self.at.pop(trainer.current_epoch + 1, None)
        if text is not None:
            (self.folder / "control.txt").write_text(text)


def test_a_checkpoint_now_and_a_stop(fit: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    checkpoint = RunCheckpoint(every=100)
    checkpoint.on_saved.append(lambda trainer, path: told.append(path.name))
    writes = Writes(tmp_path, {2: "checkpoint\nchekpoint\n", 4: "stop"})
    trainer, _, _ = fit(callbacks=[checkpoint, writes], max_epochs=9)
    assert told == ["iteration-000002.ckpt", "iteration-000004.ckpt"]
    assert trainer.current_epoch == 4
    assert not (tmp_path / "control.txt").exists()
    assert "'chekpoint' is none of checkpoint, pause" in capsys.readouterr().out


def test_a_pause_waits_for_a_word(fit: Fit, tmp_path: Path) -> None:
    def resume() -> None:
        time.sleep(1.0)
        (tmp_path / "control.txt").write_text("stop")

    waiter = threading.Thread(target=resume)
    began: list[float] = []

    class Clock(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0:
                began.append(time.monotonic())

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 0:
                waiter.start()

    trainer, _, _ = fit(callbacks=[Writes(tmp_path, {1: "pause"}), Clock()], max_epochs=9)
    waiter.join()
    assert trainer.current_epoch == 2, "a stop while paused lets one more iteration end"
    assert began[1] - began[0] > 0.9


def test_a_learning_rate_is_applied_recorded_and_kept(fit: Fit, tmp_path: Path, capsys: Any) -> None:
    from tests.support import tiny_run

    @dataclass(frozen=True)
    class Settings:
        learning_rate: Any

    class Module(tiny_run.TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.ppo = Settings(1e-3)

        def on_train_epoch_start(self) -> None:
            for group in self.optimizers().param_groups:
                group["lr"] = self.ppo.learning_rate

    (tmp_path / "config.yaml").write_text("model: {ppo: {learning_rate: {linear: [1.0, 0.1]}, gamma: 0.9}}\n")
    writes = Writes(tmp_path, {1: "learning_rate 0.25", 2: "learning_rate minus one"})
    fit(module=Module(), callbacks=[writes], max_epochs=3)
    saved = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    assert saved["optimizer_states"][0]["param_groups"][0]["lr"] == 0.25
    assert saved["royale_lightning"]["identity"]["tunable"]["model.ppo.learning_rate"] == 0.25
    rows = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["run/drifts"] for r in rows] == [0, 1, 1]
    assert json.loads((tmp_path / "drift.jsonl").read_text())["after"] == 0.25
    changed = yaml.safe_load((tmp_path / "config.1.yaml").read_text())["model"]["ppo"]
    assert changed == {"learning_rate": 0.25, "gamma": 0.9}
    assert "not 'minus one'" in capsys.readouterr().out


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_windows_editors_write_is_read(tmp_path: Path, coding: str) -> None:
    path = tmp_path / "control.txt"
    path.write_bytes("pause\r\n\r\n stop ".encode(coding))
    assert read_commands(path) == ["pause", "stop"]
    assert read_commands(path) == []
    path.write_bytes(b"\xff\xff\x00garbage\x80")
    assert len(read_commands(path)) == 1
