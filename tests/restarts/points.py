"""Made-up records for the tests of restarts: no engine is behind their bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from royale_lightning.restarts.key import advantage_rank
from royale_lightning.restarts.state import Key, Priority, RestartPoint, Route, Segment, Stamp, pack_commands

STAMP = Stamp(
    engine="0.1.25/a27d006f", binary="00ff", snapshot_format="20", cards="803ec02c", calibration="56563fe4",
    decision_ms=500, command_delay_ticks=0, observation="rows", actions="tiles", battle="b1", key_function="k1",
)
FROZEN = "snapshot-1"


def point(n: int = 0, key: Key = (0, 0, 0), **changed: Any) -> RestartPoint:
    """The ``n``-th made-up point of a cell."""
    given: dict[str, Any] = {
        "payload": b"state %d" % n, "stamp": STAMP, "state_hash": n, "seat": 0, "players": ("learner", FROZEN),
        "key": key, "rank": advantage_rank(key), "partition": "starter", "game_step": 20, "tick": 200,
        "tick_limit": None, "tag": "grid", "source": (0, n), "policy_version": 0, "remembered": (True, False),
    }
    return RestartPoint(**{**given, **changed})


def segment(start: int, stop: int, start_key: Key, end_key: Key, **changed: Any) -> Segment:
    """Game steps ``start`` to ``stop``; eligible unless it ends the battle."""
    given: dict[str, Any] = {
        "start_step": start, "end_step": stop, "start_key": start_key, "end_key": end_key, "end_tick": 10 * stop,
        "end_hash": 1000 + stop, "eligible": not changed.get("terminal", False),
    }
    return Segment(**{**given, **changed})


def route(
    cells: list[Key], *, steps: int = 20, first: int = 0, won: bool = True, source: tuple[int, int] = (0, 0),
    margin: int = 1, **changed: Any,
) -> Route:
    """A route through ``cells``, ``steps`` game steps between two of them, with a play at every fifth."""
    last = len(cells) - 2
    segments = tuple(
        segment(
            first + i * steps, first + (i + 1) * steps, cells[i], cells[i + 1],
            **({"terminal": True, "won": won, "lost": not won} if i == last else {}),
        )
        for i in range(len(cells) - 1)
    )
    end = first + (last + 1) * steps
    given: dict[str, Any] = {
        "source": source, "seed": 7, "start_hash": 1000 + first, "players": ("learner", FROZEN), "seat": 0,
        "partition": "starter",
        "commands": pack_commands([(t, t % 2, t + 1) for t in range(first, end, 5)]), "segments": segments,
        "priority": Priority(0, int(won), margin, 0.5, -10 * end), "complete": first == 0, "policy_version": 0,
    }
    return Route(**{**given, **changed})


def minted(whole: Route) -> Route:
    """The route with a save state at the end of every segment that an episode may begin at."""
    return replace(whole, segments=tuple(replace(s, end=end_of(whole, i)) for i, s in enumerate(whole.segments)))


def end_of(whole: Route, i: int) -> RestartPoint | None:
    """The save state at the end of segment ``i``, None where the battle ends."""
    s = whole.segments[i]
    if not s.eligible:
        return None
    return point(
        s.end_hash, s.end_key, state_hash=s.end_hash, game_step=s.end_step, tick=s.end_tick, seat=whole.seat,
        players=whole.players, partition=whole.partition, source=whole.source,
    )
