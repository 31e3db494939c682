"""What has been seen of each bucket: visits, what was reached from it, how often it is mastered, what a win costs; and
how interesting that makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..records.points import Bucket

#: What a competence can be measured by.
SCORE, NEXT_HOP = "score", "next_hop"
#: Weight of the newest outcome in a competence's exponential average: it remembers some 20 outcomes.
RATE = 0.05
#: The competence a bucket starts from: as learnable as can be.
UNKNOWN = 0.5
#: What a win is worth one bucket earlier: of two buckets that saw a win, the nearer one is worth more.
DISCOUNT = 0.98


class BucketStatistics:
    """Tables by bucket."""

    def __init__(self) -> None:
        self._visits: Counter[Bucket] = Counter()
        self._starts: Counter[Bucket] = Counter()
        self._reached: dict[Bucket, Counter[Bucket]] = {}
        self._successors: dict[Bucket, Counter[Bucket]] = {}
        self._competence: dict[str, dict[Bucket, tuple[float, int]]] = {SCORE: {}, NEXT_HOP: {}}
        self._costs: dict[Bucket, int] = {}
        self._values: dict[Bucket, float] = {}

    # ---- writing -----------------------------------------------------------------------------------------------
    def record_visit(self, bucket: Bucket) -> None:
        """A new segment ends in ``bucket``."""
        self._visits[bucket] += 1

    def record_start(self, bucket: Bucket) -> None:
        """An episode began in ``bucket``."""
        self._starts[bucket] += 1

    def record_reach(self, began: Bucket, buckets: Iterable[Bucket]) -> None:
        """A restarted episode went on from ``began`` through ``buckets``: each distinct other one counts once."""
        self._reached.setdefault(began, Counter()).update(set(buckets) - {began})

    def record_path(self, buckets: Sequence[Bucket]) -> None:
        """A whole episode went through ``buckets``: each distinct step between two counts once, staying put never."""
        for a, b in {(a, b) for a, b in pairwise(buckets) if a != b}:
            self._successors.setdefault(a, Counter())[b] += 1

    def record_outcome(self, began: Bucket, score: float, moved: bool) -> None:
        """An episode from ``began`` scored ``score`` (1 is mastery), and won or reached a better rank (``moved``)."""
        for name, success in ((SCORE, score == 1.0), (NEXT_HOP, moved)):
            table = self._competence[name]
            rate, n = table.get(began, (UNKNOWN, 0))
            table[began] = (rate + RATE * (float(success) - rate), n + 1)

    def record_win(self, buckets: Iterable[Bucket], ticks: int) -> None:
        """A battle won after ``ticks`` went through ``buckets``; the quickest win through each is kept."""
        for bucket in set(buckets):
            self._costs[bucket] = min(ticks, self._costs.get(bucket, ticks))

    def record_value(self, buckets: Sequence[Bucket], won: bool) -> None:
        """Propagate an episode's outcome backwards: the best discounted win seen from each bucket.

        The maximum and not the mean, because the question is whether a win can be reached from here, and rare wins
        vanish in a mean.
        """
        value = float(won)
        for bucket in reversed(buckets):
            value = max(value, self._values.get(bucket, 0.0))
            self._values[bucket] = value
            value *= DISCOUNT

    # ---- reading -----------------------------------------------------------------------------------------------
    def visits(self, bucket: Bucket) -> int:
        return self._visits[bucket]

    def starts(self, bucket: Bucket) -> int:
        return self._starts[bucket]

    def reach(self, began: Bucket) -> Mapping[Bucket, int]:
        """How many restarted episodes from ``began`` reached each other bucket."""
        return dict(self._reached.get(began, {}))

    def successors(self, bucket: Bucket) -> Mapping[Bucket, int]:
        """How many episodes went from ``bucket`` directly to each other; its length is the number of branches tried."""
        return dict(self._successors.get(bucket, {}))

    def success_rate(self, bucket: Bucket, kind: str = SCORE) -> float | None:
        """The averaged competence, None without an outcome."""
        found = self._competence[kind].get(bucket)
        return None if found is None else min(1.0, max(0.0, found[0]))

    def route_cost(self, bucket: Bucket) -> int | None:
        """Ticks of the quickest win through ``bucket``."""
        return self._costs.get(bucket)

    def route_value(self, bucket: Bucket) -> float:
        """The best discounted win seen from ``bucket``, 0 without one."""
        return self._values.get(bucket, 0.0)

    def best_successor_value(self, bucket: Bucket) -> float:
        """The best value among the *next* buckets; anything further along would always give the win itself."""
        return max((self.route_value(c) for c in self._successors.get(bucket, ())), default=0.0)

    def classes(self) -> dict[str, int]:
        """How many scored buckets are ``mastered`` (0.8 and above), ``learning`` (0.2 and above) and ``struggling``."""
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


# ---- how interesting a bucket is, as pure functions of the tables; larger is more interesting
#: Outcomes a bucket is assumed to have before it is believed: the branch count at which novelty has halved.
_HALF = 3.0


def count_pressure(seen: BucketStatistics, bucket: Bucket) -> float:
    """``((1 + visits) (1 + starts))^-1/2``: rarely seen and rarely practised buckets.

    Ecoffet et al. 2021 weigh buckets by visits alone.
    """
    return ((1.0 + seen.visits(bucket)) * (1.0 + seen.starts(bucket))) ** -0.5


def competence(seen: BucketStatistics, bucket: Bucket) -> float:
    """``4 r (1 - r)`` of the win rate: peaks where about half the episodes succeed (Florensa et al. 2017)."""
    rate = seen.success_rate(bucket, SCORE)
    r = UNKNOWN if rate is None else rate
    return 4.0 * r * (1.0 - r)


def frontier(seen: BucketStatistics, bucket: Bucket) -> float:
    """A win is known from the next bucket, and getting there is not yet mastered."""
    progress = seen.success_rate(bucket, NEXT_HOP)
    return 0.0 if progress is None else seen.best_successor_value(bucket) * (1.0 - progress)


def discovery(seen: BucketStatistics, bucket: Bucket) -> float:
    """Traffic times what is missing of the next step: where many episodes come by and stop."""
    progress = seen.success_rate(bucket, NEXT_HOP)
    return seen.visits(bucket) * (1.0 - (0.0 if progress is None else progress))


def branch_novelty(seen: BucketStatistics, bucket: Bucket) -> float:
    """Traffic times ``1 - n / (n + 3)`` of the branches tried: busy buckets from which little was tried."""
    n = len(seen.successors(bucket))
    return seen.visits(bucket) * (1.0 - n / (n + _HALF))


def quick_win(seen: BucketStatistics, bucket: Bucket) -> float:
    """Minus the ticks of the quickest win through the bucket; the worst of all without one."""
    cost = seen.route_cost(bucket)
    return float("-inf") if cost is None else -float(cost)


UTILITIES: dict[str, Callable[[BucketStatistics, Bucket], float]] = {
    f.__name__: f for f in (count_pressure, competence, frontier, discovery, branch_novelty, quick_win)
}
