"""What one seat remembers of the match: RoyaleGym's ``MatchMemory``, as integers in an array.

The recurrence is RoyaleGym's to the last bit, its wrong counts included (an Elixir Golem's gift is not modelled,
a merged card is priced by its list price), because an observation must be the same wherever a bot plays. It
covers the default environment: no command delay and no ability presses; other settings run through
``EnvArena``. ``tests/battle/test_memory.py`` holds the two equal, battle for battle.

``M[2, MEMORY]`` int64, row = viewing team.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from royalegym.protocol import CardInfo, ElixirLaw, Placement

from ..jit import njit
from .state_json import (
    G_OVERTIME,
    G_REGULAR,
    G_TICK,
    P_ELIXIR,
    P_HAND,
    P_NEXT,
)

(M_TICK, M_EXACT, M_OWN, M_FOE, M_LEAK, M_LAST_CARD, M_LAST_TICK, M_PLAYS, M_QUEUED, M_RECENTS, M_COPY_OWN,
 M_COPY_FOE) = range(12)
M_HAND, M_FOE_HAND = 12, 16
#: Own cards behind the hand, next first; a played card waits here for a slot, so it can hold more than four.
M_QUEUE = 20
QUEUE = 12
#: The enemy's last eight plays, oldest first.
M_RECENT = 32
RECENT = 8
#: Bitsets over the catalogue: own cards seen, enemy cards seen.
M_OWN_DECK, M_SEEN = 40, 44
BITSET_WORDS = 4
MEMORY = 48

#: Columns of the law vector the recurrence reads.
(L_SCALE, L_GAIN_1, L_GAIN_2, L_GAIN_3, L_CAP, L_SPEEDUP, L_TRIPLE, L_SPACING) = range(8)


def law_vector(law: ElixirLaw) -> np.ndarray:
    """int64 ``[8]`` of RoyaleGym's elixir law."""
    return np.array(
        [law.scale, law.gain_1x, law.gain_2x, law.gain_3x, law.cap_fine, law.speedup_ticks, law.triple_ticks,
         gcd(law.gain_1x, law.gain_2x)],
        dtype=np.int64,
    )


def price_table(cards: list[CardInfo]) -> np.ndarray:
    """int64 ``[n]``: listed elixir, minus 1,000 for a Mirror (whose price depends on the last play)."""
    return np.array([c.elixir - (1000 if c.placement == Placement.MIRROR else 0) for c in cards], dtype=np.int64)


