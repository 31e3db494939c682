"""A critic apart from the actor, two lambdas, and the mean of the weights: in runs of a few iterations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.bot_files import read_bot
from royale_lightning.cli import console as cli
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.metrics.declarations import undeclared
from royale_lightning.nn import EntityCritic, EntityNetwork, actor_state_dict
from royale_lightning.parts import part
from royale_lightning.ppo.module import SelfPlayModule, follow_weights
from royale_lightning.ppo.settings import PPOSettings
from royale_lightning.rollout.data import SelfPlayData
from royale_lightning.rollout.settings import RolloutSettings

DEBUG = Path(__file__).parents[2] / "configs" / "debug.yaml"
CRITIC = ("--model.critic.class_path", "entity", "--model.critic.init_args.width", "16")


def fit(tmp_path: Path, module: SelfPlayModule, iterations: int, *callbacks: Callback) -> list[dict[str, float]]:
    trainer = Trainer(**defaults(
        run_dir=str(tmp_path / "run"), max_epochs=iterations, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, callbacks=list(callbacks),
    ))
    rollout = RolloutSettings(battles=4, rows_per_iteration=96, minibatch_rows=32, threads=1, source="inline")
    trainer.fit(module, SelfPlayData(BattleSpec(max_ticks=400, deck="random"), rollout))
    return [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


def small(cls: Any, **more: Any) -> Any:
    return part(cls, **{"width": 16, "layers": 1, "heads": 2, **more})


class Gradients(Callback):
    """Whose parameters had a gradient, step by step."""

    def __init__(self) -> None:
        self.names: list[set[str]] = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.names.append({n for n, p in pl_module.named_parameters() if p.grad is not None})


def test_a_critic_apart_learns_and_is_in_no_bot(tmp_path: Path) -> None:
    seen = Gradients()
    module = SelfPlayModule(small(EntityNetwork), PPOSettings(ppo_epochs=2), critic=small(EntityCritic))
    rows = fit(tmp_path, module, 3, seen)
    every = {n for n, _ in module.named_parameters()}
    assert any(n.startswith("critic.") for n in every)
    assert seen.names[0] == every
    assert all(r["ppo/value_loss_actor"] > 0 for r in rows)
    assert not any(undeclared(r) for r in rows)
    _, weights, _ = read_bot(tmp_path / "run")
    assert set(weights) == set(actor_state_dict(module.network))
    groups: Any = module.optimizers().param_groups  # type: ignore[union-attr]
    assert {g["name"]: len(g["params"]) for g in groups} == {
        "actor": len([n for n in every if n.startswith("network.") and "critic" not in n]),
        "critic": len([n for n in every if "critic" in n]),
    }


@pytest.mark.parametrize("more", [
    CRITIC, (*CRITIC, "--data.rollout.overlap", "true"), ("--model.ppo.weight_average", "0.9"),
    ("--data.battle.frame_stack", "1", "--model.ppo.value_lambda", "0.99"),
], ids=["critic", "critic ahead", "average", "lambda"])
def test_resume_is_exact(more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--config", str(DEBUG), "--iterations", "2+1")
    assert cli.main(["verify-resume", *where, *more]) == 0, capsys.readouterr()


def test_another_critic_is_no_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert cli.main(["fit", "--config", str(DEBUG), "--run_dir", run, "--stop.iterations", "1"]) in (0, None)
    capsys.readouterr()
    assert cli.main(["fit", "--ckpt_path", run, *CRITIC]) == 2
    assert "model.critic" in capsys.readouterr().err


def test_value_lambda_moves_targets_and_leaves_advantages(tmp_path: Path) -> None:
    class Targets(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            batch = trainer.datamodule._dataset.minibatch(0)  # type: ignore[attr-defined]
            self.found = batch.advantage, batch.target

    found = {}
    for value_lambda in (None, 0.97, 0.5):
        seen = Targets()
        fit(tmp_path / str(value_lambda), SelfPlayModule(
            small(EntityNetwork), PPOSettings(ppo_epochs=1, gae_lambda=0.97, value_lambda=value_lambda)
        ), 1, seen)
        found[value_lambda] = seen.found
    for advantage, _ in found.values():
        assert torch.equal(advantage, found[None][0])
    assert torch.equal(found[0.97][1], found[None][1])
    assert not torch.equal(found[0.5][1], found[None][1])


def test_the_mean_follows_by_its_decay() -> None:
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    expected = {k: 0.75 * x + 0.25 * other.state_dict()[k] for k, x in one.state_dict().items()}
    follow_weights(one, other, 0.75)
    for name, x in one.state_dict().items():
        torch.testing.assert_close(x, expected[name])


def test_bots_are_of_the_mean_of_the_weights(tmp_path: Path) -> None:
    class Steps(Callback):
        """The mean, by another way."""

        mean: dict[str, torch.Tensor] | None = None

        def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
            decay = min(0.9, trainer.global_step / (trainer.global_step + 10))
            now = {k: x.clone() for k, x in actor_state_dict(module.network).items()}
            if self.mean is None:
                self.mean = self.first
            self.mean = {k: decay * self.mean[k] + (1 - decay) * x for k, x in now.items()}

        def on_train_start(self, trainer: Trainer, module: Any) -> None:
            self.first = {k: x.clone() for k, x in actor_state_dict(module.network).items()}

    seen = Steps()
    module = SelfPlayModule(small(EntityNetwork), PPOSettings(weight_average=0.9, learning_rate=0.01))
    fit(tmp_path, module, 2, seen)
    assert seen.mean is not None
    _, weights, _ = read_bot(tmp_path / "run")
    moved = 0.0
    for name, x in weights.items():
        torch.testing.assert_close(x, seen.mean[name], rtol=1e-5, atol=1e-6)
        moved += float((x - module.network.state_dict()[name]).abs().sum())
    assert moved > 0.1, "the mean is not the network"
    assert all(torch.equal(x, weights[k]) for k, x in actor_state_dict(module.bot().network).items())
    assert Bot.load(tmp_path / "run" / "checkpoints" / "last.ckpt").name
