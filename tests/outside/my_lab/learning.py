"""Parts of the learner: a network, an advantage estimator, a loss term, a schedule and a callback."""

from __future__ import annotations

import torch
from lightning.pytorch import Callback
from torch import nn

from royale_lightning.callbacks import iteration_row
from royale_lightning.nn import ActorCritic, Inputs
from royale_lightning.ppo.auxiliary import AuxiliaryLoss
from royale_lightning.rollout.advantage import GAE


class Flat(ActorCritic):
    """One hidden layer over every number of the observation, whatever it is."""

    def __init__(self, inputs: Inputs, hidden: int = 8) -> None:
        super().__init__()
        width = sum(torch.Size(f.shape).numel() for f in inputs.layout.fields)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.Tanh())
        self.policy = nn.Linear(hidden, inputs.actions.n_actions)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(torch.cat([x.float().flatten(1) for k, x in sorted(obs.items()) if k != "action_mask"], 1))
        return self.policy(h), self.critic(h)[:, 0]


class LambdaOne(GAE):
    """Monte-Carlo returns: the shipped estimator with lambda fixed at 1."""

    calls = 0

    def __call__(self, cells, value, cut_value, gamma, gae_lambda):
        type(self).calls += 1
        return super().__call__(cells, value, cut_value, gamma, 1.0)


class Patience(AuxiliaryLoss):
    """A price on playing at all."""

    def __init__(self, inputs: Inputs, weight: float = 0.01) -> None:
        super().__init__(inputs, weight)

    def forward(self, step):
        p_play = 1.0 - step.policy.p_wait
        return p_play.mean(), {"p_play": p_play.mean()}


class Knee:
    """Falls to a tenth over the first part of a run, then stays."""

    def __init__(self, start: float, at: float = 0.5) -> None:
        self.start, self.at = start, at

    def __call__(self, progress: float) -> float:
        return self.start * (1.0 - 0.9 * min(1.0, progress / self.at))


class CountPlays(Callback):
    """Adds a figure of its own to every row of metrics.jsonl."""

    def on_train_epoch_end(self, trainer, pl_module):
        played = sum(sum(e.plays) for e in trainer.datamodule.episodes)
        iteration_row(trainer)["my_lab/plays"] = played
