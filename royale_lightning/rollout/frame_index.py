"""Stacked rows in the heap without copies: each frame once, and for each row the places of its frames."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..battle.rows.layout import RowLayout


class FrameIndex:
    """Where the older frames of each row lie: mostly earlier rows of the same rollout.

    What a slot had decided before this rollout (or before its first recorded step) comes with its first row and is
    carried behind the rows; missing frames are one row of zeros.

    Args:
        layout: of stacked rows.
        slots: of the rollout.
        first: heap place behind the last row a rollout may hold.
    """

    def __init__(self, layout: RowLayout, slots: int, first: int) -> None:
        self.old = layout.frames - 1
        self.frame_bytes = layout.single.row_bytes
        self.first = first
        # Twice: at a rollout's start, and for the one episode of a slot that begins staggered. Restarts may take more.
        self.carried = 2 * slots * self.old
        self.zero = first
        self._chain: list[list[int] | None] = [None] * slots
        self._used = 0

    @property
    def places(self) -> int:
        """Heap places beyond the rows."""
        return self.carried + 1

    def begin(self) -> None:
        """A new rollout: the heap's rows are about to be written over."""
        self._chain = [None] * len(self._chain)
        self._used = 0

    def end(self, ended: np.ndarray) -> None:
        """Forget the slots (bool ``[slots]``) whose battle ended."""
        for slot in np.flatnonzero(ended):
            self._chain[slot] = None

    def roomy(self, heap: Tensor, slots: np.ndarray) -> Tensor:
        """``heap``, or a longer copy of it where :meth:`add` might find no place for these slots' older frames."""
        new = self.old * sum(self._chain[s] is None for s in slots)
        if self._used + new <= self.carried:
            return heap
        more = max(new, self.carried)
        self.carried += more
        return torch.cat([heap, heap.new_zeros((more, heap.shape[1]))])

    def add(self, heap: Tensor, rows: np.ndarray, slots: np.ndarray, choice: np.ndarray, at: int) -> np.ndarray:
        """Places int64 ``[m, frames]`` of the frames of rows that were just written to ``heap[at : at + m]``.

        Args:
            heap: uint8 ``[places, frame_bytes]``; carried frames are written into it.
            rows: uint8 ``[m, row_bytes]``, stacked.
            slots: int64 ``[m]``.
            choice: bool ``[m]``; only these become history.
        """
        out = np.empty((len(rows), self.old + 1), dtype=np.int64)
        for i, slot in enumerate(slots):
            chain = self._chain[slot]
            if chain is None:
                chain = self._carry(heap, rows[i])
            out[i, :-1] = chain
            out[i, -1] = at + i
            self._chain[slot] = [*chain[1:], at + i] if choice[i] else chain
        return out

    def _carry(self, heap: Tensor, row: np.ndarray) -> list[int]:
        chain = []
        for frame in row[: self.old * self.frame_bytes].reshape(self.old, self.frame_bytes):
            if not frame.any():
                chain.append(self.zero)
                continue
            self._used += 1
            heap[self.zero + self._used] = torch.from_numpy(frame.copy()).to(heap.device)
            chain.append(self.zero + self._used)
        return chain
