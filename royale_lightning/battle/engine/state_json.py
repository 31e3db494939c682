"""The engine's state, decoded from its JSON bytes straight into integer arrays.

``Battle.state_json`` is the only full view the engine gives. Decoding its 2.3 KB into Python objects and those
into arrays costs more than everything we compute from it, so the bytes are walked once by a compiled scanner
that knows the engine's keys (``royalegym.protocol.BattleState``) and steps over any other.

Layout (all int32), one battle:
    ``G[GLOBALS]``: clock and result. ``P[2, PLAYER]``: players, row = team. ``E[MAX_ENTITIES, ENTITY]``: entities
    in engine order. ``S[MAX_OBJECTS, SPELL]``: spells. ``J[MAX_OBJECTS, PROJECTILE]``: projectiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UserError
from ..jit import njit

# ---- columns -------------------------------------------------------------------------------------------------
(G_TICK, G_TICK_MS, G_REGULAR, G_OVERTIME_TICKS, G_RATE, G_OVERTIME, G_OVER, G_WINNER, G_ENTITIES, G_SPELLS,
 G_PROJECTILES, G_OVERFLOW) = range(12)
GLOBALS = 12

(P_ELIXIR, P_MIRROR, P_PENDING_COST, P_NEXT, P_CROWNS, P_KING_ACTIVE, P_ABILITIES, P_EVOS, P_PENDING) = range(9)
P_HAND, P_COSTS, P_TOWER_HP, P_TOWER_MAX = 9, 13, 17, 20
P_DECK, P_FORMS = 23, 31
#: up to 3 ability rows of [available, spent, cost, card_id, cooldown]
P_ABILITY = 39
#: up to 8 evolution rows of [card, next play is evolved]
P_EVO = 54
PLAYER = 70

(E_UID, E_TEAM, E_KIND, E_CARD, E_TOWER, E_X, E_Y, E_HP, E_MAX_HP, E_RADIUS, E_FLYING, E_DEPLOY, E_STUN, E_PUSHED,
 E_BOX0, E_BOX1, E_BOX2, E_BOX3, E_TARGET, E_PHASE, E_FACE_X, E_FACE_Y, E_SHIELD, E_BUFFS, E_STATUS, E_LEVEL,
 E_MOUNT, E_CHARGE, E_DEST_X, E_DEST_Y, E_ABILITY_TICKS, E_TYPE) = range(32)
ENTITY = 32
#: Column of each positional ENTITY_FIELDS element; footprint and facing take several, buffs become bits.
BUFF_RAGE, BUFF_SLOW = 1, 2
#: The buff family members behind the two bits (``royalegym.obs.RAGE_BUFF``, ``SLOW_BUFF``).
RAGE, SLOW = "Rage", "IceWizardSlowDown"

(S_TEAM, S_CARD, S_MOTION, S_X, S_Y, S_AIM_X, S_AIM_Y, S_DELAY, S_TRAVELLED, S_LENGTH, S_HITS, S_FLOWN) = range(12)
SPELL = 12
(J_TEAM, J_X, J_Y, J_AIM_X, J_AIM_Y, J_TARGET, J_SPLASH, J_FIRER) = range(8)
PROJECTILE = 8

MAX_ENTITIES = 192
MAX_OBJECTS = 64

TROOP, BUILDING, KING, PRINCESS = 0, 1, 2, 3
MOTION_FUSE = 5


def _fnv(text: str) -> int:
    h = 0x811C9DC5
    for b in text.encode():
        h = ((h ^ b) * 0x01000193) & 0xFFFFFFFF
    return h


(K_TICK, K_TICK_MS, K_REGULAR, K_OVERTIME_TICKS, K_RATE, K_OVERTIME, K_OVER, K_WINNER, K_PLAYERS, K_ENTITIES,
 K_SPELLS, K_PROJECTILES) = (
    _fnv(k) for k in ("tick", "tick_ms", "regular_ticks", "overtime_ticks", "elixir_rate", "overtime", "game_over",
                      "winner", "players", "entities", "spells", "projectiles"))
(K_TEAM, K_ELIXIR, K_HAND, K_COSTS, K_MIRROR, K_DECK, K_FORMS, K_PENDING_COST, K_PENDING, K_EVO, K_ABILITIES, K_NEXT,
 K_CROWNS, K_TOWER_HP, K_TOWER_MAX, K_KING) = (
    _fnv(k) for k in ("team", "elixir_milli", "hand", "hand_costs", "mirror_target", "deck", "forms", "pending_cost",
                      "pending", "evo", "abilities", "next_card", "crowns", "tower_hp", "tower_max_hp", "king_active"))
H_RAGE, H_SLOW = _fnv(RAGE), _fnv(SLOW)

_QUOTE, _COMMA, _MINUS, _OPEN, _CLOSE, _OBJECT, _END, _BACKSLASH, _BAR = 34, 44, 45, 91, 93, 123, 125, 92, 124
_T, _F, _N = 116, 102, 110


@njit(inline="always")
def _number(js: Any, at: int) -> tuple[int, int]:
    """An integer, a boolean or null at ``at``: (value, position after it). null reads as -1."""
    c = js[at]
    if c < 58:
        negative = c == _MINUS
        if negative:
            at += 1
            c = js[at]
        v = 0
        while c >= 48:
            v = v * 10 + (c - 48)
            at += 1
            c = js[at]
            if c > 57:
                break
        return (-v if negative else v), at
    if c == _T:
        return 1, at + 4
    if c == _F:
        return 0, at + 5
    return -1, at + 4


@njit
def _skip(js: Any, at: int) -> int:
    """The position after the value at ``at``, whatever it is."""
    depth = 0
    while True:
        c = js[at]
        if c == _QUOTE:
            at += 1
            while js[at] != _QUOTE:
                at += 2 if js[at] == _BACKSLASH else 1
            at += 1
        elif c == _OPEN or c == _OBJECT:
            depth += 1
            at += 1
        elif c == _CLOSE or c == _END:
            if depth == 0:
                return at
            depth -= 1
            at += 1
        elif c == _COMMA and depth == 0:
            return at
        else:
            at += 1
        if depth == 0 and (js[at] == _COMMA or js[at] == _CLOSE or js[at] == _END):
            return at


@njit
def _numbers(js: Any, at: int, out: Any, first: int, room: int) -> tuple[int, int]:
    """A flat array of numbers into ``out[first:first + room]``: (count, position after it)."""
    at += 1
    n = 0
    while js[at] != _CLOSE:
        if js[at] == _COMMA:
            at += 1
            continue
        v, at = _number(js, at)
        if n < room:
            out[first + n] = v
        n += 1
    return n, at + 1


@njit
def _rows(js: Any, at: int, out: Any, first: int, rows: int, stride: int, columns: int, keep: int) -> tuple[int, int]:
    """An array of number arrays; of each row the elements ``columns`` selects by bit, packed ``keep`` a row."""
    at += 1
    n = 0
    while js[at] != _CLOSE:
        if js[at] == _COMMA:
            at += 1
            continue
        at += 1
        k = 0
        put = 0
        while js[at] != _CLOSE:
            if js[at] == _COMMA:
                at += 1
                continue
            v, at = _number(js, at)
            if n < rows and put < keep and (columns >> k) & 1:
                out[first + n * stride + put] = v
                put += 1
            k += 1
        at += 1
        n += 1
    return n, at + 1


@njit
def _buffs(js: Any, at: int) -> tuple[int, int]:
    """``[[name, ms_left], ...]``: the bits of the families we read, members joined by '|'."""
    bits = 0
    at += 1
    depth = 1
    while depth > 0:
        c = js[at]
        if c == _QUOTE:
            at += 1
            h = 0x811C9DC5
            while True:
                c = js[at]
                if c == _QUOTE or c == _BAR:
                    if h == H_RAGE:
                        bits |= BUFF_RAGE
                    elif h == H_SLOW:
                        bits |= BUFF_SLOW
                    h = 0x811C9DC5
                    if c == _QUOTE:
                        break
                else:
                    h = ((h ^ c) * 0x01000193) & 0xFFFFFFFF
                at += 1
        elif c == _OPEN:
            depth += 1
        elif c == _CLOSE:
            depth -= 1
        at += 1
    return bits, at


@njit
def _entity(js: Any, at: int, row: Any) -> int:
    """One positional entity row into 32 columns; columns an older engine leaves out stay -1.

    Straight-line, because the order of ENTITY_FIELDS is the engine's contract: ``check_engine_columns``.
    """
    at += 1
    for col in range(E_BOX0):
        row[col], at = _number(js, at)
        at += 1
    if js[at] == _OPEN:
        for col in range(E_BOX0, E_BOX0 + 4):
            row[col], at = _number(js, at + 1)
        at += 2
    else:
        for col in range(E_BOX0, E_BOX0 + 4):
            row[col] = -1
        at += 5
    row[E_TARGET], at = _number(js, at)
    row[E_PHASE], at = _number(js, at + 1)
    row[E_FACE_X], at = _number(js, at + 2)
    row[E_FACE_Y], at = _number(js, at + 1)
    row[E_SHIELD], at = _number(js, at + 2)
    at += 1
    if js[at + 1] == _CLOSE:
        row[E_BUFFS] = 0
        at += 2
    else:
        row[E_BUFFS], at = _buffs(js, at)
    for col in range(E_STATUS, ENTITY):
        if js[at] == _CLOSE:
            row[col] = -1
        else:
            row[col], at = _number(js, at + 1)
    while js[at] != _CLOSE:
        at = _skip(js, at + 1)
    return at + 1


@njit
def _player(js: Any, at: int, P: Any) -> int:
    """One player object into the row of its team."""
    row = np.full(PLAYER, -1, dtype=np.int32)
    row[P_ABILITIES] = 0
    row[P_EVOS] = 0
    row[P_PENDING] = 0
    row[P_PENDING_COST] = 0
    team = 0
    at += 1
    while js[at] != _END:
        if js[at] == _COMMA:
            at += 1
            continue
        at += 1
        h = 0x811C9DC5
        while js[at] != _QUOTE:
            h = ((h ^ js[at]) * 0x01000193) & 0xFFFFFFFF
            at += 1
        at += 2
        if h == K_TEAM:
            team, at = _number(js, at)
        elif h == K_ELIXIR:
            row[P_ELIXIR], at = _number(js, at)
        elif h == K_MIRROR:
            row[P_MIRROR], at = _number(js, at)
        elif h == K_PENDING_COST:
            row[P_PENDING_COST], at = _number(js, at)
        elif h == K_NEXT:
            row[P_NEXT], at = _number(js, at)
        elif h == K_CROWNS:
            row[P_CROWNS], at = _number(js, at)
        elif h == K_KING:
            row[P_KING_ACTIVE], at = _number(js, at)
        elif h == K_HAND:
            _, at = _numbers(js, at, row, P_HAND, 4)
        elif h == K_COSTS:
            _, at = _numbers(js, at, row, P_COSTS, 4)
        elif h == K_TOWER_HP:
            _, at = _numbers(js, at, row, P_TOWER_HP, 3)
        elif h == K_TOWER_MAX:
            _, at = _numbers(js, at, row, P_TOWER_MAX, 3)
        elif h == K_DECK:
            _, at = _numbers(js, at, row, P_DECK, 8)
        elif h == K_FORMS:
            _, at = _numbers(js, at, row, P_FORMS, 8)
        elif h == K_ABILITIES:
            row[P_ABILITIES], at = _rows(js, at, row, P_ABILITY, 3, 5, 0b11111, 5)
        elif h == K_EVO:
            row[P_EVOS], at = _rows(js, at, row, P_EVO, 8, 2, 0b101, 2)
        elif h == K_PENDING:
            row[P_PENDING], at = _rows(js, at, row, 0, 0, 0, 0, 0)
        else:
            at = _skip(js, at)
    P[team] = row
    return at + 1


@njit
def _objects(js: Any, at: int, out: Any) -> tuple[int, int]:
    """An array of flat number rows (spells, projectiles) into ``out``: (count, position after it)."""
    at += 1
    n = 0
    while js[at] != _CLOSE:
        if js[at] == _COMMA:
            at += 1
            continue
        if n < out.shape[0]:
            out[n, :] = -1
            _, at = _numbers(js, at, out[n], 0, out.shape[1])
        else:
            at = _skip(js, at)
        n += 1
    return n, at + 1


@njit
def parse_state(js: Any, G: Any, P: Any, E: Any, S: Any, J: Any) -> None:
    """Decode ``state_json`` bytes (uint8 ``[n]``) into the arrays of one battle.

    More entities, spells or projectiles than the arrays hold are counted in ``G[G_OVERFLOW]`` and left out.
    """
    at = 1
    while js[at] != _END:
        if js[at] == _COMMA:
            at += 1
            continue
        at += 1
        h = 0x811C9DC5
        while js[at] != _QUOTE:
            h = ((h ^ js[at]) * 0x01000193) & 0xFFFFFFFF
            at += 1
        at += 2
        if h == K_TICK:
            G[G_TICK], at = _number(js, at)
        elif h == K_TICK_MS:
            G[G_TICK_MS], at = _number(js, at)
        elif h == K_REGULAR:
            G[G_REGULAR], at = _number(js, at)
        elif h == K_OVERTIME_TICKS:
            G[G_OVERTIME_TICKS], at = _number(js, at)
        elif h == K_RATE:
            G[G_RATE], at = _number(js, at)
        elif h == K_OVERTIME:
            G[G_OVERTIME], at = _number(js, at)
        elif h == K_OVER:
            G[G_OVER], at = _number(js, at)
        elif h == K_WINNER:
            G[G_WINNER], at = _number(js, at)
        elif h == K_PLAYERS:
            at += 1
            while js[at] != _CLOSE:
                if js[at] == _COMMA:
                    at += 1
                    continue
                at = _player(js, at, P)
            at += 1
        elif h == K_ENTITIES:
            at += 1
            n = 0
            while js[at] != _CLOSE:
                if js[at] == _COMMA:
                    at += 1
                    continue
                if n < MAX_ENTITIES:
                    at = _entity(js, at, E[n])
                else:
                    at = _skip(js, at)
                n += 1
            at += 1
            G[G_ENTITIES] = min(n, MAX_ENTITIES)
            G[G_OVERFLOW] += max(0, n - MAX_ENTITIES)
        elif h == K_SPELLS:
            n, at = _objects(js, at, S)
            G[G_SPELLS] = min(n, MAX_OBJECTS)
            G[G_OVERFLOW] += max(0, n - MAX_OBJECTS)
        elif h == K_PROJECTILES:
            n, at = _objects(js, at, J)
            G[G_PROJECTILES] = min(n, MAX_OBJECTS)
            G[G_OVERFLOW] += max(0, n - MAX_OBJECTS)
        else:
            at = _skip(js, at)


# ---- one workspace a battle ----------------------------------------------------------------------------------
#: Offsets of the arrays inside a battle's int32 workspace row: one argument instead of five, because each array
#: argument of a compiled call costs as much as parsing 200 bytes.
AT_G = 0
AT_P = AT_G + 16
AT_E = AT_P + 2 * PLAYER
AT_S = AT_E + MAX_ENTITIES * ENTITY
AT_J = AT_S + MAX_OBJECTS * SPELL
STATE = AT_J + MAX_OBJECTS * PROJECTILE


@njit(inline="always")
def g_of(row: Any) -> Any:
    """``G[GLOBALS]`` of one battle's packed int32 row, a view; its neighbours below likewise."""
    return row[AT_G : AT_G + GLOBALS]


