"""What both sides have in the field, in elixir: the bars, and the units at what they cost."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from royalegym.protocol import BattleState, EntityKind

from .engine.engine import shared_engine
from .engine.state_json import BUILDING, E_HP, E_KIND, E_MAX_HP, E_TEAM, E_TYPE, G_ENTITIES, P_ELIXIR, TROOP
from .jit import njit
from .kin import card_of_type

#: Of a unit whose type is like no card's name, such as what a champion summons.
_UNKNOWN = 1.0


@cache
def unit_values() -> np.ndarray:
    """float64 ``[types]``: elixir of a unit of each type at full hit points. By names, hence a rule of thumb."""
    engine = shared_engine()
    cards = list(engine.cards())
    makers = [card_of_type(str(t), cards) for t in engine.unit_types() or ()]
    return np.array([_UNKNOWN if c is None else c.elixir / c.count for c in makers], dtype=np.float64)


@njit
def material(G: Any, P: Any, E: Any, values: Any) -> float:
    """Blue's elixir minus red's: bars, troops and buildings, towers left out."""
    total = (P[0, P_ELIXIR] - P[1, P_ELIXIR]) / 1000.0
    for k in range(G[G_ENTITIES]):
        kind = E[k, E_KIND]
        if kind == TROOP or kind == BUILDING:
            worth = values[E[k, E_TYPE]] * E[k, E_HP] / max(1, E[k, E_MAX_HP])
            total += worth if E[k, E_TEAM] == 0 else -worth
    return total


def material_of(state: BattleState, team: int) -> float:
    """The same of RoyaleGym's state, a side's own minus the other's."""
    blue, red = state.players
    total = (blue.elixir_milli - red.elixir_milli) / 1000.0
    values = unit_values()
    for e in state.entities:
        if e.kind in (EntityKind.TROOP, EntityKind.BUILDING):
            worth = values[e.unit_type] * e.hp / max(1, e.max_hp)
            total += worth if e.team == 0 else -worth
    return total if team == 0 else -total
