"""Rows in numpy: packed from a RoyaleGym observation, and read back; compact ones by the name of their decoder.

Reading is for tests, bots and tools; networks decode on the device (``nn.decoders``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import UserError
from . import codec, spatial_row
from .layout import EXACT, MASK, Loss, RowLayout

#: Fill the views of a row of zeros from an observation's fields; the mask is written already.
PACKERS: dict[str, Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray], RowLayout], Loss]] = {
    spatial_row.DECODER: spatial_row.pack,
    codec.DECODER: codec.pack,
}
#: Fields ``[n, ...]`` of rows uint8 ``[n, row_bytes]``, the mask left out.
DECODERS: dict[str, Callable[[np.ndarray, RowLayout], dict[str, np.ndarray]]] = {
    spatial_row.DECODER: spatial_row.decode,
    codec.DECODER: codec.decode,
}


def pack_row(layout: RowLayout, obs: Mapping[str, Any], mask: np.ndarray, out: np.ndarray) -> Loss:
    """Write a RoyaleGym observation and its mask as one row, the bytes the arenas write.

    Args:
        obs: one seat's observation; keys that are no field of the layout are ignored.
        mask: legal actions, ``[n_actions]``.
        out: uint8 ``[row_bytes]``.

    Returns:
        What the row could not hold.

    Raises:
        UserError: a field is missing or has another shape, or the mask covers another action space.
    """
    if layout.frame:
        return pack_row(layout.frame, obs, mask, out[-layout.frame.row_bytes :])
    values = {}
    for f in layout.fields:
        if f.name not in obs:
            raise UserError(
                f"the observation has no key {f.name!r}, so it is not {layout.name} (its keys: {', '.join(obs)}); "
                "build the environment with that observation"
            )
        values[f.name] = value = np.asarray(obs[f.name])
        if value.shape != f.shape:
            raise UserError(
                f"observation key {f.name!r} has shape {value.shape}, where {layout.name} has {f.shape}"
            )
    if len(mask) != layout.n_actions:
        raise UserError(f"the mask covers {len(mask)} actions, where {layout.name} was laid out for {layout.n_actions}")
    out[:] = 0
    views = {name: v[0] for name, v in layout.views(out[None]).items()}
    views[MASK][:] = layout.pack_mask(mask)
    if layout.decoder:
        return PACKERS[layout.decoder](values, views, layout)
    for name, value in values.items():
        views[name][...] = value
    return EXACT


def decode(rows: np.ndarray, layout: RowLayout) -> dict[str, np.ndarray]:
    """Every field of the layout ``[n, *shape]``, and ``action_mask`` bool ``[n, n_actions]``.

    Args:
        rows: uint8 ``[n, row_bytes]``.
    """
    views = layout.views(rows)
    if layout.frame:
        each = decode(rows.reshape(len(rows) * layout.frames, -1), layout.frame)
        del each[MASK]
        stacked = {k: v.reshape((len(rows), layout.frames, *v.shape[1:])) for k, v in each.items()}
        return {**stacked, MASK: layout.unpack_mask(views[MASK])}
    out = DECODERS[layout.decoder](rows, layout) if layout.decoder else {f.name: views[f.name] for f in layout.fields}
    return {**out, MASK: layout.unpack_mask(views[MASK])}
