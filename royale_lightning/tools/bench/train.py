"""``bench train``: training against RoyaleLearn's ``Learner``, in turn, in fresh processes.

Both sides are billed whole iterations after their first, as their own metric rows give them; imports, building battles,
preflight checks and the first iteration, in which code is loaded and battles are brought out of step, are left out on
both. A game step is one advance of one battle:
RoyaleLearn's ``run/cumulative_env_steps`` counts exactly that (cycles times battles), and not its ``timesteps``, which
are rows.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...run.jsonl import read_rows
from . import find_config
from .pairing import Ratio
from .report import Report

#: The Learner's network in our family: its trunk_channels and trunk_blocks, at full resolution as its own.
CONV = {"class_path": "conv", "init_args": {"channels": 32, "blocks": 2, "stride": 1}}
#: PPO epochs of the Learner's defaults; its rows do not say.
THEIR_EPOCHS = 3
#: Seconds a side may take beyond its time: start-up, and one iteration of a slow machine.
GRACE = 600.0
_POLL = 0.2


@dataclass(frozen=True)
class Trained:
    """What one training process learned from in whole iterations.

    Args:
        seconds: from the first iteration's start.
        game_steps, rows: learned from.
        row_passes: rows times PPO epochs.
    """

    seconds: float
    game_steps: float
    rows: float
    row_passes: float

    @classmethod
    def ours(cls, metrics: Sequence[dict[str, Any]]) -> Trained:
        """From the rows of our ``metrics.jsonl``, without the first if there are more."""
        metrics, before = _after_warm_up(metrics)
        rows = [m["rollout/rows"] for m in metrics]
        return cls(
            sum(m["time/iteration"] for m in metrics),
            metrics[-1]["game_steps"] - before.get("game_steps", 0),
            sum(rows),
            sum(n * m["ppo/ppo_epochs_done"] for n, m in zip(rows, metrics, strict=True)),
        )

    @classmethod
    def theirs(cls, metrics: Sequence[dict[str, Any]]) -> Trained:
        """From the rows of RoyaleLearn's ``metrics.jsonl``, without the first if there are more."""
        metrics, before = _after_warm_up(metrics)

        def grown(key: str) -> float:
            return float(metrics[-1][key]) - float(before.get(key, 0))

        rows = grown("run/cumulative_timesteps")
        return cls(
            sum(float(m["time/iteration"]) for m in metrics), grown("run/cumulative_env_steps"), rows,
            rows * THEIR_EPOCHS,
        )


