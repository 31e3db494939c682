"""How one observation is laid out as bytes: the row that crosses processes and lies in the buffer.

A row is a C struct without padding: fields one behind another, 16-bit fields first so that every field is
aligned. numpy and torch read the same bytes through :meth:`RowLayout.views` and
``royale_lightning.rollout.buffer.unpack``; the digest of the layout is part of every snapshot's record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..errors import UserError

#: Name of the field that every layout ends with: the legal actions, bit-packed, most significant bit first
#: (``numpy.packbits``). Action 0, the no-op, is always legal and therefore not stored: bit k is action k + 1.
MASK = "action_mask"


@dataclass(frozen=True)
class Field:
    """One array of a row.

    Args:
        name: the key under which a network finds it.
        dtype: a numpy dtype name (``uint8``, ``int16``, ``uint16``, ``float16``, ``float32``).
        shape: its shape in one row; ``()`` is a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize * prod(self.shape))


@dataclass(frozen=True)
class RowLayout:
    """The fields of one row, in byte order, and how many actions its packed mask covers.

    Args:
        name: what made the row (``entities``, ``spatial``, or a class path); part of the digest.
        fields: every field but the mask, widest dtype first.
        n_actions: actions of the action space, the no-op included.
    """

    name: str
    fields: tuple[Field, ...]
    n_actions: int

    @cached_property
    def mask_bytes(self) -> int:
        return (self.n_actions - 1 + 7) // 8

    @cached_property
    def offsets(self) -> dict[str, int]:
        at, out = 0, {}
        for f in self.fields:
            out[f.name] = at
            at += f.nbytes
        out[MASK] = at
        return out

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row, the packed mask included, rounded up to a multiple of 8."""
        return -(-(self.offsets[MASK] + self.mask_bytes) // 8) * 8

    @cached_property
    def digest(self) -> str:
        """16 hex digits over everything that decides how the bytes are read."""
        text = json.dumps(
            [self.name, [(f.name, f.dtype, f.shape) for f in self.fields], self.n_actions],
            separators=(",", ":"),
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def views(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Views of ``rows`` (uint8 ``[n, row_bytes]``), one per field, the mask still packed."""
        n = rows.shape[0]
        out = {}
        for f in self.fields:
            at = self.offsets[f.name]
            out[f.name] = rows[:, at : at + f.nbytes].view(f.dtype).reshape((n, *f.shape))
        out[MASK] = rows[:, self.offsets[MASK] : self.offsets[MASK] + self.mask_bytes]
        return out

    def pack(self, obs: Mapping[str, Any], mask: np.ndarray, out: np.ndarray) -> None:
        """Write a RoyaleGym observation and its mask as one row, the bytes the arenas write.

        Args:
            obs: one seat's observation; keys that are no field of this layout are ignored.
            mask: legal actions, ``[n_actions]``.
            out: uint8 ``[row_bytes]``.

        Raises:
            UserError: a field is missing or has another shape, or the mask covers another action space.
        """
        views = self.views(out[None])
        for f in self.fields:
            if f.name not in obs:
                raise UserError(
                    f"the observation has no key {f.name!r}, so it is not {self.name} (its keys: {', '.join(obs)}); "
                    "build the environment with that observation"
                )
            value = np.asarray(obs[f.name])
            if value.shape != f.shape:
                raise UserError(
                    f"observation key {f.name!r} has shape {value.shape}, where {self.name} has {f.shape}"
                )
            views[f.name][0] = value
        if len(mask) != self.n_actions:
            raise UserError(f"the mask covers {len(mask)} actions, where {self.name} was laid out for {self.n_actions}")
        views[MASK][0] = self.pack_mask(mask)

    def pack_mask(self, mask: np.ndarray) -> np.ndarray:
        """The packed bytes of a mask over all actions (bool or int8 ``[n_actions]``)."""
        return np.packbits(np.asarray(mask[1:], dtype=bool))

    def unpack_mask(self, packed: np.ndarray) -> np.ndarray:
        """bool ``[..., n_actions]`` from packed bytes ``[..., mask_bytes]``."""
        bits = np.unpackbits(packed, axis=-1, count=self.n_actions - 1).astype(bool)
        one = np.ones((*bits.shape[:-1], 1), dtype=bool)
        return np.concatenate([one, bits], axis=-1)