@njit(inline="always")
def p_of(row: Any) -> Any:
    """``P[2, PLAYER]``."""
    return row[AT_P:AT_E].reshape((2, PLAYER))


@njit(inline="always")
def e_of(row: Any) -> Any:
    """``E[MAX_ENTITIES, ENTITY]``."""
    return row[AT_E:AT_S].reshape((MAX_ENTITIES, ENTITY))


@njit(inline="always")
def s_of(row: Any) -> Any:
    """``S[MAX_OBJECTS, SPELL]``."""
    return row[AT_S:AT_J].reshape((MAX_OBJECTS, SPELL))


@njit(inline="always")
def j_of(row: Any) -> Any:
    """``J[MAX_OBJECTS, PROJECTILE]``."""
    return row[AT_J:STATE].reshape((MAX_OBJECTS, PROJECTILE))


@njit
def read_state(js: Any, row: Any) -> None:
    """Decode ``state_json`` bytes into a battle's workspace row (int32 ``[STATE]``)."""
    parse_state(js, g_of(row), p_of(row), e_of(row), s_of(row), j_of(row))


def check_engine_columns(core: Any) -> None:
    """Refuse an engine whose positional columns are not in the order the scanner reads.

    Raises:
        UserError: names the layout and asks for a RoyaleSim this package knows.
    """
    want = {
        "ENTITY_FIELDS": (
            "uid team kind card_id tower_slot x y hp max_hp radius flying deploy_ticks stun_ticks knockback_ticks "
            "footprint target_uid attack_phase facing shield buffs status_flags level mount_uid charge dest_x dest_y "
            "ability_ticks unit_type"
        ),
        "SPELL_FIELDS": "team card_id motion x y aim_x aim_y delay_ticks travelled length hits ticks_flown",
        "PROJECTILE_FIELDS": "team x y aim_x aim_y target_uid splash firer_card_id",
    }
    for export, text in want.items():
        names = text.split()
        have = [str(n) for n in getattr(core, export, ())]
        if have[: len(names)] != names:
            raise UserError(
                f"the installed royalesim sends {export} as {have}, and this release reads {names}; "
                "install the royalesim that royale_lightning's pyproject.toml asks for"
            )
