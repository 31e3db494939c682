"""Self-imitation: the run's own best battles, shown to the policy again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..battle.streams import generator
from ..errors import UserError
from ..nn.distribution import MaskedCategorical
from ..nn.protocol import Inputs
from ..nn.rows import rows_to_tensor, unpack
from ..rollout.plan import DemonstrationSource
from .auxiliary import AuxiliaryLoss, Step
from .schedule import Scheduled


def smoothed_cross_entropy(policy: MaskedCategorical, action: Tensor, smoothing: float) -> Tensor:
    """float32 ``[B]``: cross-entropy of ``action`` with a share ``smoothing`` spread evenly over the legal actions.

    Szegedy et al. 2016, "Rethinking the Inception architecture", section 7. The spread keeps the policy from growing
    certain of one archived line.
    """
    log_p = policy.flat_log_probs()
    legal = log_p > torch.finfo(log_p.dtype).min
    taken = log_p.gather(-1, action[:, None])[:, 0]
    spread = torch.where(legal, log_p, 0.0).sum(-1) / legal.sum(-1)
    return -((1.0 - smoothing) * taken + smoothing * spread)


class SelfImitation(AuxiliaryLoss):
    """Cross-entropy on the decisions of archived wins (Oh et al. 2018, "Self-imitation learning", in the form of whole
    battles won instead of returns above the value).

    The rows are rebuilt from the archive's battles through the seat's own fair observation.

    Args:
        inputs: what the network sees.
        weight: of the term; may be scheduled. Small, because archived wins are few and the policy sees them often.
        rows: demonstrated decisions beside each minibatch.
        smoothing: share of the label spread over the legal actions.
    """

    def __init__(self, inputs: Inputs, weight: Scheduled = 0.05, rows: int = 128, smoothing: float = 0.05) -> None:
        super().__init__(inputs, weight)
        if rows < 1:
            raise UserError(f"self_imitation: rows is {rows}; give at least 1")
        if not 0.0 <= smoothing < 1.0:
            raise UserError(f"self_imitation: smoothing is {smoothing}; give a share from 0 to less than 1")
        self.rows, self.smoothing = rows, smoothing
        self._source: DemonstrationSource | None = None
        self._seed = self._iteration = 0
        self._rank: tuple[int, ...] = ()

    def begin(self, data: Any) -> None:
        self._source = data.plan.demonstrations
        if self._source is None:
            raise UserError(
                "self_imitation shows a run its archived wins, and without the callback RouteCurriculum none are "
                "archived; list it, as configs/curriculum.yaml does, or leave the term out"
            )
        self._seed, self._iteration = data.seed, data.iteration
        rank = data.trainer.global_rank if data.trainer is not None else 0
        # Each rank shows rows of its own; the first draws as a run of one rank does.
        self._rank = (rank,) if rank else ()

    def forward(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        assert self._source is not None, "begin comes first"
        b = step.batch
        rng = generator(self._seed, "imitation", self._iteration, b.epoch, b.index, *self._rank)
        shown = self._source.demonstrations(rng, self.rows)
        device = step.value.device
        if shown is None:
            nothing = torch.zeros((), device=device)
            return nothing, {"rows_shown": nothing}
        rows, taken = shown
        obs = unpack(rows_to_tensor(rows, device), self.inputs.layout)
        logits, _ = step.network(obs)
        policy = MaskedCategorical(logits, obs["action_mask"], self.inputs.actions)
        action = torch.from_numpy(taken).to(device)
        loss = smoothed_cross_entropy(policy, action, self.smoothing).mean()
        return loss, {
            "rows_shown": torch.tensor(float(len(action)), device=device),
            "log_prob": policy.log_prob(action).mean().detach(),
        }
