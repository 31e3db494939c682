"""A run whose workers and whose trainer are killed and stopped at random moments ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")
HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def children(pid: int) -> list[int]:
    """Direct children of a process that run our workers."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"battle.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def blocks() -> set[str]:
    return {p.name for p in Path("/dev/shm").iterdir()}


def rows(run: Path) -> list[dict[str, float]]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(x) for x in lines if x.endswith("}")]


class Chaos:
    """Starts a run again and again until it ends by itself, doing harm at random."""

    def __init__(self, run: Path, iterations: int, seed: int) -> None:
        self.run, self.iterations = run, iterations
        self.random = random.Random(seed)
        self.workers: set[int] = set()
        self.harm = {"killed": 0, "stopped": 0, "trainer": 0}

    def start(self) -> subprocess.Popen[bytes]:
        resumes = (self.run / "checkpoints" / "last.ckpt").exists()
        origin = ["--ckpt_path", str(self.run)] if resumes else ["--config", CONFIG, "--run_dir", str(self.run)]
        more = [] if resumes else [
            "--data.rollout.source", "processes", "--data.rollout.workers", "2",
            "--data.rollout.worker_timeout_s", "6", "--data.rollout.worker_restarts", "1000",
            "--trainer.callbacks+=chaos_parts.EpisodeLog", "--trainer.enable_progress_bar", "false",
        ]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]), "OMP_NUM_THREADS": "1"}
        env.pop("ROYALE_LIGHTNING_RUN_DIR", None)
        log = (self.run.parent / "log.txt").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "royale_lightning", "fit", *origin, *more,
                 "--stop.iterations", str(self.iterations)],
                env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )

    def go(self, kill_trainer_at: list[int], harm_every: float) -> None:
        trainer = self.start()
        due = time.monotonic() + harm_every
        while trainer.poll() is None:
            time.sleep(0.05)
            done = len(rows(self.run))
            self.workers.update(children(trainer.pid))
            if kill_trainer_at and done >= kill_trainer_at[0]:
                kill_trainer_at.pop(0)
                # Not at the row but a moment later, wherever the next iteration is by then.
                time.sleep(self.random.random() * 0.5)
                trainer.kill()
                trainer.wait()
                self.harm["trainer"] += 1
                self.gone()
                trainer = self.start()
            elif done and time.monotonic() > due:
                due = time.monotonic() + harm_every * (0.5 + self.random.random())
                victims = children(trainer.pid)
                if victims:
                    how = self.random.choice(["killed", "killed", "stopped"])
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.random.choice(victims), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                        self.harm[how] += 1
        assert trainer.returncode == 0, (self.run.parent / "log.txt").read_text()[-3000:]

    def gone(self) -> None:
        """Workers of a trainer that is gone end by themselves. Stopped ones cannot; a batch system kills those."""
        until = time.monotonic() + 20
        for pid in self.workers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        while any(alive(p) for p in self.workers) and time.monotonic() < until:
            time.sleep(0.1)
        assert not [p for p in self.workers if alive(p)]


def check(run: Path, iterations: int) -> None:
    """The right iterations, game steps and results."""
    found = rows(run)
    assert [r["iteration"] for r in found] == list(range(1, iterations + 1))
    total = 0.0
    for r in found:
        total += r["rollout/game_steps"]
        assert r["game_steps"] == total
        assert r["rollout/rows"] >= 128
    episodes = [
        (b, o) for i in range(1, iterations + 1) for b, o in json.loads((run / "episodes" / f"{i}.json").read_text())
    ]
    assert len(set(episodes)) == len(episodes), "a result twice"
    voided = sum(r["health/battles_voided"] for r in found)
    for battle in range(4):
        ordinals = {o for b, o in episodes if b == battle}
        # Each battle's episodes follow one another; what is missing was void.
        voided -= len(set(range(1 + max(ordinals))) - ordinals) if ordinals else 0
    assert voided >= 0, "a result lost that was not void"


@pytest.mark.parametrize(
    ("iterations", "trainer_kills", "harm_every"),
    [
        pytest.param(4, [2], 60.0, id="short"),
        pytest.param(30, [8, 20], 4.0, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_run_survives(tmp_path: Path, iterations: int, trainer_kills: list[int], harm_every: float) -> None:
    before = blocks()
    chaos = Chaos(tmp_path / "run", iterations, seed=7)
    first: Callable[[], bool] = lambda: bool(rows(chaos.run))  # noqa: E731
    chaos.go(list(trainer_kills), harm_every)
    assert first()
    assert chaos.harm["trainer"] == len(trainer_kills)
    if harm_every < 10:
        assert chaos.harm["killed"] >= 2
        assert chaos.harm["stopped"] >= 1
    chaos.gone()
    until = time.monotonic() + 10
    while blocks() - before and time.monotonic() < until:
        time.sleep(0.1)
    assert blocks() <= before, "a shared memory block is left"
    check(chaos.run, iterations)
