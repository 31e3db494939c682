"""Made-up records for the tests of restarts: no engine is behind their bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from royale_lightning.battle.round import POOL, EpisodeRecord, Situation, Start
from royale_lightning.battle.stamp import Stamp
from royale_lightning.restarts.pool.pool import PoolSettings, RestartPool
from royale_lightning.restarts.records.key import advantage_rank
from royale_lightning.restarts.records.points import EpisodeResult, Key, RestartPoint
from royale_lightning.restarts.records.route import Priority, Reference, Route, Segment, pack_commands
from royale_lightning.restarts.routes.curriculum import CurriculumSettings, Vote
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from royale_lightning.restarts.scheduler import StartScheduler
from royale_lightning.restarts.selection.buckets import Entry

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


def segment(start: int, stop: int, first_key: Key, end_key: Key, **changed: Any) -> Segment:
    """Game steps ``start`` to ``stop``; eligible unless it ends the battle."""
    given: dict[str, Any] = {
        "first_step": start, "end_step": stop, "first_key": first_key, "end_key": end_key, "end_tick": 10 * stop,
        "end_hash": 1000 + stop, "eligible": not changed.get("terminal", False),
    }
    return Segment(**{**given, **changed})


def entry(n: int, steps: int = 10, **metrics: float) -> Entry:
    """A segment of ``steps`` game steps, as a bucket holds it."""
    made = segment(0, steps, (0, 0, 0), (0, 0, 0), metrics=tuple(sorted(metrics.items())))
    return Entry(Reference(n, 0, 1), made)


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
        "source": source, "seed": 7, "first_hash": 1000 + first, "players": ("learner", FROZEN), "seat": 0,
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


def episode(**changed: object) -> EpisodeRecord:
    course = [(20 * i, Situation(200 * i, 10.0 * i, (0, int(i > 2)), (3.0, 3.0))) for i in range(8)]
    made = EpisodeRecord(
        battle=3, ordinal=2, players=("scripted:push", "learner"), seed=1, winner=1, truncated=False, ticks=1600,
        game_steps=160, crowns=(0, 1), tower_hp=(1.0, 0.5), returns=(0.0, 0.0), discounted=(0.0, 0.0), choices=(9, 9),
        plays=(5, 5), leak_steps=(0, 0), course=course, start=Start(POOL, "d", b"x", 1, "p"),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def full_pool() -> StartScheduler:
    """A scheduler whose pool has seen everything a row tells of."""
    scheduler = StartScheduler(1, RestartPool(PoolSettings(window=1, max_uses=1000), 1, STAMP))
    pool = scheduler.pool
    pool.import_points([point(0), point(1, (0, 1, 1))])
    for n in range(120):
        pool.serve(0, n, point(n % 2, ((0, 0, 0), (0, 1, 1))[n % 2]).id, point(0).players)
        pool.record_episode(EpisodeResult(0, 0, n, point(0).players, 0, float(n % 2), 100))
    return scheduler


#: A way through a few cells, one way and again.
CELLS: list[Key] = [(0, 0, i) for i in range(-2, 3)] * 2


def walked() -> StartScheduler:
    """A scheduler with an archived route whose front has a full window."""
    s = RouteStore(StoreSettings(curriculum=CurriculumSettings(window=2, grace=9)), 1, STAMP)
    scheduler = StartScheduler(1, RestartPool(PoolSettings(), 1, STAMP), s)
    s.add(minted(route(CELLS)))
    s.judge_route(0, False, {80: 0.5}, 80)
    assert s.curriculum is not None
    front = s.curriculum.front(0)
    assert front is not None
    for won in (True, False):
        assert s.curriculum.vote(Vote(0, front.generation, front.index), won, 1)
    s.curriculum.record_attempt(True)
    return scheduler
