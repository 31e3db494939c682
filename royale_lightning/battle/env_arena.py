"""A battle behind a real ``ClashParallelEnv``: for any RoyaleGym component of a user's own. Slower, never refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from royalegym.env import AGENTS, ClashParallelEnv, tower_hp_frac
from royalegym.obs import SpatialObsBuilder

from .engine import new_engine
from .game import Game, Outcome
from .layout import MASK
from .opponents import reads_observation
from .round import Assignment
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


class EnvGame(Game):
    """One environment as an arena's game; rows are packed as the layout says (``RowLayout.pack``)."""

    def __init__(self, spec: BattleSpec) -> None:
        self.spec = spec
        self.env = make_env(spec)
        self.layout = spec.row_layout.single
        self.choice = [False, False]
        self.reward = [0.0, 0.0]
        self.full = [False, False]
        self.ended = self.truncated = False
        self.refused = 0
        #: For opponents that look, where the environment's own observation is not RoyaleGym's default.
        self._default: SpatialObsBuilder | None = None
        self._readers: list[int] = []
        self._views: dict[int, dict[str, np.ndarray]] = {}

    def set_gamma(self, gamma: float) -> None:
        if hasattr(self.env.reward_fn, "gamma"):
            self.env.reward_fn.gamma = gamma

    def reset(self, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        options: dict[str, Any] = {"mask_only": [a for a, w in zip(AGENTS, watched, strict=True) if not w]}
        if self.spec.max_ticks is not None:
            options["max_ticks"] = self.spec.max_ticks
        self._obs, _ = self.env.reset(seed=assignment.seed, options=options)
        self._start_tick = self.env.battle_state.tick
        self.ended = self.truncated = False
        self.refused = 0
        self._readers = [s for s in (0, 1) if reads_observation(assignment.players[s])]
        if self._readers and not isinstance(self.env.obs_builder, SpatialObsBuilder):
            self._default = SpatialObsBuilder()
            self._default.bind(self.env.engine, self.env.action_parser)
            self._default.reset(self.env.battle_state)
        else:
            self._default = None
        self._settle()

    def _settle(self) -> None:
        over = self.ended or self.truncated
        if self._default is not None:
            # Every step, decision or not: the builder counts what the enemy played.
            for seat in self._readers:
                mask = self._obs[AGENTS[seat]][MASK]
                self._views[seat] = self._default.build(self.env.battle_state, seat, mask)
        for seat, agent in enumerate(AGENTS):
            self.choice[seat] = not over and bool(self._obs[agent][MASK][1:].any())
            self.full[seat] = self.env.battle_state.players[seat].elixir_milli >= self.env.full_elixir_milli

    def step(self, blue: int, red: int) -> None:
        self._obs, rewards, terminated, truncated, infos = self.env.step({"blue": blue, "red": red})
        for seat, agent in enumerate(AGENTS):
            self.reward[seat] = float(rewards[agent])
            self.refused += int(infos[agent]["deploy_status"] > 0)
        self.ended = bool(terminated["blue"])
        self.truncated = bool(truncated["blue"]) and not self.ended
        self._settle()

    def encode(self, seat: int, out: np.ndarray) -> None:
        obs = self._obs[AGENTS[seat]]
        self.loss = self.loss.plus(self.layout.pack(obs, obs[MASK], out))

    def scripted_view(self, seat: int, whole: bool = False) -> tuple[dict[str, Any], np.ndarray]:
        obs = self._obs[AGENTS[seat]]
        if whole and self._default is not None:
            obs = {**obs, **self._views[seat]}
        return obs, obs[MASK]

    def state_hash(self) -> int:
        return int(self.env.engine.state_hash())

    def outcome(self) -> Outcome:
        s = self.env.battle_state
        return Outcome(
            int(s.winner) if self.ended and s.game_over else -1,
            s.tick - self._start_tick,
            (s.players[0].crowns, s.players[1].crowns),
            (tower_hp_frac(s, 0), tower_hp_frac(s, 1)),
        )
