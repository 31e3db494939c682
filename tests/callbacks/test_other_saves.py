"""Checkpoints that another callback or a user saves: they resume exactly, or say in a sentence that they do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from royale_lightning import BattleSpec, OpponentShares, PPOSettings, RolloutSettings, SelfPlayData, SelfPlayModule
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.measure import DEFAULT_GAMES, Measure
from royale_lightning.callbacks import ResumeRules
from royale_lightning.cli.trainer_defaults import complete, defaults
from royale_lightning.errors import UserError
from royale_lightning.run.jsonl import read_rows
from royale_lightning.tools.verify_resume import checkpoint_digests, first_difference, rows_without_time

# Lightning's, of the ModelCheckpoints that a resumed run goes on without.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks"),
    # And of one that saves beside the run's own files.
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
]


class FromAHook(Callback):
    """Saves in the middle of things, as SLURM's hook does: between two minibatches."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == (1, 1):
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "hpc_ckpt_1.ckpt")


def parts() -> tuple[SelfPlayModule, SelfPlayData]:
    data = SelfPlayData(
        BattleSpec(max_ticks=300), RolloutSettings(2, 64, 32, threads=1), OpponentShares(mirror=1.0, scripted=0.0),
    )
    return SelfPlayModule("tests.support.bots.Reflex", PPOSettings(ppo_epochs=2)), data


def trained(
    folder: Path, iterations: int, *callbacks: Callback, ckpt_path: Path | None = None, allow: bool = False
) -> Trainer:
    settings = {
        "callbacks": [ResumeRules(allow_drift=allow, allow_mid_iteration=allow), *callbacks], "max_epochs": iterations,
        "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False,
    }
    trainer = Trainer(**complete(settings, folder))
    module, data = parts()
    trainer.fit(module, data, ckpt_path=ckpt_path)
    return trainer


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    trained(folder, 3)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations, and every kind of file that somebody else may save."""
    folder = tmp_path_factory.mktemp("saved")
    theirs = [
        ModelCheckpoint(folder / "steps", filename="{step}", every_n_train_steps=1, save_top_k=-1),
        ModelCheckpoint(folder / "epochs", filename="{epoch}"),
        ModelCheckpoint(folder, filename="light", every_n_epochs=2, save_weights_only=True),
    ]
    trainer = trained(folder, 2, *theirs, FromAHook())
    trainer.save_checkpoint(folder / "after.ckpt")
    return folder


def resumed(saved: Path, name: str, folder: Path, *, allow: bool = False) -> Trainer:
    shutil.copytree(saved, folder, dirs_exist_ok=True)
    (folder / "checkpoints" / "iteration-000002.ckpt").unlink()
    return trained(folder, 3, ckpt_path=folder / name, allow=allow)


@pytest.mark.parametrize("name", ["epochs/epoch=1.ckpt", "after.ckpt"])
def test_what_is_saved_at_an_iterations_end_resumes_exactly(
    straight: Path, saved: Path, tmp_path: Path, name: str
) -> None:
    assert torch.load(saved / name, weights_only=True)["royale_lightning"]["iteration"] == 2
    ours = saved / "checkpoints" / "iteration-000002.ckpt"
    theirs, mine = checkpoint_digests(saved / name), checkpoint_digests(ours)
    same = {"weights", "optimizer", "battles", "data", "random"}
    assert {k: theirs[k] for k in same} == {k: mine[k] for k in same}
    resumed(saved, name, tmp_path)
    assert first_difference(straight, tmp_path, range(3, 4), name) is None
    assert list(rows_without_time(tmp_path)) == [1, 2, 3]


@pytest.mark.parametrize("name", ["steps/step=1.ckpt", "steps/step=7.ckpt", "steps/step=8.ckpt", "hpc_ckpt_1.ckpt"])
def test_what_is_saved_elsewhere_says_so_and_goes_on_when_it_may(saved: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"saved in the middle of an iteration.*add --allow_mid_iteration"):
        resumed(saved, name, tmp_path / "refused")
    done = torch.load(saved / name, weights_only=True)["royale_lightning"]["iteration"]
    assert done == (0 if name == "steps/step=1.ckpt" else 1)
    trainer = resumed(saved, name, tmp_path / "allowed", allow=True)
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    assert trainer.current_epoch == data.iteration == 3
    assert [x["iteration"] for x in read_rows(tmp_path / "allowed/drift.jsonl")] == [done]


def test_weights_alone_are_no_run(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds weights alone"):
        resumed(saved, "light.ckpt", tmp_path)


@pytest.mark.parametrize("name", ["after.ckpt", "steps/step=5.ckpt", "hpc_ckpt_1.ckpt", "light.ckpt"])
def test_all_of_them_are_bots(saved: Path, name: str) -> None:
    assert Bot.load(saved / name).record.game_steps > 0


def test_a_trainer_made_by_defaults_measures_as_the_command_does(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights alone are enough; the results go where the checkpoint's run is, or else where the Trainer's is."""
    monkeypatch.setitem(DEFAULT_GAMES, "validate", 2)
    run = tmp_path / "run"
    shutil.copytree(saved / "checkpoints", run / "checkpoints")
    shutil.copy(saved / "light.ckpt", run / "checkpoints")
    settings = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(**defaults(run_dir=str(tmp_path / "mine"), **settings))
    module, data = parts()
    trainer.validate(module, data, verbose=False)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["validation.json"]
    here = str(run / "checkpoints/light.ckpt")
    trainer.validate(module, data, ckpt_path=here, verbose=False)
    found = json.loads((run / "validation.json").read_text())
    assert found["checkpoint"] == here


