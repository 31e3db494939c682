"""``make gpu-check``: the CUDA tests, then a table of what training does on this GPU. Under five minutes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ..errors import UserError
from ..run.jsonl import read_rows
from ..run.screen import guarded

#: The configuration's two ranks as one.
_ONE_RANK = (
    "--trainer.devices", "1", "--trainer.strategy", "auto", "--data.rollout.battles", "96",
    "--data.rollout.rows_per_iteration", "2048", "--data.rollout.minibatch_rows", "256",
)
_GPU = (*_ONE_RANK, "--trainer.accelerator", "gpu")
#: Settings of each row of the table.
VARIANTS: dict[str, tuple[str, ...]] = {
    "cpu, two ranks, 32-true": ("--trainer.accelerator", "cpu"),
    "gpu, 32-true": (*_GPU, "--trainer.precision", "32-true"),
    "gpu, TF32, from first_bot": (*_GPU, "--trainer.precision", "32-true", "--model.init_from", "first_bot"),
    "gpu, bf16-mixed": (*_GPU, "--trainer.precision", "bf16-mixed"),
    "gpu, bf16-mixed, compiled": (*_GPU, "--trainer.precision", "bf16-mixed", "--model.compile", "true"),
}
#: torch's own switch for TF32 in matrix products; convolutions have it by default. A run whose first ratios are not 1
#: within the tolerance of its precision ends with an error, and a trained network has no zeroed heads to hide behind.
_TF32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
#: Seconds of one core for a game step, and of how much of a core each of several makes use (``rollout/README.md``).
STEP, USE = 0.49e-3, 0.8
#: Of each variant: enough for some ten iterations behind the first, whose start-up does not count.
MINUTES = 0.4


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
        "iteration_ms": 1e3 * statistics.median(r.get("time/iteration", 0.0) for r in rows),
        "update_ms": 1e3 * statistics.median(r["time/update"] for r in rows),
        "acting_ms": 1e3 * statistics.median(r["time/inference"] for r in rows),
        "iterations": float(len(rows)),
    }


def cores_needed(rows: list[dict[str, float]], slower: float = 1.0) -> float:
    """Cores that step battles as fast as a GPU acts and learns, so that neither waits for the other with an overlap.

    Args:
        rows: metric rows of a run on it, the first left out where there are more.
        slower: how many times slower another GPU is.
    """
    rows = rows[1:] or rows
    steps = statistics.median(r["rollout/game_steps"] for r in rows)
    device = statistics.median(r["time/update"] + r["time/inference"] for r in rows)
    return steps * STEP / (USE * slower * device)


def train(folder: Path, config: Path, settings: tuple[str, ...], more: Mapping[str, str]) -> list[dict[str, float]]:
    """Metric rows of a short run of ``config`` in a process of its own, with ``more`` in its environment."""
    done = subprocess.run(
        [sys.executable, "-m", "royale_lightning", "fit", "--config", str(config), "--run_dir", str(folder),
         "--stop.minutes", str(MINUTES), *settings],
        capture_output=True, text=True, check=False, env={**os.environ, **more},
    )
    if done.returncode:
        raise UserError(f"training with {' '.join(settings)} failed:\n{done.stderr.strip()[-2000:]}")
    return list(read_rows(folder / "metrics.jsonl"))


def main() -> int:
    """Run the CUDA tests, then a short training of each setting; the exit code of the tests, 2 without a device."""
    if not torch.cuda.is_available():
        print("gpu-check needs a CUDA device and torch sees none here", file=sys.stderr)
        return 2
    root = Path(__file__).parents[2]
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", str(root / "tests" / "gpu")], check=False)
    table = Table(title=f"configs/first_bot.yaml on {torch.cuda.get_device_name()}", title_justify="left")
    columns = (
        "game steps/s", "row passes/s (update)", "rows/s (acting)", "iteration, ms", "update", "acting", "iterations"
    )
    for column in ("", *columns):
        table.add_column(column, justify="left" if not column else "right")
    said: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for i, (name, settings) in enumerate(VARIANTS.items()):
            rows = train(
                Path(scratch) / str(i), root / "configs" / "first_bot.yaml", settings, _TF32 if "TF32" in name else {}
            )
            table.add_row(name, *(f"{x:,.0f}" for x in figures(rows).values()))
            if name.startswith("gpu"):
                said.append(
                    f"{name}: stepping keeps up from {cores_needed(rows):.1f} cores on; of a GPU a quarter as fast, "
                    f"from {cores_needed(rows, 4.0):.1f}. First ratios off by at most "
                    f"{max(r['ppo/ratio_error'] for r in rows):.1e}"
                )
    console = Console()
    console.print(table)
    for line in said:
        console.print(line, highlight=False)
    return tests.returncode


if __name__ == "__main__":
    with guarded():
        try:
            sys.exit(main())
        except UserError as problem:
            print(f"error: {problem}", file=sys.stderr)
            sys.exit(2)
