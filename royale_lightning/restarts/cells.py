"""What has been seen of each cell: visits, what was reached from it, how often it is mastered, what a win costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .state import Bucket

#: What a competence can be measured by.
SCORE, NEXT_HOP = "score", "next_hop"


#: Weight of the newest outcome in a competence's exponential average: it remembers some 20 outcomes.
RATE = 0.05
#: The competence a cell starts from: as learnable as can be.
UNKNOWN = 0.5
#: What a win is worth one cell earlier: of two cells that saw a win, the nearer one is worth more.
DISCOUNT = 0.98


class TrajectoryCellStatistics:
    """Tables by cell, a cell being a :class:`~royale_lightning.restarts.state.Bucket` (match-up group and key)."""

    def __init__(self) -> None:
        self._visits: Counter[Bucket] = Counter()
        self._starts: Counter[Bucket] = Counter()
        self._reached: dict[Bucket, Counter[Bucket]] = {}
        self._successors: dict[Bucket, Counter[Bucket]] = {}
        self._competence: dict[str, dict[Bucket, tuple[float, int]]] = {SCORE: {}, NEXT_HOP: {}}
        self._costs: dict[Bucket, int] = {}
        self._values: dict[Bucket, float] = {}

    # ---- writing -----------------------------------------------------------------------------------------------
    def record_visit(self, cell: Bucket) -> None:
        """A new segment ends in ``cell``."""
        self._visits[cell] += 1

    def record_start(self, cell: Bucket) -> None:
        """An episode began in ``cell``."""
        self._starts[cell] += 1

    def record_reach(self, start: Bucket, cells: Iterable[Bucket]) -> None:
        """A restarted episode went on from ``start`` through ``cells``: each distinct other one counts once."""
        self._reached.setdefault(start, Counter()).update(set(cells) - {start})

    def record_path(self, cells: Sequence[Bucket]) -> None:
        """A whole episode went through ``cells``: each distinct step between two counts once, staying put never."""
        for a, b in {(a, b) for a, b in pairwise(cells) if a != b}:
            self._successors.setdefault(a, Counter())[b] += 1

    def record_outcome(self, start: Bucket, score: float, moved: bool) -> None:
        """An episode from ``start`` scored ``score`` (1 is mastery), and won or reached a better rank (``moved``)."""
        for name, success in ((SCORE, score == 1.0), (NEXT_HOP, moved)):
            table = self._competence[name]
            rate, n = table.get(start, (UNKNOWN, 0))
            table[start] = (rate + RATE * (float(success) - rate), n + 1)

    def record_win(self, cells: Iterable[Bucket], ticks: int) -> None:
        """A battle won after ``ticks`` went through ``cells``; the quickest win through each is kept."""
        for cell in set(cells):
            self._costs[cell] = min(ticks, self._costs.get(cell, ticks))

    def record_value(self, cells: Sequence[Bucket], won: bool) -> None:
        """Propagate an episode's outcome backwards: the best discounted win seen from each cell.

        The maximum and not the mean, because the question is whether a win can be reached from here, and rare wins
        vanish in a mean.
        """
        value = float(won)
        for cell in reversed(cells):
            value = max(value, self._values.get(cell, 0.0))
            self._values[cell] = value
            value *= DISCOUNT

    # ---- reading -----------------------------------------------------------------------------------------------
    def visits(self, cell: Bucket) -> int:
        return self._visits[cell]

    def starts(self, cell: Bucket) -> int:
        return self._starts[cell]

    def reach(self, start: Bucket) -> Mapping[Bucket, int]:
        """How many restarted episodes from ``start`` reached each other cell."""
        return dict(self._reached.get(start, {}))

    def successors(self, cell: Bucket) -> Mapping[Bucket, int]:
        """How many episodes went from ``cell`` directly to each other; its length says how many branches were tried."""
        return dict(self._successors.get(cell, {}))

    def success_rate(self, cell: Bucket, kind: str = SCORE) -> float | None:
        """The averaged competence, None without an outcome."""
        found = self._competence[kind].get(cell)
        return None if found is None else min(1.0, max(0.0, found[0]))

    def route_cost(self, cell: Bucket) -> int | None:
        """Ticks of the quickest win through ``cell``."""
        return self._costs.get(cell)

    def route_value(self, cell: Bucket) -> float:
        """The best discounted win seen from ``cell``, 0 without one."""
        return self._values.get(cell, 0.0)

    def best_successor_value(self, cell: Bucket) -> float:
        """The best value among the *next* cells; anything further along would always give the win itself."""
        return max((self.route_value(c) for c in self._successors.get(cell, ())), default=0.0)

    def classes(self) -> dict[str, int]:
        """How many scored cells are ``mastered`` (0.8 and above), ``learning`` (0.2 and above) and ``struggling``."""
        rates = [r for r, _ in self._competence[SCORE].values()]
        return {
            "mastered": sum(r >= 0.8 for r in rates),
            "learning": sum(0.2 <= r < 0.8 for r in rates),
            "struggling": sum(r < 0.2 for r in rates),
        }

    # ---- state -------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        def rows(table: Mapping[Bucket, Any]) -> list[Any]:
            return [[b.partition, list(b.key), table[b]] for b in sorted(table)]

        return {
            "visits": rows(self._visits),
            "starts": rows(self._starts),
            "reached": [[*_row(b), rows(self._reached[b])] for b in sorted(self._reached)],
            "successors": [[*_row(b), rows(self._successors[b])] for b in sorted(self._successors)],
            "competence": {
                k: [[*_row(b), rate, n] for b, (rate, n) in sorted(t.items())] for k, t in self._competence.items()
            },
            "costs": rows(self._costs),
            "values": rows(self._values),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        def table(rows: Iterable[Any]) -> dict[Bucket, Any]:
            return {_bucket(p, k): v for p, k, v in rows}

        self._visits, self._starts = Counter(table(state["visits"])), Counter(table(state["starts"]))
        self._reached = {b: Counter(table(v)) for b, v in table(state["reached"]).items()}
        self._successors = {b: Counter(table(v)) for b, v in table(state["successors"]).items()}
        self._competence = {
            name: {_bucket(p, k): (rate, n) for p, k, rate, n in rows} for name, rows in state["competence"].items()
        }
        self._costs, self._values = table(state["costs"]), table(state["values"])


def _row(bucket: Bucket) -> list[Any]:
    return [bucket.partition, list(bucket.key)]


def _bucket(partition: str, key: Sequence[int]) -> Bucket:
    return Bucket(partition, tuple(key))
