"""How one observation is laid out as bytes: the row that crosses processes and lies in the buffer.

A row is a C struct without padding: fields one behind another, the widest dtype first so that every field is
aligned. numpy and torch read the same bytes through :meth:`RowLayout.views` and
``royale_lightning.rollout.minibatch.unpack``; the digest of the layout is part of every snapshot's record.

Most rows hold what a network sees. A compact one holds less, in ``stored``, and names the decoder that makes
``fields`` of it: one in numpy (``battle.rows.row_codecs``), one in torch (``nn.decoders``).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

#: Name of the field that every layout ends with: the legal actions, bit-packed, most significant bit first
#: (``numpy.packbits``). Action 0, the no-op, is always legal and therefore not stored: bit k is action k + 1.
MASK = "action_mask"


class Loss(NamedTuple):
    """Numbers of an observation that a row does not hold exactly: cut to what its storage holds, or rounded."""

    clipped: int
    rounded: int

    def plus(self, other: Loss) -> Loss:
        return Loss(self.clipped + other.clipped, self.rounded + other.rounded)


EXACT = Loss(0, 0)


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
    """What a network sees of one row, how the row holds it, and how many actions its packed mask covers.

    Args:
        name: what made the row (``entities/1``, ``spatial/1``, or a class path); part of the digest.
        fields: every field a network sees but the mask; without a decoder also the row's own, widest dtype first.
        n_actions: actions of the action space, the no-op included.
        decoder: name of what makes ``fields`` of the stored bytes; empty where they are stored as they are.
        packed: the row's own fields where a decoder makes the others of them, widest dtype first.
        table: constants the decoder needs, as JSON; part of the digest, so a row is never read by another table.
        frames: how many frames one row holds, oldest first (:meth:`stacked`).
        frame: layout of each, where there are several; ``fields`` then have a leading axis of frames, and everything
            here that reads or writes a row concerns the newest.
    """

    name: str
    fields: tuple[Field, ...]
    n_actions: int
    decoder: str = ""
    packed: tuple[Field, ...] = ()
    table: str = ""
    frames: int = 1
    frame: RowLayout | None = None

    def stacked(self, frames: int) -> RowLayout:
        """Rows of several frames of this layout; itself for one."""
        if frames == 1:
            return self
        fields = tuple(Field(f.name, f.dtype, (frames, *f.shape)) for f in self.fields)
        return replace(self, fields=fields, packed=self.stored, frames=frames, frame=self)

    @property
    def single(self) -> RowLayout:
        """The layout of one frame."""
        return self.frame or self

    @property
    def stored(self) -> tuple[Field, ...]:
        """A frame's own fields, in byte order."""
        return self.packed if self.decoder or self.frame else self.fields

    @cached_property
    def mask_bytes(self) -> int:
        return (self.n_actions - 1 + 7) // 8

    @cached_property
    def offsets(self) -> dict[str, int]:
        at, out = (self.frames - 1) * self.frame.row_bytes if self.frame else 0, {}
        for f in self.stored:
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
        if self.frame:
            return hashlib.sha256(f"{self.frame.digest} x {self.frames}".encode()).hexdigest()[:16]
        parts = [self.name, [(f.name, f.dtype, f.shape) for f in self.fields], self.n_actions]
        if self.decoder:
            parts += [self.decoder, [(f.name, f.dtype, f.shape) for f in self.packed], self.table]
        text = json.dumps(parts, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def views(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Views of ``rows`` (uint8 ``[n, row_bytes]``), one per stored field, the mask still packed."""
        n = rows.shape[0]
        out = {}
        for f in self.stored:
            at = self.offsets[f.name]
            out[f.name] = rows[:, at : at + f.nbytes].view(f.dtype).reshape((n, *f.shape))
        out[MASK] = rows[:, self.offsets[MASK] : self.offsets[MASK] + self.mask_bytes]
        return out

    def pack_mask(self, mask: np.ndarray) -> np.ndarray:
        """The packed bytes of a mask over all actions (bool or int8 ``[n_actions]``)."""
        return np.packbits(np.asarray(mask[1:], dtype=bool))

    def unpack_mask(self, packed: np.ndarray) -> np.ndarray:
        """bool ``[..., n_actions]`` from packed bytes ``[..., mask_bytes]``."""
        bits = np.unpackbits(packed, axis=-1, count=self.n_actions - 1).astype(bool)
        one = np.ones((*bits.shape[:-1], 1), dtype=bool)
        return np.concatenate([one, bits], axis=-1)
