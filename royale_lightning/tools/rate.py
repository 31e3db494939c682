"""``royale-lightning rate``: ratings fitted to the results log of a finished or running run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .output import write_json

if TYPE_CHECKING:
    from rich.table import Table

    from ..ladder.ratings.rating import Ratings
    from ..ladder.ratings.transitivity import Transitivity

_EPILOG = """\
Ratings are Elo points above the scripted opponent patient, by the run's own rater (RatingUpdate.rater), from all
evaluated battles of the log that had the run's present decks, rules and engine: by default a Bradley-Terry fit with
Davidson's draws. Battles of training count for nothing here. "separable" marks a player whose games alone would send
its rating to infinity, since it won all or lost all: its number is the prior's choice, is printed as "about" and has
no error worth printing. "prior" marks a rating that the prior decides more than the games. The last line says whether
results go in circles that no ranking explains, by the matches that both sides should have scored five points in.

--json writes {"schema": 1, "tool": "rate", "inputs": {"run", "prior_sd"}, "result": {"anchor", "draw", "rho",
"players": [{"id", "rating", "se", "games", "pairs", "separable", "prior_dominated"}], "other_contexts", "transitivity":
{"residual", "freedom", "p", "worst", "cyclicity", "triads", "matches", "left_out"}}}, strongest first; draw is
Davidson's nu, rho the correlation of a seed's two games (null while too few); other_contexts counts battles left out
for their decks, rules or engine; residual is about freedom, and p not small, where one number per player explains the
results; prior_sd is null for the run's own rater.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning rate", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="a run folder, or a results.jsonl")
    parser.add_argument(
        "--prior_sd", type=float,
        help="fit with the shipped rater and this prior of a player around the pool, Elo points (default: with the "
        "run's own rater)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..ladder.published import configured_rater, rated_results
    from ..ladder.ratings.rating import DavidsonRater
    from ..ladder.ratings.transitivity import transitivity

    log = results_log(args.run)
    rated = rated_results(log)
    rater = configured_rater(log) if args.prior_sd is None else DavidsonRater(prior_sd=args.prior_sd)
    ratings = rater.rate(rated.results)
    left_out = f"{rated.others} battles with other decks, rules or another engine are left out" if rated.others else ""
    if not ratings.players:
        raise UserError(
            f"{log} holds no evaluated battles yet; RatingUpdate and SnapshotPromotion play them"
            f"{f' ({left_out})' if left_out else ''}"
        )
    circles = transitivity(ratings)
    result = {**ratings.as_dict(), "other_contexts": rated.others, "transitivity": circles.as_dict()}
    write_json(args.json, "rate", {"run": str(args.run), "prior_sd": args.prior_sd}, result)
    console = Console()
    console.print(rating_table(ratings, str(args.run)))
    for line in filter(None, (left_out, _said(circles))):
        console.print(line, soft_wrap=True, highlight=False)
    return 0


def _said(circles: Transitivity) -> str:
    if circles.p is None:
        return "no circle of players has met often enough, so nothing can be said of circles"
    text = f"distance from any ranking {circles.residual:.1f}, {circles.freedom} is expected (p = {circles.p:.2g})"
    if not circles.triads:
        return f"{text}; no circle beyond chance"
    t = circles.triads[0]
    return f"{text}; {t.a} beats {t.b} beats {t.c} beats {t.a} (z = {t.z:.1f})"


def results_log(run: Path) -> Path:
    """The results log a user means.

    Raises:
        UserError: there is none.
    """
    from ..ladder.published import RESULTS, STATE

    log = run / RESULTS if run.is_dir() else run
    # A run makes it at its first decided battle.
    if not log.is_file() and not (run / STATE).is_file():
        raise UserError(f"there is no results.jsonl in {str(run)!r}; give a run folder")
    return log


def rating_table(ratings: Ratings, title: str) -> Table:
    """For people: strongest first."""
    from rich.table import Table

    table = Table(title=title)
    table.add_column("player", no_wrap=True)
    for name in ("rating", "±", "games", "pairs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for r in ratings.ranking():
        marks = [m for m, on in (("separable", r.separable), ("prior", r.prior_dominated)) if on]
        rating, error = told(r.elo, r.se, r.separable)
        table.add_row(r.player, rating, error, str(r.games), str(r.pairs), ", ".join(marks))
    return table


def told(rating: float, se: float, separable: bool) -> tuple[str, str]:
    """A rating and its standard error as a table shows them; the prior's choice has no error to show."""
    return (f"about {rating:.0f}", "–") if separable else (f"{rating:.0f}", f"{se:.0f}")
