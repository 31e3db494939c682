"""Bots on disk and in RoyaleGym's hands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from royalegym import SpatialObsBuilder
from safetensors import safe_open

from royale_lightning.battle.environment import make_env
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.rows.row_codecs import pack_row
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.bot_files import BotRecord, update_bot, write_bot
from royale_lightning.errors import UserError
from royale_lightning.nn import actor_state_dict
from royale_lightning.parts import Part
from tests.support.bots import make_bot, save_checkpoint


def some_rows(bot: Bot, n: int = 24) -> np.ndarray:
    """Rows of a battle, by the bot's own environment, at choices."""
    env, rng = bot.make_env(), np.random.default_rng(0)
    obs, _ = env.reset(seed=3)
    rows: list[np.ndarray] = []
    while len(rows) < n:
        acts = {}
        for agent in env.agents:
            mask = obs[agent]["action_mask"]
            if mask[1:].any():
                row = np.zeros(bot.layout.row_bytes, dtype=np.uint8)
                pack_row(bot.layout, obs[agent], mask, row)
                rows.append(row)
            acts[agent] = int(rng.choice(np.flatnonzero(mask)))
        obs, *_ = env.step(acts)
    return np.stack(rows)


def test_a_bot_is_the_same_from_a_folder_a_checkpoint_and_a_run(entity_bot: Bot, tmp_path: Path) -> None:
    bot = entity_bot
    run = tmp_path / "runs" / "mine-1"
    save_checkpoint(bot, run / "checkpoints" / "last.ckpt")
    update_bot(run / "checkpoints" / "last.ckpt", run / "bot")
    bot.save(tmp_path / "saved")
    assert (run / "bot" / "bot.json").read_bytes() == (tmp_path / "saved" / "bot.json").read_bytes()
    rows = some_rows(bot)
    draws = np.random.default_rng(1).random((len(rows), 2))
    want = bot.choose(rows, draws)
    assert len(set(want.tolist())) > 1
    paths = [
        tmp_path / "saved", tmp_path / "saved" / "bot.json", tmp_path / "saved" / "actor.safetensors", run,
        run / "bot", run / "checkpoints" / "last.ckpt",
    ]
    for path in paths:
        loaded = Bot.load(path)
        assert loaded.record == bot.record
        assert loaded.spec.as_dict() == bot.spec.as_dict()
        assert loaded.name == "tiny"
        assert np.array_equal(loaded.choose(rows, draws), want)
    shutil.rmtree(run / "bot")
    assert np.array_equal(Bot.load(run).choose(rows, draws), want), "a run without bot/ has its last checkpoint"
    sharp = bot.sharp().choose(rows, draws)
    assert np.array_equal(Bot.load(tmp_path / "saved", sharp=True).choose(rows, draws), sharp)
    assert not np.array_equal(sharp, want)
    assert np.array_equal(sharp == 0, want == 0), "wait or play is drawn alike"


def test_the_critic_is_not_in_a_bot(bot: Bot, tmp_path: Path) -> None:
    bot.save(tmp_path / "folder")
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == ["actor.safetensors", "bot.json"]
    with safe_open(tmp_path / "folder" / "actor.safetensors", "pt") as opened:
        names = set(opened.keys())
    assert names == {k for k in bot.network.state_dict() if not k.startswith("critic")}
    assert any(k.startswith("critic") for k in bot.network.state_dict())
    record = json.loads((tmp_path / "folder" / "bot.json").read_text())
    assert record["schema"] == 1
    assert record["game_steps"] == 1234
    assert record["deck"][0] == list(bot.trained_on.decks[0])
    assert prepare(BattleSpec(**record["battle"])).digest == record["battle_digest"]


def test_saving_again_replaces_the_bot(bot: Bot, other: Bot, tmp_path: Path) -> None:
    bot.save(tmp_path)
    other.save(tmp_path)
    assert Bot.load(tmp_path).name == "other"
    # The crash between the two renames: bot.json still tells of the bot before.
    (tmp_path / "bot.json").write_text(json.dumps(bot.record.as_dict()))
    loaded = Bot.load(tmp_path)
    assert loaded.name == "other"
    assert all(torch.equal(loaded.network.state_dict()[k], v) for k, v in actor_state_dict(other.network).items())


