"""Any ``Dict`` observation in a small row: how each key is stored, decided from its space and from played states.

A key is stored whole, one of three or more dimensions plane by plane (its first axis). Whole numbers are kept exactly
in the smallest of bits, uint8, uint16 and int16 that holds the declared bounds; other numbers in float16 where that is
within 1/2,048 of the declared range (of the range seen, where none is declared), else in float32. A plane that looked
the same in every state is kept once, in the table. What a later observation holds beyond that is clipped or rounded,
and counted. Nothing of a key can be judged from a blank plane, so that is float16.

The table is a function of the observation, the action space, the decision length, the delay and the engine: states are
played on random decks from true starts, whatever a run trains on, so that a bot finds the same table anywhere.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces

from ...errors import UserError
from .layout import Field, Loss, RowLayout

DECODER = "codec/1"
#: Fewer states show too little of a battle: overtime, a fallen tower, the rarer cards.
LEAST_STATES = 1000
#: Error that float16 may make, in parts of the range.
TOLERANCE = 2.0**-11
#: Whole numbers: (kind, least, most), the smallest first.
_WHOLE = (("bits", 0, 1), ("uint8", 0, 255), ("uint16", 0, 65535), ("int16", -32768, 32767))
_RANGE = {**{kind: (lo, hi) for kind, lo, hi in _WHOLE}, "int32": (-(2**31), 2**31 - 1), "float16": (-65504, 65504)}


def shown_dtype(dtype: Any) -> str:
    """What a network sees of a declared dtype: float32, or an integer type torch computes on."""
    d = np.dtype(dtype)
    if d.kind == "f":
        return "float32"
    return d.name if d.name in ("uint8", "int16", "uint16", "int32") else "uint8" if d.kind == "b" else "int32"


@dataclass
class Seen:
    """What the played states showed of one key, ``[planes]`` each."""

    planes: int
    first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    low: np.ndarray = field(default_factory=lambda: np.zeros(0))
    high: np.ndarray = field(default_factory=lambda: np.zeros(0))
    whole: np.ndarray = field(default_factory=lambda: np.zeros(0))
    same: np.ndarray = field(default_factory=lambda: np.zeros(0))
    error: np.ndarray = field(default_factory=lambda: np.zeros(0))
    states: int = 0

    def see(self, value: Any) -> None:
        x = np.asarray(value, dtype=np.float64).reshape(self.planes, -1)
        if not np.isfinite(x).all():
            raise ValueError("holds a number that is not finite")
        low, high, whole = x.min(1), x.max(1), (x == np.rint(x)).all(1)
        error = np.abs(x.clip(-65504, 65504).astype(np.float16) - x).max(1)
        if not self.states:
            self.first, self.low, self.high, self.whole, self.error = x, low, high, whole, error
            self.same = np.ones(self.planes, dtype=bool)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.whole, self.error = self.whole & whole, np.maximum(self.error, error)
        self.same = self.same & (x == self.first).all(1)
        self.states += 1

    def kinds(self, space: spaces.Box) -> tuple[list[str], list[float]]:
        """The storage of each plane, and the error float16 may make there."""
        lows = space.low.astype(np.float64).reshape(self.planes, -1).min(1)
        highs = space.high.astype(np.float64).reshape(self.planes, -1).max(1)
        kinds, tolerances = [], []
        integer = np.dtype(space.dtype or np.float32).kind in "iub"
        for p in range(self.planes):
            low, high = float(lows[p]), float(highs[p])
            declared = bool(np.isfinite(low) and np.isfinite(high))
            if not declared:
                # 16 bits at least: what was seen is no bound.
                low, high = min(0.0, float(self.low[p])), max(256.0, float(self.high[p]))
            tolerance = TOLERANCE * (high - low if declared else float(self.high[p] - self.low[p]))
            blank = self.low[p] == self.high[p]
            if self.same[p] and not blank and self.planes > 1:
                kind = "static"
            elif integer or (self.whole[p] and not blank):
                other = "int32" if integer else "float32"
                kind = next((k for k, lo, hi in _WHOLE if lo <= low and high <= hi), other)
            else:
                kind = "float16" if max(-low, high) <= 65504 and self.error[p] <= tolerance else "float32"
            kinds.append(kind)
            tolerances.append(tolerance)
        return kinds, tolerances


@dataclass(frozen=True)
class Group:
    """Planes of a key that are stored alike: ``planes`` int64 ``[n]``, under the stored field's name."""

    kind: str
    name: str
    planes: np.ndarray
    tolerance: np.ndarray


