"""The whole loop learns: a toy task on the real engine, through the public command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from royale_lightning.cli.console import main


def test_a_toy_task_is_learned_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``LeftLane`` pays 1 a card on the left, -1 on the right: 0 untrained, the number of plays once learned."""
    monkeypatch.chdir(tmp_path)
    small = '{"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}}'
    code = main([
        "fit", "--run_dir", "toy", "--seed_everything", "3", "--trainer.accelerator", "cpu",
        "--trainer.gradient_clip_val", "0.5", "--model.network", small, "--model.ppo.learning_rate", "3.0e-3",
        "--model.ppo.horizon_game_steps", "20000", "--model.ppo.gamma", "0.9",
        "--data.battle.reward", "royale_lightning.testing.LeftLane", "--data.battle.max_ticks", "400",
        "--data.rollout.battles", "8", "--data.rollout.rows_per_iteration", "512",
        "--data.rollout.minibatch_rows", "64", "--data.rollout.stagger", "false", "--data.opponents.mirror", "1",
        "--data.opponents.scripted", "0", "--stop.iterations", "8",
    ])
    assert code == 0
    rows = [json.loads(line) for line in (tmp_path / "toy" / "metrics.jsonl").read_text().splitlines()]
    share = [r["battle/return"] / r["policy/plays_per_battle"] for r in rows if "battle/return" in r]
    assert abs(share[0]) < 0.4, "an untrained policy earns next to nothing"
    assert share[-1] > 0.8, f"it has not learned: {share}"
