"""The restart pool: rings of restart points by bucket, from which episodes begin.

It keeps no routes and no lineage; losing it costs the minutes that fill it again. Between two boundaries of iterations
its tables are frozen, so that a choice is a pure function of ``(battle, ordinal)``; what was begun and what came of it
are entered at the boundary, alike on every rank.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...battle.players import LEARNER
from ...battle.stamp import Stamp
from ...errors import UserError
from ..records.bank import BlobTable, pack_points, unpack_points
from ..records.key import LABELS
from ..records.points import (
    CAPPED,
    CRASHED,
    DEAD_START,
    REFUSED,
    TIMEOUTS,
    Bucket,
    EpisodeResult,
    Key,
    Rank,
    RestartPoint,
)
from ..selection.selection import draw, pick
from .bucket_results import SELECTIONS, UNIFORM, AdvanceRate, BucketResults, SelectionWeight

#: The latest starts of which the busiest bucket's share is told.
_RECENT = 200
#: Why an offered point was not stored.
REJECTIONS = ("blind", "bounds", "duplicate", "crowded")


@dataclass(frozen=True)
class PoolSettings:
    """Settings of the restart pool.

    Args:
        max_per_key: points of one bucket, the newest: what is kept follows the current policy.
        max_uses: starts from one point before it is retired. The same state and commands give the same future, shuffle
            included, so a point could be learned by heart.
        max_age: iterations after which a point is retired: it shows how an older policy played.
        max_strikes: dead starts before a point is dropped; one may be bad luck.
        window: results of a bucket that its rates are averaged over.
        selection: ``uniform``, ``failure_rate``, ``learnability`` or ``value_error``. Uniform is safe while little is
            known; ``failure_rate`` pours practice into positions that nobody could hold.
        selection_floor: least weight beside the other selections, in (0, 1].
        per_battle: points of one bucket that one episode may give a seat.
        minimum_values, maximum_values: bounds, inclusive, of ``phase``, ``crowns`` and ``hp``, for what is offered.
    """

    max_per_key: int = 8
    max_uses: int = 32
    max_age: int = 20
    max_strikes: int = 3
    window: int = 100
    selection: str = UNIFORM
    selection_floor: float = 0.1
    per_battle: int = 2
    minimum_values: Mapping[str, int] = field(default_factory=dict)
    maximum_values: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_per_key", "max_uses", "max_age", "max_strikes", "window", "per_battle"):
            if getattr(self, name) < 1:
                raise UserError(f"restarts.pool.{name} is {getattr(self, name)}; give at least 1")
        if self.selection not in SELECTIONS:
            raise UserError(f"restarts.pool.selection is {self.selection!r}; give one of {', '.join(SELECTIONS)}")
        if not 0.0 < self.selection_floor <= 1.0:
            raise UserError(
                f"restarts.pool.selection_floor is {self.selection_floor}; give a share above 0 and up to 1, for a "
                "bucket that is never drawn could never change its own weight"
            )
        for name in ("minimum_values", "maximum_values"):
            for label in getattr(self, name):
                if label not in LABELS:
                    raise UserError(f"restarts.pool.{name} names {label!r}; a key has {', '.join(LABELS)}")

    def within(self, key: Key) -> bool:
        """Whether a key respects the bounds."""
        values = dict(zip(LABELS, key, strict=True))
        return all(values[n] >= v for n, v in self.minimum_values.items()) and all(
            values[n] <= v for n, v in self.maximum_values.items()
        )


@dataclass(eq=False)
class _Held:
    """A point in its ring, and what came of it."""

    point: RestartPoint
    uses: int = 0
    strikes: int = 0


@dataclass(frozen=True)
class _Flight:
    """A start that was served and whose result is awaited."""

    point: str
    bucket: Bucket
    rank: Rank
    seat: int
    steers: bool


class RestartPool:
    """See the module.

    Args:
        settings: of the pool.
        seed: of its named stream.
        stamp: of the game that is played; a point of another is never stored.
    """

    def __init__(self, settings: PoolSettings, seed: int, stamp: Stamp) -> None:
        self.settings = settings
        self.seed = seed
        self.stamp = stamp
        self._rings: dict[Bucket, list[_Held]] = {}
        self._held: dict[str, _Held] = {}
        self._windows: dict[Bucket, BucketResults] = {}
        self._in_flight: dict[tuple[int, int], _Flight] = {}
        self._recent: deque[Bucket] = deque(maxlen=_RECENT)
        self._blobs = BlobTable()
        self.counts: Counter[str] = Counter()
        self._frozen: list[list[tuple[float, tuple[RestartPoint, ...]]]] = []

    # ---- starts ------------------------------------------------------------------------------------------------
    def freeze(self, policy_version: int) -> None:
        """Retire worn and old points, and fix what :meth:`choose` draws from until the next call."""
        for held in list(self._held.values()):
            if held.uses >= self.settings.max_uses:
                self._remove(held, "worn")
            elif policy_version - held.point.policy_version > self.settings.max_age:
                self._remove(held, "aged")
        groups: dict[str, list[tuple[float, tuple[RestartPoint, ...]]]] = {}
        for bucket, weight, _ in self.selection_weights():
            points = tuple(h.point for h in self._rings[bucket])
            groups.setdefault(bucket.partition, []).append((weight, points))
        self._frozen = list(groups.values())

    def choose(self, battle: int, ordinal: int) -> RestartPoint | None:
        """The point this episode would begin from; None while the frozen tables hold none. Changes nothing.

        A match-up group is drawn evenly, a bucket inside it by weight, a point inside that evenly.
        """
        if not self._frozen:
            return None
        first, second, third = draw(self.seed, "start/pool", battle, ordinal, 3)
        group = self._frozen[pick([1.0] * len(self._frozen), first)]
        _, points = group[pick([weight for weight, _ in group], second)]
        return points[pick([1.0] * len(points), third)]

    def serve(self, battle: int, ordinal: int, name: str, players: tuple[str, str]) -> None:
        """An episode was begun from the point of this id: count it, and await its result.

        Args:
            players: who plays it; only the recorded opponent, and no mirror battle, steers the selection.

        Raises:
            KeyError: no such point is held; starts are entered before anything else of their iteration.
        """
        held = self._held[name]
        point = held.point
        bucket = Bucket(point.partition, point.key)
        steers = players == point.players and players[0] != players[1]
        self._in_flight[battle, ordinal] = _Flight(point.id, bucket, point.rank, point.seat, steers)
        self._recent.append(bucket)
        self.counts["restarts"] += 1
        held.uses += 1

    # ---- results -----------------------------------------------------------------------------------------------
    def record_episode(self, result: EpisodeResult, points: Sequence[RestartPoint] = ()) -> int:
        """Score the start this episode was begun from, if any, and store the moments it gave.

        The score comes first, so that an episode is never judged against its own points. Played on by another than
        the learner, the credited seat says nothing about the policy: the start counts as abandoned.

        Returns:
            How many points were stored.

        Raises:
            ValueError: the result is of another seat than the start's, or a point is of another game.
        """
        flight = self._in_flight.get((result.battle, result.ordinal))
        if flight is not None:
            if result.seat != flight.seat:
                raise ValueError(f"a start of seat {flight.seat} was given the result of seat {result.seat}")
            if result.score is None:
                self.record_timeout(result.battle, result.ordinal, CAPPED)
            elif result.players[result.seat] != LEARNER:
                self.abandon(result.battle, result.ordinal)
            else:
                del self._in_flight[result.battle, result.ordinal]
                self._score(flight, result, result.score)
        return self._harvest(points)

    def _score(self, flight: _Flight, result: EpisodeResult, score: float) -> None:
        self.counts["scored"] += 1
        window = self._windows.setdefault(flight.bucket, BucketResults(self.settings.window))
        window.advances.append(result.won or (result.best_rank is not None and result.best_rank > flight.rank))
        (window.scores if flight.steers else window.other_scores).append(score)
        if result.value_error is not None:
            window.errors.append(result.value_error)

    def record_timeout(self, battle: int, ordinal: int, kind: str) -> None:
        """A restarted episode came to nothing, for a reason that is not the policy's; it enters no window.

        Args:
            kind: ``refused`` (the save state did not load) or ``crashed`` (engine or worker): the point is dropped at
                once. ``dead_start`` (nothing could be done, or the battle was over at once): a strike. ``capped`` (cut
                by the tick limit): nothing, for the limit was deliberate.
        """
        if kind not in TIMEOUTS:
            raise ValueError(f"a timeout is one of {', '.join(TIMEOUTS)}, not {kind!r}")
        flight = self._in_flight.pop((battle, ordinal), None)
        if flight is None:
            return
        self.counts[kind] += 1
        held = self._held.get(flight.point)
        if held is None:
            return
        held.strikes += kind == DEAD_START
        if kind in (REFUSED, CRASHED) or held.strikes >= self.settings.max_strikes:
            self._remove(held, "evicted")

    def abandon(self, battle: int, ordinal: int) -> None:
        """The episode will never be heard of: its battle has moved on."""
        if self._in_flight.pop((battle, ordinal), None) is not None:
            self.counts["abandoned"] += 1

    @property
    def in_flight(self) -> list[tuple[int, int]]:
        """``(battle, ordinal)`` of the starts whose result is awaited, ascending."""
        return sorted(self._in_flight)

    # ---- points ------------------------------------------------------------------------------------------------
    def _harvest(self, points: Iterable[RestartPoint]) -> int:
        stored: Counter[tuple[Bucket, int]] = Counter()
        for point in points:
            self._check(point)
            bucket = Bucket(point.partition, point.key)
            self.counts["offered"] += 1
            if not point.remembered[point.seat]:
                self.counts["blind"] += 1
            elif not self.settings.within(point.key):
                self.counts["bounds"] += 1
            elif point.id in self._held:
                self.counts["duplicate"] += 1
            elif stored[bucket, point.seat] >= self.settings.per_battle:
                self.counts["crowded"] += 1
            else:
                stored[bucket, point.seat] += 1
                self.counts["stored"] += 1
                self._store(bucket, point)
        return stored.total()

    def _check(self, point: RestartPoint) -> None:
        if point.stamp != self.stamp:
            raise ValueError(f"a point of another game was offered ({point.stamp.difference(self.stamp)})")
        if len(point.key) != len(LABELS):
            raise ValueError(f"a point's key holds {', '.join(LABELS)}, was {point.key}")

    def _store(self, bucket: Bucket, point: RestartPoint) -> None:
        shared = self._blobs.retain(point.blob, point.payload)
        if shared is not point.payload:
            point = replace(point, payload=shared)
        ring = self._rings.setdefault(bucket, [])
        held = self._held[point.id] = _Held(point)
        ring.append(held)
        if len(ring) > self.settings.max_per_key:
            self._remove(ring[0], "displaced")

    def _remove(self, held: _Held, why: str) -> None:
        bucket = _bucket(held.point.partition, held.point.key)
        ring = self._rings[bucket]
        ring.remove(held)
        del self._held[held.point.id]
        if not ring:
            del self._rings[bucket]
        self._blobs.release(held.point.blob)
        self.counts[why] += 1

    def export_points(self, newest: int = 0) -> list[RestartPoint]:
        """The newest points of every bucket (0: all), buckets ascending, oldest first inside: importing them into an
        empty pool rebuilds every ring."""
        if newest < 0:
            raise ValueError(f"export_points takes 0 for all or a number of points, was {newest}")
        return [h.point for bucket in sorted(self._rings) for h in self._rings[bucket][-newest:]]

    def import_points(self, points: Sequence[RestartPoint]) -> int:
        """Add points as they come, without bounds; those held already are passed over.

        Returns:
            How many were added; 0 when one of them is of another game, for then none is taken.
        """
        if any(p.stamp != self.stamp or len(p.key) != len(LABELS) for p in points):
            self.counts["foreign"] += len(points)
            return 0
        added = 0
        for point in points:
            bucket = Bucket(point.partition, point.key)
            if point.id not in self._held:
                self._store(bucket, point)
                added += 1
        self.counts["imported"] += added
        return added

    # ---- read-outs ---------------------------------------------------------------------------------------------
    def advance_rates(self) -> list[AdvanceRate]:
        """Of every bucket ever scored, ascending, also of those that are empty now."""
        out = []
        for bucket in sorted(self._windows):
            w = self._windows[bucket]
            score = sum(w.scores) / len(w.scores) if w.scores else None
            out.append(AdvanceRate(bucket, w.advance_rate, len(w.advances), score))
        return out

    def selection_weights(self) -> list[SelectionWeight]:
        """Of every bucket that holds a point, ascending."""
        buckets = sorted(self._rings)
        fresh = BucketResults(self.settings.window)
        windows = [self._windows.get(b, fresh) for b in buckets]
        largest = max((w.mean_error for w in windows), default=0.0)
        weights = [w.weight(self.settings.selection, self.settings.selection_floor, largest) for w in windows]
        totals: dict[str, float] = {}
        for bucket, weight in zip(buckets, weights, strict=True):
            totals[bucket.partition] = totals.get(bucket.partition, 0.0) + weight
        return [
            SelectionWeight(b, w, w / totals[b.partition] / len(totals))
            for b, w in zip(buckets, weights, strict=True)
        ]

    def diagnostics(self) -> dict[str, float]:
        """Sizes, every counter, the share of the latest starts that the busiest bucket had, and the deepest cell.

        ``deepest/...`` is the cell of the best rank, the same order that decides what an advance is.
        """
        names = (
            "offered", *REJECTIONS, "stored", "imported", "foreign", "displaced", "worn", "aged", "evicted",
            "restarts", "scored", *TIMEOUTS, "abandoned",
        )
        out: dict[str, float] = {
            "buckets": len(self._rings), "points": sum(map(len, self._rings.values())),
            "in_flight": len(self._in_flight), "bytes": self._blobs.unique_bytes,
            "referenced_bytes": self._blobs.referenced_bytes, **{n: self.counts[n] for n in names},
        }
        if self._recent:
            out["busiest_share"] = Counter(self._recent).most_common(1)[0][1] / len(self._recent)
        if self._rings:
            deepest = max((h.point.rank, h.point.key) for ring in self._rings.values() for h in ring)[1]
            out.update({f"deepest/{name}": value for name, value in zip(LABELS, deepest, strict=True)})
        return out

    # ---- state -------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Everything, as plain data (bytes among it); between two iterations. :meth:`freeze` follows a load."""
        held = [h for bucket in sorted(self._rings) for h in self._rings[bucket]]
        return {
            "points": pack_points([h.point for h in held]),
            "held": [[h.uses, h.strikes] for h in held],
            "windows": [[*b, w.state()] for b, w in sorted(self._windows.items(), key=lambda item: item[0])],
            "in_flight": [
                [*at, f.point, *f.bucket, f.rank, f.seat, f.steers] for at, f in sorted(self._in_flight.items())
            ],
            "recent": [list(b) for b in self._recent],
            "counts": dict(sorted(self.counts.items())),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave.

        Raises:
            UserError: its points are of another game.
        """
        points = unpack_points(state["points"], self.stamp, "the checkpoint")
        self._rings, self._held, self._blobs, self._frozen = {}, {}, BlobTable(), []
        for point, (uses, strikes) in zip(points, state["held"], strict=True):
            bucket = Bucket(point.partition, point.key)
            self._store(bucket, point)
            self._held[point.id].uses, self._held[point.id].strikes = uses, strikes
        self._windows = {}
        for partition, key, window in state["windows"]:
            made = self._windows[_bucket(partition, key)] = BucketResults(self.settings.window)
            made.load(window)
        self._in_flight = {
            (battle, ordinal): _Flight(point, _bucket(partition, key), tuple(rank), seat, steers)
            for battle, ordinal, point, partition, key, rank, seat, steers in state["in_flight"]
        }
        self._recent = deque((_bucket(*b) for b in state["recent"]), maxlen=_RECENT)
        self.counts = Counter(state["counts"])


def _bucket(partition: str, key: Sequence[int]) -> Bucket:
    return Bucket(partition, tuple(key))
