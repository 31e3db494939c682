"""Which cards can be played where: placement grids cached across battles and seats.

A grid of one card is a function of its class of placement, the acting team and the bodies on the board
(crown towers and buildings, and own live bottles), and of nothing else. So each is worked out once, by
RoyaleGym's own parser against the live engine, and found again by a 64-bit hash of those inputs. The rules
themselves are RoyaleGym's (``GridActionParser.action_mask``); only the elixir and hand tests stand here again.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numba import njit
from royalegym.action import TileActionParser
from royalegym.protocol import BattleState, CardInfo, Placement
from royalegym.rust_engine import RustEngine

from .wire import (
    E_BOX0,
    E_HP,
    E_KIND,
    E_RADIUS,
    E_TEAM,
    E_X,
    E_Y,
    G_ENTITIES,
    G_OVER,
    G_OVERTIME,
    G_OVERTIME_TICKS,
    G_REGULAR,
    G_SPELLS,
    G_TICK,
    MOTION_FUSE,
    P_COSTS,
    P_ELIXIR,
    P_HAND,
    P_MIRROR,
    P_PENDING_COST,
    S_DELAY,
    S_MOTION,
    S_TEAM,
    S_X,
    S_Y,
    TROOP,
    e_of,
    g_of,
    p_of,
    s_of,
)

GRID_BYTES = 72  # 576 tiles, own frame, packed
#: ``CARD[n, 2]``: class of placement, and whether bodies enter its grid.
C_CLASS, C_BODIES = 0, 1
MIRROR_CLASS = 0
_MASK = (1 << 64) - 1


def card_classes(cards: list[CardInfo]) -> np.ndarray:
    """int64 ``[n, 2]``: cards of one class share their grids (``PlacementOracle.grid_key``, ``buildable``)."""
    seen: dict[tuple[Any, ...], int] = {}
    out = np.zeros((len(cards), 2), dtype=np.int64)
    for c in cards:
        if c.placement == Placement.MIRROR:
            continue
        own_box = c.placement in (Placement.BUILDING, Placement.TUNNEL)
        key = (int(c.placement), c.card_kind, c.name if own_box else None)
        out[c.card_id, C_CLASS] = seen.setdefault(key, len(seen) + 1)
        out[c.card_id, C_BODIES] = c.placement not in (Placement.SPELL, Placement.SPELL_NOT_ON_WATER)
    return out


@njit(cache=True)
def _mix(h: Any) -> Any:
    """splitmix64's finaliser."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@njit(cache=True)
