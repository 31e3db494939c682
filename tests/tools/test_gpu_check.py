"""The GPU check where there is no GPU, and its arithmetic."""

from __future__ import annotations

import pytest
import torch

from royale_lightning.tools import gpu_check


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main() == 2
    assert "needs a CUDA device" in capsys.readouterr().err


def test_rates_leave_the_first_iteration_out() -> None:
    def row(seconds: float) -> dict[str, float]:
        return {
            "rollout/rows": 100.0, "ppo/ppo_epochs_done": 2.0, "time/update": seconds, "time/inference": seconds / 2,
            "rollout/game_steps": 300.0, "time/iteration": 2 * seconds,
        }

    found = gpu_check.figures([row(50.0), row(1.0), row(1.0)])
    assert found == {
        "game_steps_per_second": 150.0, "row_passes_per_second": 200.0, "acting_rows_per_second": 200.0,
        "iterations": 2.0,
    }
