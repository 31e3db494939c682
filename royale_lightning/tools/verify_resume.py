"""``royale-lightning verify-resume``: prove that a resumed run equals an unbroken one, bit for bit.

A configuration is trained for N + M iterations without a break, and three times with one: stopped after N and resumed
in a fresh process; killed (SIGKILL) in the middle of the iteration after N and resumed; resumed with battles stepping
elsewhere, in two worker processes or, where the configuration has workers, in none. Every iteration's checkpoint is
digested part by part, and its metric row without times. All of them must be equal.

What a clock decides is written down and not repeated: the price of the ladder's game steps (``ladder/price``), which
changes after a minute of ladder at the earliest. Where runs are long and slow enough for that, they may differ in it,
and the first difference says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..metrics.declarations import repeats
from ..run.atomic import write_atomic
from ..run.folder import saved_config
from ..run.jsonl import read_rows

_EPILOG = """\
Arguments after the ones above go to every fit (--data.battle.deck random).

--json writes {"schema": 1, "tool": "verify-resume", "inputs": {"config", "iterations", "arguments"},
"result": {"equal", "iterations", "first_difference"}}: whether everything was equal, over how many iterations, and null
or {"case", "iteration", "part"} of the first difference (case: stopped, killed or workers; part: weights, optimizer,
battles, data, callbacks, random, loops or metrics.NAME). The exit code is 0 if equal and 1 if not.
"""
#: Ends a run in the middle of an iteration; by its path, for it is Lightning's and this page asks for no Lightning.
_KILL_AT = "royale_lightning.tools.kill_at.KillAt"
#: A checkpoint's parts by name; what is under none of these keys is the data module's.
PARTS = {
    "state_dict": "weights", "optimizer_states": "optimizer", "lr_schedulers": "optimizer", "callbacks": "callbacks",
    "loops": "loops",
}


# ---- digests ---------------------------------------------------------------------------------------------------
def digest(value: Any) -> str:
    """16 hex digits over nested plain values and tensors, their types, shapes and order included."""
    h = hashlib.sha256()
    _feed(h, value)
    return h.hexdigest()[:16]


def _feed(h: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        h.update(b"{%d" % len(value))
        # Insertion order is an accident of who was first; two equal states may differ in it.
        for key in sorted(value, key=repr):
            _feed(h, key)
            _feed(h, value[key])
    elif isinstance(value, list | tuple):
        h.update(b"[%d" % len(value))
        for item in value:
            _feed(h, item)
    elif isinstance(value, float):
        h.update(b"f" + struct.pack("<d", value))
    elif value is None or isinstance(value, bool | int | str | bytes):
        h.update(f"{type(value).__name__}:{value!r};".encode())
    else:
        import torch

        array = value.detach().cpu().contiguous()
        h.update(f"t:{array.dtype}:{tuple(array.shape)};".encode())
        h.update(array.flatten().view(torch.uint8).numpy().tobytes() if array.numel() else b"")


def checkpoint_digests(path: Path) -> dict[str, str]:
    """Part name -> digest of a checkpoint, without what names files or positions in them."""
    import torch

    content = torch.load(path, map_location="cpu", weights_only=True)
    parts: dict[str, Any] = {}
    for key, value in content.items():
        if key == "royale_lightning":
            parts["random"] = value["random"]
        elif isinstance(value, Mapping) and "ranks" in value:
            parts["battles"] = value["ranks"]
            parts["data"] = {k: v for k, v in value.items() if k != "ranks"}
        elif key in PARTS:
            parts.setdefault(PARTS[key], {})[key] = _without_marks(value)
    return {name: digest(value) for name, value in parts.items()}


def _without_marks(value: Any) -> Any:
    """Times stand in a log's lines, so that neither their length nor their digest is a run's own."""
    from ..callbacks.base import LOG_DIGEST

    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if k != LOG_DIGEST and not str(k).endswith("_offset")}
        return {k: _without_marks(v) for k, v in kept.items()}
    return value


def rows_without_time(run: Path) -> dict[int, dict[str, float]]:
    """Iteration -> metric row. An iteration that is there twice would be a bug of its own, and raises."""
    rows: dict[int, dict[str, float]] = {}
    for row in read_rows(run / "metrics.jsonl"):
        if row["iteration"] in rows:
            raise UserError(f"{run / 'metrics.jsonl'} has iteration {row['iteration']} twice")
        rows[row["iteration"]] = {k: v for k, v in row.items() if repeats(k)}
    return rows


@dataclass(frozen=True)
class Difference:
    """The first thing that differs from the unbroken run."""

    case: str
    iteration: int
    part: str


def first_difference(straight: Path, other: Path, iterations: range, case: str) -> Difference | None:
    """Compare two run folders' checkpoints and rows, iteration by iteration."""
    ours, theirs = rows_without_time(straight), rows_without_time(other)
    for i in iterations:
        name = f"checkpoints/iteration-{i:06d}.ckpt"
        a, b = checkpoint_digests(straight / name), checkpoint_digests(other / name)
        for part in sorted({*a, *b}):
            if a.get(part) != b.get(part):
                return Difference(case, i, part)
        x, y = ours.get(i, {}), theirs.get(i, {})
        for key in sorted({*x, *y}):
            if x.get(key) != y.get(key):
                return Difference(case, i, f"metrics.{key}")
    return None


