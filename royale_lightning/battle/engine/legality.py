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
from royalegym.action import TileActionParser
from royalegym.protocol import BattleState, CardInfo, Placement, card_is_spell
from royalegym.rust_engine import RustEngine

from ..jit import njit
from .engine import engine_on
from .state_json import (
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
#: In ``any`` before it is written: neither no legal tile nor some.
UNSEEN = 2
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


@njit
def _mix(h: Any) -> Any:
    """splitmix64's finaliser."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@njit
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


@njit
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


@njit
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
        key = table_keys[at]  # read once: another thread may put one there meanwhile
        while key != 0 and key != keys[k]:
            at = (at + np.uint64(1)) & cap
            key = table_keys[at]
        grid = table_grid[at] if key != 0 else -1
        # The thread that writes an entry need not be seen to write its words in order.
        if grid < 0 or grids_any[grid] == UNSEEN:
            found[k] = -2
            playable = -100
        else:
            found[k] = grid
            playable += grids_any[grid]
    return playable if playable >= 0 else -1


@njit
def zone_key(row: Any, viewer: int, zone_class: int) -> Any:
    """The hash key of where a viewer's opponent could put a troop."""
    h = np.uint64(zone_class * 2 + viewer + 1) * np.uint64(0x9E3779B97F4A7C15) ^ bodies_hash(row)
    h = _mix(h)
    return h if h != 0 else np.uint64(1)


@njit
def find_one(key: Any, table_keys: Any, table_grid: Any) -> int:
    """Grid index of one key, -1 where it is unknown or being written."""
    cap = np.uint64(table_keys.shape[0] - 1)
    at = key & cap
    while table_keys[at] != 0 and table_keys[at] != key:
        at = (at + np.uint64(1)) & cap
    return table_grid[at] if table_keys[at] == key else -1


class GridCache:
    """Placement grids of the process, shared by all its battles and threads.

    Attributes:
        table: ``(keys uint64 [cap], grid index int32 [cap], any uint8 [cap / 2])`` of the hash table, one tuple so
            that a thread never reads the keys of one size with the indices of another. Compiled code reads it without
            the interpreter's lock, on processors that may show it another thread's writes in any order; so each word
            is written once, and until then says that it was not (0, -1, ``UNSEEN``).
        grids: uint8 ``[cap / 2, GRID_BYTES]``. An index, once handed out, stays good: the table grows, grids do not
            move.
    """

    def __init__(self, engine: RustEngine, capacity: int = 1 << 14) -> None:
        self.parser = TileActionParser()
        self.parser.bind(engine)
        rules = self.parser.oracle.rules
        self.lockout = int(rules.deploy_lockout_ticks)
        self.frozen = rules.overtime_tiebreak == "client_hp_drain"
        cards = list(engine.cards())
        self.card_class = card_classes(cards)
        #: The class of no card: where the opponent could put a troop, before any tap is moved.
        self.zone_class = int(self.card_class[:, C_CLASS].max()) + 1
        # RoyaleGym's own choice (``ObsBuilder.bind``): the first troop that is no spell.
        self._troop = next(c for c in cards if c.placement == Placement.TROOP and not card_is_spell(c))
        self.lock = threading.Lock()
        self.misses = 0
        self.used = 0
        self.grids: np.ndarray
        self.table: tuple[np.ndarray, np.ndarray, np.ndarray]
        self._new(capacity)

    def _new(self, capacity: int) -> None:
        """A table of ``capacity`` (a power of two) with the grids known so far."""
        half = capacity // 2
        keys, index = np.zeros(capacity, dtype=np.uint64), np.full(capacity, -1, dtype=np.int32)
        grids, any_ = np.zeros((half, GRID_BYTES), dtype=np.uint8), np.full(half, UNSEEN, dtype=np.uint8)
        if self.used:
            old_keys, old_index, old_any = self.table
            grids[: self.used], any_[: self.used] = self.grids[: self.used], old_any[: self.used]
            full = old_keys != 0
            for key, i in zip(old_keys[full].tolist(), old_index[full].tolist(), strict=True):
                at = _place(keys, key)
                keys[at], index[at] = key, i
        self.grids = grids
        self.table = (keys, index, any_)

    def _insert(self, key: int, packed: np.ndarray) -> None:
        if self.used == len(self.grids):
            self._new(2 * len(self.table[0]))
        keys, index, any_ = self.table
        at = _place(keys, key)
        if keys[at] == key:
            return
        self.grids[self.used] = packed
        any_[self.used] = packed.any()
        index[at] = self.used
        keys[at] = key
        self.used += 1

    def learn_zone(self, state: BattleState, viewer: int, key: int) -> None:
        """Remember where the viewer's opponent could put a troop, in the viewer's frame."""
        with self.lock:
            self.misses += 1
            grid = self.parser.oracle.point_grid(state, 1 - viewer, self._troop, 1)
            self._insert(key, np.packbits(grid[::-1, ::-1] if viewer else grid))

    def learn(self, battle: Any, state: BattleState, team: int, keys: np.ndarray) -> None:
        """Ask RoyaleGym's parser for a seat's grids against the live engine, and remember them."""
        # The shared engine's own lock too: another thread's reset or decode would swap its battle in under the queries.
        with self.lock, engine_on(battle):
            self.misses += 1
            mask = self.parser.action_mask(state, team)
            packed = np.packbits(mask[1:].reshape(4, -1).astype(bool), axis=1)
            for k in range(4):
                if keys[k]:
                    self._insert(int(keys[k]), packed[k])


def _place(keys: np.ndarray, key: int) -> int:
    """Where an open-addressing table holds ``key``, or would."""
    cap = len(keys) - 1
    at = key & cap
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & cap
    return at
