"""The metric row: one dictionary per iteration, assembled once and read by whoever needs it."""

from __future__ import annotations

import time
from collections.abc import Callable

#: The parts an iteration's time is made of, beside ``time/rest``. Not all are in every row.
PARTS = (
    "step", "inference", "wait", "collect_other", "update", "measure", "restarts", "ladder", "replays", "callbacks",
    "checkpoint",
)


class MetricRow:
    """An iteration's row, and what is noted for the next one. The data module of a run holds it.

    Attributes:
        shown: names of the figures that ``trainer.callback_metrics`` holds of it.
    """

    def __init__(self) -> None:
        self._iteration: int | None = None
        self._row: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self.shown: set[str] = set()

    def of(self, iteration: int, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The row of this iteration, the same dictionary each time it is asked for.

        Args:
            iteration: counted from 1.
            measure: called the first time; its seconds, and what was noted for this row, join what it gives.
        """
        if self._iteration != iteration:
            started = time.monotonic()
            self._row = measure()
            self._row.update(self._next)
            self._row["time/measure"] = time.monotonic() - started
            self._next = {}
            self._iteration = iteration
        return self._row

    def note(self, key: str, value: float) -> None:
        """A value of the next iteration's row: what is measured after this one's was written."""
        self._next[key] = value

    def clear(self) -> None:
        """Forget everything: a Trainer that fits twice may reach the same iteration again."""
        self._iteration = None
        self._row, self._next, self.shown = {}, {}, set()
