"""A round's rows on their way to the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..nn.rows import rows_to_tensor


class Staging:
    """Copies chosen rows of a round to the device.

    To a GPU through page-locked memory, which a copy can leave while the host goes on; on a CPU there is nothing to
    stage. The memory is used anew at each call: the actions of the rows put before must have been read back by then,
    which waits for their copy too.

    Args:
        rows: the most one call brings.
        row_bytes: of a row.
        device: where to.
        pinned: whether to stage; unset, on CUDA.
    """

    def __init__(self, rows: int, row_bytes: int, device: torch.device, pinned: bool | None = None) -> None:
        self._device = device
        self._host: Tensor | None = None
        cuda = device.type == "cuda"
        if cuda if pinned is None else pinned:
            self._host = torch.empty((rows, row_bytes), dtype=torch.uint8, pin_memory=cuda)

    def put(self, rows: np.ndarray, at: np.ndarray) -> Tensor:
        """Rows ``at`` of uint8 ``[slots, row_bytes]``, on the device."""
        if self._host is None:
            return rows_to_tensor(rows[at], self._device)
        np.take(rows, at, axis=0, out=self._host.numpy()[: len(at)])
        return self._host[: len(at)].to(self._device, non_blocking=self._device.type == "cuda")
