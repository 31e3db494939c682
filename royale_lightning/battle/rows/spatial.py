"""The ``spatial`` row from the engine's arrays: the bytes ``spatial_row.pack`` makes of RoyaleGym's observation.

Formulas are RoyaleGym's (``obs.entity_channels``, ``spell_channels``, ``_write_fair``, ``build_vector``), in float64
and rounded to float32 once as there, for the default environment: no command delay, so nothing waits to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.legality import GRID_BYTES
from ..engine.memory import (
    L_SCALE,
    M_FOE,
    M_LAST_CARD,
    M_LAST_TICK,
    M_LEAK,
    M_OWN_DECK,
    M_PLAYS,
    M_QUEUE,
    M_RECENT,
    M_RECENTS,
    M_SEEN,
    has_card,
)
from ..engine.state_json import (
    BUILDING,
    E_DEPLOY,
    E_FLYING,
    E_HP,
    E_KIND,
    E_STATUS,
    E_STUN,
    E_TEAM,
    E_X,
    E_Y,
    G_ENTITIES,
    G_OVERTIME,
    G_OVERTIME_TICKS,
    G_RATE,
    G_REGULAR,
    G_SPELLS,
    G_TICK,
    MAX_ENTITIES,
    MAX_OBJECTS,
    P_COSTS,
    P_CROWNS,
    P_ELIXIR,
    P_HAND,
    P_KING_ACTIVE,
    P_NEXT,
    P_PENDING_COST,
    P_TOWER_HP,
    P_TOWER_MAX,
    S_AIM_X,
    S_AIM_Y,
    S_TEAM,
    S_X,
    S_Y,
    TROOP,
    e_of,
    g_of,
    p_of,
    s_of,
)
from ..engine.tables import C_CARDS, C_FULL, C_LAW, C_PRICE
from ..jit import njit
from .entities import HEIGHT, WIDTH
from .spatial_row import HP_PLANES, MAX_CELLS, MAX_HP_CELLS, TILES, TILES_X, TILES_Y, TOP_HP, UNUSED_CELL

_SUBTILE = WIDTH // TILES_X
_GROUNDED = 512
_DEPLOYING, _SPELLS, _AIM, _STUNNED = 10, 15, 17, 18
_ENEMY = 5  # the enemy's first planes follow the own five
_HP = HP_PLANES[0]
_TOP_COUNT = 64
#: Offsets into the row, in the order of ``spatial_layout``'s fields: scalars (34 float32), cell, hp_cell, hp, count,
#: one_hot (9), multi_hot, zone, left_out, mask. Those behind the multi-hots depend on the size of the catalogue.
_O_CELL = 34 * 4
_O_HP_CELL = _O_CELL + 2 * MAX_CELLS
_O_HP_SUM = _O_HP_CELL + 2 * MAX_HP_CELLS
_O_COUNT = _O_HP_SUM + 2 * MAX_HP_CELLS
_O_ONE_HOT = _O_COUNT + MAX_CELLS
_O_MULTI_HOT = _O_ONE_HOT + 9


@njit
def _tile(team: int, x: int, y: int) -> int:
    """Own-frame tile of an engine-frame point, clamped onto the board."""
    if team == 1:
        x, y = WIDTH - x, HEIGHT - y
    tx = min(TILES_X - 1, max(0, x // _SUBTILE))
    ty = min(TILES_Y - 1, max(0, y // _SUBTILE))
    return ty * TILES_X + tx


@njit
def _add(keys: Any, sums: Any, n: int, key: int, amount: int) -> int:
    """Add to a cell of a list kept in ascending order; returns its new length."""
    at = n
    while at > 0 and keys[at - 1] > key:
        at -= 1
    if at > 0 and keys[at - 1] == key:
        sums[at - 1] += amount
        return n
    for i in range(n, at, -1):
        keys[i] = keys[i - 1]
        sums[i] = sums[i - 1]
    keys[at] = key
    sums[at] = amount
    return n + 1


@njit
def _planes(out: Any, team: int, row: Any) -> int:
    """Both lists of cells; returns how many cells there was no room for."""
    G, E, S = g_of(row), e_of(row), s_of(row)
    cells = np.empty(3 * MAX_ENTITIES + 2 * MAX_OBJECTS, dtype=np.int64)
    counts = np.empty(3 * MAX_ENTITIES + 2 * MAX_OBJECTS, dtype=np.int64)
    hp_cells = np.empty(MAX_ENTITIES, dtype=np.int64)
    hps = np.empty(MAX_ENTITIES, dtype=np.int64)
    n = m = 0
    for i in range(G[G_ENTITIES]):
        e = E[i]
        side = 0 if e[E_TEAM] == team else 1
        tile = _tile(team, e[E_X], e[E_Y])
        if e[E_KIND] == TROOP:
            in_air = e[E_FLYING] == 1 and not max(0, e[E_STATUS]) & _GROUNDED
            plane = 1 if in_air else 0
        else:
            plane = 2 if e[E_KIND] == BUILDING else 3
        n = _add(cells, counts, n, (plane + _ENEMY * side) * TILES + tile, 1)
        m = _add(hp_cells, hps, m, (_HP + _ENEMY * side) * TILES + tile, e[E_HP])
        if e[E_DEPLOY] > 0:
            n = _add(cells, counts, n, (_DEPLOYING + side) * TILES + tile, 1)
        if e[E_STUN] > 0:
            n = _add(cells, counts, n, (_STUNNED + side) * TILES + tile, 1)
    for i in range(G[G_SPELLS]):
        s = S[i]
        side = 0 if s[S_TEAM] == team else 1
        n = _add(cells, counts, n, (_SPELLS + side) * TILES + _tile(team, s[S_X], s[S_Y]), 1)
        if side == 0:
            n = _add(cells, counts, n, _AIM * TILES + _tile(team, s[S_AIM_X], s[S_AIM_Y]), 1)
    cell = out[_O_CELL:_O_HP_CELL].view(np.uint16)
    hp_cell = out[_O_HP_CELL:_O_HP_SUM].view(np.uint16)
    hp = out[_O_HP_SUM:_O_COUNT].view(np.uint16)
    cell[:] = UNUSED_CELL
    hp_cell[:] = UNUSED_CELL
    for i in range(min(n, MAX_CELLS)):
        cell[i] = cells[i]
        out[_O_COUNT + i] = min(_TOP_COUNT, counts[i])
    kept = 0
    left_out = max(0, n - MAX_CELLS)
    for i in range(m):
        if hps[i] <= 0:
            continue
        if kept == MAX_HP_CELLS:
            left_out += 1
            continue
        hp_cell[kept] = hp_cells[i]
        hp[kept] = min(TOP_HP, hps[i])
        kept += 1
    return left_out


@njit
def _unit(x: float) -> Any:
    """float32 of ``x``, then clipped to [0, 1], in RoyaleGym's order."""
    return min(np.float32(1.0), max(np.float32(0.0), np.float32(x)))


