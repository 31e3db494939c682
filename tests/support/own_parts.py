"""Parts as a user might get them wrong: each fails only once battles are under way."""

from __future__ import annotations

from typing import Any

import torch
from royalegym.reward import RewardFunction
from torch import Tensor

from royale_lightning.nn import ActorCritic, Inputs
from royale_lightning.ppo.auxiliary import AuxiliaryLoss, Step

REWARDS: dict[str, Any] = {"nan": float("nan"), "text": "a lot", "nothing": None}


class OddReward(RewardFunction):
    def __init__(self, what: str) -> None:
        self.what, self.asked = what, 0

    def get_reward(self, team: int, prev: Any, state: Any, results: Any) -> float:
        self.asked += 1
        if self.asked < 200:
            return 0.0
        if self.what == "raise":
            raise KeyError("tower")
        return REWARDS[self.what]


class OddNetwork(ActorCritic):
    def __init__(self, inputs: Inputs, what: str) -> None:
        super().__init__()
        self.what, self.asked = what, 0
        self.policy, self.value_head = torch.nn.Linear(12, inputs.actions.n_actions), torch.nn.Linear(12, 1)

    def forward(self, obs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        self.asked += 1
        x = obs["wide"].float() / 5000
        logits = self.policy(x)
        if self.asked > 5:
            if self.what == "nan":
                logits = logits * float("nan")
            elif self.what == "key":
                obs["minimap"]
            elif self.what == "short":
                logits = logits[:, :100]
        return logits, self.value_head(x)[:, 0]


class NoSuchField(OddNetwork):
    def forward(self, obs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return super().forward({"wide": obs["minimap"]})


class NanLoss(AuxiliaryLoss):
    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        return step.value.mean() * float("nan"), {}


class RowsOfLoss(AuxiliaryLoss):
    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        return step.value, {}


class Raises:
    def act(self, obs: Any, mask: Any, rng: Any) -> int:
        raise ZeroDivisionError("no plan")


class FarOff:
    def act(self, obs: Any, mask: Any, rng: Any) -> Any:
        return 10**6


class Negative(FarOff):
    def act(self, obs: Any, mask: Any, rng: Any) -> Any:
        return -1


class Half(FarOff):
    def act(self, obs: Any, mask: Any, rng: Any) -> Any:
        return 0.5


class Forbidden(FarOff):
    def act(self, obs: Any, mask: Any, rng: Any) -> Any:
        return next((i for i, legal in enumerate(mask) if not legal), 0)
