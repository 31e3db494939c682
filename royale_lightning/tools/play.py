"""``royale-lightning play``: one battle between two players, written as a replay and a page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..measure import DEFAULT_SEED
from .evaluate import PLAYER, load_pair


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser("royale-lightning play", description=__doc__, allow_abbrev=False)
    parser.add_argument("blue", help=PLAYER)
    parser.add_argument("red", nargs="?", default="push", help="likewise (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the battle (default: %(default)s)")
    parser.add_argument("--sharp", action="store_true", help="bots draw wait or play, then take the best card and tile")
    parser.add_argument(
        "--out", type=Path, default=Path("replays"), help="folder of the trace and the page (default: %(default)s)"
    )
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..ladder.evaluate import PlannedGame
    from ..ladder.replays import write_replays

    (blue, red), players, spec = load_pair(args.blue, args.red, args.sharp)
    (replay,) = write_replays(players, [PlannedGame(blue, red, args.seed)], spec, args.out)
    Console().print(replay.title, str(replay.page), str(replay.trace), sep="\n  ", soft_wrap=True, highlight=False)
    return 0