@njit
def _scalars(v: Any, team: int, row: Any, m: Any, const: Any) -> None:
    """The numbers of the vector, in its order (``spatial_row.SCALARS``)."""
    G, P = g_of(row), p_of(row)
    me, foe = P[team], P[1 - team]
    full = const[C_FULL]
    mana = full // 1000
    tick = G[G_TICK]
    v[0] = _unit(me[P_ELIXIR] / full)
    v[1] = _unit((m[M_FOE] * 1000 // const[C_LAW + L_SCALE]) / full)
    bar = me[P_ELIXIR] - 1000 * me[P_PENDING_COST]
    for k in range(4):
        card, price = me[P_HAND + k], me[P_COSTS + k]
        if card < 0:
            continue
        listed = const[C_PRICE + card]
        if listed < -500:  # a Mirror, marked by minus 1,000 (memory.price_table)
            listed += 1000
        v[2 + k] = _unit((price if price >= 0 else listed) / mana)
        v[6 + k] = 1.0 if price >= 0 and bar >= price * 1000 else 0.0
    v[14] = _unit(me[P_PENDING_COST] / mana)
    since = tick if m[M_LAST_TICK] < 0 else tick - m[M_LAST_TICK]
    v[15] = _unit(since / 600.0)
    v[16] = _unit(m[M_LEAK] / const[C_LAW + L_SCALE] / 20.0)
    v[17] = _unit(m[M_PLAYS] / 40.0)
    for k in range(3):
        v[18 + k] = _unit(me[P_TOWER_HP + k] / max(1, me[P_TOWER_MAX + k]))
        v[21 + k] = _unit(foe[P_TOWER_HP + k] / max(1, foe[P_TOWER_MAX + k]))
    v[24] = _unit(me[P_CROWNS] / 3.0)
    v[25] = _unit(foe[P_CROWNS] / 3.0)
    v[26] = me[P_KING_ACTIVE]
    v[27] = foe[P_KING_ACTIVE]
    v[28] = _unit(max(0, G[G_REGULAR] - tick) / max(1, G[G_REGULAR]))
    if G[G_OVERTIME]:
        v[29] = 1.0
        v[30] = _unit(max(0, G[G_REGULAR] + G[G_OVERTIME_TICKS] - tick) / max(1, G[G_OVERTIME_TICKS]))
    for k in range(3):
        v[31 + k] = 1.0 if G[G_RATE] == k + 1 else 0.0


@njit(inline="always")
def _index(card: int, n_cards: int) -> int:
    return card if card >= 0 else n_cards


@njit
def _cards(out: Any, team: int, row: Any, m: Any, n_cards: int) -> None:
    """One-hots as indices, multi-hots as bits."""
    me = p_of(row)[team]
    at = _O_ONE_HOT
    for k in range(4):
        out[at + k] = _index(me[P_HAND + k], n_cards)
    out[at + 4] = _index(me[P_NEXT], n_cards)
    for k in range(3):
        out[at + 5 + k] = _index(m[M_QUEUE + 1 + k], n_cards)
    out[at + 8] = _index(m[M_LAST_CARD], n_cards)
    width = (n_cards + 7) // 8
    deck, seen, possible = _O_MULTI_HOT, _O_MULTI_HOT + width, _O_MULTI_HOT + 2 * width
    known = 0
    for card in range(n_cards):
        bit = 128 >> (card & 7)
        byte = card >> 3
        if has_card(m, M_OWN_DECK, card):
            out[deck + byte] |= bit
        if has_card(m, M_SEEN, card):
            out[seen + byte] |= bit
            known += 1
    for card in range(n_cards):
        if known < 8 or has_card(m, M_SEEN, card):
            out[possible + (card >> 3)] |= 128 >> (card & 7)
    # The enemy's last four plays are behind its hand.
    for k in range(max(0, m[M_RECENTS] - 4), m[M_RECENTS]):
        card = m[M_RECENT + k]
        out[possible + (card >> 3)] &= ~(128 >> (card & 7))


@njit
def write_spatial(
    out: Any, team: int, row: Any, m: Any, found: Any, const: Any, zone: int, grids: Any
) -> int:
    """Write one seat's row; returns how many cells it had no room for.

    Args:
        out: uint8 ``[row_bytes]``.
        team: the viewing seat.
        row: int32 ``[STATE]``, the battle (``wire.read_state``).
        m: int64 ``[MEMORY]``, the seat's memory, already advanced to this state.
        found: int64 ``[4]``, the hand's placement grids.
        const: ``tables.Tables.const``.
        zone: grid of where the opponent could put a troop.
        grids: uint8 ``[n, GRID_BYTES]``.
    """
    n_cards = const[C_CARDS]
    out[:] = 0
    left_out = _planes(out, team, row)
    _scalars(out[:_O_CELL].view(np.float32), team, row, m, const)
    _cards(out, team, row, m, n_cards)
    at = _O_MULTI_HOT + 3 * ((n_cards + 7) // 8)
    out[at : at + GRID_BYTES] = grids[zone]
    at += GRID_BYTES
    out[at] = min(255, left_out)
    at += 1
    for k in range(4):
        if found[k] >= 0:
            out[at : at + GRID_BYTES] = grids[found[k]]
        at += GRID_BYTES
    return left_out