# ---- runs ------------------------------------------------------------------------------------------------------
class Runs:
    """Fresh processes of ``royale-lightning fit`` in one folder.

    Args:
        folder: takes the run folders.
        arguments: configuration and settings of every run.
    """

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self.folder = folder
        self.arguments = list(arguments)

    def fit(self, run: str, iterations: int, *more: str, dies: bool = False) -> Path:
        """Train up to so many iterations, a checkpoint after each; raises if it does not end as it should."""
        out = self.folder / run
        command = [
            sys.executable, "-m", "royale_lightning", "fit", *self.arguments, "--run_dir", str(out),
            "--stop.iterations", str(iterations), "--checkpoint.every", "1", "--checkpoint.keep", "-1", *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if dies != (done.returncode != 0) or (dies and done.returncode == 2):
            lines = [x for x in done.stderr.strip().splitlines() if x.startswith("error: ")]
            why = lines[-1].removeprefix("error: ") if lines else f"exit code {done.returncode}\n{done.stderr[-2000:]}"
            raise UserError(f"the run {run} ended otherwise than it should have: {why}")
        return out

    def resume(self, run: str, after: int, iterations: int, *more: str, origin: str | None = None) -> Path:
        """Continue from the checkpoint after so many iterations, in the same folder or as a fork."""
        checkpoint = self.folder / (origin or run) / "checkpoints" / f"iteration-{after:06d}.ckpt"
        return self.fit(run, iterations, "--ckpt_path", str(checkpoint), *more)


def verify(arguments: Sequence[str], before: int, after: int, folder: Path) -> Difference | None:
    """Run the four cases and compare.

    Args:
        arguments: of every ``fit``: ``--config`` and overrides.
        before, after: iterations on either side of the break.
        folder: takes the runs.
    """
    runs, total = Runs(folder, arguments), before + after
    kill = [f"--trainer.callbacks+={_KILL_AT}", f"--trainer.callbacks.init_args.iteration={before + 1}"]

    def stopped() -> Path:
        runs.fit("stopped", before)
        return runs.resume("stopped", before, total)

    def killed() -> Path:
        runs.fit("killed", total, *kill, dies=True)
        return runs.resume("killed", before, total)

    # Two at a time: a fresh process spends most of its life importing, and each trains on few threads.
    with ThreadPoolExecutor(2) as pool:
        straight = pool.submit(runs.fit, "straight", total)
        cases = {"stopped": pool.submit(stopped), "killed": pool.submit(killed)}
        cases["stopped"].result()
        elsewhere = _elsewhere(runs.folder / "stopped")
        cases["workers"] = pool.submit(runs.resume, "workers", before, total, *elsewhere, origin="stopped")
        for case, run in cases.items():
            iterations = range(before + 1 if case == "workers" else 1, total + 1)
            if (found := first_difference(straight.result(), run.result(), iterations, case)) is not None:
                return found
    return None


def _elsewhere(run: Path) -> list[str]:
    """Settings that have a run's battles step elsewhere: in two worker processes, or in none."""
    from ..battle.steps.arena import default_threads
    from ..battle.steps.make_source import default_kind

    config = saved_config(run)
    assert config is not None, "fit writes one"
    kind = config["data"]["rollout"]["source"]
    if (default_kind(default_threads()) if kind == "auto" else kind) == "processes":
        return ["--data.rollout.source", "inline"]
    return ["--data.rollout.source", "processes", "--data.rollout.workers", "2"]


def _iterations(text: str) -> tuple[int, int]:
    before, plus, after = text.partition("+")
    if not (plus and before.isdigit() and after.isdigit() and int(before) and int(after)):
        raise UserError(f"--iterations is {text!r}; give two numbers as N+M, such as 2+2")
    return int(before), int(after)


def main(argv: Sequence[str]) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(
        "royale-lightning verify-resume", description=__doc__, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    parser.add_argument("--config", action="append", required=True, help="as for fit; may be given several times")
    parser.add_argument("--iterations", default="2+2", metavar="N+M", help="before + after (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args, rest = parser.parse_known_args(list(argv))

    before, after = _iterations(args.iterations)
    arguments = [*(x for c in args.config for x in ("--config", os.path.abspath(c))), *rest]
    with tempfile.TemporaryDirectory(prefix="verify-resume-") as folder:
        found = verify(arguments, before, after, Path(folder))
    if found is None:
        print(f"equal: {before + after} iterations, stopped, killed and with other workers, bit for bit")
    else:
        print(f"different: {found.part} after iteration {found.iteration} of the run that was {found.case}")
    if args.json:
        result = {
            "equal": found is None, "iterations": before + after,
            "first_difference": None if found is None else vars(found),
        }
        inputs = {"config": args.config, "iterations": args.iterations, "arguments": rest}
        out = {"schema": 1, "tool": "verify-resume", "inputs": inputs, "result": result}
        write_atomic(args.json, json.dumps(out, indent=1).encode() + b"\n")
    return 0 if found is None else 1
