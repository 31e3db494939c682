"""What every alarm is there for, planted where it would arise, and told by whoever writes the row.

Each plant gives a row of a run that is well and one of a run that is ill. No figure an alarm reads is written down here
but those that a callback merely hands on (a setting, a counter).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.round import CHOICE, Assignment, EpisodeRecord
from royale_lightning.battle.rows import codec
from royale_lightning.battle.rows.layout import Loss
from royale_lightning.battle.rows.row_codecs import pack_row
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import Arena, ArenaSettings
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.bots.evaluate import PlannedGame
from royale_lightning.bots.snapshots import UnreadableSnapshot
from royale_lightning.callbacks import BattleReplays, SnapshotPromotion
from royale_lightning.callbacks.base import iteration_row
from royale_lightning.callbacks.metric_log import IterationClock
from royale_lightning.ladder.admission import Judges, consider
from royale_lightning.ladder.eviction import SpreadEviction
from royale_lightning.ladder.gate.gate import Judging, PromotionGate
from royale_lightning.ladder.gate.verdict import GateContext, Verdict
from royale_lightning.ladder.ladder import Ladder
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.ladder.pool import Member
from royale_lightning.ladder.results import Result
from royale_lightning.metrics.process import process_figures
from royale_lightning.nn import actor_state_dict
from royale_lightning.ppo.module import SelfPlayModule
from royale_lightning.restarts.pool.pool import PoolSettings, RestartPool
from royale_lightning.restarts.records.points import CRASHED, DEAD_START, REFUSED, EpisodeResult
from royale_lightning.restarts.route_work import RouteSettings, RouteWork
from royale_lightning.restarts.routes.curriculum import CurriculumSettings, Vote
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from royale_lightning.restarts.row_metrics import curriculum_figures, pool_counts, pool_figures
from royale_lightning.restarts.scheduler import StartScheduler
from royale_lightning.restarts.shares import StartShares
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import SelfPlayData, inputs_of
from royale_lightning.rollout.measures import (
    TrainingScores,
    battle_figures,
    by_start,
    play_figures,
    rollout_figures,
    source_counts,
    source_figures,
)
from royale_lightning.rollout.minibatch import Minibatch
from royale_lightning.rollout.returns import ReturnScaler
from tests.support.bots import make_bot
from tests.support.restart_battles import harvester, played
from tests.support.restarts import CELLS, STAMP, minted, point, route, walked

Row = dict[str, float]
Pair = tuple[Row, Row]
SPEC = BattleSpec(max_ticks=600)
WON = EpisodeRecord(
    battle=0, ordinal=1, players=("learner", "scripted:push"), seed=1, winner=0, truncated=False, ticks=3600,
    game_steps=360, crowns=(1, 0), tower_hp=(1.0, 0.5), returns=(2.0, -2.0), discounted=(1.0, -1.0), choices=(90, 90),
    plays=(30, 30), leak_steps=(0, 0),
)
LOST = replace(WON, winner=1, returns=(-1.0, 1.0))
GRID = ActionLayout()
PLANTS: dict[str, Callable[[Rig], Pair]] = {}


def plant(*names: str) -> Callable[[Callable[[Rig], Pair]], Callable[[Rig], Pair]]:
    def enter(make: Callable[[Rig], Pair]) -> Callable[[Rig], Pair]:
        PLANTS.update(dict.fromkeys(names, make))
        return make

    return enter


class FakeTrainer:
    """What the callbacks that are driven here ask of a Trainer."""

    fast_dev_run = False
    is_global_zero = True
    world_size = 1
    lightning_module = None

    def __init__(self, folder: Path, datamodule: Any = None) -> None:
        self.default_root_dir, self.datamodule, self.current_epoch = str(folder), datamodule, 0


class FakeData(SelfPlayData):
    """A data module of which a callback sees just these attributes."""

    def __init__(self, **known: Any) -> None:
        vars(self).update(known)


class Rig:
    """What the plants share: a real rollout, the module that learns from it, and a folder.

    Args:
        folder: for what is written.
        patch: undone after the test.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch

        self.rollout = real_rollout()

    def module(self, eager: float = 1.0) -> SelfPlayModule:
        made = SelfPlayModule({"class_path": "tests.support.bots.Reflex", "init_args": {"eager": eager}})
        made.build(inputs_of(SPEC), 1)
        made._trainer = FakeTrainer(self.folder)  # type: ignore[assignment]
        return made

    def update(self, module: SelfPlayModule, change: Callable[[dict[str, Any]], None] = lambda b: None) -> Row:
        """An iteration of four PPO epochs, in the first of which the weights are those that acted."""
        r = self.rollout
        for epoch in range(4):
            batch: dict[str, Any] = {
                "rows": r.rows, "action": r.action, "log_prob": r.log_prob, "value": r.value, "choice": r.choice,
                "advantage": torch.randn(len(r.rows), generator=torch.Generator().manual_seed(1)),
                "target": r.value + torch.linspace(-1, 1, len(r.rows)) * (1.0 + r.value.std()),
            }
            batch["value"] = batch["target"] - 0.1 * torch.linspace(1, -1, len(r.rows)) ** 3
            if epoch:
                change(batch)
            module.training_step(Minibatch(**batch, epoch=epoch, index=0), epoch)
        return module.iteration_metrics()


