"""Routes as plain data, each distinct save state once, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..battle.stamp import Stamp
from .bank import pack_points, unpack_points
from .state import Priority, RestartPoint, Route, Segment

_ROUTE = ("source", "seed", "start_hash", "players", "seat", "partition", "commands", "complete", "policy_version",
          "checked")
_SEGMENT = ("start_step", "end_step", "start_key", "end_key", "end_tick", "end_hash", "eligible", "terminal", "won",
            "lost", "metrics")


def pack_routes(routes: Sequence[Route]) -> dict[str, Any]:
    """Routes as dicts, lists, numbers, strings and bytes."""
    points: dict[str, RestartPoint] = {s.end.id: s.end for r in routes for s in r.segments if s.end is not None}
    index = {name: i for i, name in enumerate(points)}
    return {
        "points": pack_points(list(points.values())),
        "routes": [
            [
                *(_plain(getattr(r, n)) for n in _ROUTE),
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
    given = dict(zip(_ROUTE, values, strict=True))
    given["source"], given["players"] = tuple(given["source"]), tuple(given["players"])
    return Route(
        **given,
        priority=Priority(*priority),
        segments=tuple(_segment(s, points) for s in segments),
    )


def _segment(packed: Sequence[Any], points: Sequence[RestartPoint]) -> Segment:
    *values, end = packed
    given = dict(zip(_SEGMENT, values, strict=True))
    given["start_key"], given["end_key"] = tuple(given["start_key"]), tuple(given["end_key"])
    given["metrics"] = tuple((name, value) for name, value in given["metrics"])
    return Segment(**given, end=None if end is None else points[end])


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
