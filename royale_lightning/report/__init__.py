"""``royale-lightning report``: a run, live or finished, as one self-contained HTML page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..run.atomic import write_atomic
from ..run.screen import say

_EPILOG = """\
The page needs no network and nothing beside it: charts are drawn in it, replays are packed into it. It shows what the
run folder holds (metrics.jsonl, results.jsonl, ladder/, scores.json, alarms.jsonl, replays/, config.yaml, bot/) and
says what is not there and how to get it. Call it again for a run that goes on.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning report", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: RUN/report.html)")
    parser.add_argument(
        "--replays", type=int, default=16, help="replays packed into the page, the newest ones (default: %(default)s)"
    )
    args = parser.parse_args(list(argv))
    if args.replays < 0:
        raise UserError(f"replays is {args.replays}; give 0 or more")
    path = write_report(args.run, args.out, replays=args.replays)
    say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def write_report(run: Path, out: Path | None = None, *, replays: int = 16) -> Path:
    """Write the page of a run and return its path.

    Args:
        run: the run folder.
        out: the page; unset, ``report.html`` in the run folder.
        replays: packed into the page, the newest ones.

    Raises:
        UserError: the folder holds no run.
    """
    from .page import render
    from .read import read_run

    out = out or run / "report.html"
    text = render(read_run(run, replays))
    write_atomic(out, text.encode())
    return out
