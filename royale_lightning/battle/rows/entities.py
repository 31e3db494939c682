"""The ``entities`` observation: written by one compiled function for the batched arena and for RoyaleGym alike.

Fair information only: enemy units that are invisible, underground or hidden are absent, an enemy spell's aim is
hidden, the enemy's elixir is counted from its plays. Rows are in a canonical order, so the bytes are a function
of what stands on the board and not of the order the engine lists it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from royalegym.action import ActionParser
from royalegym.obs import ObsBuilder
from royalegym.protocol import TEAMS, BattleState, ElixirLaw, Engine

from ...errors import UserError
from ..engine.legality import GRID_BYTES
from ..engine.memory import (
    M_EXACT,
    M_FOE,
    M_LAST_TICK,
    M_LEAK,
    M_PLAYS,
    M_QUEUE,
    M_RECENT,
    M_RECENTS,
    M_SEEN,
    MEMORY,
    has_card,
    law_vector,
    observe,
    price_table,
    seed_memory,
)
from ..engine.saved_memory import from_royalegym, to_royalegym
from ..engine.state_json import (
    BUFF_RAGE,
    BUFF_SLOW,
    BUILDING,
    E_ABILITY_TICKS,
    E_BUFFS,
    E_CARD,
    E_CHARGE,
    E_DEPLOY,
    E_FACE_X,
    E_FACE_Y,
    E_FLYING,
    E_HP,
    E_KIND,
    E_MAX_HP,
    E_PHASE,
    E_PUSHED,
    E_RADIUS,
    E_SHIELD,
    E_STATUS,
    E_STUN,
    E_TARGET,
    E_TEAM,
    E_TYPE,
    E_UID,
    E_X,
    E_Y,
    G_ENTITIES,
    G_OVERTIME,
    G_OVERTIME_TICKS,
    G_PROJECTILES,
    G_RATE,
    G_REGULAR,
    G_SPELLS,
    G_TICK,
    J_AIM_X,
    J_AIM_Y,
    J_FIRER,
    J_SPLASH,
    J_TEAM,
    J_X,
    J_Y,
    KING,
    P_ABILITIES,
    P_ABILITY,
    P_COSTS,
    P_CROWNS,
    P_ELIXIR,
    P_EVO,
    P_EVOS,
    P_HAND,
    P_KING_ACTIVE,
    P_MIRROR,
    P_NEXT,
    P_TOWER_HP,
    PRINCESS,
    S_AIM_X,
    S_AIM_Y,
    S_CARD,
    S_DELAY,
    S_FLOWN,
    S_LENGTH,
    S_MOTION,
    S_TEAM,
    S_TRAVELLED,
    S_X,
    S_Y,
    STATE,
    e_of,
    g_of,
    j_of,
    p_of,
    read_state,
    s_of,
)
from ..jit import njit
from .entities_layout import ENTITIES, MAX_PROJECTILES, MAX_SPELLS, MAX_UNITS
from .layout import MASK

#: Subtiles across and along the arena, and in half a tile (checked against the engine's arena at bind).
WIDTH, HEIGHT, HALF_TILE = 324_000, 576_000, 9_000
_UNSEEN = 1 | 2 | 4  # underground, invisible, hidden
_GROUNDED, _CHARGED = 512, 256

_OFF = ENTITIES.offsets
_O_UNIT_WIDE, _O_SPELL_WIDE, _O_PROJ_WIDE, _O_WIDE = (
    _OFF["unit_wide"], _OFF["spell_wide"], _OFF["projectile_wide"], _OFF["wide"])
_O_UNITS, _O_SPELLS, _O_PROJ, _O_SMALL = _OFF["units"], _OFF["spells"], _OFF["projectiles"], _OFF["small"]
_O_HAND, _O_CYCLE, _O_RECENT, _O_SEEN, _O_MASK = (
    _OFF["hand"], _OFF["cycle"], _OFF["enemy_recent"], _OFF["enemy_seen"], _OFF[MASK])
ROW_BYTES = ENTITIES.row_bytes


@njit(inline="always")
def _byte(v: int) -> int:
    return min(255, max(0, v))


@njit(inline="always")
def _put16(out: Any, at: int, v: int) -> None:
    v = min(65535, max(0, v))
    out[at] = v & 255
    out[at + 1] = v >> 8


@njit(inline="always")
def _step(d: int) -> int:
    """A displacement in half tiles, rounded half away from zero so that the seats agree, around 128."""
    half = HALF_TILE // 2
    q = (d + half) // HALF_TILE if d >= 0 else -((-d + half) // HALF_TILE)
    return _byte(128 + q)


@njit(inline="always")
def _half(v: int) -> int:
    """A facing component, halved towards zero, around 128."""
    return _byte(128 + (v // 2 if v >= 0 else -(-v // 2)))


@njit
def _insert(order: Any, keys: Any, n: int, key: int, index: int) -> None:
    """Insertion sort, ascending by key: boards hold a dozen units."""
    at = n
    while at > 0 and keys[at - 1] > key:
        keys[at] = keys[at - 1]
        order[at] = order[at - 1]
        at -= 1
    keys[at] = key
    order[at] = index


@njit
def _units(out: Any, team: int, G: Any, E: Any) -> int:
    """Unit rows; returns how many visible units were left out."""
    order = np.empty(E.shape[0], dtype=np.int64)
    keys = np.empty(E.shape[0], dtype=np.int64)
    n = 0
    for i in range(G[G_ENTITIES]):
        e = E[i]
        own = e[E_TEAM] == team
        if not own and e[E_STATUS] > 0 and e[E_STATUS] & _UNSEEN:
            continue
        x, y = np.int64(e[E_X]), np.int64(e[E_Y])
        if team == 1:
            x, y = WIDTH - x, HEIGHT - y
        tower = e[E_KIND] >= KING
        key = np.int64(0 if own else 2) + (0 if tower else 1)
        key = (((key << 20 | y) << 19 | x) << 8 | (e[E_TYPE] & 255)) << 13 | min(8191, max(0, e[E_HP]))
        _insert(order, keys, n, key, i)
        n += 1
    left_out = max(0, n - MAX_UNITS)
    for _ in range(left_out):
        worst, least = 0, np.int64(1) << 40
        for k in range(n):
            e = E[order[k]]
            life = np.int64(e[E_HP]) + e[E_SHIELD] + (np.int64(1 << 30) if e[E_KIND] >= KING else 0)
            if life <= least:
                worst, least = k, life
        for k in range(worst, n - 1):
            order[k] = order[k + 1]
        n -= 1
    for k in range(n):
        e = E[order[k]]
        at = _O_UNITS + 16 * k
        own = e[E_TEAM] == team
        sign = 1 if team == 0 else -1
        x, y = e[E_X], e[E_Y]
        status = max(0, e[E_STATUS])
        target = -1
        if e[E_TARGET] >= 0:
            for i in range(G[G_ENTITIES]):
                if E[i, E_UID] == e[E_TARGET]:
                    other = E[i]
                    if other[E_TEAM] == team or other[E_STATUS] <= 0 or not other[E_STATUS] & _UNSEEN:
                        target = i
                    break
        flags = 1 if own else 0
        flags |= (2 if e[E_KIND] == BUILDING else 0) | (4 if e[E_KIND] == KING else 0)
        flags |= 8 if e[E_KIND] == PRINCESS else 0
        flags |= 16 if e[E_FLYING] == 1 and not status & _GROUNDED else 0
        flags |= (32 if e[E_DEPLOY] > 0 else 0) | (64 if e[E_STUN] > 0 else 0) | (128 if e[E_PUSHED] > 0 else 0)
        state = (1 if status & _CHARGED else 0) | (2 if status & _GROUNDED else 0)
        state |= (4 if e[E_BUFFS] & BUFF_RAGE else 0) | (8 if e[E_BUFFS] & BUFF_SLOW else 0)
        state |= (64 if e[E_PHASE] == 1 else 0) | (128 if e[E_PHASE] == 2 else 0)
        dx, dy = 128, 128
        if target >= 0:
            state |= 16 | (32 if E[target, E_KIND] >= KING else 0)
            dx = _step(sign * (E[target, E_X] - x))
            dy = _step(sign * (E[target, E_Y] - y))
        out[at] = _byte(e[E_TYPE] + 1)
        out[at + 1] = flags
        out[at + 2] = status & 255
        out[at + 3] = state
        out[at + 4] = _byte(e[E_DEPLOY])
        out[at + 5] = _byte(e[E_STUN])
        out[at + 6] = _byte((255 * max(0, e[E_HP]) + e[E_MAX_HP] // 2) // max(1, e[E_MAX_HP]))
        out[at + 7] = _byte(e[E_RADIUS] // 128)
        out[at + 8] = _byte((e[E_SHIELD] + 7) // 8)
        out[at + 9] = _half(sign * e[E_FACE_X])
        out[at + 10] = _half(sign * e[E_FACE_Y])
        out[at + 11] = dx
        out[at + 12] = dy
        out[at + 13] = _byte((max(0, e[E_CHARGE]) + 3) // 4)
        out[at + 14] = _byte(e[E_ABILITY_TICKS])
        out[at + 15] = _byte(e[E_CARD] + 1)
        if team == 1:
            x, y = WIDTH - x, HEIGHT - y
        wide = _O_UNIT_WIDE + 6 * k
        _put16(out, wide, x >> 4)
        _put16(out, wide + 2, y >> 4)
        _put16(out, wide + 4, e[E_HP])
    return left_out


@njit
def _spells(out: Any, team: int, G: Any, S: Any) -> None:
    order = np.empty(S.shape[0], dtype=np.int64)
    keys = np.empty(S.shape[0], dtype=np.int64)
    for i in range(G[G_SPELLS]):
        s = S[i]
        x, y = np.int64(s[S_X]), np.int64(s[S_Y])
        if team == 1:
            x, y = WIDTH - x, HEIGHT - y
        key = np.int64(0 if s[S_TEAM] == team else 1) << 20 | (y & 0xFFFFF)
        key = (key << 19 | (x & 0x7FFFF)) << 8 | (s[S_CARD] & 255)
        _insert(order, keys, i, key << 12 | min(4095, max(0, s[S_DELAY])), i)
    for k in range(min(MAX_SPELLS, G[G_SPELLS])):
        s = S[order[k]]
        own = s[S_TEAM] == team
        at = _O_SPELLS + 4 * k
        out[at] = _byte(s[S_CARD] + 1)
        out[at + 1] = (1 if own else 0) | ((s[S_MOTION] & 7) << 1)
        out[at + 2] = _byte(s[S_DELAY])
        out[at + 3] = _byte(255 * s[S_TRAVELLED] // s[S_LENGTH]) if s[S_LENGTH] > 0 else _byte(s[S_FLOWN])
        x, y, ax, ay = s[S_X], s[S_Y], s[S_AIM_X], s[S_AIM_Y]
        if not own:
            ax, ay = x, y
        if team == 1:
            x, y, ax, ay = WIDTH - x, HEIGHT - y, WIDTH - ax, HEIGHT - ay
        wide = _O_SPELL_WIDE + 8 * k
        _put16(out, wide, x >> 4)
        _put16(out, wide + 2, y >> 4)
        _put16(out, wide + 4, ax >> 4)
        _put16(out, wide + 6, ay >> 4)


@njit
def _projectiles(out: Any, team: int, G: Any, J: Any) -> None:
    order = np.empty(J.shape[0], dtype=np.int64)
    keys = np.empty(J.shape[0], dtype=np.int64)
    sign = 1 if team == 0 else -1
    for i in range(G[G_PROJECTILES]):
        j = J[i]
        x, y = np.int64(j[J_X]), np.int64(j[J_Y])
        if team == 1:
            x, y = WIDTH - x, HEIGHT - y
        # Enemy shots first: they are the ones to answer.
        key = np.int64(1 if j[J_TEAM] == team else 0) << 20 | (y & 0xFFFFF)
        key = (key << 19 | (x & 0x7FFFF)) << 8 | ((j[J_FIRER] + 2) & 255)
        dx = _step(sign * (j[J_AIM_X] - j[J_X]))
        _insert(order, keys, i, key << 14 | dx << 6 | _step(sign * (j[J_AIM_Y] - j[J_Y])) >> 2, i)
    for k in range(min(MAX_PROJECTILES, G[G_PROJECTILES])):
        j = J[order[k]]
        at = _O_PROJ + 4 * k
        x, y = j[J_X], j[J_Y]
        out[at] = _byte(max(1, j[J_FIRER] + 2))
        out[at + 1] = (1 if j[J_TEAM] == team else 0) | (2 if j[J_SPLASH] > 0 else 0)
        out[at + 2] = _step(sign * (j[J_AIM_X] - x))
        out[at + 3] = _step(sign * (j[J_AIM_Y] - y))
        if team == 1:
            x, y = WIDTH - x, HEIGHT - y
        wide = _O_PROJ_WIDE + 4 * k
        _put16(out, wide, x >> 4)
        _put16(out, wide + 2, y >> 4)


@njit
def encode(out: Any, team: int, row: Any, m: Any, scale: int, n_cards: int) -> None:
    """Write one seat's row, all but its mask.

    Args:
        out: uint8 ``[ROW_BYTES]``.
        team: the viewing seat.
        row: int32 ``[STATE]``, the battle (``wire.read_state``).
        m: int64 ``[MEMORY]``, the seat's memory, already advanced to this state.
        scale: fine units per elixir (``memory.L_SCALE``).
        n_cards: size of the catalogue.
    """
    G, P, E, S, J = g_of(row), p_of(row), e_of(row), s_of(row), j_of(row)
    me, foe = P[team], P[1 - team]
    out[:_O_MASK] = 0
    left_out = _units(out, team, G, E)
    _spells(out, team, G, S)
    _projectiles(out, team, G, J)
    tick = G[G_TICK]
    _put16(out, _O_WIDE, tick)
    _put16(out, _O_WIDE + 2, me[P_ELIXIR])
    _put16(out, _O_WIDE + 4, m[M_FOE] * 1000 // scale)
    _put16(out, _O_WIDE + 6, m[M_LEAK] * 100 // scale)
    _put16(out, _O_WIDE + 8, tick if m[M_LAST_TICK] < 0 else tick - m[M_LAST_TICK])
    for k in range(3):
        _put16(out, _O_WIDE + 10 + 2 * k, me[P_TOWER_HP + k])
        _put16(out, _O_WIDE + 16 + 2 * k, foe[P_TOWER_HP + k])
    end = G[G_REGULAR] + (G[G_OVERTIME_TICKS] if G[G_OVERTIME] else 0)
    _put16(out, _O_WIDE + 22, end - tick)
    at = _O_SMALL
    out[at] = G[G_OVERTIME]
    out[at + 1] = _byte(G[G_RATE])
    out[at + 2] = _byte(me[P_CROWNS])
    out[at + 3] = _byte(foe[P_CROWNS])
    out[at + 4] = _byte(me[P_KING_ACTIVE])
    out[at + 5] = _byte(foe[P_KING_ACTIVE])
    out[at + 6] = _byte(m[M_PLAYS])
    out[at + 7] = m[M_EXACT]
    out[at + 8] = _byte(me[P_NEXT] + 1)
    out[at + 9] = _byte(me[P_MIRROR] + 1)
    out[at + 10] = _byte(left_out)
    for k in range(3):
        if k < me[P_ABILITIES]:
            out[at + 11 + k] = _byte(me[P_ABILITY + 5 * k]) | (_byte(me[P_ABILITY + 5 * k + 1]) << 1)
        else:
            out[at + 11 + k] = 255
    for k in range(4):
        card = me[P_HAND + k]
        out[_O_HAND + 4 * k] = _byte(card + 1)
        out[_O_HAND + 4 * k + 1] = _byte(me[P_COSTS + k])
        for i in range(me[P_EVOS]):
            if me[P_EVO + 2 * i] == card and me[P_EVO + 2 * i + 1] == 1:
                out[_O_HAND + 4 * k + 2] = 2
        out[_O_CYCLE + k] = _byte(m[M_QUEUE + k] + 1)
    n = m[M_RECENTS]
    for k in range(n):
        out[_O_RECENT + k] = _byte(m[M_RECENT + n - 1 - k] + 1)
    k = 0
    for card in range(n_cards):
        if has_card(m, M_SEEN, card) and k < 8:
            out[_O_SEEN + k] = _byte(card + 1)
            k += 1


@njit
def write_mask(out: Any, found: Any, grids: Any) -> None:
    """The packed mask of a seat from its slots' grids (``legality.find``), and the hand's playable bits."""
    for k in range(4):
        at = _O_MASK + GRID_BYTES * k
        if found[k] < 0:
            out[at : at + GRID_BYTES] = 0
            continue
        any_ = 0
        for i in range(GRID_BYTES):
            b = grids[found[k], i]
            out[at + i] = b
            any_ |= b
        if any_:
            out[_O_HAND + 4 * k + 2] |= 1


class EntitiesObsBuilder(ObsBuilder):
    """The ``entities`` row as a RoyaleGym observation: the fields of ``ENTITIES`` as arrays, and the mask.

    A bot trained on the batched arena plays in any RoyaleGym environment built with it, and sees the same bytes.
    """

    def __init__(self) -> None:
        super().__init__()

    def bind(self, engine: Engine, action_parser: ActionParser) -> None:
        super().bind(engine, action_parser)
        if (self.arena.width, self.arena.height, self.arena.subtile) != (WIDTH, HEIGHT, 2 * HALF_TILE):
            raise UserError(
                f"observation entities reads a {WIDTH} x {HEIGHT} arena and this engine's is "
                f"{self.arena.width} x {self.arena.height}; use observation spatial"
            )
        if self.mask_space.shape != (ENTITIES.n_actions,):
            raise UserError(
                f"observation entities packs {ENTITIES.n_actions} actions and this action parser has "
                f"{self.mask_space.shape[0]}; use the default TileActionParser()"
            )
        self._law = law_vector(ElixirLaw.load(self.calibration))
        self._price = price_table(self.cards)
        self._state = np.zeros(STATE, dtype=np.int32)
        self.memories = np.zeros((2, MEMORY), dtype=np.int64)
        self._rows = np.zeros((2, ROW_BYTES), dtype=np.uint8)

    def observation_space(self) -> spaces.Dict:
        info = {
            f.name: spaces.Box(0, np.iinfo(f.dtype).max, f.shape, np.dtype(f.dtype).type) for f in ENTITIES.fields
        }
        return spaces.Dict({**info, **self._mask_space_entries()})

    def reset(self, state: BattleState) -> None:
        super().reset(state)
        self._load(state)
        for team in TEAMS:
            seed_memory(self.memories[team], team, g_of(self._state), p_of(self._state), self._law)

    def _load(self, state: BattleState) -> None:
        import msgspec

        read_state(np.frombuffer(msgspec.json.encode(state), np.uint8), self._state)

    def build(self, state: BattleState, team: int, action_mask: np.ndarray) -> dict[str, Any]:
        self._load(state)
        observe(self.memories[team], team, g_of(self._state), p_of(self._state), self._law, self._price)
        row = self._rows[team].copy()
        encode(row, team, self._state, self.memories[team], int(self._law[0]), self.num_cards)
        at = ENTITIES.offsets["hand"]
        playable = np.asarray(action_mask[1:]).reshape(4, -1).any(axis=1)
        row[at + 2 : at + 16 : 4] |= playable.astype(np.uint8)
        views = ENTITIES.views(row[None])
        return {**{f.name: views[f.name][0] for f in ENTITIES.fields}, **self._mask_entries(action_mask)}

    def counts_are_exact(self, team: int) -> bool:
        return bool(self.memories[team][M_EXACT])

    def memory_state(self) -> dict[str, Any]:
        for team in TEAMS:
            to_royalegym(self.memories[team], self.memory[team])
        return super().memory_state()

    def load_memory_state(self, parts: Mapping[str, Any]) -> None:
        super().load_memory_state(parts)
        for team in TEAMS:
            from_royalegym(self.memory[team], self.memories[team])

    def config(self) -> dict[str, Any]:
        return {"layout": ENTITIES.digest}
