"""The ``spatial`` row: RoyaleGym's default planes and vector in 1.4 KB instead of 53 KB, and back, bit for bit.

Almost all of ``SpatialObsBuilder()``'s 13,303 numbers are zeros, one-hots or the arena itself. A row keeps what is
left, and nothing is computed when it is read: planes as lists of the cells that are not zero, hit points as the
integers RoyaleGym divides by 1,000, one-hots as indices, multi-hots as bits, the other numbers as RoyaleGym's own
float32. Whoever writes a row, from an observation (:func:`pack`) or from the engine's arrays (``spatial.py``),
writes the same bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from royalegym.action import TileActionParser
from royalegym.obs import FAIR_SPATIAL_CHANNELS, HP_SCALE, SPATIAL_CLIP, vector_layout, vector_offsets

from ...errors import UserError
from ..engine.engine import shared_engine
from .layout import Field, Loss, RowLayout

DECODER = "spatial/1"
PLANES, TILES_Y, TILES_X = len(FAIR_SPATIAL_CHANNELS), 32, 18
TILES = TILES_Y * TILES_X
#: Planes by how they are kept: hit points, static ones (in the table), one of bits, and all others as counts.
HP_PLANES, STATIC_PLANES, ZONE_PLANE = (4, 9), (12, 13), 14
COUNT_PLANES = tuple(p for p in range(PLANES) if p not in (*HP_PLANES, *STATIC_PLANES, ZONE_PLANE))
#: Cells a row holds with a count, and with hit points. In 45 battles of random decks that spend all they can the most
#: were 58 and 41; cells beyond are left out, the highest first, and counted in ``left_out``.
MAX_CELLS, MAX_HP_CELLS = 160, 96
#: What an unused entry points at: a static cell, which is written after the lists.
UNUSED_CELL = STATIC_PLANES[0] * TILES
#: Where RoyaleGym's clip of a plane (64) lies in hit points.
TOP_HP = int(SPATIAL_CLIP * HP_SCALE)

#: Fields of the vector by how they are kept, in vector order.
SCALARS = (
    "own_elixir", "enemy_elixir", "own_hand_cost", "own_hand_affordable", "own_hand_pending", "own_pending_cost",
    "own_ticks_since_play", "own_elixir_leaked", "enemy_plays", "own_tower_hp", "enemy_tower_hp", "crowns",
    "king_active", "clock", "elixir_rate",
)
ONE_HOT = ("own_hand_cards", "own_next_card", "own_cycle_6_8", "own_last_card")
MULTI_HOT = ("own_deck", "enemy_cards_seen", "enemy_possible_hand")
N_SCALARS, N_ONE_HOT = 34, 9


@dataclass(frozen=True)
class Plan:
    """Where the parts of a row belong, read from a layout's table.

    Attributes:
        width: of the vector.
        cards: of the catalogue.
        scalars: int64 ``[N_SCALARS]``, their places in the vector.
        one_hot: int64 ``[N_ONE_HOT]``, where each one-hot begins.
        multi_hot: where each multi-hot begins.
        static: float32 ``[2, 32, 18]``, the static planes.
    """

    width: int
    cards: int
    scalars: np.ndarray
    one_hot: np.ndarray
    multi_hot: tuple[int, ...]
    static: np.ndarray


@lru_cache(maxsize=8)
def plan_of(layout: RowLayout) -> Plan:
    """How a ``spatial`` row unfolds into planes and vector, read back from the table that its layout carries."""
    t = json.loads(layout.table)
    quarters = np.frombuffer(base64.b64decode(t["static_quarters"]), np.uint8)
    return Plan(
        t["width"], t["cards"], np.array(t["scalars"]), np.array(t["one_hot"]), tuple(t["multi_hot"]),
        (quarters.reshape(2, TILES_Y, TILES_X) / 4).astype(np.float32),
    )


@lru_cache(maxsize=8)
def spatial_layout(n_actions: int) -> RowLayout:
    """The row of ``SpatialObsBuilder()`` for the installed engine.

    Raises:
        UserError: the installed RoyaleGym's observation has other planes, fields or tiles than this release knows.
    """
    engine = shared_engine()
    n = len(engine.cards())
    parser = TileActionParser()
    parser.bind(engine)
    arena = engine.arena()
    known = {*SCALARS, *ONE_HOT, *MULTI_HOT}
    fields = vector_layout(n)
    if (PLANES, arena.tiles_y, arena.tiles_x) != (20, TILES_Y, TILES_X) or {f.key for f in fields} != known:
        raise UserError(
            "observation spatial packs RoyaleGym's 20 planes of 32 x 18 tiles and the 22 fields of its vector, and the "
            "installed royalegym has others; install the one that royale_lightning's pyproject.toml asks for"
        )
    at = vector_offsets(n)
    width = sum(f.size for f in fields)
    half = arena.half
    # A tile has four half-cells, so the static planes are whole quarters.
    oracle = parser.oracle
    quarters = np.stack([
        g.reshape(TILES_Y, half, TILES_X, half).sum(axis=(1, 3)) for g in (oracle.water, oracle.nodeploy)
    ]).astype(np.uint8)
    if not np.array_equal(quarters, quarters[:, ::-1, ::-1]):
        raise UserError(
            "observation spatial needs an arena that looks alike from both seats, and this engine's does not; use "
            "another observation"
        )
    table: dict[str, Any] = {
        "width": width,
        "cards": n,
        "scalars": [i for k in SCALARS for i in range(at[k].start, at[k].stop)],
        "one_hot": [i for k in ONE_HOT for i in range(at[k].start, at[k].stop, n + 1)],
        "multi_hot": [at[k].start for k in MULTI_HOT],
        "static_quarters": base64.b64encode(quarters.tobytes()).decode(),
    }
    assert len(table["scalars"]) == N_SCALARS
    assert len(table["one_hot"]) == N_ONE_HOT
    packed = (
        Field("scalars", "float32", (N_SCALARS,)),
        Field("cell", "uint16", (MAX_CELLS,)),
        Field("hp_cell", "uint16", (MAX_HP_CELLS,)),
        Field("hp", "uint16", (MAX_HP_CELLS,)),
        Field("count", "uint8", (MAX_CELLS,)),
        Field("one_hot", "uint8", (N_ONE_HOT,)),
        Field("multi_hot", "uint8", (len(MULTI_HOT), -(-n // 8))),
        Field("zone", "uint8", (TILES // 8,)),
        Field("left_out", "uint8", (1,)),
    )
    shown = (Field("spatial", "float32", (PLANES, TILES_Y, TILES_X)), Field("vector", "float32", (width,)))
    return RowLayout(DECODER, shown, n_actions, DECODER, packed, json.dumps(table, separators=(",", ":")))


def pack(obs: Mapping[str, np.ndarray], views: Mapping[str, np.ndarray], layout: RowLayout) -> Loss:
    """Fill a row of zeros from RoyaleGym's observation of one seat.

    Args:
        obs: ``spatial`` and ``vector`` as ``SpatialObsBuilder()`` gives them.
        views: of the row, by stored field.
        layout: :func:`spatial_layout`.
    """
    p = plan_of(layout)
    vector = obs["vector"]
    flat = obs["spatial"].reshape(PLANES, TILES)
    dense = np.zeros((PLANES, TILES), dtype=np.float32)
    dense[list(COUNT_PLANES)] = flat[list(COUNT_PLANES)]
    hp = np.zeros((PLANES, TILES), dtype=np.int64)
    # float32(hp / 1000) * 1000 is within half of hp up to the clip.
    hp[list(HP_PLANES)] = np.rint(flat[list(HP_PLANES)].astype(np.float64) * HP_SCALE)
    left_out = _list(dense.reshape(-1), views["cell"], views["count"])
    left_out += _list(hp.reshape(-1), views["hp_cell"], views["hp"])
    views["scalars"][:] = vector[p.scalars]
    for i, at in enumerate(p.one_hot):
        views["one_hot"][i] = vector[at : at + p.cards + 1].argmax()
    for i, at in enumerate(p.multi_hot):
        views["multi_hot"][i] = np.packbits(vector[at : at + p.cards] > 0)
    views["zone"][:] = np.packbits(flat[ZONE_PLANE] > 0)
    views["left_out"][0] = min(255, left_out)
    return Loss(left_out, 0)


def _list(values: np.ndarray, cell: np.ndarray, kept: np.ndarray) -> int:
    """The cells that are not zero, in ascending order; returns how many there was no room for."""
    at = np.flatnonzero(values)
    n = min(len(at), len(cell))
    cell[:] = UNUSED_CELL
    kept[:] = 0
    cell[:n] = at[:n]
    kept[:n] = values[at[:n]]
    return len(at) - n


def decode(rows: np.ndarray, layout: RowLayout) -> dict[str, np.ndarray]:
    """RoyaleGym's arrays of rows uint8 ``[n, row_bytes]``.

    Returns:
        ``spatial`` float32 ``[n, 20, 32, 18]`` and ``vector`` float32 ``[n, width]``.
    """
    p, v, n = plan_of(layout), layout.views(rows), len(rows)
    each = np.arange(n)[:, None]
    flat = np.zeros((n, PLANES * TILES), dtype=np.float32)
    flat[each, v["cell"]] = v["count"]
    flat[each, v["hp_cell"]] = v["hp"].astype(np.float64) / HP_SCALE
    planes = flat.reshape(n, PLANES, TILES_Y, TILES_X)
    planes[:, STATIC_PLANES[0] : STATIC_PLANES[1] + 1] = p.static
    planes[:, ZONE_PLANE] = np.unpackbits(v["zone"], axis=1).reshape(n, TILES_Y, TILES_X)
    vector = np.zeros((n, p.width), dtype=np.float32)
    vector[:, p.scalars] = v["scalars"]
    vector[each, p.one_hot + v["one_hot"]] = 1
    for i, at in enumerate(p.multi_hot):
        vector[:, at : at + p.cards] = np.unpackbits(v["multi_hot"][:, i], axis=1, count=p.cards)
    return {"spatial": planes, "vector": vector}
