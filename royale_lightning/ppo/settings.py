"""The settings of PPO, each with the reason for its default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..parts import Part
from ..rollout.advantage import ESTIMATORS
from .schedule import Scheduled, progress, schedule_of

_DEFAULT_REWARD_CLIP = 10.0


@dataclass(frozen=True)
class ScheduledNumbers:
    """What :class:`PPOSettings` says at one point of the run: plain numbers, read once per iteration."""

    learning_rate: float
    critic_learning_rate: float
    gamma: float
    clip_range: float
    entropy_play: float
    entropy_choice: float
    entropy_tile: float


@dataclass(frozen=True)
class PPOSettings:
    """Settings of the PPO update.

    Gamma and lambda count game steps of 500 ms. What "may be scheduled" takes a number or one schedule, such
    as ``{linear: [7.0e-4, 7.0e-5]}``. The gradient norm is clipped by Lightning's own
    ``trainer.gradient_clip_val``, 0.5 by default.

    Args:
        horizon_game_steps: game steps over which schedules run from start to end; part of the run's identity
            and apart from when the run stops. A million is some twenty minutes on two cores, enough for a
            first bot.
        learning_rate: Adam's step; may be scheduled. 7e-4 falling to a tenth scored 0.95 and more against
            every scripted opponent after ten minutes of our trial on two cores; longer runs want less. Raise it when
            the KL stays far below ``kl_limit``, lower it when most iterations stop after one PPO epoch.
        critic_learning_rate: the critic group's own step, or null for the actor's; may be scheduled. Nothing
            measured speaks for two.
        adam_eps: 1e-8, PyTorch's own. PPO's customary 1e-5 exceeds the root of the second moment for 95-99 %
            of RoyaleLearn's actor coordinates, which turned Adam into a tiny SGD and froze its policy.
        adam_betas: PyTorch's own; an iteration has tens of steps, so a longer memory would span policies.
        ppo_epochs: passes over a rollout; 3 as in that trial, with the KL stop behind them. Raise it when battles are
            dear and ``ppo/ppo_epochs_done`` always reaches it, lower it when it hardly ever does.
        kl_limit: mean KL (nats, over choice rows) beyond which no further PPO epoch begins; null never stops.
            0.03 let the trial learn fast and stay stable. Lower it when the score swings from one iteration to the
            next, raise it when it creeps and nothing swings.
        clip_range: how far the probability ratio pays; may be scheduled. 0.2 is the paper's. Lower it when
            ``ppo/clip_fraction`` stays above a third; raising it has rarely helped anybody.
        dual_clip: floor of the objective for a negative advantage, in advantages, at least 1; null for none.
            3 is the paper's: a far-off opponent mixture can give a huge ratio, and then a huge step.
        value_coef: weight of the value loss (half the squared error). 0.5 is customary, and actor and critic
            share one gradient clip. Raise it when ``ppo/explained_variance`` stays low, lower it when the clip
            (``gradient_clip_val``) acts on every step and the value loss is what fills it.
        value_clip: pessimistic clip of the value's move, in units of the (scaled) return; null for none, for
            it hurts or does nothing (Andrychowicz et al. 2021).
        entropy_play: bonus per nat of wait or play; may be scheduled. The trial's 0.01. Raise it when
            ``ppo/entropy_play`` collapses before the score rises, lower it when it never falls.
        entropy_choice: bonus per nat of which card or button, times the chance to play; may be scheduled.
            Equal to ``entropy_play`` the two are a bonus on the wait-or-which-card entropy as a whole, as in
            the trial.
        entropy_tile: bonus per nat of the tile; may be scheduled. A twentieth, because the tile has up to 6.4
            nats, and at the same price the cheapest gain would be to aim at random. Raise it when all cards go to
            one tile, lower it when ``ppo/entropy_tile`` stays near 6.
        gamma: discount per game step; may be scheduled. 0.998 sees 500 steps, a battle, and still hurries. Raise it
            for rewards that come at the end alone, lower it when returns are noise.
        gae_lambda: credit decay per game step: 0.97 x 0.998 sees about 31 steps, 16 s, the life of a push. Raise it
            while the critic explains little, lower it when advantages are mostly noise, as with random decks.
        value_lambda: the same for what the critic learns; null for ``gae_lambda``. The two tasks differ in the noise
            they bear (Aitchison and Sweetser 2022, "DNA: Proximal Policy Optimization with a Dual Network
            Architecture"): a critic averages over many rows, so its targets may lean less on itself.
        advantage: the estimator, a part; ``gae`` skips forced rows exactly.
        normalise_advantage: standardise advantages over the iteration's choice rows, so that the entropy
            bonus means the same early and late.
        scale_returns: divide rewards by the running deviation of episode returns, so that a reward of any
            size trains at the same rates. Near 1, hence harmless, under the default reward.
        weight_average: decay an optimizer step of a running mean of the weights, in [0, 1); null for none. Bots,
            snapshots, ratings and tests then are of the mean, while the network itself collects and learns (Hilton et
            al. 2022; Morales-Brotons et al. 2024, "Exponential Moving Average of Weights in Deep Learning"). It does
            for the noise of single steps what a falling rate does, without a horizon to guess. 0.999 remembers a
            thousand steps.
        reward_clip: bound of a scaled reward's size, in return deviations; null for none. 10 touches
            accidents only; clipped rewards are counted. Raise it when ``rollout/rewards_clipped`` is not 0.
    """

    horizon_game_steps: int = 1_000_000
    learning_rate: Scheduled = field(default_factory=lambda: {"linear": [7.0e-4, 7.0e-5]})
    critic_learning_rate: Scheduled | None = None
    adam_eps: float = 1.0e-8
    adam_betas: tuple[float, float] = (0.9, 0.999)
    ppo_epochs: int = 3
    kl_limit: float | None = 0.03
    clip_range: Scheduled = 0.2
    dual_clip: float | None = 3.0
    value_coef: float = 0.5
    value_clip: float | None = None
    entropy_play: Scheduled = 0.01
    entropy_choice: Scheduled = 0.01
    entropy_tile: Scheduled = 0.0005
    gamma: Scheduled = 0.998
    gae_lambda: float = 0.97
    value_lambda: float | None = None
    advantage: str | dict[str, Any] = "gae"
    normalise_advantage: bool = True
    scale_returns: bool = True
    reward_clip: float | None = _DEFAULT_REWARD_CLIP
    weight_average: float | None = None

    def __post_init__(self) -> None:
        _check("horizon_game_steps", self.horizon_game_steps, "at least 1", lambda x: x >= 1)
        _check("ppo_epochs", self.ppo_epochs, "at least 1", lambda x: x >= 1)
        _check("adam_eps", self.adam_eps, "above 0", lambda x: x > 0)
        for beta in self.adam_betas:
            _check("adam_betas", beta, "in [0, 1)", lambda x: 0 <= x < 1)
        _check("kl_limit", self.kl_limit, "above 0, or null to never stop early", lambda x: x > 0)
        _check("dual_clip", self.dual_clip, "at least 1, or null for none", lambda x: x >= 1)
        _check("value_coef", self.value_coef, "0 or more", lambda x: x >= 0)
        _check("value_clip", self.value_clip, "above 0, or null for none", lambda x: x > 0)
        _check("gae_lambda", self.gae_lambda, "in [0, 1]", lambda x: 0 <= x <= 1)
        _check("weight_average", self.weight_average, "in [0, 1), or null for none", lambda x: 0 <= x < 1)
        _check("value_lambda", self.value_lambda, "in [0, 1], or null for gae_lambda", lambda x: 0 <= x <= 1)
        _check("reward_clip", self.reward_clip, "above 0, or null for none", lambda x: x > 0)
        if not self.scale_returns and self.reward_clip not in (None, _DEFAULT_REWARD_CLIP):
            raise UserError(
                f"reward_clip is {self.reward_clip} but scale_returns is false, and only scaled rewards are "
                "clipped; set scale_returns: true, or leave reward_clip out"
            )
        Part.of(self.advantage, "advantage", ESTIMATORS)
        positive = ("above 0", lambda x: x > 0)
        for name, (must, holds) in {
            "learning_rate": positive,
            "critic_learning_rate": positive,
            "clip_range": positive,
            "gamma": ("in (0, 1]", lambda x: 0 < x <= 1),
            "entropy_play": _NOT_NEGATIVE,
            "entropy_choice": _NOT_NEGATIVE,
            "entropy_tile": _NOT_NEGATIVE,
        }.items():
            value = getattr(self, name)
            if value is not None:
                schedule = schedule_of(value, name)
                if isinstance(value, float | int):
                    _check(name, value, must, holds)
                    continue
                for i in range(101):
                    _check(name, schedule(i / 100), must, holds, at=i / 100)

    def at(self, game_steps: int) -> ScheduledNumbers:
        """The scheduled numbers after ``game_steps`` game steps (all ranks together)."""
        now = progress(game_steps, self.horizon_game_steps)

        def read(name: str) -> float:
            return schedule_of(getattr(self, name), name)(now)

        actor = read("learning_rate")
        return ScheduledNumbers(
            learning_rate=actor,
            critic_learning_rate=actor if self.critic_learning_rate is None else read("critic_learning_rate"),
            gamma=read("gamma"),
            clip_range=read("clip_range"),
            entropy_play=read("entropy_play"),
            entropy_choice=read("entropy_choice"),
            entropy_tile=read("entropy_tile"),
        )


_NOT_NEGATIVE: tuple[str, Callable[[float], bool]] = ("0 or more", lambda x: x >= 0)


def _check(
    name: str, value: float | None, must: str, holds: Callable[[float], bool], at: float | None = None
) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not holds(value):
        when = "" if at is None else f" at progress {at:g} of the run"
        raise UserError(f"{name} must be {must}, was {value!r}{when}")
