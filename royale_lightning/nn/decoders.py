"""Compact rows to the tensors a network reads, on the device: the torch half of ``battle.rows.row_codecs``.

Decoding scatters and copies, it computes nothing but two table look-ups, so every value has the bits that the numpy
half and RoyaleGym give it on any device. (A division by a constant is not safe: a GPU may multiply by its reciprocal.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..battle.rows import codec
from ..battle.rows import spatial_row as s
from ..battle.rows.layout import RowLayout

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


_SHOWN = {"uint8": torch.uint8, "int16": torch.int16, "uint16": torch.int32, "int32": torch.int32,
          "float32": torch.float32}


@lru_cache(maxsize=8)
def _codec_plan(layout: RowLayout, device: torch.device) -> list[tuple[Tensor, list[Tensor]]]:
    """Per key: its static planes ``[planes, cells]``, and the planes of each group."""
    out = []
    for plan in codec.plans_of(layout):
        # numpy's uint16 goes through int64: torch converts few things to and from its own.
        static = torch.from_numpy(plan.static.astype(np.int64) if plan.dtype == "uint16" else plan.static)
        at = [torch.from_numpy(g.planes).to(device) for g in plan.groups]
        out.append((static.to(device=device, dtype=_SHOWN[plan.dtype]), at))
    return out


def codec_fields(stored: Stored, layout: RowLayout) -> dict[str, Tensor]:
    """Every key ``[B, *shape]`` as ``battle.rows.codec`` decodes it (uint16 as int32)."""
    out = {}
    for plan, (static, at) in zip(codec.plans_of(layout), _codec_plan(layout, _device(stored)), strict=True):
        b = len(next(iter(stored.values())))
        value = static.expand(b, -1, -1).contiguous() if len(plan.groups) != 1 or plan.static_planes.size else None
        for g, planes in zip(plan.groups, at, strict=True):
            x = stored[g.name]
            x = unpack_bits(x, plan.cells) if g.kind == "bits" else x
            x = x.to(static.dtype)
            if value is None:  # one group is the whole key
                value = x
            else:
                value[:, planes] = x
        assert value is not None
        out[plan.name] = value.reshape((b, *plan.shape))
    return out


def _device(stored: Stored) -> torch.device:
    return next(iter(stored.values())).device


#: Decoder name (``RowLayout.decoder``) -> a network's fields.
DECODERS: dict[str, Callable[[Stored, RowLayout], dict[str, Tensor]]] = {
    s.DECODER: spatial,
    codec.DECODER: codec_fields,
}
