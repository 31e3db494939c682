"""Advantages over a rollout whose forced rows were never stored.

Rows lie in a flat heap; scalars lie in a rectangle of rounds and slots, each cell with an index into the heap
or a hole. One cell may span many game steps, so discounting goes by elapsed game steps, as in a semi-Markov
decision process (Sutton, Precup and Singh 1999, section 3).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..battle.round import RUNNING, TRUNCATED
from ..parts import Part, PartLike

#: Short names of the estimators we ship.
ESTIMATORS = {"gae": "royale_lightning.rollout.GAE"}


@dataclass(frozen=True)
class Cells:
    """The rectangle of scalars of one rollout, every tensor ``[rounds, slots]`` on the heap's device.

    Attributes:
        row: int64, the cell's row in the heap, or -1 for a hole (no row was stored for this slot in this
            round).
        reward: float32, discounted inside the round by gamma per game step, up to the end if there is one.
        duration: int32, game steps the round took for this slot's battle, up to the end if there is one.
        end: uint8, ``RUNNING``, ``TERMINATED`` or ``TRUNCATED``: how the battle stood at the round's end.
        final_value: float32, V of the observation at a truncation; read nowhere else.
        learner: bool, whether the learner played this slot in this round. Other cells are ignored.
    """

    row: Tensor
    reward: Tensor
    duration: Tensor
    end: Tensor
    final_value: Tensor
    learner: Tensor


class Advantages(NamedTuple):
    """``advantage`` and ``target``, float32 ``[rows]``; 0 for rows that lie in no learner cell."""

    advantage: Tensor
    target: Tensor


class AdvantageEstimator(ABC):
    """How advantages and value targets come from a rollout. Named by ``ppo.advantage``."""

    @abstractmethod
    def __call__(
        self, cells: Cells, value: Tensor, cut_value: Tensor, gamma: float, gae_lambda: float
    ) -> Advantages:
        """Advantages of one rollout. Must not synchronise with the device.

        Args:
            cells: the rollout's rectangle.
            value: float32 ``[rows]``, V of every row of the heap at collection.
            cut_value: float32 ``[slots]``, V of each learner slot's current observation, where the rollout
                was cut.
            gamma: discount per game step, in (0, 1]; the very one the rewards were discounted with.
            gae_lambda: credit decay per game step, in [0, 1].
        """


def estimator_of(advantage: PartLike) -> AdvantageEstimator:
    """The estimator that ``ppo.advantage`` names.

    Raises:
        UserError: it names none.
    """
    where = "ppo.advantage"
    made: AdvantageEstimator = Part.of(advantage, where, ESTIMATORS).build(where, kind=AdvantageEstimator)
    return made


class GAE(AdvantageEstimator):
    """Generalized advantage estimation by elapsed game steps; see :func:`gae`."""

    def __call__(
        self, cells: Cells, value: Tensor, cut_value: Tensor, gamma: float, gae_lambda: float
    ) -> Advantages:
        return gae(cells, value, cut_value, gamma, gae_lambda)


def gae(cells: Cells, value: Tensor, cut_value: Tensor, gamma: float, gae_lambda: float) -> Advantages:
    """GAE (Schulman et al. 2016, eq. 16) with ``gamma ** duration`` and ``(gamma * lambda) ** duration``.

    Backwards per slot from ``next_value = cut_value``, ``next_adv = 0``; in each learner cell:

    1. If the battle ended in it: terminated sets ``(next_value, next_adv)`` to ``(0, 0)``, truncated to
       ``(final_value, 0)``.
    2. A row: ``advantage = reward + gamma^d next_value - V + (gamma lambda)^d next_adv`` and
       ``target = advantage + V``; then ``next_value = V``, ``next_adv = advantage``.
    3. A hole: ``next_value = reward + gamma^d next_value`` and ``next_adv = (gamma lambda)^d next_adv``,
       which is rule 2 with a V that satisfies the Bellman equation: the row's own delta would be 0.

    float32 throughout: on random rectangles of 400 rounds it stays within 2e-6 of float64, and MPS has no float64.

    Args and result: as :meth:`AdvantageEstimator.__call__`.
    """
    value = value.detach().float()
    rows = value.shape[0]
    rounds, slots = cells.row.shape
    if rows == 0 or rounds == 0:
        return Advantages(torch.zeros_like(value), torch.zeros_like(value))
    learner, running = cells.learner, cells.end == RUNNING
    is_row = learner & (cells.row >= 0)
    own = value[cells.row.clamp(min=0)]
    after_end = torch.where(cells.end == TRUNCATED, cells.final_value.float(), 0.0)
    reward = cells.reward.float()
    discount = _power(gamma, cells.duration)
    decay = _power(gamma * gae_lambda, cells.duration)

    # where, not products: an ignored cell or an unused final value may hold anything, NaN included.
    advantage = torch.empty_like(own)
    next_value = cut_value.detach().float()
    next_adv = torch.zeros_like(next_value)
    for t in range(rounds - 1, -1, -1):
        boot = reward[t] + discount[t] * torch.where(running[t], next_value, after_end[t])
        carried = decay[t] * torch.where(running[t], next_adv, 0.0)
        advantage[t] = boot - own[t] + carried
        next_value = torch.where(learner[t], torch.where(is_row[t], own[t], boot), next_value)
        next_adv = torch.where(learner[t], torch.where(is_row[t], advantage[t], carried), next_adv)

    # Holes write to places of their own beyond the heap: a boolean index would synchronise, and one shared
    # place would make the scatter's order matter to torch.use_deterministic_algorithms.
    spare = torch.arange(rows, rows + rounds * slots, device=value.device)
    index = torch.where(is_row.reshape(-1), cells.row.reshape(-1), spare)
    room = value.new_zeros((2, rows + rounds * slots))
    room[0].scatter_(0, index, advantage.reshape(-1))
    room[1].scatter_(0, index, (advantage + own).reshape(-1))
    return Advantages(room[0, :rows].clone(), room[1, :rows].clone())


def normalise(
    advantage: Tensor, where: Tensor, sum_ranks: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Advantages with mean 0 and deviation 1 over the rows ``where``; 0 elsewhere.

    Once per iteration, not per minibatch: a minibatch's own mean would make a row's push depend on its
    neighbours.

    Args:
        advantage: float32 ``[rows]``.
        where: bool ``[rows]``, the iteration's choice rows.
        sum_ranks: sums a small tensor over ranks, so that all ranks share one mean and deviation; ``None``
            for one rank.

    Returns:
        float32 ``[rows]``. A deviation below 1e-6 is noise of rounding and is not blown up to 1.
    """
    total = sum_ranks if sum_ranks is not None else _itself
    kept = torch.where(where, advantage, 0.0)
    n, first = total(torch.stack([where.sum().to(kept.dtype), kept.sum()])).unbind()
    n = n.clamp(min=1.0)
    centred = torch.where(where, advantage - first / n, 0.0)
    std = (total(centred.square().sum().reshape(1))[0] / n).sqrt()
    return centred / std.clamp(min=1.0e-6)


def _itself(x: Tensor) -> Tensor:
    return x


def _power(base: float, exponent: Tensor) -> Tensor:
    """float32 ``base ** exponent`` for base in [0, 1]. The logarithm is taken in double: gamma rounded to
    float32 would be off by 6e-8 per game step, 4e-5 over the longest forced stretch."""
    if base == 0.0:
        return (exponent == 0).float()
    return torch.exp(exponent.float() * math.log(base))
