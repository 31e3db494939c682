"""Ctrl-C and SIGTERM through the command line; the process signals itself in the middle of iteration 2."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

Royale = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _handlers_are_restored() -> Any:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_the_first_signal_finishes_the_iteration(royale: Royale, name: str, code: int) -> None:
    done = royale(f"fit --data.signal_at 2 --data.signal_name {name} --stop.iterations 9")
    assert done.code == code
    assert "stopping at the end of this iteration" in done.err
    saved = torch.load("runs/run-1/checkpoints/last.ckpt", weights_only=True)
    stamp = saved["royale_lightning"]
    assert (stamp["mid_iteration"], stamp["iteration"], stamp["game_steps"]) == (False, 2, 200)
    assert royale("fit --ckpt_path runs/run-1 --stop.iterations 3 --data.signal_at 0").code == 0
    assert len(Path("runs/run-1/metrics.jsonl").read_text().splitlines()) == 3


def test_the_second_signal_stops_now(royale: Royale) -> None:
    done = royale("fit --data.signal_at 2 --data.signals 2 --checkpoint.every 1")
    assert done.code == 130
    assert "Traceback" not in done.err
    path = "runs/run-1/checkpoints/interrupted-000001.ckpt"
    assert torch.load(path, weights_only=True)["royale_lightning"]["mid_iteration"]
    assert torch.load("runs/run-1/checkpoints/last.ckpt", weights_only=True)["epoch"] == 0, "last stays whole"
    assert "saved in the middle of an iteration" in royale(f"fit --ckpt_path {path} --data.signal_at 0").error
    assert royale(f"test --ckpt_path {path} --data.signal_at 0").code == 0
    done = royale(f"fit --ckpt_path {path} --data.signal_at 0 --allow_mid_iteration --run_dir on --stop.iterations 3")
    assert done.code == 0, done.err
    found = [json.loads(x) for x in Path("on/metrics.jsonl").read_text().splitlines()]
    assert [(r["iteration"], r["run/drifts"]) for r in found] == [(2, 1), (3, 1)]
    assert json.loads(Path("on/drift.jsonl").read_text())["after"] == "mid-iteration"
    assert royale("fit --ckpt_path runs/run-1 --stop.iterations 2 --data.signal_at 0").code == 0
