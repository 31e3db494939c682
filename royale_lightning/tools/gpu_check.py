"""``make gpu-check``: the CUDA tests, then a table of what training does on this GPU. Under five minutes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ..errors import UserError
from ..run.jsonl import read_rows
from ..run.screen import guarded

#: Trainer and module settings of each row of the table.
VARIANTS: dict[str, tuple[str, ...]] = {
    "cpu, 32-true": ("--trainer.accelerator", "cpu"),
    "gpu, 32-true": ("--trainer.accelerator", "gpu", "--trainer.precision", "32-true"),
    "gpu, bf16-mixed": ("--trainer.accelerator", "gpu", "--trainer.precision", "bf16-mixed"),
    "gpu, bf16-mixed, compiled": (
        "--trainer.accelerator", "gpu", "--trainer.precision", "bf16-mixed", "--model.compile", "true"
    ),
}
#: Of each variant: enough for some ten iterations behind the first, whose start-up does not count.
MINUTES = 0.5


def figures(rows: list[dict[str, float]]) -> dict[str, float]:
    """Rates of a run from its metric rows, the first left out where there are more."""
    rows = rows[1:] or rows
    passes = [r["rollout/rows"] * r["ppo/ppo_epochs_done"] / r["time/update"] for r in rows]
    acting = [r["rollout/rows"] / r["time/inference"] for r in rows]
    steps = [r["rollout/game_steps"] / r["time/iteration"] for r in rows if "time/iteration" in r]
    return {
        "game_steps_per_second": statistics.median(steps or [0.0]),
        "row_passes_per_second": statistics.median(passes),
        "acting_rows_per_second": statistics.median(acting),
        "iterations": float(len(rows)),
    }


def train(folder: Path, config: Path, settings: tuple[str, ...]) -> dict[str, float]:
    """A short run of ``config`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "royale_lightning", "fit", "--config", str(config), "--run_dir", str(folder),
         "--stop.minutes", str(MINUTES), *settings],
        capture_output=True, text=True, check=False,
    )
    if done.returncode:
        raise UserError(f"training with {' '.join(settings)} failed:\n{done.stderr.strip()[-2000:]}")
    return figures(list(read_rows(folder / "metrics.jsonl")))


def main() -> int:
    """Run the CUDA tests, then a short training of each setting; the exit code of the tests, 2 without a device."""
    if not torch.cuda.is_available():
        print("gpu-check needs a CUDA device and torch sees none here", file=sys.stderr)
        return 2
    root = Path(__file__).parents[2]
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", str(root / "tests" / "gpu")], check=False)
    table = Table(title=f"configs/first_bot.yaml on {torch.cuda.get_device_name()}", title_justify="left")
    for column in ("", "game steps/s", "row passes/s (update)", "rows/s (acting)", "iterations"):
        table.add_column(column, justify="left" if not column else "right")
    with tempfile.TemporaryDirectory() as scratch:
        for i, (name, settings) in enumerate(VARIANTS.items()):
            found = train(Path(scratch) / str(i), root / "configs" / "first_bot.yaml", settings)
            table.add_row(name, *(f"{x:,.0f}" for x in found.values()))
    Console().print(table)
    return tests.returncode


if __name__ == "__main__":
    with guarded():
        try:
            sys.exit(main())
        except UserError as problem:
            print(f"error: {problem}", file=sys.stderr)
            sys.exit(2)
