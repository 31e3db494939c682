"""What playing an archived route's tail again says of it: whether its win was luck, and where the curriculum begins.

The tail is played from a few moments of the route, by the policy and by a learner that only waits; :class:`RouteWork
<royale_lightning.restarts.route_work.RouteWork>` has it played, and here is what follows from the wins.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ...battle.players import LEARNER, is_scripted
from ...battle.round import EpisodeRecord
from ..records.episodes import learner_seats, partition_of, priority_of
from ..records.points import RestartPoint
from ..records.route import Priority, Route
from .store import RouteStore

#: Chance of a win that needs no reason, where waiting never wins.
_LUCK = 0.05
#: Rating points of one band of opponents: about what tells two snapshots apart.
_BAND = 100.0


class Judgement(NamedTuple):
    """What came of judging a route, as :meth:`~royale_lightning.restarts.routes.store.RouteStore.judge_route` is told.

    Attributes:
        lucky: its win says nothing about who played it.
        reference_rates: game step -> win rate of the policy, for each probed moment.
        contested_step: where its front begins; None where waiting wins from everywhere.
    """

    lucky: bool
    reference_rates: dict[int, float]
    contested_step: int | None


def above_chance(wins: int, games: int, chance: float = 0.5) -> bool:
    """Whether ``wins`` of ``games`` would be luck less than once in twenty, each game being won with ``chance``.

    One win can be a lucky shuffle; before a route leads a curriculum its tail is played again some 16 times from the
    middle with the frozen policies (12 of 16 against 0.5). One-sided exact binomial test.
    """
    if not 0 <= wins <= games:
        raise ValueError(f"wins must lie between 0 and games, were {wins} of {games}")
    tail = sum(math.comb(games, k) * chance**k * (1.0 - chance) ** (games - k) for k in range(wins, games + 1))
    return games > 0 and tail <= 0.05


def latest_contested(passive: Sequence[float], policy: Sequence[float]) -> int | None:
    """The last rung at which a battle is still open: waiting wins at most 60 % and the policy less than 90 %.

    Args:
        passive: win rate of a learner that only passes, per rung (some 16 games each).
        policy: win rate of the current policy, per rung.

    Returns:
        Its index, None where no rung is open.
    """
    open_ones = [i for i, (p, q) in enumerate(zip(passive, policy, strict=True)) if p <= 0.6 and q < 0.9]
    return open_ones[-1] if open_ones else None


def probes(route: Route, most: int) -> list[RestartPoint]:
    """Up to ``most`` starts of a route, evenly over those it has, its last one among them, by time."""
    points = [s.end for s in route.segments if s.eligible and s.end is not None]
    n = min(most, len(points))
    return [points[len(points) - 1 - i * len(points) // n] for i in reversed(range(n))] if n else []


def judge(
    steps: Sequence[int], passive: Sequence[int], policy: Sequence[int], games: int, *, demonstrated: bool = False
) -> Judgement:
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
        return Judgement(True, rates, None)
    lucky = not above_chance(policy[at], games, max(_LUCK, passive[at] / games))
    return Judgement(lucky, rates, steps[at])


def wanted_routes(
    record: EpisodeRecord, store: RouteStore, ratings: Mapping[str, Mapping[str, float]]
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
    held = [p for i, p in store.archive.priorities.items() if _group(store, i) == group]
    full = len(held) >= store.settings.archive_size
    return [] if full and priority <= min(held) else [(seat, priority)]


def _group(store: RouteStore, route_id: int) -> str:
    route = store.repository.get(route_id)
    return "" if route is None else route.group


def next_to_judge(store: RouteStore, playable: Collection[str], given_up: Collection[int]) -> int | None:
    """The archived route to be judged next: of the group with the fewest fronts, the oldest; None without one.

    Args:
        playable: opponents that can be met now.
        given_up: routes that are not judged.
    """
    routes = {i: r for i in store.archive.ids if (r := store.repository.get(i)) is not None}
    fronts = [r.group for r in routes.values() if r.checked]
    todo = [
        (fronts.count(r.group), i) for i, r in routes.items()
        if not r.checked and i not in given_up and _can_meet(r.opponent, playable)
    ]
    return min(todo)[1] if todo else None


def _can_meet(opponent: str, playable: Collection[str]) -> bool:
    return opponent in playable and (is_scripted(opponent) or opponent != LEARNER)
