"""Cutting battles that were lost in the middle of a rollout at their last whole round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..battle.round import RUNNING, TRUNCATED

#: One round as the collector keeps it: row, reward, duration, end and learner per slot.
CellArrays = Sequence[np.ndarray]


@dataclass
class Voids:
    """What became of a rollout's rows whose battle was lost.

    The last row of a lost slot has an action and no outcome. It is taken out, and its value stands in for all that
    would have followed: the slot is truncated there, with the value of that row's observation as the final one. Rounds
    after that row paid somewhat on the way to an outcome nobody knows, and are emptied.

    Attributes:
        rows: the rows taken out.
        cuts: ``(round, slot, row)`` of each.
        battles: how many were lost.
    """

    rows: list[int] = field(default_factory=list)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    battles: int = 0

    def cut(self, cells: Sequence[CellArrays], battles: Iterable[int]) -> None:
        """Void battles in the last of ``cells``, changing the arrays in place."""
        at = len(cells) - 1
        for battle in battles:
            self.battles += 1
            for slot in (2 * int(battle), 2 * int(battle) + 1):
                self._cut_slot(cells, slot, at)

    def _cut_slot(self, cells: Sequence[CellArrays], slot: int, at: int) -> None:
        for t in range(at, -1, -1):
            row, reward, duration, end = cells[t][:4]
            if t < at and end[slot] != RUNNING:
                return
            if t == at:
                end[slot] = TRUNCATED
            reward[slot], duration[slot] = 0.0, 0
            if row[slot] >= 0:
                self.rows.append(int(row[slot]))
                self.cuts.append((t, slot, int(row[slot])))
                row[slot], end[slot] = -1, TRUNCATED
                return

    def put_final_values(self, final_value: Tensor, value: Tensor) -> None:
        """Write each cut's value.

        Args:
            final_value: float32 ``[rounds, slots]``, changed in place.
            value: float32 ``[rows]`` of every row, those taken out included.
        """
        if self.cuts:
            t, slot, row = torch.tensor(self.cuts, device=value.device).T
            final_value[t, slot] = value[row]

    def kept(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows that stay, int64 ascending, and each old row's new index, int64 ``[rows + 1]`` with -1 for none."""
        stays = np.ones(rows, dtype=bool)
        stays[self.rows] = False
        new = np.append(np.cumsum(stays) - 1, -1)
        return np.flatnonzero(stays), new
