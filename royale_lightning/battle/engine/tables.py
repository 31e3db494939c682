"""What all fast games of a process share: placement grids and the constants of card table and rules."""

from __future__ import annotations

import numpy as np
from royalegym.protocol import ElixirLaw

from .engine import shared_engine
from .legality import GridCache
from .memory import law_vector, price_table
from .saved_memory import MemoryBytes

#: Constants in front of the law, prices and classes: lockout, frozen tiebreak, cards, full bar in milli.
C_LOCKOUT, C_FROZEN, C_CARDS, C_FULL = range(4)
C_LAW, C_PRICE = 4, 12


class Tables:
    """Made once a process.

    Attributes:
        cache: placement grids.
        memories: writes and reads saved match memories.
        const: int64, ``[lockout, frozen, cards, full, law (8), price (cards), class (cards, 2)]``.
    """

    def __init__(self) -> None:
        engine = shared_engine()
        self.cache = GridCache(engine)
        self.memories = MemoryBytes()
        cards = list(engine.cards())
        law = ElixirLaw.load(engine.calibration)
        head = [self.cache.lockout, int(self.cache.frozen), len(cards), 1000 * engine.calibration.int("match.MAX_MANA")]
        self.const = np.concatenate([
            np.array(head, dtype=np.int64), law_vector(law), price_table(cards), self.cache.card_class.reshape(-1),
        ])
