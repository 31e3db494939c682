"""A run whose workers and whose trainer are killed and stopped at random moments ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.processes import ProcessSource
from royale_lightning.battle.steps.sources import InlineSource, RolloutSource
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.ladder.results import read_results
from royale_lightning.nn import build_network
from royale_lightning.rollout.collector import Collector
from royale_lightning.rollout.data import inputs_of

CONFIG = str(Path(__file__).parents[3] / "configs" / "debug.yaml")
HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def children(pid: int) -> list[int]:
    """Direct children of a process that run our workers."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"battle.steps.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def blocks(pid: int) -> set[Path]:
    """The shared memory a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    return {Path(x.split()[5]) for x in lines if "/dev/shm/psm_" in x}


def rows(run: Path) -> list[dict[str, float]]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(x) for x in lines if x.endswith("}")]


class Episode(NamedTuple):
    """What ``support.chaos_parts.EpisodeLog`` writes of one."""

    battle: int
    ordinal: int
    seed: int
    winner: int


class Chaos:
    """Starts a run again and again until it ends by itself, doing harm at random."""

    def __init__(self, run: Path, iterations: int, seed: int) -> None:
        self.run, self.iterations = run, iterations
        self.random = random.Random(seed)
        self.workers: set[int] = set()
        self.blocks: set[Path] = set()
        self.trainer: subprocess.Popen[bytes]
        self.harm = {"killed": 0, "stopped": 0, "trainer": 0}

    def start(self) -> subprocess.Popen[bytes]:
        resumes = (self.run / "checkpoints" / "last.ckpt").exists()
        origin = ["--ckpt_path", str(self.run)] if resumes else ["--config", CONFIG, "--run_dir", str(self.run)]
        more = [] if resumes else [
            "--data.rollout.source", "processes", "--data.rollout.workers", "2",
            "--data.rollout.worker_timeout_s", "6", "--data.rollout.worker_restarts", "1000",
            # Workers that fail in iteration after iteration end a run, which is not what is tested here.
            "--alarms.halt", "false",
            # Whole battles, which have results.
            "--data.battle.max_ticks", "null",
            "--trainer.callbacks+=tests.support.chaos_parts.EpisodeLog", "--trainer.enable_progress_bar", "false",
        ]
        env = {**os.environ, "PYTHONPATH": str(HERE.parents[2]), "OMP_NUM_THREADS": "1"}
        env.pop("ROYALE_LIGHTNING_RUN_DIR", None)
        log = (self.run.parent / "log.txt").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "royale_lightning", "fit", *origin, *more,
                 "--stop.iterations", str(self.iterations)],
                env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )

    def go(self, kill_trainer_at: list[int], harm_every: float, kinds: list[str]) -> None:
        """Run to the end.

        Args:
            kill_trainer_at: rows after which the trainer is killed.
            harm_every: mean seconds between two harms to a worker.
            kinds: ``killed`` or ``stopped``, drawn from.
        """
        trainer = self.trainer = self.start()
        due = time.monotonic()
        while trainer.poll() is None:
            time.sleep(0.05)
            done = len(rows(self.run))
            found = children(trainer.pid)
            self.workers.update(found)
            self.blocks |= blocks(trainer.pid)
            if kill_trainer_at and done >= kill_trainer_at[0]:
                kill_trainer_at.pop(0)
                # Not at the row but a moment later, wherever the next iteration is by then.
                time.sleep(self.random.random() * 0.5)
                trainer.kill()
                trainer.wait()
                self.harm["trainer"] += 1
                self.gone()
                trainer = self.trainer = self.start()
            elif done and found and time.monotonic() > due:
                due = time.monotonic() + harm_every * (0.5 + self.random.random())
                how = self.random.choice(kinds)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.random.choice(found), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
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


def account(played: list[tuple[int, int]], state: dict[str, Any]) -> int:
    """Episodes that began and neither ended nor are in flight in a collector's state: those that were void."""
    assert len(set(played)) == len(played), "an episode twice"
    in_flight = {(s["assignment"]["battle"], s["assignment"]["ordinal"]) for s in state["battles"]}
    began = {(b, o) for b, newest in enumerate(state["ordinals"]) for o in range(newest + 1)}
    assert not in_flight & set(played)
    assert in_flight | set(played) <= began
    return len(began - in_flight - set(played))


