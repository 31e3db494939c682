"""A run leaves a bot beside each checkpoint, and the Trainer's measuring stages play it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from lightning.pytorch import Trainer

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.measure import Measure
from royale_lightning.callbacks import RunCheckpoint
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.nn import actor_state_dict
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.rollout.data import SelfPlayData
from royale_lightning.rollout.settings import RolloutSettings


def test_a_bot_follows_each_checkpoint_and_is_what_a_measuring_stage_plays(tmp_path: Path) -> None:
    module = SelfPlayModule(network={"class_path": "tests.support.bots.Reflex", "init_args": {}})
    rollout = RolloutSettings(battles=2, rows_per_iteration=32, minibatch_rows=16, stagger=False)
    data = SelfPlayData(BattleSpec(max_ticks=600), rollout)
    run = tmp_path / "run-1"
    settings = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
    trainer = Trainer(**defaults(run_dir=str(run), callbacks=[RunCheckpoint(every=1)], **settings))
    trainer.fit(module, data)
    assert data.game_steps > 0
    last = run / "checkpoints" / "last.ckpt"
    for path in (run, run / "bot", last):
        bot = Bot.load(path)
        assert (bot.name, bot.record.game_steps) == ("run-1", data.game_steps)
        trained = actor_state_dict(module.network)
        assert all(torch.equal(v, bot.network.state_dict()[k]) for k, v in trained.items())

    data.measure = Measure("validate", 1, 9, tmp_path / "out")
    trainer.validate(module, data, ckpt_path=str(last), verbose=False)
    text = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert (text["checkpoint"], text["seed"], text["game_steps"]) == (str(last), 9, bot.record.game_steps)
