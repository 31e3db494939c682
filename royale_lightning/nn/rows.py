"""Stored rows as tensors: the bytes that every network, in training, acting or export, reads its observation from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..battle.rows.layout import MASK, RowLayout
from .decoders import DECODERS

_TORCH = {"bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "uint16": torch.uint16,
          "int32": torch.int32, "int64": torch.int64, "float16": torch.float16, "float32": torch.float32,
          "float64": torch.float64}
_SHIFTS: dict[torch.device, Tensor] = {}


def unpack_mask(packed: Tensor, n_actions: int) -> Tensor:
    """bool ``[B, n_actions]`` from ``numpy.packbits`` bytes ``[B, ceil((n_actions - 1) / 8)]``; action 0 is legal."""
    shifts = _SHIFTS.get(packed.device)
    if shifts is None:
        shifts = torch.tensor([7, 6, 5, 4, 3, 2, 1, 0], dtype=torch.uint8, device=packed.device)
        _SHIFTS[packed.device] = shifts
    b = packed.shape[0]
    out = torch.empty((b, n_actions), dtype=torch.bool, device=packed.device)
    out[:, 0] = True
    bits = (packed.unsqueeze(-1) >> shifts) & 1
    out[:, 1:] = bits.reshape(b, -1)[:, : n_actions - 1].bool()
    return out


def unpack(rows: Tensor, layout: RowLayout) -> dict[str, Tensor]:
    """A network's observation from stored rows.

    Args:
        rows: uint8 ``[B, row_bytes]``.

    Returns:
        Every field ``[B, *shape]``, in its stored dtype (uint16 becomes int32: torch computes little on uint16) or as
        the layout's decoder makes it, and ``action_mask`` bool ``[B, n_actions]``. Of a stacked layout
        every field has a leading axis of frames (``RowLayout.fields`` says so), and the mask is the newest frame's.
    """
    if layout.frame is None:
        out = _fields(rows, layout)
    else:
        b, k = rows.shape[0], layout.frames
        each = _fields(rows.reshape(b * k, -1), layout.frame)
        out = {name: x.reshape((b, k, *x.shape[1:])) for name, x in each.items()}
    at = layout.offsets[MASK]
    out[MASK] = unpack_mask(rows[:, at : at + layout.mask_bytes], layout.n_actions)
    return out


def _fields(rows: Tensor, layout: RowLayout) -> dict[str, Tensor]:
    """Every field but the mask of single frames."""
    b = rows.shape[0]
    out: dict[str, Tensor] = {}
    for f in layout.stored:
        at = layout.offsets[f.name]
        raw = rows[:, at : at + f.nbytes]
        dtype = _TORCH[f.dtype]
        if dtype is not torch.uint8:
            raw = raw.contiguous().view(dtype)
            if dtype is torch.uint16:
                raw = raw.to(torch.int32)
        out[f.name] = raw.reshape((b, *f.shape))
    if layout.decoder:
        out = DECODERS[layout.decoder](out, layout)
    return out


def rows_to_tensor(rows: np.ndarray, device: torch.device) -> Tensor:
    """uint8 rows on the device, copied once."""
    # Only CUDA copies memory that is not page-locked before it returns; Apple's GPU would read what is freed by then.
    return torch.from_numpy(np.ascontiguousarray(rows)).to(device, non_blocking=device.type == "cuda")
