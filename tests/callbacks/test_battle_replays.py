"""Battles of the training itself, saved as replays."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from royalegym import load_trace, verify_trace

from royale_lightning import BattleSpec, OpponentShares, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.battle.engine.engine import new_engine
from royale_lightning.battle.steps.arena import Arena
from royale_lightning.bots.plays import read_plays
from royale_lightning.callbacks import BattleReplays
from royale_lightning.cli.trainer_defaults import complete
from royale_lightning.errors import UserError
from royale_lightning.parts import part
from tests.support.starts import Ending


def fit(folder: Path, iterations: int, ckpt_path: Any = None, **settings: Any) -> Trainer:
    replays = BattleReplays(**settings)
    trainer = Trainer(**complete({
        "callbacks": [replays], "max_epochs": iterations, "accelerator": "cpu", "enable_progress_bar": False,
        "enable_model_summary": False,
    }, folder))
    data = SelfPlayData(
        BattleSpec(start=part(Ending)), RolloutSettings(4, 192, 64, threads=1, stagger=False),
        OpponentShares(mirror=0.5, scripted=0.5, scripted_opponents=["push", "random"]),
    )
    module = SelfPlayModule("tests.support.bots.Reflex", PPOSettings(ppo_epochs=1))
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return trainer


def test_sets_of_battles_that_verify_with_the_policys_view(tmp_path: Path) -> None:
    trainer = fit(tmp_path, 3, every=2, keep=1)
    # Iteration 2 is due, 3 is not; nothing is left to say at an end that nobody asked for.
    (folder,) = sorted((tmp_path / "replays").iterdir())
    assert folder.name == "iteration-000002"
    traces = sorted(folder.glob("*.msgpack"))
    names = {p.stem for p in traces}
    assert any("best" in n for n in names)
    assert any("latest" in n for n in names)
    assert verify_trace(load_trace(traces[0]), new_engine()) == []
    for path in traces:
        plays = read_plays(path)
        assert plays is not None
        blue, red = plays.title.split(": ")[0].split(" - ")
        assert plays.seats == [s for s, name in enumerate((blue, red)) if name.startswith("learner")]
        assert {p.seat for p in plays.plays} <= set(plays.seats)
        trace = load_trace(path)
        done = [(c, st) for s in trace.steps for c, st in zip(s.commands, s.statuses, strict=True)]
        assert len(plays.plays) == sum(st == 0 and c.team in plays.seats for c, st in done)
    page = traces[0].with_suffix(".html").read_text()
    found = re.search(r'id="decisions-data">(.*?)</script>', page)
    assert found is not None
    decisions = json.loads(found[1])["decisions"]
    assert decisions
    assert all(d["value"] is not None and 0 <= d["p_wait"] <= 1 for d in decisions)
    rows = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["time/replays"] > 0
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=True)  # type: ignore[union-attr]
    assert saved["callbacks"]["BattleReplays"]["known"]


def test_a_resumed_run_chooses_as_the_unbroken_one(tmp_path: Path) -> None:
    fit(tmp_path / "whole", 4, every=4)
    fit(tmp_path / "parts", 2, every=4)
    fit(tmp_path / "parts", 4, tmp_path / "parts" / "checkpoints" / "last.ckpt", every=4)
    for a in sorted((tmp_path / "whole" / "replays").rglob("*.msgpack")):
        b = tmp_path / "parts" / a.relative_to(tmp_path / "whole")
        assert b.read_bytes() == a.read_bytes()


def test_sets_of_a_history_that_is_given_up_are_set_aside(tmp_path: Path) -> None:
    """Else the highest numbers would be kept, and each new set be dropped at once."""
    for n in (2, 4, 6):
        (tmp_path / "replays" / f"iteration-{n:06d}").mkdir(parents=True)
    trainer = SimpleNamespace(
        is_global_zero=True, fast_dev_run=False, default_root_dir=str(tmp_path), current_epoch=2
    )
    BattleReplays(keep=1).on_train_start(trainer, SimpleNamespace())  # type: ignore[arg-type]
    assert sorted(p.name for p in (tmp_path / "replays").iterdir()) == [
        "iteration-000002", "iteration-000004.discarded-1", "iteration-000006.discarded-1"
    ]


def test_a_battle_that_replays_otherwise_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Arena._record

    def another(arena: Arena, event: Any, game: Any) -> Any:
        record = real(arena, event, game)
        return replace(record, ticks=record.ticks + 1) if "scripted:push" in record.players else record

    monkeypatch.setattr(Arena, "_record", another)
    trainer = fit(tmp_path, 3, every=2)
    assert trainer.current_epoch == 3, "it goes on"
    names = [p.stem for p in (tmp_path / "replays/iteration-000002").iterdir()]
    assert names
    assert not any("push" in n for n in names)
    rows = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["health/replays_failed"] >= 1
    assert [r.get("alarm/replays_unwritten") for r in rows] == [None, 1.0, 1.0]
    assert "was it another engine or spec?); the run goes on" in capsys.readouterr().out


def test_a_full_disk_costs_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    real = BattleReplays._write

    def without_room(self: BattleReplays, trainer: Trainer, pl_module: Any, folder: Path) -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            return real(self, trainer, pl_module, folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(BattleReplays, "_write", without_room)
    told: list[Path] = []
    monkeypatch.setattr(BattleReplays, "default_on_written", (lambda trainer, folder: told.append(folder),))
    trainer = fit(tmp_path, 2, every=2)
    assert trainer.current_epoch == 2
    assert list((tmp_path / "replays").iterdir()) == [], "no torn battle"
    assert told == []
    rows = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["health/replays_failed"] >= 2
    assert "File too large); the run goes on" in capsys.readouterr().out


def test_settings_are_checked() -> None:
    with pytest.raises(UserError, match=r"every is 0"):
        BattleReplays(every=0)
    with pytest.raises(UserError, match=r"keep is 0"):
        BattleReplays(keep=0)
