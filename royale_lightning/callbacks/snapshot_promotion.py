"""The learner's snapshots: when one is taken, and whether it comes into the pool."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..errors import UserError
from ..ladder.ladder import Ladder
from ..ladder.pool import Member
from ..ladder.schedule import affordable, snapshot_due
from ..nn import actor_state_dict
from .base import RunCallback, is_dry
from .row import add_seconds, game_steps, iteration_row, iterations_done

PURPOSE = "gate"


class SnapshotPromotion(RunCallback):
    """Take snapshots as the run grows, and put into the pool what belongs there.

    While the game steps set apart for it have never paid for a gate (a run under half an hour), every snapshot is
    admitted and its verdict says ``skipped (budget)``. Each verdict is a file ``RUN/ladder/verdict-<n>.json``.

    Args:
        first_game_steps: before the first snapshot. 30,000 are half a minute of a small network on two cores, and the
            learner plays something by then.
        growth: the next snapshot is due this share of the run later: a quarter gives 16 in a run of a million game
            steps and 30 in one of twenty million.
        share: of the training's game steps, for the gate's battles.
    """

    def __init__(self, first_game_steps: int = 30_000, growth: float = 0.25, share: float = 0.06) -> None:
        if first_game_steps < 1:
            raise UserError(f"SnapshotPromotion.first_game_steps is {first_game_steps}; give at least 1")
        if not growth > 0:
            raise UserError(f"SnapshotPromotion.growth is {growth}; give a number above 0")
        if not 0 <= share <= 1:
            raise UserError(f"SnapshotPromotion.share is {share}; give a share of the game steps from 0 to 1")
        self.first_game_steps = first_game_steps
        self.growth = growth
        self.share = share

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ladder: Ladder = trainer.datamodule.ladder  # type: ignore[attr-defined]
        if is_dry(trainer):
            return
        steps, iteration = game_steps(trainer), iterations_done(trainer)
        before = ladder.seconds
        if snapshot_due(steps, ladder.newest, self.first_game_steps, self.growth):
            ladder.act(lambda: self._take(ladder, pl_module, iteration, steps))
        row = iteration_row(trainer)
        row["ladder/pool"] = len(ladder.pool)
        add_seconds(row, "time/ladder", ladder.seconds - before)

    def _take(self, ladder: Ladder, module: Any, iteration: int, steps: int) -> None:
        """In the leading process."""
        earned = affordable(self.share, steps, 0, ladder.battle_steps)
        bot = module.bot()
        snapshot = ladder.store.add(bot.record, actor_state_dict(bot.network))
        ladder.newest = steps
        if snapshot in ladder.pool:
            return
        role = "cadence" if len(ladder.pool) else "first"
        ladder.pool.admit(Member(snapshot, role, iteration, steps))
        ladder.write_verdict({
            "candidate": snapshot, "iteration": iteration, "game_steps": steps, "outcome": "skipped",
            "reason": "budget", "admitted": True, "earned_battles": earned,
        })
