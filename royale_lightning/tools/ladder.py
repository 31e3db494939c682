"""``royale-lightning ladder``: the snapshots of a finished or running run, their ratings, and the learner's results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .output import write_json
from .rate import results_log

_EPILOG = """\
Ratings are refitted from results.jsonl (see `royale-lightning rate`). They share the error of their distance to 0, the
opponent that never acts, so compare players by "vs champion", the difference with a standard error of its own. The
champion is what candidates must beat; former ones are marked too. "role" says how a snapshot came into the pool: first,
gated (it beat the champion), cycle (it did, but lost its hold on others), cadence or starved (admitted without a
verdict), given (named in the configuration); one outside was rejected or evicted.

--json writes {"schema": 1, "tool": "ladder", "inputs": {"run"}, "result": {"champion", "members": [{"snapshot", "role",
"iteration", "game_steps", "champion", "rating", "se", "games", "over_champion"}], "others": [{"id", "rating", "se",
"games", "over_champion"}]}}; over_champion is {"elo", "se", "low", "high"}; what was not measured is null.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning ladder", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich import box
    from rich.console import Console
    from rich.table import Table

    result = read_ladder(args.run)
    title = f"{args.run}: {len(result['members'])} snapshots in the pool"
    # Ids must stay whole in a terminal of 80 columns.
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("player", overflow="fold", min_width=16)
    table.add_column("role", no_wrap=True)
    for name in ("steps", "rating", "games", "vs champion"):
        table.add_column(name, justify="right", no_wrap=True)
    lines = [*result["members"], *result["others"]]
    lines.sort(key=lambda r: (r["rating"] is None, -(r["rating"] or 0.0)))
    for r in lines:
        current = r.get("snapshot") is not None and r.get("snapshot") == result["champion"]
        role = r.get("role") or ("" if ":" in r["id"] else "outside")
        if r.get("champion"):
            role = "champion" if current else "was champion"
        rating = "–" if r["rating"] is None else f"{r['rating']:.0f} ± {r['se']:.0f}"
        steps = f"{r['game_steps']:,}" if "game_steps" in r else ""
        name = r.get("snapshot") or r["id"]
        over = r["over_champion"]
        compared = "" if over is None or current else f"{over['elo']:+.0f} ± {over['se']:.0f}"
        table.add_row(name, role, steps, rating, str(r["games"]), compared, style="bold" if current else "")
    Console().print(table)
    write_json(args.json, "ladder", {"run": str(args.run)}, result)
    return 0


def read_ladder(run: Path) -> dict[str, Any]:
    """Members and everybody else who has a rating, as ``--json`` gives them.

    Raises:
        UserError: the run has no ladder.
    """
    from ..ladder.ratings.rating import DavidsonRater
    from ..ladder.results import LIVE, read_results
    from ..ladder.state_file import read_state

    state = read_state(run)
    ratings = DavidsonRater().rate(read_results(results_log(run), "eval"))
    champion = state["champion"]
    known = {
        r.player: {
            "rating": r.elo, "se": r.se, "games": r.games,
            "over_champion": d._asdict() if (d := ratings.difference(r.player, champion or "")) else None,
        }
        for r in ratings.table
    }
    unknown = {"rating": None, "se": None, "games": 0, "over_champion": None}
    members = [{**m, **known.get(m["snapshot"], unknown)} for m in state["members"]]
    inside = {m["snapshot"] for m in members}
    live = [p for p in known if p.startswith(LIVE)]
    # Of the learner only its last self: every rating of it is a player of its own.
    hidden = sorted(live, key=lambda p: int(p.split(":")[1]))[:-1]
    others = [{"id": p, **known[p]} for p in known if p not in inside and p not in hidden]
    return {"champion": champion, "members": members, "others": others}
