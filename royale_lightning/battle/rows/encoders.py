"""How the batched arena writes a row: one small object per observation it knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..engine.engine import decode_state
from ..engine.legality import find_one, zone_key
from ..engine.tables import C_CARDS, C_LAW, Tables
from ..jit import njit
from .entities import encode as encode_entities
from .entities import write_mask as write_entities_mask
from .entities_layout import ENTITIES, SMALL
from .spatial import write_spatial

#: Where an ``entities`` row counts the units it had no room for.
_LEFT_OUT = ENTITIES.offsets["small"] + SMALL.index("units_left_out")


class RowEncoder(ABC):
    """Writes one seat's row, mask included, from the arrays of a battle."""

    @abstractmethod
    def __init__(self, tables: Tables) -> None: ...

    @abstractmethod
    def write(
        self, out: np.ndarray, seat: int, row: np.ndarray, memory: np.ndarray, found: np.ndarray, battle: Any
    ) -> int:
        """Fill ``out``.

        Args:
            out: uint8 ``[row_bytes]``.
            seat: who looks.
            row: int32 ``[wire.STATE]``, the battle.
            memory: int64 ``[memory.MEMORY]``, the seat's, advanced to this state.
            found: int64 ``[4]``, the hand's placement grids (``legality.find``).
            battle: the raw battle, which stands at this state.

        Returns:
            How many entities or cells the row had no room for.
        """


@njit(nogil=True)
def _entities(out: Any, seat: int, row: Any, memory: Any, found: Any, scale: int, n_cards: int, grids: Any) -> int:
    encode_entities(out, seat, row, memory, scale, n_cards)
    write_entities_mask(out, found, grids)
    return out[_LEFT_OUT]


class EntitiesEncoder(RowEncoder):
    """The ``entities`` row."""

    def __init__(self, tables: Tables) -> None:
        self.cache = tables.cache
        self.scale, self.cards = int(tables.const[C_LAW]), int(tables.const[C_CARDS])

    def write(
        self, out: np.ndarray, seat: int, row: np.ndarray, memory: np.ndarray, found: np.ndarray, battle: Any
    ) -> int:
        return int(_entities(out, seat, row, memory, found, self.scale, self.cards, self.cache.grids))


# With the interpreter's lock: a grid's bytes, read right after its index, are surely there only for who has held the
# lock since they were written.
@njit
def _zone(row: Any, seat: int, zone_class: int, table_keys: Any, table_grid: Any) -> tuple[Any, int]:
    """Key and grid index (-1: nobody has worked it out yet) of where the seat's opponent could put a troop."""
    key = zone_key(row, seat, zone_class)
    return key, find_one(key, table_keys, table_grid)


@njit(nogil=True)
def _spatial(out: Any, seat: int, row: Any, memory: Any, found: Any, const: Any, zone: int, grids: Any) -> int:
    return write_spatial(out, seat, row, memory, found, const, zone, grids)


class SpatialEncoder(RowEncoder):
    """The ``spatial`` row. A zone nobody asked about yet costs one call of RoyaleGym's oracle."""

    def __init__(self, tables: Tables) -> None:
        self.cache = tables.cache
        self.const = tables.const

    def write(
        self, out: np.ndarray, seat: int, row: np.ndarray, memory: np.ndarray, found: np.ndarray, battle: Any
    ) -> int:
        c = self.cache
        while True:
            keys, grid, _ = c.table
            key, zone = _zone(row, seat, c.zone_class, keys, grid)
            # The table before the grids: an index of the one is good in any later state of the other.
            if zone >= 0:
                return int(_spatial(out, seat, row, memory, found, self.const, zone, c.grids))
            c.learn_zone(decode_state(battle), seat, int(key))


#: Observations the batched arena writes, by their short names.
ENCODERS: dict[str, type[RowEncoder]] = {"entities": EntitiesEncoder, "spatial": SpatialEncoder}


def make_encoder(observation: str, tables: Tables) -> RowEncoder:
    """The batched encoder of a shipped observation, by its short name (``PreparedBattle.shipped_observation``).

    Raises:
        KeyError: it has none.
    """
    return ENCODERS[observation](tables)