@lru_cache(maxsize=1)
def real_rollout() -> Rollout:
    """Some 130 rows of two mirror battles, a fifth of the forced ones among them."""
    module = SelfPlayModule("tests.support.bots.Reflex")
    module.build(inputs_of(SPEC), 1)
    source = InlineSource(SPEC, 0, 2, ArenaSettings(1, 0.2, 1))
    collector = Collector(
        source, SPEC, MixMatchmaker(1, 2, 1.0, 0.0, 0.0, ()), seed=1, first=0, rows=128, max_rounds=5000,
        stagger=False, device=torch.device("cpu"), count_forced=False,
    )
    found = collector.collect(module.network.eval(), gamma=0.99)
    found.seconds["advantages"] = 0.01
    source.close()
    return found


def shifted(by: float) -> Callable[[dict[str, Any]], None]:
    """Rows whose acting policy was off by so much in every log-probability, up and down by turns."""

    def change(batch: dict[str, Any]) -> None:
        sign = torch.where(torch.arange(len(batch["log_prob"])) % 2 == 0, 1.0, -1.0)
        batch["log_prob"] = batch["log_prob"] + by * sign * batch["choice"]

    return change


# ---- the update --------------------------------------------------------------------------------------------------
@plant("nonfinite")
def nonfinite(rig: Rig) -> Pair:
    def spoil(batch: dict[str, Any]) -> None:
        batch["target"] = batch["target"] * float("nan")

    return rig.update(rig.module()), rig.update(rig.module(), spoil)


@plant("ratio_error")
def ratio_error(rig: Rig) -> Pair:
    ill = rig.module()
    r = rig.rollout
    well = rig.update(rig.module())
    rig.rollout = replace(r, log_prob=r.log_prob + 0.3 * r.choice)
    return well, rig.update(ill)


@plant("clip_pinned", "kl_high")
def too_far(rig: Rig) -> Pair:
    return rig.update(rig.module(), shifted(0.15)), rig.update(rig.module(), shifted(1.5))


@plant("dual_clip")
def far_on_bad_actions(rig: Rig) -> Pair:
    def change(batch: dict[str, Any]) -> None:
        batch["log_prob"] = batch["log_prob"] - 2.0 * (batch["choice"] & (batch["advantage"] < 0))

    return rig.update(rig.module(), shifted(0.15)), rig.update(rig.module(), change)


@plant("kl_dead")
def standing_still(rig: Rig) -> Pair:
    return rig.update(rig.module(), shifted(0.15)), rig.update(rig.module())


@plant("play_decided")
def decided(rig: Rig) -> Pair:
    return rig.update(rig.module()), rig.update(rig.module(eager=30.0))


@plant("value_useless")
def useless_critic(rig: Rig) -> Pair:
    ill, r = rig.module(), rig.rollout
    target = r.value + torch.linspace(-1, 1, len(r.rows))
    ill.training_step(
        Minibatch(
            rows=r.rows, action=r.action, log_prob=r.log_prob, value=-2 * target, choice=r.choice,
            advantage=torch.zeros(len(r.rows)), target=target, epoch=0, index=0,
        ), 0,
    )
    return rig.update(rig.module()), ill.iteration_metrics()


