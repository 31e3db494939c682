"""What playing an archived route's tail again says of it: whether its win was luck, and where the curriculum begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..battle.opponents import is_scripted
from ..battle.round import EpisodeRecord
from ..battle.steps.arena import LEARNER
from .archive import above_chance
from .fronts import latest_contested
from .mint import learner_seats, partition_of, priority_of
from .state import Priority, RestartPoint, Route
from .store import TrajectoryStore

#: Chance of a win that needs no reason, where waiting never wins.
_LUCK = 0.05
#: Rating points of one band of opponents: about what tells two snapshots apart.
_BAND = 100.0


class Verdict(NamedTuple):
    """What :meth:`~royale_lightning.restarts.store.TrajectoryStore.judge_route` is told."""

    lucky: bool
    reference_rates: dict[int, float]
    contested_step: int | None


def probes(route: Route, most: int) -> list[RestartPoint]:
    """Up to ``most`` starts of a route, evenly over those it has, its last one among them, by time."""
    points = [s.end for s in route.segments if s.eligible and s.end is not None]
    n = min(most, len(points))
    return [points[len(points) - 1 - i * len(points) // n] for i in reversed(range(n))] if n else []


def verdict(
    steps: Sequence[int], passive: Sequence[int], policy: Sequence[int], games: int, *, demonstrated: bool = False
) -> Verdict:
    """Judge a route.

    Its front begins at the last probed moment that is still open (waiting wins at most 60 % there, the policy less than
    90 %), or, where the policy wins from all that waiting loses, at the first of these. The win was luck if from there
    the policy wins no more often than waiting does; where waiting wins from everywhere, the battle was decided before
    and there is nothing to walk. Asking the same from the middle of the battle would take out every route of a task
    that the policy has not learned yet, which is what a curriculum is for.

    Args:
        steps: game steps of the probed moments, ascending.
        passive: wins of a learner that only waits, from each.
        policy: wins of the policy, from each.
        games: played from each, by either.
        demonstrated: ``policy`` is who showed the route and not who shall learn it. That it wins from everywhere is
            what it was taken for, so waiting alone says where the battle is open.
    """
    rates = {step: wins / games for step, wins in zip(steps, policy, strict=True)}
    at = latest_contested([w / games for w in passive], [0.0 if demonstrated else w / games for w in policy])
    if at is None:
        at = next((i for i, w in enumerate(passive) if w < policy[i]), None)
    if at is None:
        return Verdict(True, rates, None)
    lucky = not above_chance(policy[at], games, max(_LUCK, passive[at] / games))
    return Verdict(lucky, rates, steps[at])


def wanted_routes(
    record: EpisodeRecord, store: TrajectoryStore, ratings: Mapping[str, Mapping[str, float]]
) -> list[tuple[int, Priority]]:
    """``(seat, priority)`` of the routes of a battle that the archive would take: won by the learner from a true start
    against a named opponent.

    Args:
        ratings: of opponents, by name; ``rating`` of each makes its band. One without counts as the weakest: nothing
            says that beating it is worth more.
    """
    seats = learner_seats(record.players)
    if len(seats) != 1 or record.winner != seats[0] or not record.from_true_start:
        return []
    (seat,) = seats
    weakest = min((r["rating"] for r in ratings.values()), default=0.0)
    rating = ratings.get(record.players[1 - seat], {}).get("rating", weakest)
    priority = priority_of(record, seat, int(rating // _BAND))
    group = f"{partition_of(record.players, seat)}/{seat}"
    held = [p for i, p in store.archived_route_priorities.items() if _group(store, i) == group]
    full = len(held) >= store.settings.archive_size
    return [] if full and priority <= min(held) else [(seat, priority)]


def _group(store: TrajectoryStore, route_id: int) -> str:
    route = store.repository_path(route_id)
    return "" if route is None else route.group


def next_to_judge(store: TrajectoryStore, playable: Collection[str], given_up: Collection[int]) -> int | None:
    """The archived route to be judged next: of the group with the fewest fronts, the oldest; None without one.

    Args:
        playable: opponents that can be met now.
        given_up: routes that are not judged.
    """
    routes = {i: r for i in store.archived_route_ids if (r := store.repository_path(i)) is not None}
    fronts = [r.group for r in routes.values() if r.checked]
    todo = [
        (fronts.count(r.group), i) for i, r in routes.items()
        if not r.checked and i not in given_up and _can_meet(r.opponent, playable)
    ]
    return min(todo)[1] if todo else None


def _can_meet(opponent: str, playable: Collection[str]) -> bool:
    return opponent in playable and (is_scripted(opponent) or opponent != LEARNER)
