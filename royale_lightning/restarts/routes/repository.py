"""The routes' one owner: who holds which route, by name, and what they share.

A route lives as long as somebody holds it. Holds carry their holder's name, so that nobody can let go of what another
still believes in, and letting go twice is an error at once instead of a missing route later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...battle.round import DEAL, Deal
from ...battle.stamp import Stamp
from ..records.bank import BlobTable, pack_points, unpack_points
from ..records.points import RestartPoint
from ..records.route import Priority, Route, Segment

_ROUTE = ("source", "seed", "first_hash", "players", "seat", "partition", "commands", "complete", "policy_version",
          "checked")
_SEGMENT = ("first_step", "end_step", "first_key", "end_key", "end_tick", "end_hash", "eligible", "terminal", "won",
            "lost", "metrics")


class Repository:
    """Routes by increasing number, with named holds."""

    def __init__(self) -> None:
        self._routes: dict[int, Route] = {}
        self._holds: dict[int, Counter[str]] = {}
        self._next = 0
        self._blobs = BlobTable()

    def __contains__(self, route_id: int) -> bool:
        return route_id in self._routes

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def ids(self) -> list[int]:
        """Ascending, hence oldest first."""
        return list(self._routes)

    def add(self, route: Route, holder: str) -> int:
        """Store a route under a fresh number, held once by ``holder``."""
        route_id = self._next
        self._next += 1
        self._routes[route_id] = self._shared(route)
        self._holds[route_id] = Counter({holder: 1})
        return route_id

    def get(self, route_id: int) -> Route | None:
        return self._routes.get(route_id)

    def __getitem__(self, route_id: int) -> Route:
        try:
            return self._routes[route_id]
        except KeyError:
            raise KeyError(f"route {route_id} is not stored; nobody held it") from None

    def exchange(self, route_id: int, route: Route) -> None:
        """Put another version of a route in its place: the same episode, with save states minted or a check passed."""
        old = self[route_id]
        self._routes[route_id] = self._shared(route)
        self._forget(old)

    def retain(self, route_id: int, holder: str) -> None:
        """Hold a route once more.

        Raises:
            KeyError: it is not stored.
        """
        self[route_id]
        self._holds[route_id][holder] += 1

    def release(self, route_id: int, holder: str) -> None:
        """Let go of one hold; the last one frees the route.

        Raises:
            KeyError: ``holder`` does not hold it.
        """
        holds = self._holds.get(route_id, Counter())
        if holds[holder] < 1:
            raise KeyError(f"{holder!r} does not hold route {route_id}")
        holds[holder] -= 1
        if not holds[holder]:
            del holds[holder]
        if not holds:
            self._forget(self._routes.pop(route_id))
            del self._holds[route_id]

    def holds(self, route_id: int) -> Mapping[str, int]:
        """Holds by holder."""
        return dict(self._holds.get(route_id, {}))

    # ---- bytes -------------------------------------------------------------------------------------------------
    def _shared(self, route: Route) -> Route:
        """The route with its save states' bytes exchanged for those already held."""

        def share(segment: Segment) -> Segment:
            point = segment.end
            if point is None:
                return segment
            held = self._blobs.retain(point.blob, point.payload)
            return segment if held is point.payload else replace(segment, end=replace(point, payload=held))

        segments = tuple(share(s) for s in route.segments)
        same = all(a is b for a, b in zip(segments, route.segments, strict=True))
        return route if same else replace(route, segments=segments)

    def _forget(self, route: Route) -> None:
        for segment in route.segments:
            if segment.end is not None:
                self._blobs.release(segment.end.blob)

    def diagnostics(self, reachable: Iterable[int]) -> dict[str, float]:
        """Occupancy.

        Args:
            reachable: routes that a bucket or the archive leads to.

        Returns:
            ``routes``; ``direct`` of them reachable and ``orphaned`` not (an episode in flight alone holds them);
            ``holds`` and ``max_holds``; ``segments``; ``game_steps``; ``bytes`` of distinct save states, which memory
            follows, and ``referenced_bytes`` counted once a segment.
        """
        direct = len(set(reachable) & set(self._routes))
        totals = [sum(h.values()) for h in self._holds.values()]
        return {
            "routes": len(self._routes),
            "direct": direct,
            "orphaned": len(self._routes) - direct,
            "holds": sum(totals),
            "max_holds": max(totals, default=0),
            "segments": sum(len(r.segments) for r in self._routes.values()),
            "game_steps": sum(r.last_step - r.first_step for r in self._routes.values()),
            "bytes": self._blobs.unique_bytes,
            "referenced_bytes": self._blobs.referenced_bytes,
        }

    # ---- state -------------------------------------------------------------------------------------------------
    def sweep(self) -> None:
        """Free the routes that nobody holds; there are some only while a state is being loaded."""
        for route_id in [i for i, holds in self._holds.items() if not holds]:
            self._forget(self._routes.pop(route_id))
            del self._holds[route_id]

    def state(self) -> dict[str, Any]:
        """Plain data (bytes among it)."""
        return {
            "next": self._next,
            "ids": self.ids,
            "routes": pack_routes(list(self._routes.values())),
            "holds": [dict(sorted(self._holds[i].items())) for i in self._routes],
        }

    def load(self, state: Mapping[str, Any], stamp: Stamp, holders: Collection[str]) -> None:
        """Take over :meth:`state`, with the holds of ``holders`` only: buckets and archive renew theirs, and
        :meth:`sweep` follows.

        Raises:
            UserError: a save state is of another game.
        """
        self._blobs = BlobTable()
        routes = [self._shared(r) for r in unpack_routes(state["routes"], stamp)]
        self._routes = dict(zip(state["ids"], routes, strict=True))
        self._holds = {
            i: Counter({h: n for h, n in held.items() if h in holders})
            for i, held in zip(state["ids"], state["holds"], strict=True)
        }
        self._next = state["next"]


