"""``bench update``: what Lightning adds to the update.

The Trainer and a plain loop learn from one rollout that was collected before. The data module's collector is replaced
by one that hands this rollout out again and again; whenever Lightning asks it for the next, the iteration before is
over with all its hooks, and the plain loop takes its turn. So the two alternate, and neither bills collection.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import time
import warnings
from collections.abc import Mapping
from typing import Any, cast

import torch
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from ...battle.steps.arena import ArenaSettings, default_threads
from ...battle.steps.sources import InlineSource
from ...callbacks import Alarms
from ...cli.trainer_cli import RoyaleParser
from ...cli.trainer_defaults import TRAINER_DEFAULTS, defaults
from ...errors import UserError
from ...nn import ActorCritic, build_network
from ...nn.distribution import MaskedCategorical
from ...nn.rows import unpack
from ...ppo.loss import Stages, ppo_loss
from ...ppo.module import SelfPlayModule
from ...rollout.advantage import estimator_of
from ...rollout.collector import Collector, Rollout
from ...rollout.data import SelfPlayData
from ...rollout.dataset import Learner, SelfPlayDataset
from ...rollout.returns import ReturnScaler
from ...run.ranks import Ranks
from . import find_config
from .pairing import Sides
from .report import Report

#: A mean KL no update reaches: the check is part of the update, the stop would leave iterations of unequal length.
NEVER = 1.0e9
#: Iterations at the start that are not counted, and at least counted after them.
WARM, PAIRS = 1, 3


def measure(seconds: float, config: str | None, seed: int) -> Report:
    """Run it.

    Args:
        seconds: time for each side.
        config: configuration of ``fit`` that says what is learned; see :func:`find_config`.
        seed: of battles and weights.
    """
    path = find_config(config)
    settings = yaml.safe_load(path.read_text(encoding="utf-8")) if path else {}
    result = compare(seconds, settings or {}, seed)
    return Report(result, [
        ("Trainer over a bare loop, update and epoch hooks", "lightning_over_bare"),
        ("rows learned from, per second", "rows_per_second"),
        ("row passes per second, Trainer", "row_passes_per_second"),
        ("row passes per second, bare loop", "bare_row_passes_per_second"),
        ("seconds of an iteration's update", "update_seconds"),
        ("largest difference of the two networks' weights", "largest_weight_difference"),
    ], inputs={"config": str(path) if path else None})


def parts_of(settings: Mapping[str, Any], seed: int) -> tuple[SelfPlayModule, SelfPlayData]:
    """The module and the data module that a configuration of ``fit`` describes, whose seed is given."""
    # The command line's own, which knows how settings for parts are written.
    parser = RoyaleParser()
    parser.add_class_arguments(SelfPlayModule, "model")
    parser.add_class_arguments(SelfPlayData, "data")
    given = {k: dict(settings.get(k) or {}) for k in ("model", "data")}
    given["data"]["seed"] = seed
    try:
        made = parser.instantiate_classes(parser.parse_object(given))
    except UserError:
        raise
    except Exception as exc:
        raise UserError(f"the configuration's model and data do not make a run: {' '.join(str(exc).split())}") from exc
    return made.model, made.data


def compare(seconds: float, settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """The figures of ``bench update`` for a configuration of ``fit``."""
    module, data = parts_of(settings, seed)
    ppo = dataclasses.replace(module.ppo, kl_limit=NEVER, weight_average=None)
    module.ppo = ppo
    # Terms of a user's own, a critic apart and a mean of the weights would be the same work on both sides.
    module.auxiliary_parts = {}
    module.critic_part = None
    # One rollout learned from again and again is off-policy from its second time on.
    module.check_ratio = _unchecked  # type: ignore[method-assign]
    trainer_settings = settings.get("trainer") or {}
    clip = float(trainer_settings.get("gradient_clip_val") or TRAINER_DEFAULTS["gradient_clip_val"])
    rollout = collect(module, data)
    sides = Sides("lightning", "bare")
    bare = BareLoop(module, data, rollout, clip)
    replay = Replay(rollout, sides, bare)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Lightning's own business with torch 2.14.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        # It advises a learning-rate monitor and more cores for a data loader that we do not have.
        warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
        quiet = logging.getLogger("lightning.pytorch")
        level = quiet.level
        quiet.setLevel(logging.ERROR)
        try:
            trainer = Trainer(**defaults(
                default_root_dir=folder, callbacks=[Enough(sides, seconds), Alarms(off=["ratio_error"], halt=False)],
                enable_progress_bar=False,
                enable_checkpointing=False, enable_model_summary=False, gradient_clip_val=clip, accelerator="cpu",
                devices=1, precision=trainer_settings.get("precision"),
            ))
            trainer.fit(module, replace_collector(data, replay))
        finally:
            quiet.setLevel(level)
    # The Trainer has done one iteration more, after which it stopped instead of asking for a rollout.
    bare.iterate()
    theirs = dict(bare.network.named_parameters())
    difference = max(float((p - theirs[n]).detach().abs().max()) for n, p in module.network.named_parameters())
    rows = data.rollout.minibatches * data.rollout.minibatch_rows
    iteration = sides.seconds("lightning") / sides.slices
    return {
        **sides.ratio("lightning", "bare").figures("lightning_over_bare"),
        "rows_per_second": rows / iteration,
        "row_passes_per_second": rows * ppo.ppo_epochs / iteration,
        "bare_row_passes_per_second": rows * ppo.ppo_epochs * sides.slices / sides.seconds("bare"),
        "update_seconds": iteration,
        "largest_weight_difference": difference,
    }


def _unchecked() -> None:
    pass


def collect(module: SelfPlayModule, data: SelfPlayData) -> Rollout:
    """One rollout of the configuration's size by its untrained network."""
    battle, r = data.battle, data.rollout
    network = build_network(module.network_part.as_dict(), data.inputs, data.seed).eval()
    source = InlineSource(
        battle, 0, r.battles, ArenaSettings(data.seed, r.forced_share, r.threads or default_threads())
    )
    try:
        matchmaker = data.opponents.build(data.seed, r.battles)
        collector = Collector(
            source, battle, matchmaker, seed=data.seed, first=0, rows=r.rows_per_iteration, max_rounds=r.max_rounds,
            stagger=False, count_forced=r.forced_rows == "all", device=torch.device("cpu"),
        )
        return collector.collect(network, gamma=module.ppo.at(0).gamma)
    finally:
        source.close()


