"""Parts of a battle, each written as RoyaleGym's documentation says: nothing here knows Royale Lightning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium import spaces
from royalegym import (
    ActionParser,
    MatchSetup,
    ObsBuilder,
    RewardFunction,
    StateMutator,
    TerminationCondition,
    TileActionParser,
    TruncationCondition,
    deck_ids,
)


class Siege(RewardFunction):
    """Pays for the share of enemy tower health taken, and remembers the step count to prove that it has state."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def config(self):
        return {"scale": self.scale}

    def reset(self, state):
        self.seen = 0

    def get_reward(self, team, prev, state, results):
        self.seen += 1
        foe = state.players[1 - team]
        taken = sum(prev.players[1 - team].tower_hp) - sum(foe.tower_hp)
        return self.scale * taken / sum(foe.tower_max_hp)


class Glance(ObsBuilder):
    """Both bars of tower health and the own elixir: seven numbers."""

    def observation_space(self):
        return spaces.Dict({"glance": spaces.Box(0.0, 1.0, (7,), np.float32), "action_mask": self.mask_space})

    def build(self, state, team, action_mask):
        seats = [state.players[team], state.players[1 - team]]
        towers = [h / m for p in seats for h, m in zip(p.tower_hp, p.tower_max_hp, strict=True)]
        return {
            "glance": np.array([*towers, seats[0].elixir_milli / 10_000], dtype=np.float32),
            "action_mask": action_mask,
        }


class RichStart(StateMutator):
    """The starter deck or a hog deck, a minute in and with a full bar."""

    DECKS = (
        ("Knight", "Archer", "Giant", "Minions", "Fireball", "Zap", "Cannon", "Musketeer"),
        ("HogRider", "Valkyrie", "Skeletons", "IceSpirits", "Fireball", "Log", "Cannon", "Musketeer"),
    )

    def build(self, rng, cards):
        decks = [deck_ids(list(self.DECKS[rng.integers(2)]), cards) for _ in range(2)]
        return MatchSetup(decks=decks, start_tick=1200, elixir_milli=[10_000, 10_000])


class FirstTower(TerminationCondition):
    """Over as soon as a tower stands no more."""

    def is_done(self, state):
        return state.game_over or any(hp == 0 for p in state.players for hp in p.tower_hp)


class Seconds(TruncationCondition):
    """Cut after so many seconds of battle."""

    def __init__(self, seconds: float = 15.0) -> None:
        self.ticks = int(20 * seconds)

    def reset(self, state):
        self.until = state.tick + self.ticks

    def is_done(self, state):
        return state.tick >= self.until


class ThreeSpots(ActionParser):
    """Thirteen actions: wait, or one of four cards at either bridge or behind the king."""

    SPOTS = ((3, 13), (14, 13), (8, 0))

    def bind(self, engine):
        super().bind(engine)
        self.tiles = TileActionParser()
        self.tiles.bind(engine)

    @property
    def space(self):
        return spaces.Discrete(1 + 4 * len(self.SPOTS))

    def _tile(self, action):
        slot, spot = divmod(action - 1, len(self.SPOTS))
        return self.tiles.encode(slot, *self.SPOTS[spot])

    def action_mask(self, state, team):
        legal = self.tiles.action_mask(state, team)
        return np.array([1, *(legal[self._tile(a)] for a in range(1, self.space.n))], dtype=np.int8)

    def parse(self, action, state, team):
        return self.tiles.parse(self._tile(action), state, team) if action else None


class Hoarder:
    """Saves up for 9 elixir, read where RoyaleGym's default observation has it, then plays anything."""

    #: What it was shown, for the tests.
    seen: ClassVar[list] = []

    def act(self, obs, mask, rng):
        self.seen.append((obs["spatial"].shape, obs["vector"].copy()))
        legal = np.flatnonzero(mask)[1:]
        return int(rng.choice(legal)) if obs["vector"][0] >= 0.9 and len(legal) else 0