def pack_routes(routes: Sequence[Route]) -> dict[str, Any]:
    """Routes as dicts, lists, numbers, strings and bytes."""
    points: dict[str, RestartPoint] = {s.end.id: s.end for r in routes for s in r.segments if s.end is not None}
    index = {name: i for i, name in enumerate(points)}
    return {
        "points": pack_points(list(points.values())),
        "routes": [
            [
                *(_plain(getattr(r, n)) for n in _ROUTE),
                [r.deal.own, r.deal.game_steps],
                list(r.priority),
                [
                    [*(_plain(getattr(s, n)) for n in _SEGMENT), None if s.end is None else index[s.end.id]]
                    for s in r.segments
                ],
            ]
            for r in routes
        ],
    }


def unpack_routes(data: Mapping[str, Any], stamp: Stamp) -> list[Route]:
    """What :func:`pack_routes` was given.

    Raises:
        UserError: the save states are of another game.
    """
    points = unpack_points(data["points"], stamp, "the checkpoint")
    return [_route(packed, points) for packed in data["routes"]]


def _route(packed: Sequence[Any], points: Sequence[RestartPoint]) -> Route:
    *values, priority, segments = packed
    # Routes from before decks were dealt by anything but a seed have no deal.
    deal = Deal(*values.pop()) if len(values) > len(_ROUTE) else DEAL
    given = dict(zip(_ROUTE, values, strict=True))
    given["source"], given["players"] = tuple(given["source"]), tuple(given["players"])
    return Route(
        **given,
        priority=Priority(*priority),
        deal=deal,
        segments=tuple(_segment(s, points) for s in segments),
    )


def _segment(packed: Sequence[Any], points: Sequence[RestartPoint]) -> Segment:
    *values, end = packed
    given = dict(zip(_SEGMENT, values, strict=True))
    given["first_key"], given["end_key"] = tuple(given["first_key"]), tuple(given["end_key"])
    given["metrics"] = tuple((name, value) for name, value in given["metrics"])
    return Segment(**given, end=None if end is None else points[end])


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