@dataclass(frozen=True)
class KeyPlan:
    """One key: ``dtype`` as a network sees it; ``static`` ``[planes, cells]``, zero where a plane is not static."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    planes: int
    groups: tuple[Group, ...]
    static: np.ndarray
    static_planes: np.ndarray

    @property
    def cells(self) -> int:
        return prod(self.shape) // self.planes


@lru_cache(maxsize=8)
def plans_of(layout: RowLayout) -> tuple[KeyPlan, ...]:
    """How each key of a fitted codec is packed and unpacked, read back from the table that its layout carries.

    Args:
        layout: of a codec's rows.

    Returns:
        One plan a key, in the order of the observation.
    """
    out = []
    for key in json.loads(layout.table):
        shape, kinds = tuple(key["shape"]), np.array(key["kinds"])
        tolerance = np.array(key["tolerance"])
        at = {str(k): np.flatnonzero(kinds == k) for k in dict.fromkeys(kinds)}
        groups = tuple(Group(k, f"{key['name']}/{k}", p, tolerance[p]) for k, p in at.items() if k != "static")
        cells = prod(shape) // len(kinds)
        static_planes = at.get("static", np.zeros(0, dtype=np.int64))
        static = np.zeros((len(kinds), cells), dtype=key["dtype"])
        raw = zlib.decompress(base64.b64decode(key["static"]))
        static[static_planes] = np.frombuffer(raw, key["dtype"]).reshape(-1, cells)
        out.append(KeyPlan(key["name"], shape, key["dtype"], len(kinds), groups, static, static_planes))
    return tuple(out)


def decide(boxes: Mapping[str, spaces.Box], seen: Mapping[str, Seen], name: str, n_actions: int) -> RowLayout:
    """The layout of an observation.

    Args:
        boxes: declared space of every key.
        seen: what at least :data:`LEAST_STATES` states showed of it.

    Raises:
        UserError: fewer states.
    """
    fields, packed, table = [], [], []
    for key, box in boxes.items():
        s = seen[key]
        if s.states < LEAST_STATES:
            raise UserError(
                f"how observation key {key!r} is stored cannot be decided from {s.states} states; play at least "
                f"{LEAST_STATES:,} (battle.codec_states)"
            )
        kinds, tolerance = s.kinds(box)
        shape, dtype = tuple(box.shape), shown_dtype(box.dtype)
        cells = prod(shape) // s.planes
        fields.append(Field(key, dtype, shape))
        static = s.first[[k == "static" for k in kinds]].astype(dtype)
        table.append({
            "name": key, "shape": shape, "dtype": dtype, "kinds": kinds, "tolerance": tolerance,
            "static": base64.b64encode(zlib.compress(static.tobytes(), 9)).decode(),
        })
        for kind in dict.fromkeys(kinds):
            n = kinds.count(kind)
            if kind == "bits":
                packed.append(Field(f"{key}/bits", "uint8", (n, -(-cells // 8))))
            elif kind != "static":
                packed.append(Field(f"{key}/{kind}", kind, (n, cells)))
    packed.sort(key=lambda f: (-np.dtype(f.dtype).itemsize, f.name))
    return RowLayout(name, tuple(fields), n_actions, DECODER, tuple(packed), json.dumps(table, separators=(",", ":")))


def pack(obs: Mapping[str, np.ndarray], views: Mapping[str, np.ndarray], layout: RowLayout) -> Loss:
    """Fill a row of zeros; returns how many numbers its storage could not hold, and how many it rounded too far."""
    clipped = rounded = 0
    for plan in plans_of(layout):
        value = obs[plan.name].reshape(plan.planes, -1)
        if plan.static_planes.size:
            at = plan.static_planes
            clipped += int((value[at].astype(plan.dtype) != plan.static[at]).sum())
        for g in plan.groups:
            x = value[g.planes].astype(np.float64)
            if g.kind == "float32":
                views[g.name][...] = x
                continue
            y = x if g.kind == "float16" else np.rint(x)
            lo, hi = _RANGE[g.kind]
            cut = np.nan_to_num(y, nan=0.0).clip(lo, hi)
            clipped += int((cut != y).sum())
            if g.kind == "float16":
                cut = cut.astype(np.float16)
                rounded += int((np.abs(cut - x) > g.tolerance[:, None]).sum())
            else:
                rounded += int((y != x).sum())
            views[g.name][...] = np.packbits(cut > 0, axis=1) if g.kind == "bits" else cut
    return Loss(clipped, rounded)


def decode(rows: np.ndarray, layout: RowLayout) -> dict[str, np.ndarray]:
    """Every key ``[n, *shape]`` of rows uint8 ``[n, row_bytes]``."""
    views, n = layout.views(rows), len(rows)
    out = {}
    for plan in plans_of(layout):
        value = np.repeat(plan.static[None], n, axis=0)
        for g in plan.groups:
            stored = views[g.name]
            value[:, g.planes] = np.unpackbits(stored, axis=2, count=plan.cells) if g.kind == "bits" else stored
        out[plan.name] = value.reshape((n, *plan.shape))
    return out
