"""The compiled match memories as RoyaleGym's ``save_memory`` bytes and back.

So a state that one arena saved plays in the other, and in any RoyaleGym environment.
"""

from __future__ import annotations

import threading

import numpy as np
from royalegym import SpatialObsBuilder
from royalegym.action import TileActionParser
from royalegym.obs import MatchMemory
from royalegym.protocol import BattleState

from .engine import shared_engine
from .memory import (
    BITSET_WORDS,
    M_COPY_FOE,
    M_COPY_OWN,
    M_EXACT,
    M_FOE,
    M_FOE_HAND,
    M_HAND,
    M_LAST_CARD,
    M_LAST_TICK,
    M_LEAK,
    M_OWN,
    M_OWN_DECK,
    M_PLAYS,
    M_QUEUE,
    M_QUEUED,
    M_RECENT,
    M_RECENTS,
    M_SEEN,
    M_TICK,
    MEMORY,
    QUEUE,
)

#: Cards of one word of a bitset (``memory._mark``).
_BITS = 62


def _cards(m: np.ndarray, at: int, n: int) -> np.ndarray:
    """bool ``[n]`` of a bitset."""
    card = np.arange(n)
    return (m[at + card // _BITS] >> (card % _BITS) & 1).astype(bool)


def _words(cards: np.ndarray) -> np.ndarray:
    """A bitset, int64 ``[BITSET_WORDS]``, of bool ``[n]``."""
    out = np.zeros(BITSET_WORDS, dtype=np.int64)
    for card in np.flatnonzero(cards).tolist():
        out[card // _BITS] |= np.int64(1) << np.int64(card % _BITS)
    return out


def to_royalegym(m: np.ndarray, memory: MatchMemory) -> None:
    """Write one seat's memory, int64 ``[MEMORY]``, into RoyaleGym's, seeded from the state that ``m`` stands at."""
    # What is not set here (ability rows, waiting commands) is what ``seed`` took from this very state.
    v = m.tolist()
    memory.tick, memory.exact = v[M_TICK], bool(v[M_EXACT])
    memory.own_fine, memory.foe_fine, memory.leak_fine = v[M_OWN], v[M_FOE], v[M_LEAK]
    memory.own_hand, memory.foe_hand = v[M_HAND : M_HAND + 4], v[M_FOE_HAND : M_FOE_HAND + 4]
    memory.own_cycle = v[M_QUEUE : M_QUEUE + v[M_QUEUED]]
    memory.own_last_card, memory.own_last_play_tick = v[M_LAST_CARD], v[M_LAST_TICK]
    memory.foe_plays, memory.foe_recent = v[M_PLAYS], v[M_RECENT : M_RECENT + v[M_RECENTS]]
    memory.last_play = [v[M_COPY_OWN], v[M_COPY_FOE]]
    memory.own_deck = _cards(m, M_OWN_DECK, memory.num_cards)
    memory.foe_seen = _cards(m, M_SEEN, memory.num_cards)


def from_royalegym(memory: MatchMemory, m: np.ndarray) -> None:
    """Fill one seat's memory, int64 ``[MEMORY]``, from RoyaleGym's.

    Raises:
        ValueError: RoyaleGym's remembers more than the array holds.
    """
    if len(memory.own_cycle) > QUEUE:
        raise ValueError(f"a memory holds {len(memory.own_cycle)} cards behind the hand; the arena keeps {QUEUE}")
    m[:] = 0
    m[M_TICK], m[M_EXACT] = memory.tick, memory.exact
    m[M_OWN], m[M_FOE], m[M_LEAK] = memory.own_fine, memory.foe_fine, memory.leak_fine
    m[M_HAND : M_HAND + 4], m[M_FOE_HAND : M_FOE_HAND + 4] = memory.own_hand, memory.foe_hand
    m[M_QUEUE : M_QUEUE + len(memory.own_cycle)] = memory.own_cycle
    m[M_QUEUED] = len(memory.own_cycle)
    m[M_LAST_CARD], m[M_LAST_TICK] = memory.own_last_card, memory.own_last_play_tick
    m[M_PLAYS], m[M_RECENTS] = memory.foe_plays, len(memory.foe_recent)
    m[M_RECENT : M_RECENT + len(memory.foe_recent)] = memory.foe_recent
    m[M_COPY_OWN], m[M_COPY_FOE] = memory.last_play
    m[M_OWN_DECK : M_OWN_DECK + BITSET_WORDS] = _words(memory.own_deck)
    m[M_SEEN : M_SEEN + BITSET_WORDS] = _words(memory.foe_seen)


class MemoryBytes:
    """Both seats' memories, int64 ``[2 * MEMORY]`` as the batched arena keeps them, to bytes and back.

    One for all threads of a process. RoyaleGym's builder writes and reads the bytes, so its checks hold: catalogue,
    calibration, command delay, tick.
    """

    def __init__(self) -> None:
        parser = TileActionParser()
        parser.bind(shared_engine())
        # Any builder without options of its own: they all keep the same memories.
        self.builder = SpatialObsBuilder()
        self.builder.bind(shared_engine(), parser)
        self._lock = threading.Lock()

    def first(self, state: BattleState) -> bytes:
        """The memories of a battle that begins at ``state``."""
        with self._lock:
            self.builder.reset(state)
            return self.builder.save_memory()

    def write(self, ints: np.ndarray, state: BattleState) -> bytes:
        """The memories of a battle that stands at ``state``, both advanced to it."""
        with self._lock:
            self.builder.reset(state)
            for team, memory in self.builder.memory.items():
                to_royalegym(ints[team * MEMORY : (team + 1) * MEMORY], memory)
            return self.builder.save_memory()

    def read(self, data: bytes, state: BattleState, ints: np.ndarray) -> None:
        """Fill ``ints`` from bytes saved at ``state``.

        Raises:
            ValueError: RoyaleGym refuses the bytes, or they remember more than the arrays hold.
        """
        with self._lock:
            self.builder.reset(state)
            self.builder.load_memory(data, state)
            for team, memory in self.builder.memory.items():
                from_royalegym(memory, ints[team * MEMORY : (team + 1) * MEMORY])
