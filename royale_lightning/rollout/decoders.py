"""Compact rows to the tensors a network reads, on the device: the torch half of ``battle.compact``.

Decoding scatters and copies, it computes nothing but two table look-ups, so every value has the bits that the numpy
half and RoyaleGym give it on any device. (A division by a constant is not safe: a GPU may multiply by its reciprocal.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..battle import spatial_row as s
from ..battle.layout import RowLayout

#: What a decoder is given: the row's stored fields ``[B, *shape]`` by name, and the layout.
Stored = dict[str, Tensor]


@lru_cache(maxsize=4)
def _bits(device: torch.device) -> Tensor:
    """float32 ``[256, 8]``: the bits of each byte, the most significant first."""
    return torch.from_numpy(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)).float().to(device)


def unpack_bits(packed: Tensor, n: int) -> Tensor:
    """float32 ``[..., n]`` from ``numpy.packbits`` bytes ``[..., ceil(n / 8)]``."""
    return _bits(packed.device)[packed.int()].flatten(-2)[..., :n]


@lru_cache(maxsize=4)
def _hp(device: torch.device) -> Tensor:
    """float32 ``[TOP_HP + 1]``: hit points as RoyaleGym divides them, in float64 and rounded once."""
    return torch.from_numpy((np.arange(s.TOP_HP + 1) / s.HP_SCALE).astype(np.float32)).to(device)


@lru_cache(maxsize=8)
def _spatial_plan(layout: RowLayout, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    p = s.plan_of(layout)
    scalars, one_hot, static = torch.from_numpy(p.scalars), torch.from_numpy(p.one_hot), torch.from_numpy(p.static)
    return scalars.to(device), one_hot.to(device), static.to(device)


def spatial(stored: Stored, layout: RowLayout) -> dict[str, Tensor]:
    """``spatial`` float32 ``[B, 20, 32, 18]`` and ``vector`` float32 ``[B, width]``, RoyaleGym's to the bit."""
    p = s.plan_of(layout)
    count, hp = stored["count"], stored["hp"]
    b, device = count.shape[0], count.device
    scalars, one_hot, static = _spatial_plan(layout, device)
    planes = torch.zeros((b, s.PLANES * s.TILES), dtype=torch.float32, device=device)
    # Cells of one row are different, so the order of the writes decides nothing (unused entries all write a 0).
    planes.scatter_(1, stored["cell"].long(), count.float())
    planes.scatter_(1, stored["hp_cell"].long(), _hp(device)[hp.clamp(max=s.TOP_HP)])
    planes = planes.view(b, s.PLANES, s.TILES_Y, s.TILES_X)
    planes[:, s.STATIC_PLANES[0] : s.STATIC_PLANES[1] + 1] = static
    planes[:, s.ZONE_PLANE] = unpack_bits(stored["zone"], s.TILES).view(b, s.TILES_Y, s.TILES_X)
    vector = torch.zeros((b, p.width), dtype=torch.float32, device=device)
    vector[:, scalars] = stored["scalars"]
    vector.scatter_(1, one_hot + stored["one_hot"].long(), 1.0)
    sets = unpack_bits(stored["multi_hot"], p.cards)
    for i, at in enumerate(p.multi_hot):
        vector[:, at : at + p.cards] = sets[:, i]
    return {"spatial": planes, "vector": vector}


#: Decoder name (``RowLayout.decoder``) -> a network's fields.
DECODERS: dict[str, Callable[[Stored, RowLayout], dict[str, Tensor]]] = {s.DECODER: spatial}
