"""Running deviation of episode returns, to bring rewards of any size to one scale."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

#: Game steps of most battles, at two decisions a second: three minutes.
BATTLE_STEPS = 360
#: Ends of battles that say what an end pays.
LEAST_ENDS = 4
#: Returns that a guess from a rollout's rewards counts as: a dozen battles outweigh it, a first one does not.
GUESS_RETURNS = 8


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of some numbers."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Two-pass moments of ``values`` (any shape)."""
        v = np.asarray(values, dtype=np.float64).reshape(-1)
        if v.size == 0:
            return cls()
        mean = float(v.mean())
        return cls(int(v.size), mean, float(np.square(v - mean).sum()))

    def __add__(self, other: Moments) -> Moments:
        """Moments of both sets together (Chan, Golub and LeVeque 1979, eq. 2.1)."""
        n = self.count + other.count
        if n == 0:
            return Moments()
        delta = other.mean - self.mean
        return Moments(
            n,
            self.mean + delta * other.count / n,
            self.m2 + other.m2 + delta * delta * self.count * other.count / n,
        )

    @property
    def variance(self) -> float:
        """Sample variance (n - 1); NaN below two numbers."""
        return self.m2 / (self.count - 1) if self.count > 1 else math.nan


@dataclass(frozen=True)
class Payments:
    """What some seats were paid in a rollout, by whether their battle ended with the payment.

    Attributes:
        ends: seats whose battle ended.
        game_steps: of all seats together.
        at_ends, on_the_way: sums of squared rewards.
    """

    ends: int = 0
    game_steps: int = 0
    at_ends: float = 0.0
    on_the_way: float = 0.0

    @classmethod
    def of(cls, reward: np.ndarray, game_steps: np.ndarray, ended: np.ndarray) -> Payments:
        """Of cells: rewards, their game steps, and bool whether the battle ended there; all of one shape."""
        squares = np.square(reward, dtype=np.float64)
        return cls(int(ended.sum()), int(game_steps.sum()), float(squares[ended].sum()), float(squares[~ended].sum()))

    def __add__(self, other: Payments) -> Payments:
        return Payments(
            self.ends + other.ends, self.game_steps + other.game_steps, self.at_ends + other.at_ends,
            self.on_the_way + other.on_the_way,
        )

    def return_variance(self, gamma: float) -> float:
        """Variance of a battle's discounted return, were its rewards independent and of mean 0; NaN for too few ends.

        The sum over a battle's game steps t of ``gamma^2t`` times the mean square of a step's reward. Battles that
        began in their middle end too often, so an end is given its share of a whole battle.
        """
        if self.ends < LEAST_ENDS:
            return math.nan
        square = self.at_ends / self.ends / BATTLE_STEPS + self.on_the_way / max(1, self.game_steps)
        if gamma == 1.0:
            return square * BATTLE_STEPS
        return square * (1.0 - gamma ** (2 * BATTLE_STEPS)) / (1.0 - gamma * gamma)


class ReturnState(TypedDict):
    """What a checkpoint keeps of a :class:`ReturnScaler`."""

    count: int
    mean: float
    m2: float


class ReturnScaler:
    """Divides rewards by the running deviation of raw discounted episode returns.

    The mean is never subtracted: that would pay or fine each game step for being played. So where returns hardly
    differ (every battle lost, as at the beginning of a hard task) their deviation says nothing of the size of a value,
    and half their root mean square bounds the scale from below; else one lost battle is many deviations, and the
    critic's error drowns the policy's gradient. The statistic is updated with an iteration's episodes before their
    rewards are scaled (RoyaleLearn's order), so the first reward of an unseen size meets a scale that already knows
    it. Running moments by Welford 1962 and Chan et al. 1979.

    Args:
        clip: bound of a scaled reward's size, in return deviations; ``None`` for none.
    """

    #: Least scale, in root mean squares of the returns: reached where their mean is 1.7 deviations from 0.
    _LEAST = 0.5
    #: Below this deviation, relative to the mean, returns are equal but for rounding, and give no scale.
    _FLAT = 1.0e-6

    def __init__(self, clip: float | None = None) -> None:
        self.clip = clip
        self.moments = Moments()

    def update(self, returns: np.ndarray) -> None:
        """Take in the raw discounted returns of episodes that ended, any shape, the same on every rank."""
        self.merge([Moments.of(returns)])

    def merge(self, parts: Iterable[Moments]) -> None:
        """Take in the moments of several ranks' episodes. Their order moves the result by rounding only;
        gather them in rank order and every rank holds the same bytes."""
        for part in parts:
            self.moments = self.moments + part

    def guess(self, variance: float) -> None:
        """Begin with a variance of returns while none is known, worth :data:`GUESS_RETURNS` of them; NaN is no guess.

        Battles that begin at a random moment have no return, so without it the first rollouts would be learned from at
        another scale than all that follow.
        """
        if not self.moments.count and variance > 0.0:
            self.moments = Moments(GUESS_RETURNS, 0.0, (GUESS_RETURNS - 1) * variance)

    @property
    def scale(self) -> float:
        """What rewards are divided by: the sample deviation, at least half the root mean square, or 1 until two
        differing returns are known."""
        std = math.sqrt(self.moments.variance) if self.moments.count > 1 else 0.0
        mean = self.moments.mean
        if std <= self._FLAT * max(abs(mean), self._FLAT):
            return 1.0
        return max(std, self._LEAST * math.hypot(std, mean))

    def scaled(self, reward: np.ndarray) -> tuple[np.ndarray, int]:
        """``(reward / scale, clipped)``, the first in the dtype and shape of ``reward``.

        ``clipped`` counts the rewards that the clip cut: a silent clip would train another game.
        """
        out = reward / np.asarray(self.scale, dtype=reward.dtype)
        if self.clip is None:
            return out, 0
        return out.clip(-self.clip, self.clip), int((np.abs(out) > self.clip).sum())

    def state_dict(self) -> ReturnState:
        m = self.moments
        return {"count": m.count, "mean": m.mean, "m2": m.m2}

    def load_state_dict(self, state: ReturnState) -> None:
        self.moments = Moments(int(state["count"]), float(state["mean"]), float(state["m2"]))