def check(run: Path, iterations: int) -> dict[str, int]:
    """The right iterations, game steps and results; what was counted."""
    found = rows(run)
    assert [r["iteration"] for r in found] == list(range(1, iterations + 1))
    total = 0.0
    for r in found:
        total += r["rollout/game_steps"]
        assert r["game_steps"] == total
        assert r["rollout/rows"] >= 128
    last = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    data = last["SelfPlayData"]
    assert data["game_steps"] == total
    episodes = [
        Episode(*e) for i in range(1, iterations + 1) for e in json.loads((run / f"episodes/{i}.json").read_text())
    ]
    state = data["ranks"][0]
    voided = sum(r["health/battles_voided"] for r in found) + state["voided"]
    assert account([(e.battle, e.ordinal) for e in episodes], state) == voided
    # Every decided episode is one line of the log, in order.
    results = [r for r in read_results(run / "results.jsonl") if r.kind == "train"]
    assert [r.seed for r in results] == [e.seed for e in episodes if e.winner >= 0]
    lost = sum(r["health/workers_lost"] for r in found)
    return {"game_steps": int(total), "episodes": len(episodes), "results": len(results), "voided": int(voided),
            "workers_lost": int(lost)}


ITERATIONS = 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_survives(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path / "run", ITERATIONS, seed=7)
    try:
        chaos.go([8, 20], harm_every=4.0, kinds=["killed", "killed", "stopped"])
    finally:
        chaos.trainer.kill()
    assert chaos.harm["trainer"] == 2
    assert chaos.harm["killed"] >= 2
    assert chaos.harm["stopped"] >= 1
    chaos.gone()
    until = time.monotonic() + 10
    while (left := [b for b in chaos.blocks if b.exists()]) and time.monotonic() < until:
        time.sleep(0.1)
    assert chaos.blocks
    assert not left, "shared memory is left"
    counted = check(chaos.run, ITERATIONS)
    assert counted["voided"] > 0
    print(chaos.harm, len(chaos.workers), "workers,", len(chaos.blocks), "blocks;", counted)


def test_rollouts_survive() -> None:
    """The same of battles and rollouts alone, without a trainer's process: that one's loss is a saved state."""
    spec, settings, rng = BattleSpec(max_ticks=400), ArenaSettings(1, 0.05, 1), random.Random(3)
    network = build_network({"class_path": "entity", "init_args": {"width": 8, "layers": 1}}, inputs_of(spec), 1).eval()

    def collector(source: RolloutSource) -> Collector:
        return Collector(
            source, spec, MixMatchmaker(1, 4, 0.5, 0, 0.5, ["random"]), seed=1, first=0, rows=60, max_rounds=2000,
            stagger=False, count_forced=False, device=torch.device("cpu"),
        )

    source = ProcessSource(spec, 0, 4, settings, 2, timeout=3.0)
    used, pids, played, voided, lost = blocks(os.getpid()), set(source.pids), [], 0, 0
    harm = {2: signal.SIGKILL, 4: signal.SIGSTOP}
    try:
        c = collector(source)
        for i in range(6):
            if i in harm:
                delay = threading.Timer(0.05 * rng.random(), os.kill, (rng.choice(source.pids), harm[i]))
                delay.start()
            r = c.collect(network)
            if i in harm:
                delay.join()
            pids.update(source.pids)
            assert len(r.rows) >= 60
            played += [(e.battle, e.ordinal) for e in r.episodes]
            voided += r.battles_voided
            lost += sum(r.faults.values())
        state = c.state_dict()
        pids.update(source.pids)
    finally:
        source.close()
    assert not any(map(alive, pids))
    assert not any(b.exists() for b in used)
    # Whoever goes on from the saved state goes on with every battle.
    c = collector(InlineSource(spec, 0, 4, settings))
    c.load_state_dict(state)
    for _ in range(3):
        r = c.collect(network)
        played += [(e.battle, e.ordinal) for e in r.episodes]
        voided += r.battles_voided
    end = c.state_dict()
    c.source.close()
    assert lost >= len(harm)
    assert account(played, end) == voided > 0
