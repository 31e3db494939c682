"""RoyaleGym's own environment for the battles that settings describe."""

from __future__ import annotations

from typing import Any

from royalegym.env import ClashParallelEnv

from .engine.engine import new_engine
from .spec import BattleSpec


def make_env(spec: BattleSpec, **kwargs: Any) -> ClashParallelEnv:
    """A RoyaleGym environment that plays ``spec``.

    Args:
        kwargs: passed to ``ClashParallelEnv`` (``recorder=`` for instance).
    """
    return ClashParallelEnv(
        new_engine(),
        obs_builder=spec.make_observation(),
        action_parser=spec.make_actions(),
        reward_fn=spec.make_reward(),
        termination_cond=spec.make_termination(),
        truncation_cond=spec.make_truncation(),
        state_mutator=spec.make_start(),
        decision_ms=spec.decision_ms,
        command_delay_ticks=spec.command_delay_ticks or None,
        **kwargs,
    )
