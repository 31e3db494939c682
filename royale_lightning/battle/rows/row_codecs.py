"""Compact rows in numpy, by decoder name: written from an observation, and read back.

Reading is for tests, bots and tools; networks decode on the device (``nn.decoders``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from . import codec, spatial_row
from .layout import MASK, Loss, RowLayout

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
