"""What restarts tell the metric row.

Counters only grow; a row tells what happened in its iteration, so each is told as its difference to the row before.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..battle.round import POOL
from .pool.pool import REJECTIONS
from .records.points import TIMEOUTS
from .routes.curriculum import BackwardCurriculum
from .routes.store import RouteStore
from .scheduler import StartScheduler

#: Starts before the busiest bucket's share says anything.
_MANY = 100
#: The pool's counts that a row tells as what happened in its iteration.
_FLOWS = (
    "offered", "stored", *REJECTIONS, "displaced", "worn", "aged", "evicted", "imported", "restarts", "scored",
    *TIMEOUTS, "abandoned",
)


def pool_counts(scheduler: StartScheduler) -> dict[str, int]:
    """Counters that only grow, for the next row's :func:`pool_figures`."""
    counts = {name: scheduler.pool.counts[name] for name in _FLOWS}
    return counts | {"starved": scheduler.counts[f"starved/{POOL}"], "held_back": scheduler.counts["held_back"]}


def pool_figures(scheduler: StartScheduler, before: Mapping[str, int]) -> dict[str, float]:
    """``restarts/...`` of a metric row: what the pool holds, and what happened to it.

    Args:
        before: :func:`pool_counts` at the row before.
    """
    pool = scheduler.pool
    d = pool.diagnostics()
    out: dict[str, float] = {f"restarts/{name}": d[name] for name in ("buckets", "points", "in_flight")}
    out["restarts/memory_mb"] = d["bytes"] / 1e6
    out |= {f"restarts/{name}": n - before.get(name, 0) for name, n in pool_counts(scheduler).items()}
    out["restarts/chance"] = scheduler.chances[POOL]
    if d["restarts"] >= _MANY:
        out["restarts/busiest_share"] = d["busiest_share"]
    out |= {f"restarts/{name.replace('/', '_')}": value for name, value in d.items() if name.startswith("deepest/")}
    rates = pool.advance_rates()
    if rates:
        out["restarts/advance_rate"] = sum(r.rate for r in rates) / len(rates)
    full = [r.rate for r in rates if r.results >= pool.settings.window]
    if full:
        out["restarts/decided"] = sum(rate in (0.0, 1.0) for rate in full) / len(full)
    return out


#: The curriculum's counts that a row tells as what happened in its iteration.
_MOVES = ("attempts", "served", "starved", "stale", "uncredited", "advances", "retreats", "retired", "stalls")


def curriculum_counts(store: RouteStore) -> dict[str, int]:
    """Counters that only grow, for the next row's :func:`curriculum_figures`."""
    return {name: _curriculum(store).counts[name] for name in _MOVES} | {"wins": store.wins}


def curriculum_figures(store: RouteStore, before: Mapping[str, int]) -> dict[str, float]:
    """``curriculum/...`` of a metric row: what is archived, where the fronts stand, and how they moved.

    Args:
        before: :func:`curriculum_counts` at the row before.
    """
    out: dict[str, float] = {f"curriculum/{k}": n - before.get(k, 0) for k, n in curriculum_counts(store).items()}
    d = _curriculum(store).diagnostics()
    names = ("routes", "walking", "stalled", "asleep", "starved_streak", "front_steps_left", "rate")
    out |= {f"curriculum/{name}": d[name] for name in names if name in d}
    out["curriculum/archived"] = len(store.archive)
    out["curriculum/memory_mb"] = store.occupancy()["bytes"] / 1e6
    minted, wanted = store.start_coverage()
    if wanted:
        out["curriculum/coverage"] = minted / wanted
    best = store.best_priority
    if best is not None:
        out["curriculum/best_crowns"], out["curriculum/best_hp"] = best.crown_margin, best.hp_margin
        out["curriculum/best_ticks"] = -best.minus_ticks
    return out


def _curriculum(store: RouteStore) -> BackwardCurriculum:
    assert store.curriculum is not None, "a run's store has a curriculum"
    return store.curriculum
