"""What the checks examine: a configuration's run, as far as they need it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psutil

from ...battle.prepare import prepare
from ...metrics.process import MB

if TYPE_CHECKING:
    from ...ppo.module import SelfPlayModule
    from ...rollout.collector import Rollout
    from ...rollout.data import SelfPlayData

#: Rows whose collection and learning are timed; a warm-up of a quarter of them comes first.
_SPEED_ROWS = 256
#: Deviation of what is added to each weight: enough for probabilities that differ, like a trained policy's.
_SHAKE = 0.05


@dataclass
class Patient:
    """A configuration's run, as far as the checks need it; each part is made once, by the first check that asks.

    Args:
        settings: of ``fit``.
    """

    settings: Mapping[str, Any]
    notes: dict[str, float] = field(default_factory=dict)

    @cached_property
    def _parts(self) -> tuple[SelfPlayModule, SelfPlayData]:
        from ..bench.update import parts_of

        return parts_of(self.settings, int(self.settings.get("seed_everything", 1)))

    @property
    def module(self) -> SelfPlayModule:
        return self._parts[0]

    @property
    def data(self) -> SelfPlayData:
        return self._parts[1]

    @property
    def trainer(self) -> Mapping[str, Any]:
        return self.settings.get("trainer") or {}

    @cached_property
    def device(self) -> Any:
        """The device a fit of this configuration takes."""
        import torch

        wanted = str(self.trainer.get("accelerator") or "auto")
        if wanted in ("auto", "gpu", "cuda") and torch.cuda.is_available():
            return torch.device("cuda")
        if wanted in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")

    def precision(self) -> AbstractContextManager[Any]:
        """The context of every forward at the configuration's precision, as Lightning makes it."""
        import torch

        half = "bf16" in str(self.trainer.get("precision"))
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False)

    @cached_property
    def processes(self) -> int:
        """Worker processes of the run, 0 for threads of its own."""
        from ...battle.steps.arena import default_threads
        from ...battle.steps.make_source import default_kind

        r, cores = self.data.rollout, default_threads()
        kind = default_kind(cores) if r.source == "auto" else r.source
        return min(r.battles, r.workers or cores) if kind == "processes" else 0

    @cached_property
    def network(self) -> Any:
        import torch

        self.module.build(self.data.inputs, self.data.seed)
        net = self.module.network
        # An untrained head may give every action one probability, which no rounding moves: shaken weights are tried.
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in net.parameters():
                p.add_(_SHAKE * torch.randn(p.shape, generator=draw))
        if self.module.critic is not None:
            self.module.critic.to(self.device)
        return net.to(self.device)

    @cached_property
    def rollout(self) -> Rollout:
        """A small rollout by the untrained network, its time noted."""
        import torch

        from ...battle.steps.arena import ArenaSettings, default_threads
        from ...battle.steps.sources import InlineSource
        from ...rollout.collector import Collector

        data, r = self.data, self.data.rollout
        before = psutil.Process().memory_info().rss
        threads = r.threads or default_threads()
        source = InlineSource(data.battle, 0, r.battles, ArenaSettings(data.seed, r.forced_share, threads))
        try:
            collector = Collector(
                source, data.battle, data.opponents.build(data.seed, r.battles), seed=data.seed, first=0,
                rows=min(_SPEED_ROWS, r.rows_per_iteration), max_rounds=r.max_rounds, stagger=False,
                count_forced=r.forced_rows == "all", device=torch.device(self.device),
                precision=self.precision,
            )
            self.network.eval()
            for rows in (collector.rows // 4, collector.rows):  # the first compiles and fills caches
                collector.rows = max(1, rows)
                started = time.perf_counter()
                found = collector.collect(self.network, gamma=self.module.ppo.at(0).gamma)
                seconds = time.perf_counter() - started
            self.notes["battles_mb"] = (psutil.Process().memory_info().rss - before) / MB
            self.notes["collect_s_a_row"] = seconds / len(found.rows)
            self.notes["steps_a_row"] = found.game_steps / len(found.rows)
            return found
        finally:
            source.close()

    def minibatch(self) -> Any:
        """Rows of the rollout in mixed order, repeated up to the configuration's minibatch."""
        import torch

        from ...rollout.minibatch import Minibatch

        r = self.rollout
        at = torch.randperm(len(r.rows), generator=torch.Generator().manual_seed(0))
        at = at.repeat(-(-self.data.rollout.minibatch_rows // len(at)))[: self.data.rollout.minibatch_rows]
        at = at.to(r.rows.device)
        zero = torch.zeros(len(at), device=at.device)
        return Minibatch(
            rows=r.take(at), action=r.action[at], log_prob=r.log_prob[at], advantage=zero, target=r.value[at],
            value=r.value[at], choice=r.choice[at], epoch=0, index=0, hidden=r.hidden[at],
        )

    def learn(self, batch: Any) -> dict[str, Any]:
        """Figures of one forward and backward at the configuration's precision; the weights stay."""
        from ...nn.critic import hidden_fields
        from ...nn.distribution import MaskedCategorical
        from ...nn.rows import unpack
        from ...ppo.loss import Stages, ppo_loss

        self.network.train()
        with self.precision():
            obs = unpack(batch.rows, prepare(self.data.battle).row_layout)
            logits, value = self.network(obs)
            if self.module.critic is not None:
                value = value + self.module.critic(obs, hidden_fields(batch.hidden))  # both learn
            dist = MaskedCategorical(logits, obs["action_mask"], prepare(self.data.battle).action_layout)
            log_prob, tiles = dist.log_prob_and_tile_entropy(batch.action)
            loss, figures = ppo_loss(
                batch, log_prob, Stages(dist.entropy_play, dist.entropy_choice, tiles), value.float(), clip_range=0.2,
                dual_clip=None, value_coef=0.5, value_clip=None, entropy_coef=Stages(0.0, 0.0, 0.0),
            )
        loss.backward()
        self.module.zero_grad(set_to_none=True)
        return figures
