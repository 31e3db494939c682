"""The action space as a tree: wait, or one of some choices, each with a grid of places.

RoyaleGym's flat index is ``0`` for the no-op, ``1 + slot * ny * nx + y * nx + x`` for a card, and the ability
buttons last. A network and its distribution look at it in two stages: which choice (wait, a slot, a button),
then which tile of a slot.
"""

from __future__ import annotations

from dataclasses import dataclass

NOOP = 0


@dataclass(frozen=True)
class ActionLayout:
    """Shape of an action space.

    Args:
        slots: hand slots with a grid of tiles each (0 for a space that is not a RoyaleGym grid).
        tiles_y: rows of the grid, own frame.
        tiles_x: columns of the grid, own frame.
        buttons: actions without a place, after the grids.
    """

    slots: int = 4
    tiles_y: int = 32
    tiles_x: int = 18
    buttons: int = 0

    @property
    def tiles(self) -> int:
        return self.tiles_y * self.tiles_x

    @property
    def n_actions(self) -> int:
        return 1 + self.slots * self.tiles + self.buttons

    @property
    def n_choices(self) -> int:
        """First-stage outcomes: wait, every slot, every button, in this order."""
        return 1 + self.slots + self.buttons