def _after_warm_up(metrics: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    """The rows to count, and the one before them: on a slow machine a single iteration must do."""
    return (metrics[1:], metrics[0]) if len(metrics) > 1 else (metrics, {})


def require_royalelearn() -> str:
    """RoyaleLearn's version.

    Raises:
        UserError: it is not installed.
    """
    try:
        found = importlib.util.find_spec("royalelearn") is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise UserError(
            'bench train measures against RoyaleLearn, which is not installed: pip install "royale_lightning[peers]"'
        )
    from importlib.metadata import version

    return version("royalelearn")


def measure(seconds: float, config: str | None, network: str, pairs: int, seed: int) -> Report:
    """Run it.

    Args:
        seconds: of training, for each side and turn; the iteration under way is finished.
        config: what we train; see :func:`find_config`.
        network: ``config``, or ``conv`` for the Learner's own network family, size and observation.
        pairs: how often the two take turns.
        seed: of both.
    """
    version = require_royalelearn()
    path = find_config(config)
    ours: list[Trained] = []
    theirs: list[Trained] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for k in range(pairs):
            ours.append(train_ours(Path(folder) / f"ours-{k}", seconds, path, network, seed + k))
            theirs.append(train_theirs(Path(folder) / f"theirs-{k}", seconds, seed + k))
    key = "train_over_royalelearn" if network == "config" else "same_network_over_royalelearn"
    # Seconds per game step of theirs over ours: how many times as much battle we learn from.
    ratio = Ratio.of([t.seconds / t.game_steps for t in theirs], [t.seconds / t.game_steps for t in ours])
    result = {
        **ratio.figures(key),
        "game_steps_per_second": rate(ours, "game_steps"),
        "rows_per_second": rate(ours, "rows"),
        "row_passes_per_second": rate(ours, "row_passes"),
        "royalelearn_game_steps_per_second": rate(theirs, "game_steps"),
        "royalelearn_rows_per_second": rate(theirs, "rows"),
        "royalelearn_row_passes_per_second": rate(theirs, "row_passes"),
        "seconds_trained": sum(t.seconds for t in ours),
        "royalelearn_seconds_trained": sum(t.seconds for t in theirs),
    }
    what = "the configuration" if network == "config" else "the Learner's network"
    return Report(result, [
        (f"game steps/s with {what}, over RoyaleLearn's Learner", key),
        ("game steps learned from per second", "game_steps_per_second"),
        ("RoyaleLearn's", "royalelearn_game_steps_per_second"),
        ("rows learned from per second", "rows_per_second"),
        ("RoyaleLearn's", "royalelearn_rows_per_second"),
        ("row passes per second", "row_passes_per_second"),
        ("RoyaleLearn's", "royalelearn_row_passes_per_second"),
    ], inputs={"config": str(path) if path else None, "royalelearn": version, "deck": "starter"})


def rate(trained: Sequence[Trained], what: str) -> float:
    """Per second, over several processes."""
    return sum(getattr(t, what) for t in trained) / sum(t.seconds for t in trained)


def our_command(folder: Path, seconds: float, config: Path | None, network: str, seed: int) -> list[str]:
    """How our training is started."""
    command = [sys.executable, "-m", "royale_lightning", "fit"]
    if config is not None:
        command += ["--config", str(config)]
    command += [
        "--run_dir", str(folder), "--seed_everything", str(seed), "--stop.minutes", str(seconds / 60),
        "--data.battle.deck", "starter",
    ]
    if network == "conv":
        command += ["--model.network", json.dumps(CONV), "--data.battle.observation", "spatial"]
    return command


def train_ours(folder: Path, seconds: float, config: Path | None, network: str, seed: int) -> Trained:
    """Train ours; it ends by itself at the end of the iteration in which its time is over."""
    log = folder.with_suffix(".log")
    with log.open("wb") as out:
        p = subprocess.Popen(our_command(folder, seconds, config, network, seed), stdout=out, stderr=out)
        try:
            code = p.wait(seconds + GRACE)
        except BaseException as exc:
            _end(p)
            if isinstance(exc, subprocess.TimeoutExpired):
                raise UserError(f"our training was not over {GRACE:.0f} s after its time: {_last_line(log)}") from exc
            raise
    metrics = list(read_rows(folder / "metrics.jsonl"))
    if code or not metrics:
        raise UserError(f"our training ended with exit code {code}: {_last_line(log)}")
    return Trained.ours(metrics)


def train_theirs(folder: Path, seconds: float, seed: int) -> Trained:
    """Train RoyaleLearn's Learner and end it after the first iteration that completes its time.

    It knows no time limit of its own, so its rows are watched.
    """
    log = folder.with_suffix(".log")
    code = f"from {__package__}.peer import run; run({str(folder)!r}, {seed})"
    limit = time.monotonic() + seconds + GRACE
    metrics: list[dict[str, Any]] = []
    with log.open("wb") as out:
        p = subprocess.Popen([sys.executable, "-c", code], stdout=out, stderr=out)
        try:
            while len(metrics) < 2 or Trained.theirs(metrics).seconds < seconds:
                if p.poll() is not None:
                    raise UserError(f"RoyaleLearn ended with exit code {p.returncode}: {_last_line(log)}")
                if time.monotonic() > limit:
                    if metrics:
                        break
                    raise UserError(f"RoyaleLearn finished no iteration within {seconds + GRACE:.0f} s")
                time.sleep(_POLL)
                metrics = list(read_rows(folder / "metrics.jsonl"))
        finally:
            _end(p)
    return Trained.theirs(metrics)


def _end(p: subprocess.Popen[bytes]) -> None:
    if p.poll() is None:
        p.terminate()
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
    p.wait()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"
