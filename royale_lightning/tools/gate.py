"""``royale-lightning gate``: judge a candidate against a run's champion, anchors and pool."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .output import write_json

#: Numbers of the gates a tool runs: far above those of any run, so that a candidate meets fresh seeds.
_FIRST_NUMBER = 100_000
_EPILOG = """\
The champion first (a sequential test over seeds played from both seats), then the anchors (no proven regression), then
a sample of the pool (no collapse); the first failure ends it. They are the run's own battles, and those that it has
played already are not played again. Nothing is written to the run.

--json writes {"schema": 1, "tool": "gate", "inputs": {"run", "candidate", "champion", "gate", "anchors", "number"},
"result": {"outcome", "why", "llr", "battles", "conditions": [{"name", "passed", "why", "battles", "numbers"}]}};
outcome is promoted, admitted, cycle, rejected or skipped.
"""


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning gate", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, help="a run folder, of a finished run or one that goes on")
    parser.add_argument("--candidate", required=True, help="a snapshot of the run, or any bot's path")
    parser.add_argument("--champion", help="the snapshot to beat (default: the run's champion)")
    parser.add_argument("--gate", default="sprt", help="sprt, wilson or a class path (default: %(default)s)")
    parser.add_argument(
        "--anchors", nargs="*", default=["push", "patient"], help="scripted opponents (default: %(default)s)"
    )
    parser.add_argument(
        "--number", type=int, default=_FIRST_NUMBER,
        help="names the seeds; another number asks for other battles (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args(list(argv))

    from rich.console import Console

    from ..battle.opponents import make_opponent
    from ..battle.players import scripted_player
    from ..bots.bot_files import read_bot
    from ..bots.snapshots import FOLDER
    from ..errors import UserError
    from ..ladder.admission import judge
    from ..ladder.gate.gate import GATES, PromotionGate
    from ..ladder.ladder import Ladder
    from ..ladder.published import read_state
    from ..parts import Part

    anchors = [scripted_player(a) for a in args.anchors]
    for anchor in anchors:
        make_opponent(anchor)
    gate = Part.of(args.gate, "--gate", GATES).build("--gate", kind=PromotionGate)
    read_state(args.run)
    inside = args.run / FOLDER / args.candidate
    path = inside if inside.is_dir() else Path(args.candidate)
    read_bot(path)  # whoever names no bot is told so before a run is read
    ladder = Ladder.copy_of(args.run)
    try:
        candidate = ladder.store.add_bot(path, ladder.spec)
        if args.champion is not None:
            if args.champion not in ladder.pool:
                raise UserError(f"--champion {args.champion!r} is not in the run's pool; see `royale-lightning ladder`")
            ladder.pool.promote(args.champion)
        verdict = judge(ladder, candidate, gate, anchors, 0, 0, number=args.number)
    finally:
        ladder.close()
    inputs = {
        "run": str(args.run), "candidate": candidate, "champion": verdict.champion, "gate": args.gate,
        "anchors": args.anchors, "number": args.number,
    }
    found = verdict.as_dict()
    keys = ("outcome", "why", "llr", "battles", "conditions")
    write_json(args.json, "gate", inputs, {k: found[k] for k in keys})
    console = Console()
    console.print(f"{verdict.outcome}: {verdict.why}", soft_wrap=True, highlight=False)
    for c in verdict.conditions:
        passed = {True: "passed", False: "failed", None: "skipped"}[c.passed]
        console.print(f"  {c.name:<9} {passed:<8} {c.battles:>5} battles  {c.why}", soft_wrap=True, highlight=False)
    return 0
