"""The trajectory store under the names of the system whose behaviour was specified.

Whoever knows that system finds its members here, and here alone: a run uses :class:`RouteStore`. Members that are the
same under another name only forward; those that a run has no use for are made of the store's public parts. The
package's ``README.md`` says, member by member, what differs and why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ..records.points import Bucket, RestartPoint
from ..records.route import Priority, Reference, Route, Segment
from ..selection.buckets import Entry
from ..selection.selection import SegmentTable, draw, tabulate
from ..selection.statistics import BucketStatistics
from .curriculum import BackwardCurriculum
from .cuts import Slice, coverage, cut_slice
from .store import CurriculumStart, RouteStore


class MetricSummary(NamedTuple):
    """A metric over ``n`` segments; ``at_least`` of them are at or above the floor asked for."""

    n: int
    at_least: int
    mean: float
    low: float
    high: float


class TrajectoryStore(RouteStore):
    """See the module; settings, seed and stamp as of :class:`RouteStore`."""

    _slices: SegmentTable | None = None

    # ---- storing -----------------------------------------------------------------------------------------------
    def add_path(self, route: Route | None, began_at: Reference | None = None) -> list[str]:
        """:meth:`RouteStore.add`; None changes nothing."""
        return [] if route is None else self.add(route, began_at)

    def record_win(self) -> None:
        """One more episode won."""
        self.wins += 1

    @property
    def wins_recorded(self) -> int:
        return self.wins

    @property
    def cell_statistics(self) -> BucketStatistics:
        return self.statistics

    @property
    def backward_curriculum(self) -> BackwardCurriculum | None:
        return self.curriculum

    # ---- starts and slices ---------------------------------------------------------------------------------------
    def freeze(self, playable: Collection[str] | None = None) -> None:
        """:meth:`RouteStore.freeze`, with what slices to imitate are drawn from."""
        super().freeze(playable)
        self._slices = tabulate(self.settings.replay, list(self.buckets.entries()), lambda e: True, self.statistics)

    def sample_start_with_reference(self, battle: int, ordinal: int) -> Entry | None:
        """:meth:`RouteStore.bucket_start`."""
        return self.bucket_start(battle, ordinal)

    def sample_curriculum_start(self, battle: int, ordinal: int) -> CurriculumStart | None:
        """:meth:`RouteStore.curriculum_start`."""
        return self.curriculum_start(battle, ordinal)

    def refresh_backward_curriculum(self) -> list[int]:
        """:meth:`RouteStore.put_fronts`."""
        return self.put_fronts()

    def sample_replay_with_reference(self, iteration: int, index: int) -> Reference | None:
        """Where the ``index``-th slice of an iteration begins: on an archived route, evenly over routes and segments;
        while nothing is archived, in a bucket (which may hold losing play). Holds nothing."""
        routes = self.archive.ids
        if not routes:
            entry = None if self._slices is None else self._slices.draw(self.seed, "replay/bucket", iteration, index)
            return None if entry is None else entry.reference
        first, second = draw(self.seed, "replay/archive", iteration, index, 2)
        route_id = routes[int(first * len(routes))]
        at = int(second * len(self.repository[route_id].segments))
        return Reference(route_id, at, at + 1)

    def segment_debug_bucket_weights(self, selector: Literal["start", "replay"]) -> list[tuple[Bucket, float, float]]:
        """``(group, weight, share)`` of a selector's frozen groups."""
        table = self._starts if selector == "start" else self._slices
        if table is None:
            return []
        total = sum(table.weights)
        return [(g, w, w / total) for g, w in zip(table.groups, table.weights, strict=True)]

    def materialize_prefix_segments(self, reference: Reference) -> tuple[Segment, ...]:
        """All segments of a route up to the reference's stop.

        Raises:
            KeyError: the route is not stored.
            ValueError: there is none.
        """
        segments = self.repository[reference.route].segments[: reference.stop]
        if not segments:
            raise ValueError(f"{reference} has no segments before it")
        return segments

    def materialize_slice(self, reference: Reference, least: int = 16, most: int = 48) -> Slice | None:
        """:func:`~royale_lightning.restarts.routes.cuts.cut_slice` of a stored route; KeyError if it is not stored."""
        return cut_slice(reference.route, self.repository[reference.route], reference.first, least, most)

    # ---- routes and who holds them -------------------------------------------------------------------------------
    def repository_path(self, route_id: int) -> Route | None:
        return self.repository.get(route_id)

    def retain_reference(self, reference: Reference, holder: str) -> None:
        """Keep the reference's route as long as ``holder`` does not release it; KeyError if it is gone already."""
        self.repository.retain(reference.route, holder)

    def release_reference(self, reference: Reference, holder: str) -> None:
        """Let go of one hold; KeyError if ``holder`` has none."""
        self.repository.release(reference.route, holder)

    def repository_diagnostics(self) -> dict[str, float]:
        """:meth:`RouteStore.occupancy`."""
        return self.occupancy()

    @property
    def archived_best_route(self) -> Route | None:
        """Of highest priority."""
        best = self.archive.best
        return None if best is None else self.repository[best]

    @property
    def archived_max_priority(self) -> Priority | None:
        return self.best_priority

    @property
    def archived_path_count(self) -> int:
        return len(self.archive)

    @property
    def archived_route_ids(self) -> list[int]:
        """Ascending."""
        return self.archive.ids

    @property
    def archived_route_priorities(self) -> dict[int, Priority]:
        """By route, ascending."""
        return self.archive.priorities

    # ---- save states: theirs lacked frame stacks, ours is the save state itself --------------------------------------
    def curriculum_route_needing_frame_stacks(self) -> int | None:
        """The first archived route with a start whose save state is not minted; None where a rung is a game step."""
        minted, wanted = self.start_coverage()
        return next((i for i in self.archive.ids if self._unminted(i)), None) if minted < wanted else None

    def curriculum_frame_stack_coverage(self) -> tuple[int, int]:
        """:meth:`RouteStore.start_coverage`."""
        return self.start_coverage()

    def paths_needing_frame_stacks(self, limit: int) -> list[int]:
        """Up to ``limit`` routes in the buckets with a start whose save state is not minted, newest first."""
        held = {e.reference.route for _, e in self.buckets.entries()}
        return [i for i in sorted(held, reverse=True) if self._unminted(i)][:limit]

    def frame_stack_coverage(self) -> tuple[int, int]:
        """Minted and wanted starts in the buckets."""
        return coverage(e.segment for _, e in self.buckets.entries())

    def _unminted(self, route_id: int) -> bool:
        minted, wanted = coverage(self.repository[route_id].segments)
        return minted < wanted

    def set_frame_stacks(self, route_id: int, points: Mapping[int, RestartPoint]) -> bool:
        """Attach minted save states to a route's segments.

        Args:
            points: segment index -> the save state at its end.

        Returns:
            Whether the route was still stored.

        Raises:
            ValueError: a save state is of another moment or game.
        """
        route = self.repository.get(route_id)
        if route is None:
            return False
        segments = list(route.segments)
        for i, point in points.items():
            segment = segments[i]
            if (point.game_step, point.state_hash, point.stamp) != (segment.end_step, segment.end_hash, self.stamp):
                raise ValueError(f"a save state of game step {point.game_step} is not the end of segment {i}")
            segments[i] = replace(segment, end=point)
        self.repository.exchange(route_id, replace(route, segments=tuple(segments)))
        self.buckets.refresh(route_id, self.repository[route_id].segments)
        return True

    def curriculum_route_needing_action_restarts(self) -> int | None:
        """:meth:`RouteStore.route_to_mint`."""
        return self.route_to_mint()

    def set_action_restarts(self, route_id: int, points: Mapping[int, RestartPoint]) -> bool:
        """:meth:`RouteStore.set_decisions`."""
        return self.set_decisions(route_id, points)

    def curriculum_action_restart_coverage(self) -> tuple[int, int]:
        """:meth:`RouteStore.decision_coverage`."""
        return self.decision_coverage()

    # ---- buckets -------------------------------------------------------------------------------------------------
    @property
    def bucket_count(self) -> int:
        """Non-empty buckets."""
        return len(self.buckets)

    def segment_buckets_view(self) -> Mapping[Bucket, list[Entry]]:
        """Live and read-only."""
        return self.buckets.view()

    def replay_metric_summary(self, metric: str, floor: float | None = None) -> MetricSummary | None:
        """A metric over all stored segments, None without any; KeyError if one lacks it."""
        return _summary((e.segment for _, e in self.buckets.entries()), metric, floor)

    def start_metric_summary(self, metric: str, floor: float | None = None) -> MetricSummary | None:
        """The same over those that an episode can begin at."""
        return _summary((e.segment for _, e in self.buckets.entries() if e.segment.eligible), metric, floor)

    # ---- state ---------------------------------------------------------------------------------------------------
    def runtime_state_dict(self) -> dict[str, Any]:
        """:meth:`RouteStore.state`."""
        return self.state()

    def load_runtime_state_dict(self, state: Mapping[str, Any], episodes: Collection[str] = ()) -> None:
        """:meth:`RouteStore.load`."""
        self.load(state, episodes)


def _summary(segments: Iterable[Segment], metric: str, floor: float | None) -> MetricSummary | None:
    values = [s.metric(metric) for s in segments]
    if not values:
        return None
    at_least = 0 if floor is None else sum(v >= floor for v in values)
    return MetricSummary(len(values), at_least, sum(values) / len(values), min(values), max(values))