def test_one_rank_goes_on_where_two_were(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its own battles; the other way round takes two processes, ``tests/ranks``."""
    content = torch.load(saved / "after.ckpt", weights_only=True)
    content["SelfPlayData"]["ranks"] *= 2
    content["royale_lightning"]["identity"]["fixed"]["trainer.world_size"] = 2
    torch.save(content, tmp_path / "two.ckpt")
    with pytest.raises(UserError, match=r"trainer\.world_size 2 -> 1"):
        trained(tmp_path / "run", 3, ckpt_path=tmp_path / "two.ckpt")
    trainer = trained(tmp_path / "run", 3, ckpt_path=tmp_path / "two.ckpt", allow=True)
    assert trainer.current_epoch == 3
    said = capsys.readouterr().out
    assert said.count("the run had 2 ranks and has 1: the 2 battles in flight of the others are dropped") == 1


def test_the_module_loads_from_any_checkpoint_without_a_trainer(saved: Path, tmp_path: Path) -> None:
    module = SelfPlayModule.load_from_checkpoint(saved / "after.ckpt")
    content = torch.load(saved / "after.ckpt", weights_only=True)
    assert module.ppo == parts()[0].ppo
    assert module.state_dict().keys() == content["state_dict"].keys()
    assert all(torch.equal(x, content["state_dict"][k]) for k, x in module.state_dict().items())
    settings = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "max_epochs": 1}
    trainer = Trainer(**complete(settings, tmp_path))
    with pytest.raises(UserError, match=r"reads observation entities/1 .* and these give spatial"):
        trainer.fit(module, SelfPlayData(BattleSpec(observation="spatial")))
    trainer = Trainer(**complete(settings, tmp_path))
    trainer.fit(module, parts()[1])
    assert trainer.current_epoch == 1, "it trains on from those weights"
    with pytest.raises(UserError, match="make a SelfPlayData with those of the run"):
        SelfPlayData.load_from_checkpoint(saved / "after.ckpt")
    torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6.0"}, tmp_path / "other.ckpt")
    with pytest.raises(UserError, match="holds no bot record"):
        SelfPlayModule.load_from_checkpoint(tmp_path / "other.ckpt")


def test_what_was_saved_after_measuring_another_checkpoint_holds_no_battles(saved: Path, tmp_path: Path) -> None:
    trainer = trained(tmp_path, 1)
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    data.measure = Measure("validate", 2, 1, tmp_path)
    trainer.validate(trainer.lightning_module, data, ckpt_path=saved / "after.ckpt", verbose=False)
    trainer.save_checkpoint(tmp_path / "spoiled.ckpt")
    with pytest.raises(UserError, match="holds no battles to go on with"):
        trained(tmp_path, 2, ckpt_path=tmp_path / "spoiled.ckpt")
    trained(tmp_path, 2, ckpt_path=tmp_path / "after.ckpt")


def test_a_trainer_without_our_checkpoints_leaves_no_moment(tmp_path: Path) -> None:
    settings = {"max_epochs": 1, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(**complete({**settings, "accelerator": "cpu", "enable_model_summary": False}, tmp_path))
    trainer.fit(*parts())
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(UserError, match="without RunCheckpoint, so nothing tells at which moment"):
        trained(tmp_path, 2, ckpt_path=tmp_path / "plain.ckpt")
