"""The shipped rewards. All are RoyaleGym ``RewardFunction`` s; the batched arena computes them from its arrays.

Each is zero-sum. The battle's result is the objective; both add the towers' hit points, which arrive minutes earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from royalegym.protocol import BattleState, DeployResult, TowerSlot, Winner
from royalegym.reward import CombinedReward, CrownReward, RewardFunction, TowerHPReward, WinLossReward

from .engine.state_json import G_OVER, G_WINNER, P_CROWNS, P_TOWER_HP, P_TOWER_MAX
from .jit import njit

#: Columns of a linear reward's coefficients.
(R_WIN, R_DRAW, R_CROWN, R_TOWER, R_POTENTIAL, R_GAMMA, R_KING, R_PRINCESS) = range(8)
COEFFICIENTS = 8


def linear(
    *, win: float = 0.0, draw: float = 0.0, crown: float = 0.0, tower: float = 0.0, potential: float = 0.0,
    gamma: float = 1.0, king: float = 1.0, princess: float = 1.0,
) -> np.ndarray:
    """Coefficients float64 ``[8]`` of a reward that the batched arena can pay: a sum of

    Args:
        win: for a won battle, minus it for a lost one.
        draw: for a draw, to both seats.
        crown: per crown that the lead changes by.
        tower: per change of the difference in tower hp fractions (own minus enemy, three towers a side).
        potential: ``gamma * phi(next) - phi(now)`` with phi that difference times this.
        gamma: of the potential.
        king, princess: weight of either kind of tower in the difference.
    """
    out = np.empty(COEFFICIENTS)
    out[[R_WIN, R_DRAW, R_CROWN, R_TOWER, R_POTENTIAL]] = win, draw, crown, tower, potential
    out[[R_GAMMA, R_KING, R_PRINCESS]] = gamma, king, princess
    return out


def tower_fractions(state: BattleState, team: int) -> float:
    """Sum of the three towers' hp fractions, 0 to 3."""
    p = state.players[team]
    king, left, right = (p.tower_hp[s] / max(1, p.tower_max_hp[s]) for s in TowerSlot)
    # Not sum(): from Python 3.12 on it compensates for rounding, and the compiled arena adds plainly.
    return king + left + right


class TowerResult(RewardFunction):
    """Change of the tower-hp-fraction difference, plus the result.

    Args:
        tower: weight of the difference's change (own minus enemy, three towers a side). 0.5 makes all towers of a
            side worth 1.5 results; the recipe this project started from learned with it.
        result: paid for a win, minus it for a loss; 0 for a draw.
    """

    def __init__(self, tower: float = 0.5, result: float = 1.0) -> None:
        self.tower = tower
        self.result = result

    def config(self) -> dict[str, object]:
        return {"tower": self.tower, "result": self.result}

    def coefficients(self) -> np.ndarray:
        return linear(win=self.result, tower=self.tower)

    def get_reward(
        self, team: int, prev: BattleState, state: BattleState, results: Sequence[DeployResult]
    ) -> float:
        own = tower_fractions(state, team) - tower_fractions(prev, team)
        foe = tower_fractions(state, 1 - team) - tower_fractions(prev, 1 - team)
        return self.tower * (own - foe) + self.result * _outcome(team, prev, state)


class PotentialTower(RewardFunction):
    """The result, shaped by a potential: gamma * phi(next) - phi(now), phi the weighted tower difference.

    phi is 0 at a terminal state and kept at a truncation, so the shaping changes no optimal policy (Ng, Harada,
    Russell 1999; Grzes 2017 for the terminal state). ``gamma`` is the learner's, set by the arena each iteration.
    """

    def __init__(self, tower: float = 0.5, result: float = 1.0) -> None:
        self.tower = tower
        self.result = result
        self.gamma = 1.0

    def config(self) -> dict[str, object]:
        return {"tower": self.tower, "result": self.result}

    def coefficients(self) -> np.ndarray:
        return linear(win=self.result, potential=self.tower, gamma=self.gamma)

    def _phi(self, state: BattleState, team: int) -> float:
        return self.tower * (tower_fractions(state, team) - tower_fractions(state, 1 - team))

    def get_reward(
        self, team: int, prev: BattleState, state: BattleState, results: Sequence[DeployResult]
    ) -> float:
        after = 0.0 if state.game_over else self._phi(state, team)
        return self.gamma * after - self._phi(prev, team) + self.result * _outcome(team, prev, state)


