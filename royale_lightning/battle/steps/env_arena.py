"""A battle behind a real ``ClashParallelEnv``: for any RoyaleGym component of a user's own. Slower, never refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from royalegym.env import AGENTS, tower_hp_frac
from royalegym.obs import SpatialObsBuilder
from royalegym.state_mutator import Snapshot

from ..dealing import expect
from ..environment import make_env
from ..opponents import reads_observation
from ..prepare import prepare
from ..rewards import tower_fractions
from ..round import HAND, Assignment, Situation
from ..rows.hidden import write_hidden
from ..rows.layout import MASK
from ..rows.row_codecs import pack_row
from ..save_state import Refused, SaveState, check_hash, rest_of_limit
from ..spec import BattleSpec
from .game import Game, Outcome


class EnvGame(Game):
    """One environment as an arena's game; rows are packed as the layout says (``rows.row_codecs.pack_row``)."""

    def __init__(self, spec: BattleSpec) -> None:
        self.spec = spec
        self.env = make_env(spec)
        battle = prepare(spec)
        self.layout = battle.row_layout.single
        # An action space of another shape offers no cards to count.
        self._grid = battle.action_layout.tiles if battle.action_layout.slots == HAND else 0
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
        self._begin(assignment, self.spec.max_ticks, watched)

    def _begin(
        self, assignment: Assignment, limit: int | None, watched: tuple[bool, bool], snapshot: Snapshot | None = None
    ) -> None:
        options: dict[str, Any] = {"mask_only": [a for a, w in zip(AGENTS, watched, strict=True) if not w]}
        if snapshot is not None:
            options["snapshot"] = snapshot
        if limit is not None:
            options["max_ticks"] = limit
        self._limit = limit
        expect(self.env.state_mutator, assignment.deal)
        self._obs, _ = self.env.reset(seed=assignment.seed, options=options)
        self._start_tick = self.env.battle_state.tick
        self.ended = self.truncated = False
        self.refused = 0
        self._readers = [s for s in (0, 1) if reads_observation(assignment.players[s])]
        if self._readers and not isinstance(self.env.obs_builder, SpatialObsBuilder):
            self._default = SpatialObsBuilder()
            self._default.bind(self.env.engine, self.env.action_parser)
            self._default.reset(self.env.battle_state)
            if snapshot is not None and snapshot.memory is not None:
                self._default.load_memory(snapshot.memory, self.env.battle_state)
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
        self.loss = self.loss.plus(pack_row(self.layout, obs, obs[MASK], out))

    def scripted_view(self, seat: int, whole: bool = False) -> tuple[dict[str, Any], np.ndarray]:
        obs = self._obs[AGENTS[seat]]
        if whole and self._default is not None:
            obs = {**obs, **self._views[seat]}
        return obs, obs[MASK]

    def situation(self) -> Situation:
        s = self.env.battle_state
        blue, red = s.players
        return Situation(
            s.tick, s.tick * s.tick_ms / 1000, (blue.crowns, red.crowns),
            (tower_fractions(s, 0), tower_fractions(s, 1)),
        )

    def _parts(self) -> dict[str, Any]:
        """The parts that may keep something from step to step, by setting."""
        env = self.env
        return {"reward": env.reward_fn, "termination": env.termination, "truncation": env.truncation}

    def save(self) -> SaveState:
        s = self.env.snapshot()
        assert s.memory is not None
        tick = self.env.battle_state.tick
        return SaveState(
            engine=s.blob,
            memory=s.memory,
            history=(b"", b""),
            parts={name: part.state() for name, part in self._parts().items() if hasattr(part, "state")},
            tick=tick,
            state_hash=self.state_hash(),
            max_ticks=rest_of_limit(self._limit, tick - self._start_tick),
        )

    def load(self, state: SaveState, assignment: Assignment, watched: tuple[bool, bool]) -> None:
        takes = {name: part for name, part in self._parts().items() if hasattr(part, "set_state")}
        if set(takes) != set(state.parts):
            raise Refused(
                f"a save state holds the state of {sorted(state.parts) or 'no part'} and these battles' parts with "
                f"set_state() are {sorted(takes) or 'none'}; collect it again with these"
            )
        try:
            self._begin(assignment, state.max_ticks, watched, Snapshot(state.engine, state.memory))
        except Refused:
            raise
        except ValueError as exc:
            raise Refused(f"a save state of tick {state.tick} does not load here: {exc}") from exc
        check_hash(self.state_hash(), state)
        if self.env.battle_state.game_over:
            raise Refused(f"a save state of tick {state.tick} is of a battle that is over")
        for name, part in takes.items():
            part.set_state(state.parts[name])

    def offers(self, seat: int, out: np.ndarray) -> None:
        out[:] = -1
        if self._grid:
            mask = self._obs[AGENTS[seat]][MASK]
            for k, card in enumerate(self.env.battle_state.players[seat].hand):
                if mask[1 + k * self._grid : 1 + (k + 1) * self._grid].any():
                    out[k] = card

    def hidden(self, seat: int, opponent: int, out: np.ndarray) -> None:
        players = self.env.battle_state.players
        other = players[1 - seat]
        decks = np.array([p.deck for p in players])
        write_hidden(out, seat, decks, np.array(other.hand), other.next_card, other.elixir_milli, opponent)

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
