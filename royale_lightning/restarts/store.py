"""The trajectory store: routes, their segments by cell, the archive of best routes, and the curriculum that walks them.

Like the pool, it hands out starts from tables frozen at the iteration's start; routes and results are entered at the
boundary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ..battle.players import LEARNER
from ..battle.stamp import Stamp
from ..errors import UserError
from .archive import Archive
from .bank import pack_points, unpack_points
from .buckets import DROPPED, REPLACED, STORED, Entry
from .cells import TrajectoryCellStatistics
from .curriculum import BackwardCurriculum
from .draws import draw
from .fronts import Vote
from .repository import Repository
from .routes import rungs_of, stitch
from .selection import SegmentTable, tabulate
from .state import Bucket, Reference, RestartPoint, Route
from .store_settings import StoreSettings
from .stored_routes import StoredRoutes

#: Who holds routes, beside episodes in flight.
_BUCKET, _ARCHIVE, _ADDING = "bucket", "archive", "adding"


class CurriculumStart(NamedTuple):
    """A start on a route: how its result votes, what it continues, and from what.

    ``reference.stop`` is 0 where the start lies inside a segment: the vote stands, but nothing can be stitched.
    """

    vote: Vote
    reference: Reference
    point: RestartPoint


class TrajectoryStore(StoredRoutes):
    """See the module. ``README.md`` lists every member beside the one it was modelled on.

    Args:
        settings: of the store.
        seed: of its named streams.
        stamp: of the game that is played.
    """

    def __init__(self, settings: StoreSettings, seed: int, stamp: Stamp) -> None:
        super().__init__(settings, stamp)
        self.seed = seed
        self.cell_statistics = TrajectoryCellStatistics()
        self.wins_recorded = 0
        curriculum = settings.curriculum
        self.backward_curriculum = None if curriculum is None else BackwardCurriculum(curriculum, seed)
        self._heirs: dict[int, int] = {}
        self._tables: dict[str, SegmentTable] = {}

    # ---- storing -----------------------------------------------------------------------------------------------
    def add_path(self, route: Route | None, began_at: Reference | None = None) -> list[str]:
        """Store an episode: each new segment in its bucket, the whole route in the archive if it is good enough.

        Args:
            route: what was played; None changes nothing.
            began_at: the stored segments it continues, if it began at the end of their last one. Where the two are one
                battle the whole route is stored, sharing the prefix's save states; otherwise the tail alone, which
                fills buckets and is never archived.

        Returns:
            ``stored``, ``replaced`` (another one) or ``dropped`` for each new segment.

        Raises:
            ValueError: a save state is of another game.
        """
        if route is None:
            return []
        for segment in route.segments:
            if segment.end is not None and segment.end.stamp != self.stamp:
                raise ValueError(f"a route of another game was offered ({segment.end.stamp.difference(self.stamp)})")
        prefix = None if began_at is None else self._repository.get(began_at.route)
        whole = None if prefix is None or began_at is None else stitch(prefix, began_at.stop, route)
        kept = route if whole is None else whole
        route_id = self._repository.add(kept, _ADDING)
        old = len(kept.segments) - len(route.segments)
        outcomes = [self._index(Reference(route_id, i, i + 1)) for i in range(old, len(kept.segments))]
        self.outcomes.update(outcomes)
        self._observe(kept)
        if _eligible(kept):
            self._offer(route_id)
        self._repository.release(route_id, _ADDING)
        return outcomes

    def _observe(self, route: Route) -> None:
        """Tell the cell statistics of an episode, its prefix included."""
        first, last = route.segments[0], route.segments[-1]
        cells = [Bucket(route.partition, k) for k in (first.start_key, *(s.end_key for s in route.segments))]
        self.cell_statistics.record_path(cells)
        self.cell_statistics.record_value(cells, route.won)
        if route.won and route.complete:
            self.cell_statistics.record_win(cells, last.end_tick)

    def _index(self, reference: Reference) -> str:
        route = self._repository[reference.route]
        segment = route.segments[reference.start]
        bucket = Bucket(route.partition, segment.end_key)
        self.cell_statistics.record_visit(bucket)
        outcome, evicted = self._buckets.insert(bucket, Entry(reference, segment))
        if outcome != DROPPED:
            self._repository.retain(reference.route, _BUCKET)
        if evicted is not None:
            self._repository.release(evicted.reference.route, _BUCKET)
        return outcome

    def _offer(self, route_id: int) -> None:
        route = self._repository[route_id]
        admitted, displaced = self._archive.offer(route_id, route.group, route.priority)
        if admitted:
            self._repository.retain(route_id, _ARCHIVE)
        if displaced is not None:
            left = self._unarchive(displaced)
            if left is not None:
                self._heirs[route_id] = left

    def _unarchive(self, route_id: int) -> int | None:
        """Let go of a route that left the archive; game steps left at its front, for an heir."""
        left = self._heirs.pop(route_id, None)
        if self.backward_curriculum is not None and (found := self.backward_curriculum.withdraw(route_id)) is not None:
            left = found
        self._decisions.pop(route_id, None)
        self._repository.release(route_id, _ARCHIVE)
        return left

    def judge_route(
        self, route_id: int, lucky: bool, reference_rates: Mapping[int, float] | None = None,
        contested_step: int | None = None,
    ) -> None:
        """Enter what replaying an archived route's tail has shown; only judged routes lead the curriculum.

        Args:
            lucky: whether its win was luck (:func:`~royale_lightning.restarts.archive.above_chance`): it is then
                taken out of the archive.
            reference_rates: game step -> win rate of the policy that played it, where measured.
            contested_step: the last game step at which the battle is still open
                (:func:`~royale_lightning.restarts.fronts.latest_contested`), where the front begins.

        Raises:
            KeyError: no such route is archived.
        """
        if route_id not in self._archive:
            raise KeyError(f"route {route_id} is not archived")
        if lucky:
            self._archive.remove(route_id)
            self._unarchive(route_id)
            return
        route = replace(self._repository[route_id], checked=True)
        self._repository.exchange(route_id, route)
        if contested_step is not None and self.backward_curriculum is not None:
            self._heirs.setdefault(route_id, route.last_step - contested_step)
        self._register(route_id, reference_rates or {})

    def record_win(self) -> None:
        """One more episode won."""
        self.wins_recorded += 1

    # ---- starts ------------------------------------------------------------------------------------------------
    def freeze(self, playable: Collection[str] | None = None) -> None:
        """Fix what starts and slices are drawn from until the next call.

        Args:
            playable: opponents that can be played; None for all. Routes against others sleep.
        """
        entries = list(self._buckets.entries())
        s, cells = self.settings, self.cell_statistics
        self._tables = {
            "start": tabulate(s.start, entries, lambda e: e.segment.eligible and e.segment.end is not None, cells),
            "replay": tabulate(s.replay, entries, lambda e: True, cells),
        }
        if self.backward_curriculum is not None:
            self.refresh_backward_curriculum()
            self.backward_curriculum.freeze(lambda name: playable is None or name in playable)

    def sample_start_with_reference(self, battle: int, ordinal: int) -> Entry | None:
        """A stored segment to begin an episode at the end of; ``entry.segment.end`` is the point. Holds nothing."""
        table = self._tables.get("start")
        return None if table is None else table.draw(self.seed, "start/bucket", battle, ordinal)

    def sample_replay_with_reference(self, iteration: int, index: int) -> Reference | None:
        """Where the ``index``-th slice of an iteration begins: on an archived route, evenly over routes and segments;
        while nothing is archived, in a bucket (which may hold losing play). Holds nothing."""
        routes = [i for i in self._archive.ids if i in self._repository]
        if not routes:
            table = self._tables.get("replay")
            entry = None if table is None else table.draw(self.seed, "replay/bucket", iteration, index)
            return None if entry is None else entry.reference
        first, second = draw(self.seed, "replay/archive", iteration, index, 2)
        route_id = routes[int(first * len(routes))]
        at = int(second * len(self._repository[route_id].segments))
        return Reference(route_id, at, at + 1)

    def sample_curriculum_start(self, battle: int, ordinal: int) -> CurriculumStart | None:
        """A rung to begin an episode at; None without a curriculum, a walking front, or the rung's save state."""
        vote = None if self.backward_curriculum is None else self.backward_curriculum.choose(battle, ordinal)
        if vote is None or self.backward_curriculum is None:
            return None
        front, route = self.backward_curriculum.front(vote.route), self._repository.get(vote.route)
        if front is None or route is None:
            return None
        step = front.rungs[vote.rung].game_step
        stop = next((i + 1 for i, s in enumerate(route.segments) if s.end_step == step), 0)
        point = self._decisions.get(vote.route, {}).get(step)
        if point is None and stop:
            point = route.segments[stop - 1].end
        return None if point is None else CurriculumStart(vote, Reference(vote.route, 0, stop), point)

    def refresh_backward_curriculum(self) -> list[int]:
        """Put a front on every judged archived route that lacks one; the routes that have one, ascending."""
        if self.backward_curriculum is None:
            return []
        for route_id in self._archive.ids:
            if self._repository[route_id].checked and self.backward_curriculum.front(route_id) is None:
                self._register(route_id, {})
        return self.backward_curriculum.route_ids

    def _register(self, route_id: int, rates: Mapping[int, float]) -> None:
        if self.backward_curriculum is None:
            return
        route = self._repository[route_id]
        rungs = rungs_of(route, self.backward_curriculum.settings.decision_granular)
        rungs = tuple(r._replace(reference_rate=rates.get(r.game_step)) for r in rungs)
        margin = route.priority.crown_margin
        self.backward_curriculum.register(
            route_id, rungs, route.group, route.opponent, margin, steps_left=self._heirs.pop(route_id, None)
        )

    def segment_debug_bucket_weights(self, selector: Literal["start", "replay"]) -> list[tuple[Bucket, float, float]]:
        """``(group, weight, share)`` of a selector's frozen groups."""
        table = self._tables.get(selector)
        if table is None:
            return []
        total = sum(table.weights)
        return [(g, w, w / total) for g, w in zip(table.groups, table.weights, strict=True)]

    def diagnostics(self) -> dict[str, float]:
        """The base's, with wins, cells by competence, and how many archived routes nobody has judged yet."""
        return super().diagnostics() | {
            "wins": self.wins_recorded,
            **{f"cells/{name}": n for name, n in self.cell_statistics.classes().items()},
            "unjudged": sum(not self._repository[i].checked for i in self._archive.ids),
        }

    # ---- state ---------------------------------------------------------------------------------------------------
    def runtime_state_dict(self) -> dict[str, Any]:
        """Everything, as plain data (bytes among it); between two iterations. :meth:`freeze` follows a load."""
        curriculum = self.backward_curriculum
        return {
            "repository": self._repository.state(),
            "buckets": self._buckets.state(),
            "cells": self.cell_statistics.state(),
            "curriculum": None if curriculum is None else curriculum.state(),
            "decisions": [[i, pack_points(list(p.values()))] for i, p in sorted(self._decisions.items())],
            "heirs": [list(item) for item in sorted(self._heirs.items())],
            "archive": self._archive.ids,
            "wins": self.wins_recorded,
            "outcomes": {name: self.outcomes[name] for name in (STORED, REPLACED, DROPPED)},
        }

    def load_runtime_state_dict(self, state: Mapping[str, Any], episodes: Collection[str] = ()) -> None:
        """Take over :meth:`runtime_state_dict`; what is not eligible is not archived again.

        Args:
            episodes: holders of the episodes in flight that go on; whoever else held a route does so no more.

        Raises:
            UserError: the state has no repository, or a save state is of another game.
        """
        if "repository" not in state:
            raise UserError("the checkpoint's trajectory store has no repository; begin without it or use another one")
        self._repository = Repository()
        self._repository.load(state["repository"], self.stamp, set(episodes))
        self._archive = Archive(self.settings.archive_size)
        self._tables = {}
        self._buckets.load(state["buckets"], lambda r: self._repository[r.route].segments[r.start])
        for _, entry in self._buckets.entries():
            self._repository.retain(entry.reference.route, _BUCKET)
        for route_id in state["archive"]:
            route = self._repository[route_id]
            if _eligible(route):
                self._archive.offer(route_id, route.group, route.priority)
        # Settings may have changed since: a smaller archive lets go of routes, of their fronts and of their rungs.
        for route_id in self._archive.ids:
            self._repository.retain(route_id, _ARCHIVE)
        self._repository.sweep()
        self.cell_statistics.load(state["cells"])
        if self.backward_curriculum is not None and state["curriculum"] is not None:
            self.backward_curriculum.load(state["curriculum"])
            for route_id in set(self.backward_curriculum.route_ids) - set(self._archive.ids):
                self.backward_curriculum.withdraw(route_id)
        self._decisions = {
            i: {p.game_step: p for p in unpack_points(points, self.stamp, "the checkpoint")}
            for i, points in state["decisions"] if i in self._archive
        }
        self._heirs = {i: left for i, left in state["heirs"] if i in self._archive}
        self.wins_recorded = state["wins"]
        self.outcomes = Counter(state["outcomes"])


def _eligible(route: Route) -> bool:
    """Whether the archive may hold it: a win from the beginning against somebody who can be met again as he was."""
    return route.complete and route.won and route.opponent != LEARNER
