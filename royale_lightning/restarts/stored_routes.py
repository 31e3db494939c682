"""What the trajectory store holds, seen from outside: routes, buckets, the archive, and what is minted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..battle.stamp import Stamp
from .archive import Archive
from .buckets import DROPPED, REPLACED, STORED, Entry, SegmentBuckets
from .repository import Repository
from .routes import Slice, cut_slice
from .state import Bucket, Priority, Reference, RestartPoint, Route, Segment
from .store_settings import StoreSettings
from .summaries import MetricSummary, coverage, metric_summary, unminted


class StoredRoutes:
    """Routes in a repository, their segments in buckets, the best in an archive; read-outs, holds and minting.

    Args:
        settings: of the store.
        stamp: of the game that is played.
    """

    def __init__(self, settings: StoreSettings, stamp: Stamp) -> None:
        self.settings = settings
        self.stamp = stamp
        self.outcomes: Counter[str] = Counter()
        self._repository = Repository()
        self._archive = Archive(settings.archive_size)
        self._buckets = SegmentBuckets(settings.max_per_key, settings.retention, settings.retention_metric)
        self._decisions: dict[int, dict[int, RestartPoint]] = {}

    # ---- save states of stored routes ----------------------------------------------------------------------------
    @property
    def _granular(self) -> bool:
        return self.settings.curriculum is not None and self.settings.curriculum.decision_granular

    def curriculum_route_needing_frame_stacks(self) -> int | None:
        """The first archived route with a start whose save state is not minted; None in the decision-granular mode."""
        if self.settings.curriculum is None or self._granular:
            return None
        return next((i for i in self._archive.ids if unminted(self._repository[i].segments)), None)

    def curriculum_frame_stack_coverage(self) -> tuple[int, int]:
        """Minted and wanted starts of the archived routes; (0, 0) in the decision-granular mode."""
        if self.settings.curriculum is None or self._granular:
            return 0, 0
        return coverage(s for i in self._archive.ids for s in self._repository[i].segments)

    def paths_needing_frame_stacks(self, limit: int) -> list[int]:
        """Up to ``limit`` routes in the buckets with a start whose save state is not minted, newest first."""
        held = {e.reference.route for _, e in self._buckets.entries()}
        return [i for i in sorted(held, reverse=True) if unminted(self._repository[i].segments)][:limit]

    def frame_stack_coverage(self) -> tuple[int, int]:
        """Minted and wanted starts in the buckets."""
        return coverage(e.segment for _, e in self._buckets.entries())

    def set_frame_stacks(self, route_id: int, points: Mapping[int, RestartPoint]) -> bool:
        """Attach minted save states (frame history inside) to a route's segments.

        Args:
            points: segment index -> the save state at its end.

        Returns:
            Whether the route was still stored.

        Raises:
            ValueError: a save state is of another moment or game.
        """
        route = self._repository.get(route_id)
        if route is None:
            return False
        segments = list(route.segments)
        for i, point in points.items():
            segment = segments[i]
            if (point.game_step, point.state_hash, point.stamp) != (segment.end_step, segment.end_hash, self.stamp):
                raise ValueError(f"a save state of game step {point.game_step} is not the end of segment {i}")
            segments[i] = replace(segment, end=point)
        self._repository.exchange(route_id, replace(route, segments=tuple(segments)))
        self._buckets.refresh(route_id, self._repository[route_id].segments)
        return True

    def curriculum_route_needing_action_restarts(self) -> int | None:
        """The first archived route whose game steps are not all minted; None in the coarse mode."""
        if not self._granular:
            return None
        routes = [(i, self._repository[i]) for i in self._archive.ids]
        return next((i for i, r in routes if len(self._decisions.get(i, ())) < r.last_step - r.first_step - 1), None)

    def set_action_restarts(self, route_id: int, points: Mapping[int, RestartPoint]) -> bool:
        """Attach a save state for every game step of an archived route that an episode may begin at.

        Args:
            points: game step -> save state; the route's end is none.

        Returns:
            Whether the route was still archived; if not, nothing is kept.

        Raises:
            ValueError: a save state is of another game or filed under another step.
        """
        if route_id not in self._archive:
            return False
        if any(p.game_step != step or p.stamp != self.stamp for step, p in points.items()):
            raise ValueError(f"a save state of route {route_id} is of another game step or game")
        last = self._repository[route_id].last_step
        self._decisions[route_id] = {step: p for step, p in sorted(points.items()) if step < last}
        return True

    def curriculum_action_restart_coverage(self) -> tuple[int, int]:
        """Minted and wanted game steps of the archived routes; (0, 0) in the coarse mode."""
        if not self._granular:
            return 0, 0
        routes = [self._repository[i] for i in self._archive.ids]
        return sum(map(len, self._decisions.values())), sum(r.last_step - r.first_step - 1 for r in routes)

    # ---- look-ups ------------------------------------------------------------------------------------------------
    def materialize_prefix_segments(self, reference: Reference) -> tuple[Segment, ...]:
        """All segments of a route up to the reference's stop.

        Raises:
            KeyError: the route is not stored.
            ValueError: there is none.
        """
        segments = self._repository[reference.route].segments[: reference.stop]
        if not segments:
            raise ValueError(f"{reference} has no segments before it")
        return segments

    def materialize_slice(self, reference: Reference, least: int = 16, most: int = 48) -> Slice | None:
        """Whole segments near the reference's start, to be replayed and imitated: see
        :func:`~royale_lightning.restarts.routes.cut_slice`."""
        return cut_slice(reference.route, self._repository[reference.route], reference.start, least, most)

    def retain_reference(self, reference: Reference, holder: str) -> None:
        """Keep the reference's route as long as ``holder`` does not release it; KeyError if it is gone already."""
        self._repository.retain(reference.route, holder)

    def release_reference(self, reference: Reference, holder: str) -> None:
        """Let go of one hold; KeyError if ``holder`` has none."""
        self._repository.release(reference.route, holder)

    def repository_path(self, route_id: int) -> Route | None:
        return self._repository.get(route_id)

    def repository_diagnostics(self) -> dict[str, float]:
        """Occupancy: see :meth:`~royale_lightning.restarts.repository.Repository.diagnostics`."""
        held = {e.reference.route for _, e in self._buckets.entries()}
        return self._repository.diagnostics(held | set(self._archive.ids))

    @property
    def bucket_count(self) -> int:
        """Non-empty buckets."""
        return len(self._buckets)

    @property
    def archived_best_route(self) -> Route | None:
        """Of highest priority, so that its fields can be logged one by one."""
        best = self._archive.best
        return None if best is None else self._repository[best]

    @property
    def archived_max_priority(self) -> Priority | None:
        best = self._archive.best
        return None if best is None else self._archive.priorities[best]

    @property
    def archived_path_count(self) -> int:
        return len(self._archive)

    @property
    def archived_route_ids(self) -> list[int]:
        """Ascending."""
        return self._archive.ids

    @property
    def archived_route_priorities(self) -> dict[int, Priority]:
        """By route, ascending."""
        return self._archive.priorities

    def diagnostics(self) -> dict[str, float]:
        """Occupancy, what became of segments, how much is minted, and the best route's priority field by field."""
        out: dict[str, float] = {"buckets": len(self._buckets), "archived": len(self._archive)}
        out |= {name: self.outcomes[name] for name in (STORED, REPLACED, DROPPED)}
        for name, (minted, wanted) in (
            ("starts", self.frame_stack_coverage()), ("rungs", self.curriculum_frame_stack_coverage()),
            ("decisions", self.curriculum_action_restart_coverage()),
        ):
            out |= {f"{name}/minted": minted, f"{name}/wanted": wanted}
        if (best := self.archived_max_priority) is not None:
            out |= {f"best/{name}": value for name, value in best._asdict().items()}
        return out | self.repository_diagnostics()

    def segment_buckets_view(self) -> Mapping[Bucket, list[Entry]]:
        """Live and read-only."""
        return self._buckets.view()

    def replay_metric_summary(self, metric: str, floor: float | None = None) -> MetricSummary | None:
        """A metric over all stored segments, None without any; KeyError if one lacks it."""
        return metric_summary((e.segment for _, e in self._buckets.entries()), metric, floor)

    def start_metric_summary(self, metric: str, floor: float | None = None) -> MetricSummary | None:
        """The same over those that an episode can begin at."""
        eligible = (e.segment for _, e in self._buckets.entries() if e.segment.eligible)
        return metric_summary(eligible, metric, floor)
