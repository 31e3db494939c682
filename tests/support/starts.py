"""Battles that begin where a test needs them."""

from __future__ import annotations

from royalegym.state_mutator import MidGameStateMutator


class Ending(MidGameStateMutator):
    """Battles that are over in seconds: overtime, with a last stand in every tower."""

    def __init__(self) -> None:
        super().__init__((5600, 5800), (3000, 10000), max_tower_hp=(4824, 3052), tower_hp_percent=(1, 2))
