"""The sized dataset Lightning iterates once per epoch: collect a rollout, then yield minibatches of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch.utils.data import IterableDataset

from ..battle.players import LEARNER
from ..battle.round import RUNNING
from ..battle.streams import stream_seed
from ..nn.protocol import ActorCritic
from ..run.ranks import Ranks
from .advantage import AdvantageEstimator, normalise
from .collector import Collector, Rollout
from .finite import check_rollout
from .measures import value_errors
from .minibatch import Minibatch
from .overlap import Ahead
from .proximal import behaviour_weight, proximal_log_prob
from .returns import Moments, Payments, ReturnScaler
from .settings import RolloutSettings

if TYPE_CHECKING:
    from ..ppo.settings import PPOSettings


class Learner(Protocol):
    """What the dataset asks of the LightningModule."""

    ppo: PPOSettings

    @property
    def policy(self) -> ActorCritic:
        """What acts and says what rows are worth."""

    @property
    def device(self) -> torch.device: ...

    @property
    def gamma(self) -> float:
        """Discount of this iteration, per game step."""

    def epoch_kl(self) -> float:
        """Mean KL of the PPO epoch that just ended, over choice rows and ranks. Waits for the device."""


class Iterations(Protocol):
    """Who counts the iterations, and is told where each begins and what it played."""

    @property
    def iteration(self) -> int:
        """How many rollouts :meth:`after_rollout` was told of, those of the run's earlier starts included."""

    def before_rollout(self) -> None:
        """Called before each rollout."""

    def after_rollout(self, r: Rollout, scale: float, clipped: int) -> None:
        """Called with each rollout before its first minibatch, with what its rewards were divided by, and how many the
        clip cut."""


@dataclass(frozen=True)
class _Experience:
    """What an iteration learns from: the rollout and, ``[rows]`` each, the fields of its minibatches that it lacks."""

    rollout: Rollout
    advantage: torch.Tensor
    target: torch.Tensor
    log_prob: torch.Tensor
    weight: torch.Tensor | None