def bodies_hash(row: Any) -> Any:
    """A hash of every body and bottle on the board, whatever order the engine lists them in."""
    G, E, S = g_of(row), e_of(row), s_of(row)
    total = np.uint64(0)
    for i in range(G[G_ENTITIES]):
        e = E[i]
        if e[E_KIND] != TROOP:
            h = _mix(np.uint64(e[E_X]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(e[E_Y]))
            h = _mix(h ^ (np.uint64(e[E_RADIUS]) << np.uint64(8)) ^ (np.uint64(e[E_KIND]) << np.uint64(4))
                     ^ (np.uint64(e[E_TEAM]) << np.uint64(2)) ^ np.uint64(e[E_HP] > 0))
            for k in range(4):
                h = _mix(h + np.uint64(e[E_BOX0 + k] + 1))
            total += h
    for i in range(G[G_SPELLS]):
        s = S[i]
        if s[S_MOTION] == MOTION_FUSE:
            h = _mix(np.uint64(s[S_X]) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(s[S_Y]))
            total += _mix(h ^ (np.uint64(s[S_TEAM]) << np.uint64(1)) ^ np.uint64(s[S_DELAY] > 0) ^ np.uint64(0x5B0771E))
    return _mix(total)


@njit(cache=True)
def seat_slots(row: Any, team: int, lockout: int, frozen: bool, card_class: Any, bodies: Any, keys: Any) -> int:
    """The hash keys of the slots a seat can pay for, 0 where it cannot: ``keys`` uint64 ``[4]``. Returns how many."""
    G, me = g_of(row), p_of(row)[team]
    keys[:] = 0
    if G[G_OVER] or G[G_TICK] < lockout:
        return 0
    if frozen and G[G_OVERTIME] and G[G_TICK] >= G[G_REGULAR] + G[G_OVERTIME_TICKS]:
        return 0
    bar = me[P_ELIXIR] - 1000 * me[P_PENDING_COST]
    n = 0
    for k in range(4):
        card = me[P_HAND + k]
        cost = me[P_COSTS + k]
        if card < 0 or cost < 0 or bar < cost * 1000:
            continue
        c = card_class[card, C_CLASS]
        if c == MIRROR_CLASS:
            card = me[P_MIRROR]
            if card < 0:
                continue
            c = card_class[card, C_CLASS]
        h = np.uint64(c * 2 + team + 1) * np.uint64(0x9E3779B97F4A7C15)
        if card_class[card, C_BODIES]:
            h ^= bodies
        h = _mix(h)
        keys[k] = h if h != 0 else np.uint64(1)
        n += 1
    return n


@njit(cache=True)
def find(keys: Any, table_keys: Any, table_grid: Any, grids_any: Any, found: Any) -> int:
    """Grid index per slot into ``found`` (-1: not payable, -2: unknown grid).

    Returns -1 when a grid is unknown, else the number of slots with at least one legal tile.
    """
    cap = np.uint64(table_keys.shape[0] - 1)
    playable = 0
    for k in range(4):
        found[k] = -1
        if keys[k] == 0:
            continue
        at = keys[k] & cap
        while table_keys[at] != 0 and table_keys[at] != keys[k]:
            at = (at + np.uint64(1)) & cap
        if table_keys[at] == 0:
            found[k] = -2
            playable = -100
        else:
            found[k] = table_grid[at]
            playable += grids_any[found[k]]
    return playable if playable >= 0 else -1


class GridCache:
    """Placement grids of the process, shared by all its battles and threads."""

    def __init__(self, engine: RustEngine) -> None:
        self.engine = engine
        self.parser = TileActionParser()
        self.parser.bind(engine)
        rules = self.parser.oracle.rules
        self.lockout = int(rules.deploy_lockout_ticks)
        self.frozen = rules.overtime_tiebreak == "client_hp_drain"
        self.card_class = card_classes(list(engine.cards()))
        self.lock = threading.Lock()
        self.hits = 0
        self.misses = 0
        self._new(1 << 14)

    def _new(self, capacity: int) -> None:
        self.table_keys = np.zeros(capacity, dtype=np.uint64)
        self.table_grid = np.zeros(capacity, dtype=np.int32)
        self.grids = np.zeros((capacity // 2, GRID_BYTES), dtype=np.uint8)
        self.grids_any = np.zeros(capacity // 2, dtype=np.uint8)
        self.used = 0

    def _insert(self, key: int, packed: np.ndarray) -> None:
        if self.used == len(self.grids):
            keys, grids = self.table_keys, self.table_grid
            old, any_ = self.grids, self.grids_any
            self._new(2 * len(keys))
            for k, g in zip(keys[keys != 0].tolist(), grids[keys != 0].tolist(), strict=True):
                self._put(k, old[g], any_[g])
        self._put(key, packed, packed.any())

    def _put(self, key: int, packed: np.ndarray, any_: Any) -> None:
        cap = len(self.table_keys) - 1
        at = key & cap
        while self.table_keys[at] != 0 and self.table_keys[at] != key:
            at = (at + 1) & cap
        if self.table_keys[at] == key:
            return
        self.grids[self.used] = packed
        self.grids_any[self.used] = bool(any_)
        self.table_grid[at] = self.used
        self.table_keys[at] = key
        self.used += 1

    def learn(self, battle: Any, state: BattleState, team: int, keys: np.ndarray) -> None:
        """Ask RoyaleGym's parser for a seat's grids against the live engine, and remember them."""
        with self.lock:
            self.misses += 1
            kept = self.engine._battle
            self.engine._battle = battle
            try:
                mask = self.parser.action_mask(state, team)
            finally:
                self.engine._battle = kept
            packed = np.packbits(mask[1:].reshape(4, -1).astype(bool), axis=1)
            for k in range(4):
                if keys[k]:
                    self._insert(int(keys[k]), packed[k])