def test_loading_and_playing_needs_neither_lightning_nor_wandb(entity_bot: Bot, tmp_path: Path) -> None:
    entity_bot.save(tmp_path / "b")
    code = (
        "import sys, numpy as np\n"
        "from royale_lightning import Bot\n"
        f"bot = Bot.load({str(tmp_path / 'b')!r})\n"
        "env = bot.make_env(); obs, _ = env.reset(seed=1)\n"
        "bot.act(obs['blue'], obs['blue']['action_mask'], np.random.default_rng(0))\n"
        "import royale_lightning.bots.scores, royale_lightning.bots.replays\n"
        "print([m for m in ('lightning', 'wandb', 'pytorch_lightning', 'torchmetrics') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_forced_decision_draws_nothing_and_a_choice_two(bot: Bot) -> None:
    env = bot.make_env()
    obs, _ = env.reset(seed=1)
    forced, choice = np.zeros(2305, dtype=np.int8), np.zeros(2305, dtype=np.int8)
    forced[0] = 1
    choice[[0, 700, 701]] = 1
    for player in (bot, bot.sharp()):
        mine, theirs = np.random.default_rng(5), np.random.default_rng(5)
        assert player.act(obs["blue"], forced, mine) == 0
        assert mine.random() == theirs.random()
        assert player.act(obs["blue"], choice, mine) in (0, 700, 701)
        theirs.random(2)
        assert mine.random() == theirs.random()


def test_acting_leaves_threads_and_training_mode_alone(bot: Bot) -> None:
    env = bot.make_env()
    obs, _ = env.reset(seed=1)
    mask = np.ones(2305, dtype=np.int8)
    threads = torch.get_num_threads()
    bot.network.train()
    bot.act(obs["red"], mask, np.random.default_rng(0))
    assert bot.network.training
    bot.network.eval()
    assert torch.get_num_threads() == threads


def test_another_observation_is_refused_in_one_sentence(bot: Bot) -> None:
    env = make_env(BattleSpec(observation="spatial"))
    assert isinstance(env.obs_builder, SpatialObsBuilder)
    obs, _ = env.reset(seed=1)
    with pytest.raises(UserError, match="has no key 'unit_wide'") as caught:
        bot.act(obs["blue"], np.ones(2305, dtype=np.int8), np.random.default_rng(0))
    assert "\n" not in str(caught.value)
    own, _ = bot.make_env().reset(seed=1)
    with pytest.raises(UserError, match="covers 9217 actions"):
        bot.act(own["blue"], np.ones(9217, dtype=np.int8), np.random.default_rng(0))
    with pytest.raises(UserError, match="has shape"):
        bot.act({**own["blue"], "units": np.zeros((3, 3))}, np.ones(2305, dtype=np.int8), np.random.default_rng(0))


class _SpatialBot(Bot):
    """Not loadable: only its layouts are looked at."""

    def __init__(self) -> None:
        spec = BattleSpec(observation="spatial")
        self.name, self.layout, self.actions = "planes", prepare(spec).row_layout, prepare(spec).action_layout


def test_bots_of_different_observations_do_not_meet(bot: Bot, other: Bot) -> None:
    bot.make_env(other).close()
    bot.make_env(bot).close()
    with pytest.raises(UserError, match="only bots of one observation"):
        bot.make_env(_SpatialBot())


def test_the_training_limits_and_reward_are_not_the_bots(tmp_path: Path) -> None:
    spec = BattleSpec(max_ticks=500, deck=["Knight", "Archer", "Giant", "Musketeer", "Fireball", "Arrows",
                                           "Minions", "MiniPekka"])
    made = make_bot(spec=spec)
    # A reward that is installed nowhere: a notebook's, for instance.
    record = replace(made.record, battle={**made.record.battle, "reward": {"class_path": "gone.Away"}})
    write_bot(tmp_path, record, actor_state_dict(made.network))
    loaded = Bot.load(tmp_path)
    assert loaded.spec.max_ticks is None
    assert loaded.spec.deck == spec.deck
    assert prepare(loaded.spec).batched


def spoil(folder: Path, bot: Bot, **changes: Any) -> None:
    write_bot(folder, replace(bot.record, **changes), actor_state_dict(bot.network))


def test_what_cannot_be_loaded_says_why(entity_bot: Bot, tmp_path: Path) -> None:
    bot = entity_bot
    cases: list[tuple[Path, str]] = [(tmp_path / "nowhere", "there is no bot at")]
    empty = tmp_path / "empty"
    empty.mkdir()
    cases.append((empty, "holds neither actor.safetensors nor"))
    for name, change, expected in (
        ("newer", {"schema": 99}, "schema 99"),
        ("row", {"row_layout": "0" * 16}, "reads observation rows of layout 0000000000000000"),
        ("cards", {"catalogue": "x", "n_cards": 99}, "99 cards"),
        ("spec", {"battle": {**bot.record.battle, "gravity": 1}}, "gravity"),
        ("wide", {"network": {**bot.record.network, "init_args": {"width": 32}}}, "of shape"),
        ("layers", {"network": {**bot.record.network, "init_args": {"width": 16, "layers": 2}}}, "has no weights for"),
        ("fewer", {"network": {**bot.record.network, "init_args": {"width": 16, "layers": 0}}}, "has weights"),
    ):
        spoil(tmp_path / name, bot, **change)
        cases.append((tmp_path / name, expected))
    torn = tmp_path / "torn"
    bot.save(torn)
    (torn / "actor.safetensors").write_bytes((torn / "actor.safetensors").read_bytes()[:-100])
    cases.append((torn, "cannot be read as a bot's weights"))
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    cases.append((tmp_path / "foreign.ckpt", "no checkpoint of a royale_lightning run"))
    (tmp_path / "text.ckpt").write_text("hello")
    cases.append((tmp_path / "text.ckpt", "cannot be read as a checkpoint"))
    for path, expected in cases:
        with pytest.raises(UserError, match=expected):
            Bot.load(path)


def test_a_record_without_a_field(bot: Bot) -> None:
    record = bot.record.as_dict()
    assert BotRecord.from_dict(json.loads(json.dumps(record)), "it") == bot.record
    del record["catalogue"]
    with pytest.raises(UserError, match="without 'catalogue'"):
        BotRecord.from_dict(record, "it")
    with pytest.raises(UserError, match="mode is 'blunt'"):
        bot.in_mode("blunt")
    assert Bot.of(bot.network, Part("a.B"), bot.trained_on).name == "bot"