@plant("value_gap")
def blind_where_forced(rig: Rig) -> Pair:
    def off(where: Callable[[Tensor], Tensor], by: float) -> Callable[[dict[str, Any]], None]:
        def change(batch: dict[str, Any]) -> None:
            batch["target"] = batch["target"] + by * where(batch["choice"])

        return change

    return rig.update(rig.module(), off(lambda c: c, 0.0)), rig.update(rig.module(), off(lambda c: ~c, 9.0))


@plant("update_slow")
def slow_update(rig: Rig) -> Pair:
    fast, slow = rig.module(), rig.module()
    fast._seconds, slow._seconds = 1.0, 4.0
    return rig.update(fast), rig.update(slow)


@plant("gpu_memory_low")
def gpu_full(rig: Rig) -> Pair:
    rows = []
    for free in (9e9, 9e7):
        rig.patch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (int(free), int(1e10)))
        rig.patch.setattr(torch.cuda, "max_memory_reserved", lambda _: 10**9)
        module = rig.module()
        rig.update(module)
        rig.patch.setattr(SelfPlayModule, "device", torch.device("cuda"))
        rows.append(module.iteration_metrics())
        rig.patch.undo()
    return rows[0], rows[1]


# ---- collection --------------------------------------------------------------------------------------------------
@plant("rewards_clipped")
def large_rewards(rig: Rig) -> Pair:
    scaler = ReturnScaler(clip=10.0)
    scaler.update(np.array([1.0, -1.0, 0.5]))
    small, large = (scaler.scaled(np.array([[0.1, x]]))[1] for x in (0.2, 500.0))
    r = rig.rollout
    return rollout_figures(r, 128, scaler.scale, small), rollout_figures(r, 128, scaler.scale, large)


