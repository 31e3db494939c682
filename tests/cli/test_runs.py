"""Run folders, resumes and forks through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

Royale = Callable[[str], Any]
LAST = "runs/run-1/checkpoints/last.ckpt"


def rows(folder: str) -> list[dict[str, Any]]:
    return [json.loads(x) for x in Path(folder, "metrics.jsonl").read_text().splitlines()]


def config(path: str) -> dict[str, Any]:
    return yaml.safe_load(Path(path).read_text())


def test_a_run_and_what_it_leaves(royale: Royale) -> None:
    Path("small.yaml").write_text("stop: {iterations: 3}\ncheckpoint: {every: 2}\n")
    assert royale("fit --config small.yaml").code == 0
    assert royale("fit --config small.yaml --stop.iterations 1").code == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["small-1", "small-2"]
    files = sorted(str(p.relative_to("runs/small-1")) for p in Path("runs/small-1").rglob("*") if p.is_file())
    assert files == [
        "checkpoints/iteration-000002.ckpt",
        "checkpoints/iteration-000003.ckpt",
        "checkpoints/last.ckpt",
        "checkpoints/manifest.json",
        "config.yaml",
        "metrics.jsonl",
    ]
    assert [r["iteration"] for r in rows("runs/small-1")] == [1, 2, 3]
    assert config("runs/small-1/config.yaml")["checkpoint"] == {"every": 2, "keep": 5}


def test_an_occupied_folder_is_refused_unless_the_checkpoint_lies_in_it(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    assert "already holds a run" in royale("fit --run_dir runs/run-1").error
    assert royale(f"fit --run_dir runs/run-1 --ckpt_path {LAST} --stop.iterations 2").code == 0
    Path("empty").mkdir()
    assert royale("fit --run_dir empty --stop.iterations 1").code == 0
    Path("file").touch()
    assert "which is a file" in royale("fit --run_dir file").error


def test_a_resume_reads_the_runs_own_config_and_the_user_wins(royale: Royale) -> None:
    assert royale("fit --stop.iterations 2 --model.ppo.learning_rate 0.5 --model.network conv").code == 0
    done = royale(f"fit --ckpt_path {LAST} --stop.iterations 4 --model.ppo.learning_rate 0.25")
    assert done.code == 0, done.err
    assert [r["iteration"] for r in rows("runs/run-1")] == [1, 2, 3, 4]
    assert rows("runs/run-1")[-1]["game_steps"] == 400
    # Lightning would take the rate from the checkpoint's hyper-parameters.
    resumed = config("runs/run-1/config.1.yaml")["model"]
    assert resumed == {"network": "conv", "ppo": {"gamma": 0.99, "learning_rate": 0.25}}
    saved = torch.load(LAST, weights_only=True)
    assert saved["hyper_parameters"]["ppo"]["learning_rate"] == 0.25
    assert Path("runs/run-1/config.1.yaml").read_text().startswith(f"# continued from {LAST}\n")


def test_a_resume_from_an_earlier_checkpoint_moves_the_logs_tail(royale: Royale) -> None:
    assert royale("fit --stop.iterations 4 --checkpoint.every 2").code == 0
    log = Path("runs/run-1/metrics.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines) + b'{"iteration": 5, "torn')
    assert royale("fit --ckpt_path runs/run-1/checkpoints/iteration-000002.ckpt --stop.iterations 3").code == 0
    assert [r["iteration"] for r in rows("runs/run-1")] == [1, 2, 3]
    aside = Path("runs/run-1/metrics.jsonl.discarded-1").read_bytes()
    assert aside == b"".join(lines[2:]) + b'{"iteration": 5, "torn'


def test_a_fork_leaves_its_origin_alone(royale: Royale) -> None:
    assert royale("fit --stop.iterations 2").code == 0
    before = {p: p.read_bytes() for p in Path("runs/run-1").rglob("*") if p.is_file()}
    assert royale(f"fit --ckpt_path {LAST} --run_dir fork --stop.iterations 3").code == 0
    assert {p: p.read_bytes() for p in Path("runs/run-1").rglob("*") if p.is_file()} == before
    assert [r["iteration"] for r in rows("fork")] == [3]
    assert Path("fork/config.yaml").exists()


def test_a_run_folder_stands_for_its_last_checkpoint(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    assert "already has 1 iterations" in royale("fit --ckpt_path runs/run-1").error
    assert not Path("runs/run-1/config.1.yaml").exists(), "a refused start leaves no config"
    assert royale("fit --ckpt_path runs/run-1 --stop.iterations 2").code == 0


def test_a_checkpoint_without_its_config(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    Path(LAST).rename("stray.ckpt")
    assert "give one with --config" in royale("fit --ckpt_path stray.ckpt").error
    done = royale("fit --ckpt_path stray.ckpt --config runs/run-1/config.yaml --stop.iterations 2")
    assert done.code == 0
    assert [r["iteration"] for r in rows("runs/config-1")] == [2]


def test_a_changed_learning_rate_wins_and_says_so(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    same = royale(f"fit --ckpt_path {LAST} --stop.iterations 2")
    assert "changed" not in same.out
    done = royale(f"fit --ckpt_path {LAST} --stop.iterations 3 --model.ppo.learning_rate 0.01")
    assert done.out.count("settings changed since the checkpoint: model.ppo.learning_rate 0.001 -> 0.01\n") == 1
    assert torch.load(LAST, weights_only=True)["optimizer_states"][0]["param_groups"][0]["lr"] == 0.01


def test_the_configuration_survives_a_round_trip(royale: Royale) -> None:
    first = royale("fit --print_config --model.ppo.gamma 0.9 --stop.game_steps 1000 --loggers csv --seed_everything 3")
    assert first.code == 0
    Path("dumped.yaml").write_text(first.out)
    second = royale("fit --config dumped.yaml --print_config")
    assert second.out == first.out
    assert yaml.safe_load(first.out)["stop"]["game_steps"] == 1000


def test_a_saved_config_starts_another_run_like_it(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1 --run_dir mine --model.ppo.gamma 0.75").code == 0
    assert royale("fit --config mine/config.yaml").code == 0
    first, second = config("mine/config.yaml"), config("runs/config-1/config.yaml")
    assert first == second


def test_later_config_files_refine_earlier_ones(royale: Royale) -> None:
    Path("base.yaml").write_text("stop: {iterations: 1}\nmodel: {ppo: {gamma: 0.5}}\n")
    Path("more.yaml").write_text("model: {ppo: {learning_rate: 0.5}}\n")
    assert royale("fit --config base.yaml --config more.yaml --model.network conv").code == 0
    assert config("runs/base-1/config.yaml")["model"] == {
        "network": "conv",
        "ppo": {"gamma": 0.5, "learning_rate": 0.5},
    }


def test_one_seed_for_networks_and_battles(royale: Royale, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support import tiny_run

    seeds: list[int] = []
    monkeypatch.setattr(tiny_run.TinyData, "setup", lambda self, stage: seeds.append(self.seed))
    assert royale("fit --stop.iterations 1 --seed_everything 11").code == 0
    assert seeds == [11]


def test_measuring_writes_into_the_checkpoints_run_folder_or_out(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    assert royale(f"test --ckpt_path {LAST} --games 7 --seed 5").code == 0
    assert Path("runs/run-1/scores.json").read_text() == "test 7 5"
    assert royale("validate --ckpt_path runs/run-1 --out other").code == 0
    assert Path("other/scores.json").read_text() == "validate 20 20000000"
    assert sorted(p.name for p in Path("runs").iterdir()) == ["run-1"]
    assert len(rows("runs/run-1")) == 1, "measuring leaves the training log alone"


def test_loggers_show_the_same_row_at_game_steps(royale: Royale) -> None:
    assert royale("fit --stop.iterations 2 --loggers csv").code == 0
    lines = Path("runs/run-1/csv/version_0/metrics.csv").read_text().splitlines()
    at = lines[0].split(",").index("step")
    assert [line.split(",")[at] for line in lines[1:]] == ["100", "200"]


def test_our_callbacks_can_be_replaced_and_left_out(royale: Royale) -> None:
    line = "fit --trainer.max_epochs 2 --trainer.enable_checkpointing false --trainer.enable_progress_bar false"
    done = royale(line)
    assert done.code == 0
    assert not Path("runs/run-1/checkpoints").exists()
    assert "push" not in done.out
    ours = "{class_path: royale_lightning.callbacks.RunCheckpoint, init_args: {every: 1}}"
    listed = f"trainer: {{max_epochs: 2, callbacks: [{ours}]}}"
    assert royale(f"fit --config '{listed}'").code == 0
    assert len(list(Path("runs/run-2/checkpoints").glob("iteration-*"))) == 2


def test_a_trial_run_leaves_nothing_behind(royale: Royale) -> None:
    assert royale("fit --trainer.fast_dev_run true").code == 0
    assert not Path("runs").exists()


def test_ranks_started_from_outside_need_a_run_dir(royale: Royale, monkeypatch: pytest.MonkeyPatch) -> None:
    from royale_lightning.errors import UserError
    from royale_lightning.run import folder as run_folder

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    with pytest.raises(UserError, match="give --run_dir"):
        run_folder.choose(None, None, "x")
    monkeypatch.setenv("RANK", "1")
    Path("mine").mkdir()
    Path("mine/metrics.jsonl").touch()
    assert run_folder.choose("mine", None, "x") == Path("mine").resolve(), "rank 0 may have begun to write"
    monkeypatch.setenv(run_folder.RUN_DIR_ENV, "decided")
    assert run_folder.choose("mine", None, "x") == Path("decided")


@pytest.mark.slow
def test_two_ranks_share_one_run(royale: Royale) -> None:
    """Each rank is a process of its own, as a user starts it."""
    line = "fit --stop.iterations 3 --trainer.strategy ddp --trainer.devices 2 --trainer.accelerator cpu"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.tiny_run", *line.split()], env=env, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [p.name for p in Path("runs").iterdir()] == ["run-1"]
    assert [r["iteration"] for r in rows("runs/run-1")] == [1, 2, 3]
    assert done.stdout.count("3 iterations, ") == 1


def test_another_runs_checkpoint_is_refused_field_by_field_and_drift_is_marked(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    changed = f"fit --ckpt_path {LAST} --stop.iterations 2 --model.ppo.gamma 0.5 --seed_everything 7"
    said = royale(changed).error
    assert "model.ppo.gamma 0.99 -> 0.5; data.seed 1 -> 7" in said
    assert "--allow_drift" in said
    assert royale(f"{changed} --allow_drift").code == 0
    assert "allow_drift" not in config("runs/run-1/config.1.yaml"), "a flag of this start alone"
    assert royale("fit --ckpt_path runs/run-1 --stop.iterations 3").code == 0
    assert [r["run/drifts"] for r in rows("runs/run-1")] == [0, 2, 2]
    drift = [json.loads(x) for x in Path("runs/run-1/drift.jsonl").read_text().splitlines()]
    assert [(d["iteration"], d["field"], d["kind"]) for d in drift] == [
        (1, "model.ppo.gamma", "fixed"), (1, "data.seed", "fixed")
    ]


def test_a_rewound_run_forgets_its_later_drift(royale: Royale) -> None:
    assert royale("fit --stop.iterations 1").code == 0
    rate = "--model.ppo.learning_rate"
    assert royale(f"fit --ckpt_path {LAST} --stop.iterations 2 {rate} 0.5").code == 0
    first = "runs/run-1/checkpoints/iteration-000001.ckpt"
    assert royale(f"fit --ckpt_path {first} --stop.iterations 2 {rate} 0.25").code == 0
    drift = [json.loads(x) for x in Path("runs/run-1/drift.jsonl").read_text().splitlines()]
    assert [(d["before"], d["after"], d["kind"]) for d in drift] == [(0.001, 0.25, "tunable")]
    assert [r["run/drifts"] for r in rows("runs/run-1")] == [0, 1]


def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(royale: Royale) -> None:
    assert royale("fit --stop.iterations 3 --checkpoint.every 1").code == 0
    data = Path(LAST).read_bytes()
    Path(LAST).write_bytes(data[: len(data) // 2])
    done = royale("fit --ckpt_path runs/run-1 --stop.iterations 4")
    assert done.code == 0, done.err
    assert "is damaged" in done.out
    assert [r["iteration"] for r in rows("runs/run-1")] == [1, 2, 3, 4]
    assert royale("test --ckpt_path runs/run-1").code == 0


def test_global_random_generators_go_on_where_they_stood(royale: Royale, monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    import numpy as np

    from tests.support import tiny_run

    drawn: list[list[float]] = []

    def draw(self: Any) -> None:
        drawn[-1].append(float(torch.rand(()) + np.random.random() + random.random()))

    monkeypatch.setattr(tiny_run.TinyModule, "on_train_epoch_start", draw)
    for line in ("--run_dir a --stop.iterations 4", "--run_dir b --stop.iterations 2"):
        drawn.append([])
        assert royale(f"fit {line}").code == 0
    assert royale("fit --ckpt_path b --stop.iterations 4").code == 0
    assert drawn[1] == drawn[0]


def test_alarms_from_the_command_line_and_their_exit_code(royale: Royale) -> None:
    mine = "'[{class_path: threshold, init_args: {name: late, key: iteration, above: 1, severity: halt}}]'"
    done = royale(f"fit --stop.iterations 5 --run_dir a --alarms.off '[draws]' --alarms.extra {mine}")
    assert done.code == 3, done.err
    assert "the run ends at alarm late" in done.out
    assert [r.get("alarm/late") for r in rows("a")] == [None, 1]
    again = royale("fit --ckpt_path a/checkpoints/last.ckpt --stop.iterations 3 --alarms.halt false")
    assert again.code == 0, again.err
    assert "'drawz'" in royale("fit --run_dir b --alarms.off '[drawz]'").error
