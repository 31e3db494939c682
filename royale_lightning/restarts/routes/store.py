"""The trajectory store: routes, their segments by bucket, the archive of the best, and the curriculum that walks them.

A route is a whole episode cut into segments at its kept moments. Every route's segments are filed in buckets; won ones
may enter the archive, and archived ones that were judged lead the curriculum. Like the pool, the store hands out starts
from tables frozen at the iteration's beginning; routes and results are entered at its end.

The behaviour was specified from another system; what its members were called is in ``borrowed_names.py`` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...battle.players import LEARNER
from ...battle.stamp import Stamp
from ...errors import UserError
from ..records.bank import pack_points, unpack_points
from ..records.points import Bucket, RestartPoint
from ..records.route import Priority, Reference, Route
from ..selection.buckets import DROPPED, FIFO, PRIORITY, REPLACED, RETENTIONS, STORED, Entry, SegmentBuckets
from ..selection.selection import SegmentTable, SelectionSettings, tabulate
from ..selection.statistics import BucketStatistics
from .archive import Archive
from .curriculum import BackwardCurriculum, CurriculumSettings, Vote
from .cuts import coverage, rungs_of, stitch
from .repository import Repository

#: Who holds routes, beside episodes in flight.
_BUCKET, _ARCHIVE, _ADDING = "bucket", "archive", "adding"


@dataclass(frozen=True)
class StoreSettings:
    """Settings of the trajectory store.

    Args:
        max_per_key: segments of one bucket.
        retention: ``fifo`` keeps the newest segments, ``priority`` those of highest ``retention_metric``.
        retention_metric: metric of the segments that ``priority`` compares.
        archive_size: best routes of one group (match-up and seat); several, for one fits one shuffle and one opponent.
        replay: how segments to imitate are drawn while nothing is archived.
        start: how segments to start from are drawn.
        curriculum: the backward curriculum; unset, there is none.
    """

    max_per_key: int = 10
    retention: str = FIFO
    retention_metric: str | None = None
    archive_size: int = 4
    replay: SelectionSettings = field(default_factory=SelectionSettings)
    start: SelectionSettings = field(default_factory=SelectionSettings)
    curriculum: CurriculumSettings | None = None

    def __post_init__(self) -> None:
        if self.max_per_key < 1 or self.archive_size < 0:
            raise UserError(
                f"restarts.store: max_per_key {self.max_per_key} must be at least 1, archive_size {self.archive_size} 0"
            )
        if self.retention not in RETENTIONS:
            raise UserError(f"restarts.store.retention is {self.retention!r}; give one of {', '.join(RETENTIONS)}")
        if (self.retention == PRIORITY) != (self.retention_metric is not None):
            raise UserError(
                f"restarts.store.retention is {self.retention!r} and retention_metric {self.retention_metric!r}; "
                "name the metric with priority and only then"
            )
        if self.curriculum is not None and self.archive_size == 0:
            raise UserError("restarts.store.archive_size is 0 and the curriculum walks archived routes; raise it")


class CurriculumStart(NamedTuple):
    """A curriculum start: the rung of a route that an episode begins at.

    Attributes:
        vote: where it begins, as its result must say again to be counted.
        reference: the segments it continues. ``stop`` is 0 where the rung lies inside a segment: the vote stands, but
            nothing can be stitched.
        point: the save state there.
    """

    vote: Vote
    reference: Reference
    point: RestartPoint


class RouteStore:
    """See the module.

    Args:
        settings: of the store.
        seed: of its named streams.
        stamp: of the game that is played.

    Attributes:
        repository: every stored route, and who holds it.
        archive: the best routes of each group.
        buckets: the segments.
        statistics: what was seen of each bucket.
        curriculum: the fronts; None where the settings have none.
        outcomes: what became of the segments that were offered.
        wins: episodes that the learner won.
    """

    def __init__(self, settings: StoreSettings, seed: int, stamp: Stamp) -> None:
        self.settings = settings
        self.seed = seed
        self.stamp = stamp
        self.outcomes: Counter[str] = Counter()
        self.wins = 0
        self.repository = Repository()
        self.archive = Archive(settings.archive_size)
        self.buckets = SegmentBuckets(settings.max_per_key, settings.retention, settings.retention_metric)
        self.statistics = BucketStatistics()
        self.curriculum = None if settings.curriculum is None else BackwardCurriculum(settings.curriculum, seed)
        self._decisions: dict[int, dict[int, RestartPoint]] = {}
        self._heirs: dict[int, int] = {}
        self._starts: SegmentTable | None = None

    # ---- storing -----------------------------------------------------------------------------------------------
    def add(self, route: Route, began_at: Reference | None = None) -> list[str]:
        """Store an episode: each new segment in its bucket, the whole route in the archive if it is good enough.

        Args:
            route: what was played.
            began_at: the stored segments it continues, if it began at the end of their last one. Where the two are one
                battle the whole route is stored, sharing the prefix's save states; otherwise the tail alone, which
                fills buckets and is never archived.

        Returns:
            ``stored``, ``replaced`` (another one) or ``dropped`` for each new segment.

        Raises:
            ValueError: a save state is of another game.
        """
        for segment in route.segments:
            if segment.end is not None and segment.end.stamp != self.stamp:
                raise ValueError(f"a route of another game was offered ({segment.end.stamp.difference(self.stamp)})")
        prefix = None if began_at is None else self.repository.get(began_at.route)
        whole = None if prefix is None or began_at is None else stitch(prefix, began_at.stop, route)
        kept = route if whole is None else whole
        route_id = self.repository.add(kept, _ADDING)
        old = len(kept.segments) - len(route.segments)
        outcomes = [self._index(Reference(route_id, i, i + 1)) for i in range(old, len(kept.segments))]
        self.outcomes.update(outcomes)
        self._observe(kept)
        if _eligible(kept):
            self._offer(route_id)
        self.repository.release(route_id, _ADDING)
        return outcomes

    def _observe(self, route: Route) -> None:
        """Tell the statistics of an episode, its prefix included."""
        first, last = route.segments[0], route.segments[-1]
        passed = [Bucket(route.partition, k) for k in (first.first_key, *(s.end_key for s in route.segments))]
        self.statistics.record_path(passed)
        self.statistics.record_value(passed, route.won)
        if route.won and route.complete:
            self.statistics.record_win(passed, last.end_tick)

    def _index(self, reference: Reference) -> str:
        route = self.repository[reference.route]
        segment = route.segments[reference.first]
        bucket = Bucket(route.partition, segment.end_key)
        self.statistics.record_visit(bucket)
        outcome, evicted = self.buckets.insert(bucket, Entry(reference, segment))
        if outcome != DROPPED:
            self.repository.retain(reference.route, _BUCKET)
        if evicted is not None:
            self.repository.release(evicted.reference.route, _BUCKET)
        return outcome

    def _offer(self, route_id: int) -> None:
        route = self.repository[route_id]
        admitted, displaced = self.archive.offer(route_id, route.group, route.priority)
        if admitted:
            self.repository.retain(route_id, _ARCHIVE)
        if displaced is not None:
            left = self._unarchive(displaced)
            if left is not None:
                self._heirs[route_id] = left

    def _unarchive(self, route_id: int) -> int | None:
        """Let go of a route that left the archive; game steps left at its front, for an heir."""
        left = self._heirs.pop(route_id, None)
        if self.curriculum is not None and (found := self.curriculum.withdraw(route_id)) is not None:
            left = found
        self._decisions.pop(route_id, None)
        self.repository.release(route_id, _ARCHIVE)
        return left

    def judge_route(
        self, route_id: int, lucky: bool, reference_rates: Mapping[int, float] | None = None,
        contested_step: int | None = None,
    ) -> None:
        """Enter what replaying an archived route's tail has shown; only judged routes lead the curriculum.

        Args:
            lucky: whether its win was luck (:func:`~royale_lightning.restarts.routes.judging.above_chance`): it is then
                taken out of the archive.
            reference_rates: game step -> win rate of the policy that played it, where measured.
            contested_step: the last game step at which the battle is still open
                (:func:`~royale_lightning.restarts.routes.judging.latest_contested`), where the front begins.

        Raises:
            KeyError: no such route is archived.
        """
        if route_id not in self.archive:
            raise KeyError(f"route {route_id} is not archived")
        if lucky:
            self.archive.remove(route_id)
            self._unarchive(route_id)
            return
        route = replace(self.repository[route_id], checked=True)
        self.repository.exchange(route_id, route)
        if contested_step is not None and self.curriculum is not None:
            self._heirs.setdefault(route_id, route.last_step - contested_step)
        self._register(route_id, reference_rates or {})

    # ---- starts ------------------------------------------------------------------------------------------------
    def freeze(self, playable: Collection[str] | None = None) -> None:
        """Fix what starts are drawn from until the next call.

        Args:
            playable: opponents that can be played; None for all. Routes against others sleep.
        """
        self._starts = tabulate(
            self.settings.start, list(self.buckets.entries()),
            lambda e: e.segment.eligible and e.segment.end is not None, self.statistics,
        )
        if self.curriculum is not None:
            self.put_fronts()
            self.curriculum.freeze(lambda name: playable is None or name in playable)

    def bucket_start(self, battle: int, ordinal: int) -> Entry | None:
        """A stored segment to begin an episode at the end of; ``entry.segment.end`` is the point. Holds nothing."""
        return None if self._starts is None else self._starts.draw(self.seed, "start/bucket", battle, ordinal)

    def curriculum_start(self, battle: int, ordinal: int) -> CurriculumStart | None:
        """A rung to begin an episode at; None without a curriculum, a walking front, or the rung's save state."""
        vote = None if self.curriculum is None else self.curriculum.choose(battle, ordinal)
        if vote is None or self.curriculum is None:
            return None
        front, route = self.curriculum.front(vote.route), self.repository.get(vote.route)
        if front is None or route is None:
            return None
        step = front.rungs[vote.rung].game_step
        stop = next((i + 1 for i, s in enumerate(route.segments) if s.end_step == step), 0)
        point = self._decisions.get(vote.route, {}).get(step)
        if point is None and stop:
            point = route.segments[stop - 1].end
        return None if point is None else CurriculumStart(vote, Reference(vote.route, 0, stop), point)

    def put_fronts(self) -> list[int]:
        """Put a front on every judged archived route that lacks one; the routes that have one, ascending."""
        if self.curriculum is None:
            return []
        for route_id in self.archive.ids:
            if self.repository[route_id].checked and self.curriculum.front(route_id) is None:
                self._register(route_id, {})
        return self.curriculum.route_ids

    def _register(self, route_id: int, rates: Mapping[int, float]) -> None:
        if self.curriculum is None:
            return
        route = self.repository[route_id]
        rungs = rungs_of(route, self.curriculum.settings.decision_granular)
        rungs = tuple(r._replace(reference_rate=rates.get(r.game_step)) for r in rungs)
        margin = route.priority.crown_margin
        self.curriculum.register(
            route_id, rungs, route.group, route.opponent, margin, steps_left=self._heirs.pop(route_id, None)
        )

    # ---- save states inside segments, for a rung a game step -----------------------------------------------------
    @property
    def _granular(self) -> bool:
        return self.settings.curriculum is not None and self.settings.curriculum.decision_granular

    def route_to_mint(self) -> int | None:
        """The first archived route whose game steps are not all minted; None where a rung is a segment's end."""
        if not self._granular:
            return None
        routes = [(i, self.repository[i]) for i in self.archive.ids]
        return next((i for i, r in routes if len(self._decisions.get(i, ())) < r.last_step - r.first_step - 1), None)

    def set_decisions(self, route_id: int, points: Mapping[int, RestartPoint]) -> bool:
        """Attach a save state for every game step of an archived route that an episode may begin at.

        Args:
            points: game step -> save state; the route's end is none.

        Returns:
            Whether the route was still archived; if not, nothing is kept.

        Raises:
            ValueError: a save state is of another game or filed under another step.
        """
        if route_id not in self.archive:
            return False
        if any(p.game_step != step or p.stamp != self.stamp for step, p in points.items()):
            raise ValueError(f"a save state of route {route_id} is of another game step or game")
        last = self.repository[route_id].last_step
        self._decisions[route_id] = {step: p for step, p in sorted(points.items()) if step < last}
        return True

    # ---- read-outs ---------------------------------------------------------------------------------------------
    def start_coverage(self) -> tuple[int, int]:
        """Minted and wanted starts of the archived routes; (0, 0) where a rung is a game step."""
        if self.curriculum is None or self._granular:
            return 0, 0
        return coverage(s for i in self.archive.ids for s in self.repository[i].segments)

    def decision_coverage(self) -> tuple[int, int]:
        """Minted and wanted game steps of the archived routes; (0, 0) where a rung is a segment's end."""
        if not self._granular:
            return 0, 0
        routes = [self.repository[i] for i in self.archive.ids]
        return sum(map(len, self._decisions.values())), sum(r.last_step - r.first_step - 1 for r in routes)

    @property
    def best_priority(self) -> Priority | None:
        """Of the best archived route, so that it can be logged field by field."""
        best = self.archive.best
        return None if best is None else self.archive.priorities[best]

    def occupancy(self) -> dict[str, float]:
        """Who holds how much: see :meth:`~royale_lightning.restarts.routes.repository.Repository.diagnostics`."""
        held = {e.reference.route for _, e in self.buckets.entries()}
        return self.repository.diagnostics(held | set(self.archive.ids))

    def diagnostics(self) -> dict[str, float]:
        """Occupancy, what became of segments, how much is minted, wins, buckets by competence, and how many archived
        routes nobody has judged yet."""
        out: dict[str, float] = {"buckets": len(self.buckets), "archived": len(self.archive), "wins": self.wins}
        out |= {name: self.outcomes[name] for name in (STORED, REPLACED, DROPPED)}
        for name, (minted, wanted) in (
            ("starts", coverage(e.segment for _, e in self.buckets.entries())), ("rungs", self.start_coverage()),
            ("decisions", self.decision_coverage()),
        ):
            out |= {f"{name}/minted": minted, f"{name}/wanted": wanted}
        if (best := self.best_priority) is not None:
            out |= {f"best/{name}": value for name, value in best._asdict().items()}
        out |= {f"competence/{name}": n for name, n in self.statistics.classes().items()}
        out["unjudged"] = sum(not self.repository[i].checked for i in self.archive.ids)
        return out | self.occupancy()

    # ---- state ---------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Everything, as plain data (bytes among it); between two iterations. :meth:`freeze` follows a load."""
        curriculum = self.curriculum
        return {
            "repository": self.repository.state(),
            "buckets": self.buckets.state(),
            "cells": self.statistics.state(),
            "curriculum": None if curriculum is None else curriculum.state(),
            "decisions": [[i, pack_points(list(p.values()))] for i, p in sorted(self._decisions.items())],
            "heirs": [list(item) for item in sorted(self._heirs.items())],
            "archive": self.archive.ids,
            "wins": self.wins,
            "outcomes": {name: self.outcomes[name] for name in (STORED, REPLACED, DROPPED)},
        }

    def load(self, state: Mapping[str, Any], episodes: Collection[str] = ()) -> None:
        """Take over :meth:`state`; what is not eligible is not archived again.

        Args:
            episodes: holders of the episodes in flight that go on; whoever else held a route does so no more.

        Raises:
            UserError: the state has no repository, or a save state is of another game.
        """
        if "repository" not in state:
            raise UserError("the checkpoint's trajectory store has no repository; begin without it or use another one")
        self.repository = Repository()
        self.repository.load(state["repository"], self.stamp, set(episodes))
        self.archive = Archive(self.settings.archive_size)
        self._starts = None
        self.buckets.load(state["buckets"], lambda r: self.repository[r.route].segments[r.first])
        for _, entry in self.buckets.entries():
            self.repository.retain(entry.reference.route, _BUCKET)
        for route_id in state["archive"]:
            route = self.repository[route_id]
            if _eligible(route):
                self.archive.offer(route_id, route.group, route.priority)
        # Settings may have changed since: a smaller archive lets go of routes, of their fronts and of their rungs.
        for route_id in self.archive.ids:
            self.repository.retain(route_id, _ARCHIVE)
        self.repository.sweep()
        self.statistics.load(state["cells"])
        if self.curriculum is not None and state["curriculum"] is not None:
            self.curriculum.load(state["curriculum"])
            for route_id in set(self.curriculum.route_ids) - set(self.archive.ids):
                self.curriculum.withdraw(route_id)
        self._decisions = {
            i: {p.game_step: p for p in unpack_points(points, self.stamp, "the checkpoint")}
            for i, points in state["decisions"] if i in self.archive
        }
        self._heirs = {i: left for i, left in state["heirs"] if i in self.archive}
        self.wins = state["wins"]
        self.outcomes = Counter(state["outcomes"])


def _eligible(route: Route) -> bool:
    """Whether the archive may hold it: a win from the beginning against somebody who can be met again as he was."""
    return route.complete and route.won and route.opponent != LEARNER
