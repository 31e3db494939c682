"""Two or more sides of a comparison, taking turns in short slices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """One side over another: the median of the slices' ratios, with the extremes.

    The median, because one interruption by another process spoils one slice, not the figure.
    """

    median: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, over: Sequence[float], under: Sequence[float]) -> Ratio:
        """Of the costs of two sides, slice by slice.

        Raises:
            ValueError: there is no slice, or the sides have different numbers of them.
        """
        ratios = [a / b for a, b in zip(over, under, strict=True)]
        if not ratios:
            raise ValueError("no slice was measured")
        return cls(statistics.median(ratios), min(ratios), max(ratios), len(ratios))

    def figures(self, name: str) -> dict[str, float]:
        """As flat figures: ``name``, ``name_low``, ``name_high``, ``name_pairs``."""
        return {name: self.median, f"{name}_low": self.low, f"{name}_high": self.high, f"{name}_pairs": self.pairs}


class Sides:
    """Seconds and work of every side in every slice.

    ::

        sides = Sides("arena", "engine")
        while sides.seconds("arena") < 4:
            with sides.timed("arena"):
                ...
            sides.work("arena", steps)
            ...                                 # the same for the other side
            sides.close_slice()
        sides.ratio("engine", "arena")          # > 1: the engine costs more per unit of work

    Args:
        names: of the sides.
        clock: seconds, monotonic.
    """

    def __init__(self, *names: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.names = names
        self._slices: list[dict[str, tuple[float, float]]] = []
        self._seconds = dict.fromkeys(names, 0.0)
        self._work = dict.fromkeys(names, 0.0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """What runs inside is billed to the side's current slice."""
        start = self.clock()
        yield
        self._seconds[name] += self.clock() - start

    def add(self, name: str, seconds: float) -> None:
        """Bill seconds that were measured elsewhere."""
        self._seconds[name] += seconds

    def work(self, name: str, amount: float) -> None:
        """Work the side has done in the current slice: game steps, rows."""
        self._work[name] += amount

    def close_slice(self) -> None:
        """End the slice on every side."""
        self._slices.append({n: (self._seconds[n], self._work[n]) for n in self.names})
        self._seconds = dict.fromkeys(self.names, 0.0)
        self._work = dict.fromkeys(self.names, 0.0)

    def discard(self) -> None:
        """Forget the current slice: it was warm-up."""
        self._seconds = dict.fromkeys(self.names, 0.0)
        self._work = dict.fromkeys(self.names, 0.0)

    @property
    def slices(self) -> int:
        return len(self._slices)

    def seconds(self, name: str) -> float:
        """Of all closed slices."""
        return sum(s[name][0] for s in self._slices)

    def rate(self, name: str) -> float:
        """Work per second over all closed slices."""
        return sum(s[name][1] for s in self._slices) / max(self.seconds(name), 1e-12)

    def costs(self, name: str) -> list[float]:
        """Seconds per unit of work, slice by slice."""
        return [seconds / work for seconds, work in (s[name] for s in self._slices)]

    def ratio(self, over: str, under: str) -> Ratio:
        """Cost per unit of work of ``over``, divided by that of ``under``."""
        return Ratio.of(self.costs(over), self.costs(under))
