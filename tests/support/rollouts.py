"""Rollouts held against each other, and a network that reads every frame of a row."""

from __future__ import annotations

import torch

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.nn import build_network
from royale_lightning.nn.protocol import ActorCritic, Inputs
from royale_lightning.rollout.collector import Rollout
from royale_lightning.rollout.data import inputs_of


def tensors(r: Rollout) -> list[torch.Tensor]:
    return [r.rows, r.action, r.log_prob, r.value, r.choice, r.cut_value, r.hidden, *vars(r.cells).values()]


def same(a: list[Rollout], b: list[Rollout]) -> bool:
    return all(
        torch.equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(tensors(p), tensors(q), strict=True)
    ) and [r.episodes for r in a] == [r.episodes for r in b]


class Plays(ActorCritic):
    """Flat logits and a value that depend on every frame."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.frames = inputs.layout.frames
        self.bias = torch.nn.Parameter(torch.linspace(-1, 1, inputs.actions.n_actions))

    def forward(self, obs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        wide = obs["wide"].float()
        assert wide.shape[1:] == (self.frames, 12)
        weight = torch.arange(1, self.frames + 1)[:, None] / 1000
        seen = (wide * weight).flatten(1).mean(1)
        return self.bias * (1 + seen[:, None] / 100), seen


def stacked_network(spec: BattleSpec) -> ActorCritic:
    return build_network({"class_path": f"{__name__}.Plays", "init_args": {}}, inputs_of(spec), seed=1).eval()


