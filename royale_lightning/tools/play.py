"""``royale-lightning play``: one battle between two players, written as a replay and a page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..bots.measure import DEFAULT_SEED
from ..run.atomic import write_atomic
from .evaluate import PLAYER, add_deck_option, load_pair
from .output import write_json

_EPILOG = """\
--json writes {"schema": 1, "tool": "play", "inputs": {"blue", "red", "seed", "sharp"}, "result": {"winner", "crowns",
"ticks", "page", "trace"}}: winner is blue, red or draw, crowns are blue's and red's, a tick is 50 ms.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning play", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("blue", nargs="?", default="first_bot", help=f"{PLAYER} (default: %(default)s)")
    parser.add_argument("red", nargs="?", default="push", help="likewise (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the battle (default: %(default)s)")
    parser.add_argument("--sharp", action="store_true", help="bots draw wait or play, then take the best card and tile")
    parser.add_argument(
        "--out", type=Path, default=Path("replays"), help="folder of the trace and the page (default: %(default)s)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="where the page goes (default: beside the trace)")
    add_deck_option(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..bots.evaluate import PlannedGame
    from ..bots.replays import write_replays

    (blue, red), players, spec = load_pair(args.blue, args.red, args.sharp, args.deck)
    (replay,) = write_replays(players, [PlannedGame(blue, red, args.seed)], spec, args.out)
    page = replay.page
    if args.html is not None and args.html.resolve() != page.resolve():
        # Copied: a rename cannot reach another disk.
        write_atomic(args.html, page.read_bytes())
        page.unlink()
        page = args.html
    record = replay.record
    write_json(
        args.json, "play", {"blue": args.blue, "red": args.red, "seed": args.seed, "sharp": args.sharp},
        {
            "winner": ("blue", "red", "draw")[record.winner], "crowns": list(record.crowns), "ticks": record.ticks,
            "page": str(page), "trace": str(replay.trace),
        },
    )
    Console().print(replay.title, str(page), str(replay.trace), sep="\n  ", soft_wrap=True, highlight=False)
    return 0
