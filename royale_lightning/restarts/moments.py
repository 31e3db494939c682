"""Which moments of a finished battle are kept.

A battle records commands only, and is played again to mint the moments worth keeping. So its end is known before the
first of them is met, and the grace period, which drops moments that the end follows at once, is a comparison instead of
a queue: no moment can push another out of its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UserError
from .records.key import Position, bucket_key
from .records.points import Key

GRID, TOWER, PHASE, CELL = "grid", "tower", "phase", "cell"


@dataclass(frozen=True)
class MarkerSettings:
    """Which moments are kept.

    Args:
        grid_steps: game steps between moments kept in any case; 20 are 10 s, which gives 18 to 30 a battle.
        grace_steps: a moment counts only if the battle went on for as many more game steps. An instant before the end
            is a useless place to begin; 20 are 10 s.
        per_cell: most moments of one cell that a battle gives a seat, so that a long quiet battle does not fill a
            bucket with near copies.
    """

    grid_steps: int = 20
    grace_steps: int = 20
    per_cell: int = 2

    def __post_init__(self) -> None:
        for name, least in (("grid_steps", 1), ("grace_steps", 0), ("per_cell", 1)):
            if getattr(self, name) < least:
                raise UserError(f"restarts.{name} is {getattr(self, name)}; give at least {least}")


@dataclass(frozen=True)
class Marker:
    """A moment worth keeping for one seat: where, in which cell, and what it was kept for."""

    game_step: int
    seat: int
    key: Key
    tag: str


class MarkerFinder:
    """Finds a battle's kept moments while it is played again.

    A moment is kept when a tower fell or a phase began since the last game step, in a cell the battle has not been in
    before, and on a grid; in this order, the first that holds is its tag.

    Args:
        settings: which.
        last_step: the battle's last game step.
        seats: whose moments are wanted: the learner's.
    """

    def __init__(self, settings: MarkerSettings, last_step: int, seats: tuple[int, ...]) -> None:
        self.settings = settings
        self.last_step = last_step
        self.seats = seats
        self._visited: set[tuple[int, Key]] = set()
        self._kept: dict[tuple[int, Key], int] = {}
        self._before: tuple[int, int] | None = None

    def see(self, game_step: int, position: Position) -> list[Marker]:
        """The moments kept here, one a seat at most. Every game step is shown, in order."""
        found = []
        before = self._before
        for seat in self.seats:
            key = bucket_key(position, seat)
            if key is None:
                continue
            new = (seat, key) not in self._visited
            self._visited.add((seat, key))
            now = (sum(position.crowns), key[0])
            self._before = now
            if before is not None and now[0] != before[0]:
                tag = TOWER
            elif before is not None and now[1] != before[1]:
                tag = PHASE
            elif new:
                tag = CELL
            elif game_step % self.settings.grid_steps == 0:
                tag = GRID
            else:
                continue
            kept = self._kept.get((seat, key), 0)
            if kept < self.settings.per_cell and confirmed(game_step, self.last_step, self.settings.grace_steps):
                self._kept[seat, key] = kept + 1
                found.append(Marker(game_step, seat, key, tag))
        return found


def confirmed(game_step: int, last_step: int, grace_steps: int) -> bool:
    """Whether a battle that ended at ``last_step`` went on for ``grace_steps`` more steps that did not end it."""
    return game_step + grace_steps < last_step