class SelfPlayDataset(IterableDataset[Minibatch]):
    """One iteration per pass.

    ``__iter__`` is a generator, so Lightning's check that it can be iterated collects nothing. ``__len__`` is known
    and constant, so Lightning never advances the generator ahead of an optimizer step; and nothing runs after the
    last ``yield``, because Lightning does not ask for what lies behind it.

    Args:
        collector: plays and stores.
        learner: the module that learns.
        iterations: counts them.
        rollout: sizes.
        estimator: advantages.
        scaler: reward scale.
        seed: of the permutations.
        ranks: that learn together.
        ahead: collects one rollout ahead; unset, collection and update take turns.
    """

    def __init__(
        self, collector: Collector, learner: Learner, iterations: Iterations, *, rollout: RolloutSettings,
        estimator: AdvantageEstimator, scaler: ReturnScaler, seed: int, ranks: Ranks, ahead: Ahead | None = None,
    ) -> None:
        self.collector = collector
        self.learner = learner
        self.iterations = iterations
        self.rollout = rollout
        self.estimator = estimator
        self.scaler = scaler
        self.seed = seed
        self.ranks = ranks
        self.ahead = ahead
        self._learned: _Experience | None = None

    def __len__(self) -> int:
        return self.learner.ppo.ppo_epochs * self.rollout.minibatches

    def __iter__(self) -> Iterator[Minibatch]:
        ppo = self.learner.ppo
        r, gamma = self._rollout()
        check_rollout(r, self.collector.layout)
        start = time.perf_counter()
        advantage, target, clipped = self._advantages(r, gamma)
        log_prob, weight = self._proximal(r)
        r.seconds["advantages"] = time.perf_counter() - start
        self.iterations.after_rollout(r, self.scaler.scale, clipped)
        self._learned = _Experience(r, advantage, target, log_prob, weight)
        if self.ahead is not None:
            self.iterations.before_rollout()
            self.ahead.start(self.learner.policy, self.learner.gamma)
        orders = [self._order(epoch) for epoch in range(ppo.ppo_epochs)]
        weights = self._actor_weights(orders)
        for epoch, order in enumerate(orders):
            # A KL that is no number stops too; FiniteGuard says why at the iteration's end.
            if epoch and ppo.kl_limit is not None and not self.learner.epoch_kl() <= ppo.kl_limit:
                return
            for i in range(self.rollout.minibatches):
                yield self._minibatch(epoch, i, order, weights[epoch * self.rollout.minibatches + i])

    def _rollout(self) -> tuple[Rollout, float]:
        """The iteration's rollout, and the discount its rewards were summed with."""
        network, gamma, ahead = self.learner.policy, self.learner.gamma, self.ahead
        if ahead is None:
            self.iterations.before_rollout()
            with _acting(network):
                return self.collector.collect(network, gamma=gamma), gamma
        lag = int(ahead.started)
        if not ahead.started:
            self.iterations.before_rollout()
            ahead.start(network, gamma)
        start = time.perf_counter()
        r, gamma = ahead.take()
        r.lag, r.waited = lag, time.perf_counter() - start
        return r, gamma

    def _proximal(self, r: Rollout) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities under the network as the update finds it, and the weights of the rows, None for 1."""
        if not r.lag:
            return r.log_prob, None
        network, layout, actions = self.learner.policy, self.collector.layout, self.collector.actions
        with _acting(network), self.collector.precision():
            log_prob = proximal_log_prob(network, r, layout, actions, self.rollout.minibatch_rows)
        return log_prob, behaviour_weight(log_prob, r.log_prob, r.choice)

    def _order(self, epoch: int) -> torch.Tensor:
        """The permutation of this iteration's rows in one PPO epoch, on their device."""
        assert self._learned is not None
        rows = self._learned.rollout.rows
        draw = torch.Generator().manual_seed(stream_seed(self.seed, "minibatch", self.iterations.iteration, epoch) >> 1)
        return torch.randperm(len(rows), generator=draw).to(rows.device)

    def _actor_weights(self, orders: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | float]:
        """``Minibatch.actor_weight`` of every minibatch of an iteration; one small sum over ranks for all of them."""
        minibatches = self.rollout.minibatches
        if self.ranks.alone:
            return [1.0] * (minibatches * len(orders))
        assert self._learned is not None
        used = torch.cat([order[: minibatches * self.rollout.minibatch_rows] for order in orders])
        mine = self._learned.rollout.choice[used].reshape(minibatches * len(orders), -1).sum(dim=1).float()
        ranks, *everyones = self.ranks.sum(torch.cat([torch.ones_like(mine[:1]), mine])).unbind()
        mean = torch.stack(everyones) / ranks
        return list((mine / mean.clamp(min=1.0 / ranks)).unbind())

    def _minibatch(
        self, epoch: int, index: int, order: torch.Tensor, actor_weight: torch.Tensor | float = 1.0
    ) -> Minibatch:
        assert self._learned is not None
        e, r = self._learned, self._learned.rollout
        size = self.rollout.minibatch_rows
        at = order[index * size : (index + 1) * size]
        return Minibatch(
            rows=r.take(at), action=r.action[at], log_prob=e.log_prob[at], advantage=e.advantage[at],
            target=e.target[at], value=r.value[at], choice=r.choice[at], hidden=r.hidden[at], epoch=epoch, index=index,
            actor_weight=actor_weight, weight=1.0 if e.weight is None else e.weight[at],
        )

    def minibatch(self, number: int) -> Minibatch:
        """Once more the iteration's minibatch of this number, counted from 0 over its PPO epochs."""
        epoch, index = divmod(number, self.rollout.minibatches)
        return self._minibatch(epoch, index, self._order(epoch))

    def _advantages(self, r: Rollout, gamma: float) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Advantages, value targets, and how many rewards the clip cut."""
        ppo = self.learner.ppo
        clipped = 0
        cells = r.cells
        if ppo.scale_returns:
            # A restarted episode's return is the rest of a battle; true starts alone say what a return is.
            returns = [
                e.discounted[seat]
                for e in r.episodes
                for seat in (0, 1)
                if e.players[seat] == LEARNER and e.from_true_start and not e.staggered
            ]
            reward, mine = cells.reward.cpu().numpy(), cells.learner.cpu().numpy()
            paid = Payments.of(
                reward[mine], cells.duration.cpu().numpy()[mine], cells.end.cpu().numpy()[mine] != RUNNING
            )
            found = self.ranks.gather((Moments.of(np.array(returns)), paid))
            self.scaler.merge(moments for moments, _ in found)
            self.scaler.guess(sum((p for _, p in found), Payments()).return_variance(gamma))
            scaled, clipped = self.scaler.scaled(reward)
            cells = type(cells)(
                cells.row, torch.from_numpy(scaled).to(cells.reward.device), cells.duration, cells.end,
                cells.final_value, cells.learner,
            )
        a, target = self.estimator(cells, r.value, r.cut_value, gamma, ppo.gae_lambda)
        if ppo.value_lambda is not None:
            target = self.estimator(cells, r.value, r.cut_value, gamma, ppo.value_lambda).target
        row, size = cells.row.cpu().numpy(), a.cpu().numpy()
        r.value_errors = value_errors(row, size, r.episodes, r.ended_in, self.collector.first)
        if ppo.normalise_advantage:
            return normalise(a, r.choice, self.ranks.sum), target, clipped
        return torch.where(r.choice, a, 0.0), target, clipped


@contextmanager
def _acting(network: ActorCritic) -> Iterator[None]:
    """The network in eval mode."""
    training = network.training
    network.eval()
    yield
    network.train(training)
