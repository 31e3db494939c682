"""Loggers are views of one row: the real ones, W&B offline, read back from what they wrote."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning import BattleSpec, OpponentShares, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.callbacks import BattleReplays
from royale_lightning.callbacks.loggers import LOGGERS, named_loggers
from royale_lightning.cli.trainer_defaults import complete
from royale_lightning.parts import part
from tests.support.starts import Ending

#: As a rating leaves them; playing for them would take longer than the rest of this file.
RATINGS = {
    "scripted:push": {"rating": 120.0, "se": 40.0, "games": 8},
    "live:1": {"rating": 300.5, "se": 60.0, "games": 24, "separable": True},
}


class Rated(Callback):
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.datamodule.ladder.ratings = dict(RATINGS)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_DIR", str(folder))
        trainer = Trainer(**complete({
            "callbacks": [Rated(), BattleReplays(every=1)], "max_epochs": 2, "accelerator": "cpu",
            "enable_progress_bar": False, "enable_model_summary": False, "gradient_clip_val": 0.5,
            "logger": named_loggers(LOGGERS, folder),
        }, folder))
        data = SelfPlayData(
            BattleSpec(start=part(Ending)), RolloutSettings(4, 128, 64, threads=1, stagger=False),
            OpponentShares(mirror=0.0, scripted=1.0, scripted_opponents=["push"]),
        )
        trainer.fit(SelfPlayModule("tests.support.bots.Reflex", PPOSettings(ppo_epochs=1, gamma=0.99)), data)
        import wandb

        # finish() tells W&B's own process to close the run's file and does not wait until it has; teardown() does.
        wandb.teardown()
        yield folder


@pytest.fixture(scope="module")
def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]


def _records(run: Path) -> Iterator[Any]:
    """What the offline file of the run holds, in order: LevelDB's log format behind a head of seven bytes."""
    from wandb.proto import wandb_internal_pb2

    (file,) = run.glob("wandb/offline-run-*/run-*.wandb")
    raw, block, at, held = file.read_bytes(), 32768, 7, b""
    while at + 7 <= len(raw):
        if block - at % block < 7:  # too little of a block for a head is padding
            at += block - at % block
            continue
        length, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        held += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(held)
            yield record
            held = b""


def test_wandb_offline_has_rows_over_game_steps_settings_and_battles(run: Path, rows: list[dict[str, Any]]) -> None:
    metrics: dict[str, str] = {}
    history: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    for r in _records(run):
        kind = r.WhichOneof("record_type")
        if kind == "metric":
            metrics[r.metric.name or r.metric.glob_name] = r.metric.step_metric
        elif kind == "history":
            history.append({})
            for i in r.history.item:
                # The parts of a value that is a dictionary come one by one, each under the path to it.
                *path, last = i.nested_key or [i.key]
                at = history[-1]
                for key in path:
                    at = at.setdefault(key, {})
                at[last] = json.loads(i.value_json)
        elif kind in ("run", "config"):
            for i in (r.run.config if kind == "run" else r.config).update:
                config[i.key or ".".join(i.nested_key)] = json.loads(i.value_json)
    assert metrics["*"] == "game_steps"
    assert "game_steps" in metrics
    scored = [h for h in history if "ppo/approx_kl" in h]
    assert [h["game_steps"] for h in scored] == [r["game_steps"] for r in rows]
    assert scored[1]["ppo/approx_kl"] == pytest.approx(rows[1]["ppo/approx_kl"])
    assert config["model.ppo.gamma"] == 0.99
    assert config["data.battle.start.class_path"].endswith("Ending")
    assert config["identity"]
    shown = {k: v for h in history for k, v in h.items() if isinstance(v, dict) and v.get("_type") == "html-file"}
    assert {"replays/best", "behaviour/placements"} <= set(shown)
    (page,) = run.glob(f"wandb/offline-run-*/files/{shown['replays/best']['path']}")
    assert 'id="decisions-data"' in page.read_text()
    tables = [h["ladder/ratings"] for h in history if "ladder/ratings" in h]
    assert tables
    (file,) = run.glob(f"wandb/offline-run-*/files/{tables[-1]['path']}")
    table = json.loads(file.read_text())
    assert table["columns"] == ["player", "rating", "se", "games", "separable"]
    want = [["live:1", 300.5, 60.0, 24, True], ["scripted:push", 120.0, 40.0, 8, False]]
    assert table["data"] == want, "strongest first"


def test_tensorboard_has_the_same(run: Path, rows: list[dict[str, Any]]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (version,) = (run / "tensorboard").iterdir()
    events = EventAccumulator(str(version))
    events.Reload()
    found = [(e.step, e.value) for e in events.Scalars("ppo/approx_kl")]
    assert [s for s, _ in found] == [int(r["game_steps"]) for r in rows]
    assert [v for _, v in found] == pytest.approx([r["ppo/approx_kl"] for r in rows])
    assert yaml.safe_load((version / "hparams.yaml").read_text())["model.ppo.gamma"] == 0.99
    assert any(t.startswith("replays") for t in events.Tags()["tensors"])


def test_csv_has_the_same(run: Path, rows: list[dict[str, Any]]) -> None:
    (version,) = (run / "csv").iterdir()
    with (version / "metrics.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [int(r["step"]) for r in found] == [int(r["game_steps"]) for r in rows]
    assert [float(r["ppo/approx_kl"]) for r in found] == pytest.approx([r["ppo/approx_kl"] for r in rows])
    assert yaml.safe_load((version / "hparams.yaml").read_text())["model.ppo.gamma"] == 0.99


@pytest.mark.parametrize(
    ("mode", "why"), [("online", "No API key configured"), ("sometimes", "1 validation error for Settings")]
)
def test_wandb_that_does_not_begin_is_one_sentence(tmp_path: Path, mode: str, why: str) -> None:
    """A process of its own: W&B keeps for a process's life what it found at the first try."""
    script = (
        "from pathlib import Path\nfrom royale_lightning.errors import UserError\n"
        "from royale_lightning.callbacks.loggers import named_loggers\n"
        "(logger,) = named_loggers(['wandb'], Path('run'))\n"
        "try:\n    logger.experiment\nexcept UserError as exc:\n    print(exc)"
    )
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "NETRC"))}
    env = {**keep, "HOME": str(tmp_path), "WANDB_MODE": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )
    (line,) = found.stdout.splitlines()
    assert line.startswith(f"--loggers wandb: W&B does not begin a run ({why}")
    assert "`wandb login`" in line
    assert "WANDB_MODE=offline" in line
    assert "Traceback" not in found.stderr