@njit
def seed_fine(milli: int, law: Any) -> int:
    """A reported bar in fine units, on the lattice a running bar moves on (``ElixirLaw.seed_fine``)."""
    lo = milli * law[L_SCALE] // 1000
    snapped = -(-lo // law[L_SPACING]) * law[L_SPACING]
    return snapped if snapped <= lo + law[L_SCALE] // 1000 - 1 else lo


@njit
def _regen(start: int, stop: int, regular: int, overtime: int, law: Any) -> int:
    if stop <= start:
        return 0
    if overtime:
        if law[L_GAIN_3] == 0:
            return (stop - start) * law[L_GAIN_2]
        fast = max(0, min(stop, regular + law[L_TRIPLE]) - start)
        return fast * law[L_GAIN_2] + (stop - start - fast) * law[L_GAIN_3]
    slow = max(0, min(stop, regular - law[L_SPEEDUP]) - start)
    return slow * law[L_GAIN_1] + (stop - start - slow) * law[L_GAIN_2]


@njit
def _mark(m: Any, at: int, card: int) -> None:
    # 62 bits a word: int64 arithmetic keeps its sign bit out of it, and 4 words hold 248 cards.
    m[at + card // 62] |= np.int64(1) << np.int64(card % 62)


@njit
def _note_own(m: Any) -> None:
    for k in range(4):
        if m[M_HAND + k] >= 0:
            _mark(m, M_OWN_DECK, m[M_HAND + k])
    for k in range(m[M_QUEUED]):
        if m[M_QUEUE + k] >= 0:
            _mark(m, M_OWN_DECK, m[M_QUEUE + k])


@njit
def has_card(m: Any, at: int, card: int) -> bool:
    """Whether the card set that begins in column ``at`` of a match memory (int64, 62 cards a column) holds ``card``."""
    return (m[at + card // 62] >> np.int64(card % 62)) & 1 == 1


@njit
def seed_memory(m: Any, team: int, G: Any, P: Any, law: Any) -> None:
    """Start of a match: everything forgotten, both bars read once (they are public then)."""
    m[:] = 0
    me, foe = P[team], P[1 - team]
    m[M_TICK] = G[G_TICK]
    m[M_EXACT] = 1
    m[M_OWN] = seed_fine(me[P_ELIXIR], law)
    m[M_FOE] = seed_fine(foe[P_ELIXIR], law)
    m[M_LAST_CARD] = -1
    m[M_LAST_TICK] = -1
    m[M_COPY_OWN] = -1
    m[M_COPY_FOE] = -1
    for k in range(4):
        m[M_HAND + k] = me[P_HAND + k]
        m[M_FOE_HAND + k] = foe[P_HAND + k]
    m[M_QUEUE] = me[P_NEXT]
    for k in range(1, 4):
        m[M_QUEUE + k] = -1
    m[M_QUEUED] = 4
    _note_own(m)


@njit
def _spent(m: Any, before: int, now: Any, copy: int, price: Any) -> int:
    """Elixir of the plays that hand slots show, and the card a Mirror would copy after them."""
    due = 0
    for k in range(4):
        card = m[before + k]
        if card >= 0 and card != now[P_HAND + k]:
            cost = price[card]
            if cost >= -500:
                m[copy] = card
            else:
                cost += 1000
                if m[copy] < 0:
                    m[M_EXACT] = 0
                else:
                    cost += price[m[copy]]
            due += cost
    return due


@njit
def observe(m: Any, team: int, G: Any, P: Any, law: Any, price: Any) -> None:
    """Advance one seat's memory to the state in ``G, P``; nothing moves unless the clock did."""
    tick = G[G_TICK]
    if tick < m[M_TICK]:
        seed_memory(m, team, G, P, law)
        return
    if tick == m[M_TICK]:
        return
    me, foe = P[team], P[1 - team]
    regen = _regen(m[M_TICK], tick, G[G_REGULAR], G[G_OVERTIME], law)
    own_due = _spent(m, M_HAND, me, M_COPY_OWN, price)
    foe_due = _spent(m, M_FOE_HAND, foe, M_COPY_FOE, price)
    raw = max(0, m[M_OWN] - own_due * law[L_SCALE]) + regen
    m[M_OWN] = min(law[L_CAP], raw)
    m[M_LEAK] += max(0, raw - law[L_CAP])
    m[M_FOE] = min(law[L_CAP], max(0, m[M_FOE] - foe_due * law[L_SCALE]) + regen)
    for k in range(4):
        card = m[M_HAND + k]
        if card >= 0 and card != me[P_HAND + k]:
            if m[M_QUEUED] < QUEUE:
                m[M_QUEUE + m[M_QUEUED]] = card
                m[M_QUEUED] += 1
            m[M_LAST_CARD] = card
            m[M_LAST_TICK] = tick
    for k in range(4):
        card = m[M_FOE_HAND + k]
        if card >= 0 and card != foe[P_HAND + k]:
            _mark(m, M_SEEN, card)
            m[M_PLAYS] += 1
            if m[M_RECENTS] == RECENT:
                for i in range(RECENT - 1):
                    m[M_RECENT + i] = m[M_RECENT + i + 1]
                m[M_RECENTS] -= 1
            m[M_RECENT + m[M_RECENTS]] = card
            m[M_RECENTS] += 1
    m[M_TICK] = tick
    if m[M_OWN] * 1000 // law[L_SCALE] != me[P_ELIXIR]:
        m[M_EXACT] = 0
        m[M_OWN] = seed_fine(me[P_ELIXIR], law)
    if m[M_FOE] * 1000 // law[L_SCALE] != foe[P_ELIXIR]:
        m[M_EXACT] = 0
    # One card leaves the queue's head for every card that newly stands in the hand.
    for k in range(4):
        card = me[P_HAND + k]
        if card >= 0:
            known = False
            for i in range(4):
                known |= m[M_HAND + i] == card
            if not known and m[M_QUEUED] > 0:
                for i in range(m[M_QUEUED] - 1):
                    m[M_QUEUE + i] = m[M_QUEUE + i + 1]
                m[M_QUEUED] -= 1
    m[M_QUEUE] = me[P_NEXT]
    if m[M_QUEUED] == 0:
        m[M_QUEUED] = 1
    while m[M_QUEUED] < 4:
        m[M_QUEUE + m[M_QUEUED]] = -1
        m[M_QUEUED] += 1
    for k in range(4):
        m[M_HAND + k] = me[P_HAND + k]
        m[M_FOE_HAND + k] = foe[P_HAND + k]
    _note_own(m)
