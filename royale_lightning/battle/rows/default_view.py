"""What RoyaleGym's default environment shows an opponent, from the batched arena's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.tables import Tables
from .encoders import SpatialEncoder
from .spatial_row import decode, spatial_layout


class DefaultView:
    """Writes the ``spatial`` row of a seat and reads it back: bit for bit what ``SpatialObsBuilder`` would build.

    Slower than the masks that RoyaleGym's own opponents live on, so it is made only for opponents that look.
    """

    def __init__(self, tables: Tables) -> None:
        self.layout = spatial_layout(2305)
        self.encoder = SpatialEncoder(tables)
        self._row = np.zeros((1, self.layout.row_bytes), dtype=np.uint8)

    def of(
        self, seat: int, row: np.ndarray, memory: np.ndarray, found: np.ndarray, battle: Any
    ) -> dict[str, np.ndarray]:
        """``spatial`` float32 ``[20, 32, 18]`` and ``vector`` float32 ``[width]``.

        The arguments are those of ``RowEncoder.write``.
        """
        self._row[:] = 0
        self.encoder.write(self._row[0], seat, row, memory, found, battle)
        return {name: x[0] for name, x in decode(self._row, self.layout).items()}
