"""Scores over game steps with intervals, ratings and the payoff matrix, from a run's results log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from ..battle.players import LEARNER, LIVE, is_live, is_scripted, short_name
from ..metrics.intervals import Z95, wilson
from .read import Row, Run
from .svg import Series

if TYPE_CHECKING:
    from ..ladder.ratings.rating import Rating, Ratings
    from ..ladder.results import Result

#: Least battles of one point of a score's curve, and most points; the interval says how little ten battles are.
_BATTLES, _CURVE = 10, 40
#: Players of the payoff matrix, so that it stays readable.
_PLAYERS = 14


def results_of(run: Run) -> list[Result]:
    """The log's battles; lines of another shape are left out."""
    from ..ladder.results import Result

    out = []
    for row in run.results:
        try:
            out.append(msgspec.convert(row, Result))
        except msgspec.ValidationError:
            continue
    return out


def score_curves(run: Run) -> tuple[list[Series], bool]:
    """The learner's score against each scripted opponent over game steps, and whether it has intervals.

    From the training battles of the results log in equal groups, each with Wilson's interval: they are single battles
    on seeds of their own, so here the battle is the unit. A log without them leaves the row's own means
    over the last 60 battles, which have none.
    """
    games: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for r in results_of(run):
        seats = [is_live(p) or p == LEARNER for p in (r.blue, r.red)]
        other = r.red if seats[0] else r.blue
        if r.kind != "train" or r.start != "true" or seats[0] == seats[1] or not is_scripted(other):
            continue
        score = 0.5 if r.winner == 2 else float(seats[r.winner])
        games[short_name(other)].append((r.game_step, score))
    if games:
        return [_binned(name, games[name]) for name in sorted(games)], True
    out = []
    for key in run.keys("score/"):
        x, y = run.column(key)
        if key != "score/scripted":
            out.append(Series(key.removeprefix("score/"), x, y))
    return out, False


def _binned(name: str, games: Sequence[tuple[int, float]]) -> Series:
    games = sorted(games)
    points = max(1, min(_CURVE, len(games) // _BATTLES))
    cuts = [round(i * len(games) / points) for i in range(points + 1)]
    out = Series(name, x := [], y := [], low := [], high := [])
    for first, end in pairwise(cuts):
        part = games[first:end]
        mean = sum(s for _, s in part) / len(part)
        a, b = wilson(mean, len(part), Z95)
        x.append(sum(t for t, _ in part) / len(part))
        y.append(mean)
        low.append(a)
        high.append(b)
    return out


def rating_curve(run: Run) -> list[Series]:
    """The learner's rating as it was measured, and the champion's.

    The learner's band is the 95 % interval of its *distance to the champion* where that was measured: two ratings share
    most of their error, everybody's distance to the anchor. Without a champion it is the rating's own.
    """
    x, y = run.column("ladder/rating")
    if not x:
        return []
    error = dict(zip(*run.column("ladder/rating_se"), strict=True))
    error |= zip(*run.column("ladder/over_champion_se"), strict=True)
    if not all(at in error for at in x):
        return [Series("learner", x, y)]
    low = [a - Z95 * error[at] for at, a in zip(x, y, strict=True)]
    high = [a + Z95 * error[at] for at, a in zip(x, y, strict=True)]
    out = [Series("learner", x, y, low, high)]
    cx, cy = run.column("ladder/champion_rating")
    return [*out, Series("champion", cx, cy)] if cx else out


def ratings_of(run: Run) -> Ratings | None:
    """The run's own rater's fit over the rated battles of its present context; None without any."""
    from ..ladder.published import present, rater_of

    state = run.ladder or {}
    ratings = rater_of(state).rate(present(results_of(run), state).results)
    return ratings if ratings.players else None


def rating_rows(ratings: Ratings) -> list[Rating]:
    """Strongest first; of the learner's selves the latest alone."""
    live = sorted((p for p in ratings.players if is_live(p)), key=lambda p: int(p.split(":")[1]))
    return [r for r in ratings.ranking() if r.player not in live[:-1]]


def payoff(ratings: Ratings) -> tuple[list[str], list[list[tuple[float, int]]]]:
    """Names and, row against column, mean score and games; a pairing nobody played has 0 games.

    The strongest players, as many as a page shows.
    """
    names = [r.player for r in rating_rows(ratings)][:_PLAYERS]
    score, games = ratings.matches.payoff
    at = {p: i for i, p in enumerate(ratings.matches.players)}
    table = [[(float(score[at[a], at[b]]), int(games[at[a], at[b]])) for b in names] for a in names]
    return names, table


def short(player: str) -> str:
    """A player's name for a table: ``push``, ``learner (120)``, or a snapshot's id without what all of them share."""
    if is_live(player):
        return f"learner ({player.removeprefix(LIVE)})"
    return short_name(player)


def score_rows(scores: Row, mode: str) -> list[tuple[str, float, float, float, str]]:
    """Of one mode of ``scores.json``: ``(opponent, score, low, high, note)``."""
    out = []
    for name, s in scores.get("modes", {}).get(mode, {}).get("opponents", {}).items():
        note = f"{s['score']:.3f}  {s['wins']}-{s['draws']}-{s['losses']}"
        out.append((name, float(s["score"]), float(s["low"]), float(s["high"]), note))
    return out


def deck_scores(scores: Row, mode: str) -> Row | None:
    """One mode's scores by deck in ``scores.json`` (``bots.by_deck``), or None where they are not, or are torn."""
    found = (scores.get("by_deck") or {}).get(mode)
    kinds = ("own", "enemy", "own_cards", "enemy_cards", "pairs", "least_seeds")
    return found if isinstance(found, dict) and all(kind in found for kind in kinds) else None


def cell_rows(cells: Row) -> list[tuple[str, float, float, float, str]]:
    """``(name, score, low, high, note)`` of decks or cards, best first; those of too few seeds, which have no interval,
    are left out."""
    shown = {name: c for name, c in cells.items() if c["low"] is not None}
    order = sorted(shown, key=lambda name: (-shown[name]["score"], name))
    return [
        (n, float(c["score"]), float(c["low"]), float(c["high"]), f"{c['score']:.3f}  {c['games']} games")
        for n, c in ((n, shown[n]) for n in order)
    ]
