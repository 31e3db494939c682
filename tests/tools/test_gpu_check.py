"""The GPU check where there is no GPU, and its arithmetic."""

from __future__ import annotations

import pytest
import torch

from royale_lightning.tools import gpu_check


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main() == 2
    assert "needs a CUDA device" in capsys.readouterr().err


def row(seconds: float) -> dict[str, float]:
    return {
        "rollout/rows": 100.0, "ppo/ppo_epochs_done": 2.0, "time/update": seconds, "time/inference": seconds / 2,
        "rollout/game_steps": 300.0, "time/iteration": 2 * seconds,
    }


def test_cores_step_as_fast_as_the_device_works() -> None:
    """300 game steps of 0.49 ms on cores used to 80 %, within 1.5 s of device time, or within 6 s of a slower one."""
    rows = [row(50.0), row(1.0), row(1.0)]
    assert gpu_check.cores_needed(rows) == pytest.approx(300 * 0.49e-3 / 0.8 / 1.5)
    assert gpu_check.cores_needed(rows, 4.0) == pytest.approx(gpu_check.cores_needed(rows) / 4)


def test_every_variant_on_a_gpu_is_one_rank_with_the_rows_of_two() -> None:
    for name, settings in gpu_check.VARIANTS.items():
        given = dict(zip(settings[::2], settings[1::2], strict=True))
        assert (given["--trainer.accelerator"] == "gpu") == name.startswith("gpu")
        if name.startswith("gpu"):
            assert given["--trainer.devices"] == "1"
            assert given["--data.rollout.rows_per_iteration"] == "2048"


def test_rates_leave_the_first_iteration_out() -> None:
    found = gpu_check.figures([row(50.0), row(1.0), row(1.0)])
    assert found == {
        "game_steps_per_second": 150.0, "row_passes_per_second": 200.0, "acting_rows_per_second": 200.0,
        "iteration_ms": 2000.0, "update_ms": 1000.0, "acting_ms": 500.0, "iterations": 2.0,
    }
