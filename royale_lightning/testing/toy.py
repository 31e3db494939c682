"""A toy task on the real engine: short, dense, learned in seconds, for tests and first experiments."""

from __future__ import annotations

from collections.abc import Sequence

from royalegym.protocol import BattleState, DeployResult, Engine, to_own
from royalegym.reward import RewardFunction


class LeftLane(RewardFunction):
    """Pays +1 for every own card put into the left half of the own frame, -1 for one into the right half.

    Half of all legal tiles pay, so an untrained policy earns about 0 and one that has learned earns the number of
    cards it plays. Nothing else about the battle matters, which makes it a test of the whole loop.
    """

    def bind(self, engine: Engine) -> None:
        self.arena = engine.arena()

    def get_reward(
        self, team: int, prev: BattleState, state: BattleState, results: Sequence[DeployResult]
    ) -> float:
        paid = 0.0
        for r in results:
            if r.team == team and r.status == 0:
                x, _ = to_own(self.arena, team, r.x, r.y)
                paid += 1.0 if 2 * x < self.arena.width else -1.0
        return paid
