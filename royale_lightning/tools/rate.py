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
Ratings are Elo points above the opponent that never acts (scripted:noop), from all evaluated battles of the log: a
Bradley-Terry fit with Davidson's draws. Battles of training count for nothing here. "prior" marks a rating that the
prior decides more than the games; "separable" one that the games alone would send to infinity. The last line says
whether results go in circles that no ranking explains.

--json writes {"schema": 1, "tool": "rate", "inputs": {"run", "prior_sd"}, "result": {"anchor", "draw", "rho",
"players": [{"id", "rating", "se", "games", "pairs", "separable", "prior_dominated"}], "transitivity": {"residual",
"freedom", "p", "worst", "cyclicity", "triads"}}}, strongest first; draw is Davidson's nu, rho the correlation of a
seed's two games (null while too few); residual is about freedom, and p not small, where one number per player explains
the results.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning rate", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="a run folder, or a results.jsonl")
    parser.add_argument(
        "--prior_sd", type=float, default=400.0, help="of a player around the pool, Elo points (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..ladder.ratings.rating import DavidsonRater
    from ..ladder.ratings.transitivity import transitivity
    from ..ladder.results import read_results

    log = results_log(args.run)
    ratings = DavidsonRater(prior_sd=args.prior_sd).rate(read_results(log, "eval"))
    if not ratings.players:
        raise UserError(f"{log} holds no evaluated battles yet; RatingUpdate and SnapshotPromotion play them")
    circles = transitivity(ratings)
    result = {**ratings.as_dict(), "transitivity": circles.as_dict()}
    write_json(args.json, "rate", {"run": str(args.run), "prior_sd": args.prior_sd}, result)
    console = Console()
    console.print(rating_table(ratings, str(args.run)))
    console.print(_said(circles), soft_wrap=True, highlight=False)
    return 0


def _said(circles: Transitivity) -> str:
    if circles.p is None:
        return "no three players have all met, so nothing can be said of circles"
    text = f"distance from the ratings {circles.residual:.1f}, {circles.freedom} is expected (p = {circles.p:.2g})"
    if not circles.triads:
        return f"{text}; no circle beyond chance"
    t = circles.triads[0]
    return f"{text}; {t.a} beats {t.b} beats {t.c} beats {t.a} (z = {t.z:.1f})"


def results_log(run: Path) -> Path:
    """The results log a user means.

    Raises:
        UserError: there is none.
    """
    log = run / "results.jsonl" if run.is_dir() else run
    if not log.is_file():
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
        table.add_row(r.player, f"{r.elo:.0f}", f"{r.se:.0f}", str(r.games), str(r.pairs), ", ".join(marks))
    return table