@plant("rows_unused")
def left_over(rig: Rig) -> Pair:
    n = len(rig.rollout.rows)
    return rollout_figures(rig.rollout, n, 1.0, 0), rollout_figures(rig.rollout, n // 2, 1.0, 0)


@plant("collect_slow")
def slow_collection(rig: Rig) -> Pair:
    r = rig.rollout
    slow = replace(r, seconds={k: 9 * v for k, v in r.seconds.items()})
    return rollout_figures(r, 128, 1.0, 0), rollout_figures(slow, 128, 1.0, 0)


@plant("actions_refused")
def refused_action(rig: Rig) -> Pair:
    source = InlineSource(BattleSpec(), 0, 1, ArenaSettings(1, 0.0, 1))
    source.advance([Assignment(0, 0, ("learner", "learner"), 5)])
    while not (source.round.kind == CHOICE).any():
        source.advance([])
    well = source_figures(rig.rollout, source_counts(source), {}, processes=False)
    # The enemy's back row, which the mask forbids for every troop.
    source.round.action[source.round.kind == CHOICE] = 1 + 31 * 18
    source.advance([])
    ill = source_figures(rig.rollout, source_counts(source), {}, processes=False)
    source.close()
    return well, ill


@plant("codec_clipped", "codec_rounded")
def lossy(rig: Rig) -> Pair:
    box, seen = spaces.Box(-np.inf, np.inf, (7,)), codec.Seen(1)
    for i in range(codec.LEAST_STATES):
        seen.see(np.arange(7, dtype=np.float32) + i % 50)
    layout = codec.decide({"x": box}, {"x": seen}, "test", 100)
    rows = []
    for x in (np.arange(7), np.array([0.123, 1e6, 0.7, 3, 4, 5, 6])):
        row = np.zeros(layout.row_bytes, dtype=np.uint8)
        loss: Loss = pack_row(layout, {"x": x.astype(np.float32)}, np.ones(100), row)
        source: Any = SimpleNamespace(loss=lambda loss=loss: loss, refused=lambda: 0)
        rows.append(source_figures(rig.rollout, source_counts(source), {}, processes=False))
    return rows[0], rows[1]


@plant("workers_lost", "workers_keep_failing")
def lost_worker(rig: Rig) -> Pair:
    r, source = rig.rollout, SimpleNamespace(loss=lambda: Loss(0, 0), refused=lambda: 0)
    counts = source_counts(source)  # type: ignore[arg-type]
    ill = replace(r, faults={**r.faults, "killed": 1})
    return source_figures(r, counts, {}, processes=True), source_figures(ill, counts, {}, processes=True)


# ---- what is played ----------------------------------------------------------------------------------------------
@plant("plays_stopped", "plays_few")
def waits(rig: Rig) -> Pair:
    return battle_figures([WON]), battle_figures([replace(WON, plays=(1, 30))])


@plant("elixir_leaks")
def hoards(rig: Rig) -> Pair:
    return battle_figures([WON]), battle_figures([replace(WON, leak_steps=(200, 0))])


@plant("draws")
def draws(rig: Rig) -> Pair:
    return battle_figures([WON, LOST]), battle_figures([replace(WON, winner=2)] * 3)


@plant("no_battles")
def no_battles(rig: Rig) -> Pair:
    return battle_figures([WON]), battle_figures([])


@plant("reward_misleads")
def misleading(rig: Rig) -> Pair:
    return battle_figures([WON, LOST]), battle_figures([WON, replace(LOST, returns=(3.0, -3.0))])


def plays(action: np.ndarray) -> Row:
    offers = np.tile(np.arange(4), (len(action), 1))
    return play_figures(action, offers, np.ones(len(action), bool), GRID, ["a", "b", "c", "d"])


@plant("tile_spam")
def one_tile(rig: Rig) -> Pair:
    return plays(1 + np.arange(2304)), plays(np.full(400, 5))


@plant("artefact_exploit")
def one_card_on_six_tiles(rig: Rig) -> Pair:
    return plays(1 + np.arange(2304)), plays(1 + np.arange(400) % 6)


def seats(winners: list[int]) -> Row:
    scores = TrainingScores()
    scores.add([replace(WON, players=("learner", "learner"), winner=w) for w in winners])
    return scores.figures()


@plant("blue_favoured")
def blue(rig: Rig) -> Pair:
    return seats([0, 1] * 60), seats([0] * 90 + [1] * 30)


@plant("red_favoured")
def red(rig: Rig) -> Pair:
    return seats([0, 1] * 60), seats([1] * 90 + [0] * 30)


@plant("forgetting")
def forgets(rig: Rig) -> Pair:
    scores = TrainingScores()
    others = [f"scripted:{n}" for n in ("random", "push", "defend", "patient", "punish")]

    def after(won: int) -> Row:
        for other in others:
            scores.add([replace(WON, players=("learner", other), winner=int(i >= won)) for i in range(60)])
        return scores.figures()

    return after(48), after(20)


# ---- the ladder --------------------------------------------------------------------------------------------------
class Admits(PromotionGate):
    """Takes in every fifth, as an opponent alone."""

    def judge(self, context: GateContext) -> Judging:
        yield from ()
        return Verdict.of(context, "admitted" if context.rejections == 4 else "rejected", "no better")


class LadderRig:
    """A run's ladder and the callback that tells of it, which never finds a snapshot due."""

    def __init__(self, rig: Rig, members: int) -> None:
        self.ladder = Ladder(BattleSpec())
        self.ladder.open(rig.folder / str(time.monotonic_ns()))
        for i in range(members):
            bot = make_bot(seed=i)
            snapshot = self.ladder.store.add(bot.record, actor_state_dict(bot.network))
            self.ladder.pool.admit(Member(snapshot, "cadence", i, 100 * i))
        data = FakeData(ladder=self.ladder, game_steps=100, iteration_metrics=self.ladder.table_metrics)
        self.trainer: Any = FakeTrainer(rig.folder, data)
        self.callback = SnapshotPromotion(first_game_steps=10**9)

    def row(self, happens: Callable[[], object] = lambda: None) -> Row:
        self.trainer.current_epoch += 1
        self.callback.on_train_epoch_start(self.trainer, None)  # type: ignore[arg-type]
        happens()
        self.ladder.table()
        self.callback.on_train_epoch_end(self.trainer, None)  # type: ignore[arg-type]
        return dict(iteration_row(self.trainer))

    def trained(self, games: int) -> None:
        """Against the first two members, one of them beaten."""
        self.ladder.note_training([
            Result(
                kind="train", blue="live:0", red=m, seed=1000 * k + s, winner=k, ticks=3600, crowns=(1, 0), iteration=1,
                game_step=9,
            )
            for k, m in enumerate(self.ladder.pool.ids[:2]) for s in range(games)
        ])


@plant("gate_starved")
def nobody_is_promoted(rig: Rig) -> Pair:
    """By a gate with the default's five rejections, after which it takes one in."""
    r, judges = LadderRig(rig, 1), Judges(Admits(), SpreadEviction(), ())
    rows = []
    for i in range(1, 6):
        bot = make_bot(seed=i)
        rows.append(
            r.row(lambda i=i, bot=bot: r.ladder.act(  # type: ignore[misc]
                lambda: consider(r.ladder, bot, judges, "gate", i, 100 * i)
            ))
        )
    r.ladder.close()
    return rows[-2], rows[-1]


@plant("pfsp_even")
def nobody_is_told_apart(rig: Rig) -> Pair:
    """The results of the pool's battles never arrive."""
    r = LadderRig(rig, 3)
    ill = r.row()
    well = r.row(lambda: r.trained(30))
    r.ladder.close()
    return well, ill


@plant("pfsp_thin")
def hardly_anybody_is_met(rig: Rig) -> Pair:
    r = LadderRig(rig, 2)
    ill = r.row(lambda: r.trained(3))
    well = r.row(lambda: r.trained(30))
    r.ladder.close()
    return well, ill


@plant("ladder_slow")
def dear_battles(rig: Rig) -> Pair:
    """A game step of the ladder takes six times as long as one of training."""
    r, now = LadderRig(rig, 1), 0.0
    rig.patch.setattr(time, "monotonic", lambda: now)
    r.ladder.close()
    r.ladder.open(r.ladder.folder)
    well = r.row()
    now = 1000.0 + 600.0

    def slow() -> None:
        r.ladder.spent["rating"] += 100_000
        r.ladder.seconds += 600.0

    ill = r.row(lambda: r.ladder.attempt(slow, "rating", 1, 1_000_000))
    rig.patch.undo()
    r.ladder.close()
    return well, ill


@plant("ladder_undecided")
def without_an_end(rig: Rig) -> Pair:
    r, real = LadderRig(rig, 1), Arena._record
    games = [PlannedGame("scripted:push", "scripted:random", 5)]
    rig.patch.setattr(Arena, "_record", lambda self, e, game: replace(real(self, e, game), winner=-1))
    ill = r.row(lambda: r.ladder.play(games, "rating", 1, 100))
    rig.patch.undo()
    well = r.row(lambda: r.ladder.play(games, "rating", 1, 100))
    r.ladder.close()
    return well, ill


@plant("ladder_failed")
def full_disk(rig: Rig) -> Pair:
    r = LadderRig(rig, 1)

    def full() -> None:
        raise OSError(28, "No space left on device")

    pair = r.row(), r.row(lambda: r.ladder.attempt(full, "gate", 1, 100))
    r.ladder.close()
    return pair


@plant("snapshots_left_out")
def unreadable(rig: Rig) -> Pair:
    r = LadderRig(rig, 2)

    def locked(snapshot: str) -> Any:
        raise UnreadableSnapshot(f"snapshot {snapshot} cannot be read")

    rig.patch.setattr(r.ladder.store, "load", locked)
    ill = r.row()
    rig.patch.undo()
    well = r.row()
    r.ladder.close()
    return well, ill


@plant("replays_unwritten")
def another_battle(rig: Rig) -> Pair:
    spec = BattleSpec()
    rows = []
    for chosen in ({}, {"best": replace(WON, commands=[(3, 0, 700)], game_steps=5)}):
        callback = BattleReplays(every=1)
        callback._battles.chosen = dict(chosen)
        trainer: Any = FakeTrainer(rig.folder, FakeData(battle=spec, episodes=(), iteration_metrics=dict))
        callback.on_train_epoch_end(trainer, rig.module())
        rows.append(dict(iteration_row(trainer)))
    return rows[0], rows[1]


# ---- starts ------------------------------------------------------------------------------------------------------
def scheduler(pool: PoolSettings = PoolSettings(), points: int = 0) -> StartScheduler:  # noqa: B008 - frozen
    made = StartScheduler(1, RestartPool(pool, 1, STAMP))
    made.pool.import_points([point(n, ((0, 0, 0), (0, 1, 1))[n % 2]) for n in range(points)])
    return made


def serve(s: StartScheduler, times: int, timeout: str | None = None, first: int = 0, every: int = 1) -> None:
    """Episodes from every so many'th of two points, and what became of them."""
    for n in range(first, first + times):
        at = (n // every) % 2
        s.pool.serve(0, n, point(at, ((0, 0, 0), (0, 1, 1))[at]).id, point(0).players)
        if timeout is not None:
            s.pool.record_timeout(0, n, timeout)
        else:
            s.pool.record_episode(EpisodeResult(0, 0, n, point(0).players, 0, float(n % 2), 100))


def offer(s: StartScheduler, points: list[Any]) -> Row:
    before = pool_counts(s)
    s.pool.record_episode(EpisodeResult(0, 9, 0, ("learner", "learner"), 0, 1.0, 100), points)
    return pool_figures(s, before)


WANTED = {"restarts/wanted_share": StartShares(pool=0.2).pool}


@plant("restarts_missing")
def nobody_is_restarted(rig: Rig) -> Pair:
    s = scheduler(points=2)
    ill = pool_figures(s, pool_counts(s))
    serve(s, 5)
    return pool_figures(s, {}) | WANTED, ill | WANTED


@plant("restarts_few")
def few_steps_from_the_pool(rig: Rig) -> Pair:
    return by_start([], {"true": 80, "pool": 20}, []) | WANTED, by_start([], {"true": 99, "pool": 1}, []) | WANTED


@plant("true_starts_few")
def few_steps_from_true_starts(rig: Rig) -> Pair:
    return by_start([], {"true": 80, "pool": 20}, []), by_start([], {"true": 1, "pool": 99}, [])


@plant("pool_empty")
def empty_pool(rig: Rig) -> Pair:
    return pool_figures(scheduler(points=2), {}), pool_figures(scheduler(), {})


@plant("harvest_idle")
def no_offers(rig: Rig) -> Pair:
    s = scheduler()
    return offer(s, [point(5)]), offer(s, [])


@plant("harvest_rejected")
def nothing_is_taken(rig: Rig) -> Pair:
    s = scheduler()
    return offer(s, [point(5)]), offer(s, [point(5)] * 60)


@plant("replays_failed")
def replays_otherwise(rig: Rig) -> Pair:
    battle, rows = played(("learner", "scripted:push"), seed=1), []
    for record in (battle, replace(battle, state_hash=battle.state_hash ^ 1)):
        h = harvester(1.0)
        list(h.harvest([record], 10_000, 1))
        rows.append({"restarts/replays_failed": float(h.failures)})
    return rows[0], rows[1]


def served(timeout: str, times: int) -> Pair:
    s = scheduler(points=2)
    serve(s, 8)
    well, before = pool_figures(s, {}), pool_counts(s)
    serve(s, 8, first=8)
    for n in range(times):
        serve(s, 1, timeout, first=100 + n)
    return well, pool_figures(s, before)


@plant("restarts_refused")
def refused_start(rig: Rig) -> Pair:
    return served(REFUSED, 1)


@plant("restarts_crashed")
def crashed_start(rig: Rig) -> Pair:
    return served(CRASHED, 1)


@plant("restarts_dead")
def dead_starts(rig: Rig) -> Pair:
    return served(DEAD_START, 3)


@plant("restarts_one_bucket")
def one_bucket(rig: Rig) -> Pair:
    rows = []
    for every in (1, 10**6):
        s = scheduler(PoolSettings(max_uses=1000), points=2)
        serve(s, 120, every=every)
        rows.append(pool_figures(s, {}))
    return rows[0], rows[1]


@plant("restarts_decided")
def always_the_same(rig: Rig) -> Pair:
    """Of two buckets one is always won and one never; or both by turns."""
    rows = []
    for every in (2, 1):
        s = scheduler(PoolSettings(window=4, max_uses=1000), points=2)
        serve(s, 40, every=every)
        rows.append(pool_figures(s, {}))
    return rows[0], rows[1]


# ---- routes ------------------------------------------------------------------------------------------------------
def routes(made: Any = None, settings: CurriculumSettings = CurriculumSettings()) -> RouteStore:  # noqa: B008
    store = RouteStore(StoreSettings(curriculum=settings), 1, STAMP)
    if made is not None:
        store.add(made)
    return store


def _walked() -> RouteStore:
    store = walked().store
    assert store is not None
    return store


@plant("archive_empty")
def no_route(rig: Rig) -> Pair:
    return curriculum_figures(_walked(), {}), curriculum_figures(routes(), {})


@plant("rungs_missing")
def no_save_state(rig: Rig) -> Pair:
    return curriculum_figures(_walked(), {}), curriculum_figures(routes(route(CELLS)), {})


@plant("curriculum_starved")
def no_start_found(rig: Rig) -> Pair:
    s = _walked()
    well = curriculum_figures(s, {})
    assert s.curriculum is not None
    for _ in range(700):
        s.curriculum.record_attempt(False)
    return well, curriculum_figures(s, {})


@plant("curriculum_stalled")
def nowhere_to_go(rig: Rig) -> Pair:
    s = routes(minted(route(CELLS)), CurriculumSettings(window=2, grace=2, patience=2, most_retreats=1))
    assert s.curriculum is not None
    s.judge_route(0, False, {80: 0.5}, 80)
    well = curriculum_figures(s, {})
    front = s.curriculum.front(0)
    assert front is not None
    for _ in range(200):
        s.curriculum.vote(Vote(0, front.generation, front.index), False, 1)
    return well, curriculum_figures(s, {})


@plant("routes_lucky")
def lucky(rig: Rig) -> Pair:
    """Routes that a learner who waits wins as often; the work counts what it judges."""
    rows = []
    for patient in (False, True):
        settings = RouteSettings(StoreSettings(archive_size=30, curriculum=CurriculumSettings()), 1.0, 4, 8, 1)
        work = RouteWork(BattleSpec(), 1, STAMP, settings, harvester(1.0), lambda make: make())

        def play(
            policy: Any, games: Sequence[Any], battles: int, keep_commands: bool, patient: bool = patient
        ) -> list[Any]:
            """The policy wins every second game, and whoever waits all or none."""
            won = [(n % 2 == 0) if "learner" in g.players else patient for n, g in enumerate(games)]
            return [
                SimpleNamespace(winner=g.start.seat if w else 1 - g.start.seat, refused=False, game_steps=1)
                for g, w in zip(games, won, strict=True)
            ]

        for n in range(20):
            work.store.add(minted(route(CELLS, source=(n, n), margin=n)))
        rows.append(work.act(10_000, lambda: None, {route(CELLS).opponent}, play))
    return rows[0], rows[1]


# ---- the machine -------------------------------------------------------------------------------------------------
def timed(rig: Rig, **parts: float) -> Row:
    """The row of an iteration of ten seconds whose callbacks took these."""
    trainer: Any = FakeTrainer(rig.folder, SimpleNamespace(game_steps=100))
    clock, now = IterationClock(), 0.0
    rig.patch.setattr(time, "monotonic", lambda: now)
    clock.on_train_start(trainer, None)  # type: ignore[arg-type]
    clock.on_train_epoch_start(trainer, None)  # type: ignore[arg-type]
    row = iteration_row(trainer)
    row |= {f"time/{k}": x for k, x in parts.items()}
    now = 10.0
    clock.on_train_batch_end(trainer, None)  # type: ignore[arg-type]
    clock.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]
    rig.patch.undo()
    return dict(row)


@plant("restarts_slow")
def dear_restarts(rig: Rig) -> Pair:
    return timed(rig, step=8.0, update=1.9, restarts=0.1), timed(rig, step=5.0, update=2.0, restarts=3.0)


@plant("overhead")
def slow_logger(rig: Rig) -> Pair:
    return timed(rig, step=8.0, update=2.0), timed(rig, step=4.0, update=2.0)


@plant("memory_grows")
def leak(rig: Rig) -> Pair:
    well = process_figures(children=False)
    held = np.ones(int(0.7 * psutil.Process().memory_info().rss / 8))
    ill = process_figures(children=False)
    assert held[0]
    return well, ill


@plant("files_grow")
def open_files(rig: Rig) -> Pair:
    well = process_figures(children=False)
    held = [(rig.folder / str(i)).open("w") for i in range(70)]
    ill = process_figures(children=False)
    for file in held:
        file.close()
    return well, ill


@plant("workers_memory_grows")
def leaking_worker(rig: Rig) -> Pair:
    code = "import sys; print(flush=True); input(); x = b'1' * 100_000_000; print(flush=True); input()"
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdout.readline()
    well = process_figures(children=True)
    worker.stdin.write(b"\n")
    worker.stdin.flush()
    worker.stdout.readline()
    ill = process_figures(children=True)
    worker.communicate(b"\n")
    return well, ill
