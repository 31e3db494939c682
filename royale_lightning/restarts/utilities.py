"""How interesting a cell is, as pure functions of its statistics; larger is more interesting."""

from __future__ import annotations

from collections.abc import Callable

from .cells import NEXT_HOP, SCORE, UNKNOWN, TrajectoryCellStatistics
from .state import Bucket

#: Outcomes a cell is assumed to have before it is believed: the branch count at which novelty has halved.
_HALF = 3.0


def count_pressure(cells: TrajectoryCellStatistics, cell: Bucket) -> float:
    """``((1 + visits) (1 + starts))^-1/2``: rarely seen and rarely practised cells.

    Ecoffet et al. 2021 weigh cells by visits alone.
    """
    return ((1.0 + cells.visits(cell)) * (1.0 + cells.starts(cell))) ** -0.5


def competence(cells: TrajectoryCellStatistics, cell: Bucket) -> float:
    """``4 r (1 - r)`` of the win rate: peaks where about half the episodes succeed (Florensa et al. 2017)."""
    rate = cells.success_rate(cell, SCORE)
    r = UNKNOWN if rate is None else rate
    return 4.0 * r * (1.0 - r)


def frontier(cells: TrajectoryCellStatistics, cell: Bucket) -> float:
    """A win is known from the next cell, and getting there is not yet mastered."""
    progress = cells.success_rate(cell, NEXT_HOP)
    return 0.0 if progress is None else cells.best_successor_value(cell) * (1.0 - progress)


def discovery(cells: TrajectoryCellStatistics, cell: Bucket) -> float:
    """Traffic times what is missing of the next step: where many episodes come by and stop."""
    progress = cells.success_rate(cell, NEXT_HOP)
    return cells.visits(cell) * (1.0 - (0.0 if progress is None else progress))


def branch_novelty(cells: TrajectoryCellStatistics, cell: Bucket) -> float:
    """Traffic times ``1 - n / (n + 3)`` of the branches tried: busy cells from which little was tried."""
    n = len(cells.successors(cell))
    return cells.visits(cell) * (1.0 - n / (n + _HALF))


def quick_win(cells: TrajectoryCellStatistics, cell: Bucket) -> float:
    """Minus the ticks of the quickest win through the cell; the worst of all without one."""
    cost = cells.route_cost(cell)
    return float("-inf") if cost is None else -float(cost)


UTILITIES: dict[str, Callable[[TrajectoryCellStatistics, Bucket], float]] = {
    f.__name__: f for f in (count_pressure, competence, frontier, discovery, branch_novelty, quick_win)
}