def _outcome(team: int, prev: BattleState, state: BattleState) -> float:
    if not state.game_over or prev.game_over or state.winner == Winner.DRAW:
        return 0.0
    return 1.0 if state.winner == team else -1.0


REWARDS = {
    "tower_result": "royale_lightning.battle.TowerResult",
    "potential": "royale_lightning.battle.PotentialTower",
    "royalegym": "royalegym.default_reward",
}


def linear_terms(reward: Any) -> np.ndarray | None:
    """Coefficients float64 ``[8]`` with which the batched arena pays ``reward``, or None where it cannot."""
    if type(reward) in (TowerResult, PotentialTower):
        return np.asarray(reward.coefficients())
    if type(reward) is WinLossReward:
        return linear(win=1.0, draw=reward.draw)
    if type(reward) is CrownReward:
        return linear(crown=1.0)
    if type(reward) is TowerHPReward:
        return linear(tower=1.0, king=reward.w[TowerSlot.KING], princess=reward.w[TowerSlot.LEFT])
    if type(reward) is CombinedReward:
        total = linear()
        for term, weight in reward.terms:
            part = linear_terms(term)
            if part is None or (part[R_KING:] != 1.0).any() or part[R_POTENTIAL]:
                return None
            total[:R_GAMMA] += weight * part[:R_GAMMA]
        return total
    return None


@njit
def pay(P: Any, G: Any, before: Any, coef: Any, out: Any) -> None:
    """Both seats' rewards of one game step.

    Args:
        before: float64 ``[4]``, tower fractions and crowns of blue and red at the previous game step; updated.
        coef: float64 ``[8]``.
        out: float64 ``[2]``.
    """
    t0 = 0.0
    t1 = 0.0
    for k in range(3):
        w = coef[R_KING] if k == 0 else coef[R_PRINCESS]
        t0 += w * P[0, P_TOWER_HP + k] / max(1, P[0, P_TOWER_MAX + k])
        t1 += w * P[1, P_TOWER_HP + k] / max(1, P[1, P_TOWER_MAX + k])
    c0, c1 = P[0, P_CROWNS], P[1, P_CROWNS]
    over = G[G_OVER] == 1
    r = coef[R_TOWER] * ((t0 - before[0]) - (t1 - before[1]))
    if coef[R_CROWN] != 0.0:
        r += coef[R_CROWN] * ((c0 - before[2]) - (c1 - before[3]))
    if coef[R_POTENTIAL] != 0.0:
        after = 0.0 if over else coef[R_POTENTIAL] * (t0 - t1)
        r += coef[R_GAMMA] * after - coef[R_POTENTIAL] * (before[0] - before[1])
    draw = 0.0
    if over:
        if G[G_WINNER] == 0:
            r += coef[R_WIN]
        elif G[G_WINNER] == 1:
            r -= coef[R_WIN]
        else:
            draw = coef[R_DRAW]
    out[0] = r + draw
    out[1] = -r + draw
    before[0], before[1], before[2], before[3] = t0, t1, c0, c1


def start_of(P: np.ndarray, coef: np.ndarray, before: np.ndarray) -> None:
    """Set ``before`` to the state an episode starts from."""
    w = np.array([coef[R_KING], coef[R_PRINCESS], coef[R_PRINCESS]])
    for team in (0, 1):
        hp = P[team, P_TOWER_HP : P_TOWER_HP + 3]
        top = np.maximum(1, P[team, P_TOWER_MAX : P_TOWER_MAX + 3])
        king, left, right = (w * hp / top).tolist()
        before[team] = king + left + right
        before[2 + team] = P[team, P_CROWNS]