class BareLoop:
    """The same update in a plain loop: no module, no Trainer, no hooks, no metrics but the KL it may stop on.

    Its minibatches come from the same dataset over the same rollout, so they are the same rows in the same order.
    """

    def __init__(self, module: SelfPlayModule, data: SelfPlayData, rollout: Rollout, clip: float) -> None:
        self.ppo = module.ppo
        self.inputs = data.inputs
        self.network = build_network(module.network_part.as_dict(), self.inputs, data.seed)
        self.network.train()
        twin = SelfPlayModule(module.network_part.as_dict(), self.ppo)
        twin.network, twin.auxiliary = self.network, torch.nn.ModuleDict()
        self.optimizer = twin.configure_optimizers()
        self.parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        self.clip = clip
        self.rollout = rollout
        self.layout, self.first = self.inputs.layout, 0
        self.numbers = self.ppo.at(0)
        self.game_steps = self.iteration = 0
        self._kl: list[Tensor] = []
        estimator = estimator_of(self.ppo.advantage)
        scaler = ReturnScaler(self.ppo.reward_clip)
        self._dataset = SelfPlayDataset(
            cast(Collector, self), cast(Learner, self), self, rollout=data.rollout, estimator=estimator, scaler=scaler,
            seed=data.seed, ranks=Ranks(),
        )

    @property
    def policy(self) -> ActorCritic:
        """What acted."""
        return self.network

    @property
    def gamma(self) -> float:
        return self.numbers.gamma

    def collect(self, *_: Any, **__: Any) -> Rollout:
        """In the place of a collector."""
        return again(self.rollout)

    def before_rollout(self) -> None:
        """Nothing to freeze: nobody is played."""

    def after_rollout(self, r: Rollout, scale: float, clipped: int) -> None:
        del scale, clipped
        self.game_steps += r.game_steps
        self.iteration += 1

    def epoch_kl(self) -> float:
        """Of the PPO epoch that just ended: the loop's one synchronisation."""
        return float(torch.stack(self._kl).mean())

    def iterate(self) -> None:
        """One iteration."""
        n = self.numbers = self.ppo.at(self.game_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = n.critic_learning_rate if group.get("name") == "critic" else n.learning_rate
        coef = Stages(n.entropy_play, n.entropy_choice, n.entropy_tile)
        for batch in self._dataset:
            obs = unpack(batch.rows, self.inputs.layout)
            logits, value = self.network(obs)
            dist = MaskedCategorical(logits, obs["action_mask"], self.inputs.actions)
            log_prob, tile_entropy = dist.log_prob_and_tile_entropy(batch.action)
            loss, figures = ppo_loss(
                batch, log_prob, Stages(dist.entropy_play, dist.entropy_choice, tile_entropy), value.float(),
                clip_range=n.clip_range, dual_clip=self.ppo.dual_clip, value_coef=self.ppo.value_coef,
                value_clip=self.ppo.value_clip, entropy_coef=coef,
            )
            if batch.index == 0:
                self._kl = []
            self._kl.append(figures["approx_kl"])
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
            self.optimizer.step()


class Replay:
    """A collector that hands out one rollout, and gives the bare loop its turn between two.

    Seconds from one rollout handed out to the next one asked for are Lightning's: an iteration without collection.
    """

    def __init__(self, rollout: Rollout, sides: Sides, bare: BareLoop) -> None:
        self.rollout = rollout
        self.sides = sides
        self.bare = bare
        self.layout, self.first = bare.layout, bare.first
        self._since: float | None = None
        self._warm = WARM

    def state_dict(self) -> dict[str, Any]:
        """Of battles in flight: there are none."""
        return {}

    def collect(self, *_: Any, **__: Any) -> Rollout:
        """In the place of a collector."""
        sides = self.sides
        if self._since is not None:
            sides.add("lightning", time.perf_counter() - self._since)
            with sides.timed("bare"):
                self.bare.iterate()
            for name in sides.names:
                sides.work(name, 1.0)
            if self._warm > 0:
                self._warm -= 1
                sides.discard()
            else:
                sides.close_slice()
        self._since = time.perf_counter()
        return again(self.rollout)


class Enough(Callback):
    """Stops the Trainer once its side has had its time, at an iteration's end."""

    def __init__(self, sides: Sides, seconds: float) -> None:
        self.sides = sides
        self.seconds = seconds

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.sides.slices >= PAIRS and self.sides.seconds("lightning") >= self.seconds:
            trainer.should_stop = True


class Replayed:
    """The data module's iterations, without the ladder's table: nobody is played."""

    def __init__(self, data: SelfPlayData) -> None:
        self._data = data

    @property
    def iteration(self) -> int:
        return self._data.iteration

    def before_rollout(self) -> None: ...

    def after_rollout(self, r: Rollout, scale: float, clipped: int) -> None:
        self._data.after_rollout(r, scale, clipped)


def replace_collector(data: SelfPlayData, replay: Replay) -> SelfPlayData:
    """The data module, its dataset built over ``replay`` instead of battles."""
    ppo = replay.bare.ppo
    data.scaler.clip = ppo.reward_clip
    estimator = estimator_of(ppo.advantage)

    def build() -> SelfPlayDataset:
        assert data.trainer is not None
        learner = cast(Learner, data.trainer.lightning_module)
        return SelfPlayDataset(
            cast(Collector, replay), learner, Replayed(data), rollout=data.rollout, estimator=estimator,
            scaler=data.scaler, seed=data.seed, ranks=Ranks(),
        )

    data.collector = cast(Collector, replay)
    data._build = build  # type: ignore[method-assign]
    return data


def again(r: Rollout) -> Rollout:
    """The rollout as if collected anew: its clock is written to by the dataset."""
    return dataclasses.replace(r, seconds=dict(r.seconds))
