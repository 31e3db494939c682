"""A run goes on without the bots that it was given by path, wherever they are by then and whatever they hold."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning import BattleSpec, OpponentShares, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.given import OPPONENTS, bot_digest
from royale_lightning.callbacks import ResumeRules
from royale_lightning.cli.trainer_defaults import complete
from royale_lightning.errors import UserError
from royale_lightning.nn import actor_state_dict
from royale_lightning.parts import part
from royale_lightning.tools.verify_resume import first_difference
from tests.support.bots import make_bot

SPEC = BattleSpec(max_ticks=300)


class Evict(Callback):
    """The first member, in the first iteration."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ladder = trainer.datamodule.ladder  # type: ignore[attr-defined]
        if trainer.current_epoch == 0:
            ladder.act(lambda: ladder.let_go([ladder.pool.ids[0]]))


def trained(
    folder: Path, bots: Path, iterations: int, ckpt_path: Path | None = None, more: tuple[str, ...] = (),
    drift: bool = False,
) -> SelfPlayData:
    settings = {
        "callbacks": [ResumeRules(allow_drift=drift), Evict()], "max_epochs": iterations, "accelerator": "cpu",
        "enable_progress_bar": False, "enable_model_summary": False,
    }
    data = SelfPlayData(
        SPEC, RolloutSettings(2, 64, 32, threads=1),
        OpponentShares(mirror=0.0, pool=1.0, scripted=0.0, snapshots=[str(bots / n) for n in ("one", "two", *more)]),
    )
    module = SelfPlayModule(
        "tests.support.bots.Reflex", PPOSettings(ppo_epochs=1), init_from=str(bots / "begin"),
        auxiliary={"near": part("kl_to_reference", bot=str(bots / "near"), weight=0.1)},
    )
    Trainer(**complete(settings, folder)).fit(module, data, ckpt_path=ckpt_path)
    return data


def make_bots(folder: Path, seed: int = 1) -> Path:
    for i, name in enumerate(("one", "two", "begin", "near", "three")):
        make_bot(seed + i, SPEC).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_bots(folder / "bots")
    trained(folder / "straight", folder / "bots", 3)
    trained(folder / "stopped", folder / "bots", 2)
    return folder


@pytest.mark.parametrize("originals", ["gone", "changed", "damaged"])
def test_originals_are_not_missed_and_do_not_enter(runs: Path, tmp_path: Path, originals: str) -> None:
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    stopped, bots = tmp_path / "stopped", runs / "bots"
    had = bots.rename(runs / "aside")
    try:
        if originals == "changed":
            make_bots(bots, seed=11)
        elif originals == "damaged":
            bots.write_text("a file where they were")
        data = trained(stopped, bots, 3, stopped / "checkpoints/last.ckpt")
        assert first_difference(runs / "straight", stopped, range(3, 4), originals) is None
        assert data.ladder.pool.ids == (bot_digest(str(had / "two")),), "the evicted one does not return"
        fork = trained(tmp_path / "fork", bots, 3, runs / "stopped/checkpoints/last.ckpt")
        assert fork.ladder.pool.ids == data.ladder.pool.ids
        assert (tmp_path / "fork/given" / bot_digest(str(had / "near"))).is_dir()
        assert not (stopped / "drift.jsonl").exists()
    finally:
        if bots.exists():
            shutil.rmtree(bots) if bots.is_dir() else bots.unlink()
        had.rename(bots)


def test_bots_that_moved_are_the_same_and_others_are_another_run(runs: Path, tmp_path: Path) -> None:
    last = runs / "stopped/checkpoints/last.ckpt"
    shutil.copytree(runs / "bots", tmp_path / "moved")
    trained(tmp_path / "fork", tmp_path / "moved", 3, last)
    assert not (tmp_path / "fork/drift.jsonl").exists()
    make_bots(tmp_path / "others", seed=21)
    with pytest.raises(UserError, match=r"of another run: .*model\.init_from .*data\.opponents\.snapshots"):
        trained(tmp_path / "refused", tmp_path / "others", 3, last)
    data = trained(tmp_path / "more", runs / "bots", 3, last, more=("three",), drift=True)
    assert data.ladder.pool.ids == tuple(bot_digest(str(runs / "bots" / n)) for n in ("two", "three"))


def test_a_checkpoint_from_before_there_was_a_record_goes_on(runs: Path, tmp_path: Path) -> None:
    content = torch.load(runs / "stopped/checkpoints/last.ckpt", weights_only=True)
    bots = str(runs / "bots")
    del content["SelfPlayData"]["given"]
    fixed: dict[str, Any] = content["royale_lightning"]["identity"]["fixed"]
    assert fixed[OPPONENTS] == [bot_digest(f"{bots}/one"), bot_digest(f"{bots}/two")]
    fixed[OPPONENTS] = [f"{bots}/one", f"{bots}/two"]
    fixed["model.init_from"] = f"{bots}/begin"
    fixed["model.auxiliary.near.init_args.bot"] = f"{bots}/near"
    torch.save(content, tmp_path / "old.ckpt")
    data = trained(tmp_path / "run", runs / "bots", 3, tmp_path / "old.ckpt", drift=False)
    assert data.given.state_dict() is None


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")
def test_measuring_and_loading_ask_for_no_file_and_a_fresh_module_begins_with_the_given_actor(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SelfPlayModule, "_measure", lambda self: "")
    last, begin = runs / "stopped/checkpoints/last.ckpt", runs / "bots/begin"
    wanted = actor_state_dict(Bot.load(begin).network)

    def measured(ckpt_path: Path | None) -> SelfPlayModule:
        terms = {"near": part("kl_to_reference", bot=str(runs / "bots/near"))}
        module = SelfPlayModule("tests.support.bots.Reflex", init_from=str(begin), auxiliary=terms)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        trainer = Trainer(accelerator="cpu", logger=False, default_root_dir=runs / "measured", **quiet)
        trainer.test(module, SelfPlayData(SPEC), ckpt_path=ckpt_path, verbose=False)
        return module

    fresh = actor_state_dict(measured(None).network)
    assert all(torch.equal(x, wanted[k]) for k, x in fresh.items())
    had = (runs / "bots").rename(runs / "aside")
    try:
        loaded = SelfPlayModule.load_from_checkpoint(last)
        tested = measured(last)
    finally:
        had.rename(runs / "bots")
    assert list(loaded.auxiliary) == ["near"]
    assert all(torch.equal(x, loaded.network.state_dict()[k]) for k, x in tested.network.state_dict().items())
