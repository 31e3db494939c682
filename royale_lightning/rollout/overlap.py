"""Collecting the next rollout while the update of this one runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from typing import Any

import torch

from ..ladder.matchmaker import OpponentTable
from ..nn.protocol import ActorCritic
from .collector import Collector, Rollout


class Ahead:
    """One rollout ahead, played by a frozen copy of the policy in a thread of its own.

    The copy is taken when the update begins, so the learner is exactly one update ahead of who played, and the stored
    log-probabilities are the copy's: :mod:`.proximal` says what the update does about it. Espeholt et al. 2018 (IMPALA)
    measure what such a lag costs; one update is the least there is.

    Exact to resume: what is saved is where the collector stood before, and the copy. Collecting is a function of both,
    so the rollout itself is never saved; a resumed run plays it again.

    Args:
        collector: used by this object alone from the first :meth:`start` on.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collect-ahead")
        self._pending: Future[Rollout] | None = None
        self._policy: ActorCritic | None = None
        self._before: dict[str, Any] = {}
        self._stream = torch.cuda.Stream(collector.device) if collector.device.type == "cuda" else None

    @property
    def started(self) -> bool:
        return self._pending is not None

    def start(self, policy: ActorCritic, gamma: float) -> None:
        """Begin the next rollout; nothing is running.

        Args:
            policy: the learner as it stands; copied before this returns.
            gamma: discount per game step.
        """
        if self._policy is None:
            self._policy = copy.deepcopy(policy).eval().requires_grad_(False)
        else:
            self._policy.load_state_dict(policy.state_dict())
        self._before = {
            "collector": self._collector.state_dict(), "gamma": gamma, "table": asdict(self._collector.table),
            "game_steps": self._collector.game_steps,
        }
        self._launch(gamma)

    def _launch(self, gamma: float) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._collector.device))
        self._pending = self._pool.submit(self._collect, gamma)

    def _collect(self, gamma: float) -> Rollout:
        assert self._policy is not None
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            r = self._collector.collect(self._policy, gamma)
            # The collector writes over its heap as soon as the next one starts.
            return replace(r, rows=r.rows.clone(), heap=r.heap[:0] if r.history is None else r.heap.clone())

    def take(self) -> tuple[Rollout, float]:
        """Wait for the rollout, and give the discount it was collected with.

        Raises:
            Exception: what stopped it.
        """
        assert self._pending is not None
        r = self._pending.result()
        self._pending = None
        if self._stream is not None:
            torch.cuda.current_stream(self._collector.device).wait_stream(self._stream)
        return r, float(self._before["gamma"])

    def state_dict(self) -> dict[str, Any]:
        """Where the rollout in the making began: plain numbers and lists. Waits for nothing."""
        return dict(self._before)

    def policy_state(self) -> dict[str, torch.Tensor]:
        """The weights it is played with."""
        assert self._policy is not None
        return {k: v.cpu().clone() for k, v in self._policy.state_dict().items()}

    def load_state_dict(
        self, state: Mapping[str, Any], policy_state: Mapping[str, torch.Tensor], network: ActorCritic
    ) -> None:
        """Play the rollout that was in the making once more.

        Args:
            state: of :meth:`state_dict`.
            policy_state: of :meth:`policy_state`.
            network: any network of the learner's kind, to copy.
        """
        self._policy = copy.deepcopy(network).eval().requires_grad_(False)
        self._policy.load_state_dict(policy_state)
        table = state["table"]
        self._collector.table = OpponentTable(tuple(table["snapshots"]), tuple(table["probabilities"]))
        self._collector.game_steps = state.get("game_steps", 0)  # which no older checkpoint's decks depend on
        self._collector.load_state_dict(state["collector"])
        self._before = {k: v for k, v in state.items() if k in ("collector", "gamma", "table", "game_steps")}
        self._launch(state["gamma"])

    def close(self) -> None:
        """Give up what is in the making. Idempotent."""
        self._collector.cancelled = True
        if self._pending is not None:
            # Who wants to know what stopped it asks take(); a run that ends does not.
            with suppress(Exception):
                self._pending.result()
            self._pending = None
        self._pool.shutdown()
