"""Checks of what the machine has: speed, memory, disk, a GPU; each measures and forecasts."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from ...battle.prepare import prepare
from ...errors import UserError
from ...metrics.process import MB
from .patient import Patient

#: Share of what is free that a forecast may fill: battles grow a little and other programs run too.
_FILL = 0.8
#: Checkpoints at once on disk beyond ``keep``: ``last.ckpt`` may be a copy, and the next is written beside.
_SPARE_CHECKPOINTS = 2


def speed(patient: Patient) -> str:
    """Seconds an iteration will take, from one rollout and one minibatch that were timed."""
    patient.rollout  # noqa: B018 - made and timed by the first who asks
    r, ppo = patient.data.rollout, patient.module.ppo
    batch = patient.minibatch()
    patient.learn(batch)
    started = time.perf_counter()
    float(patient.learn(batch)["loss"])
    learn = time.perf_counter() - started
    collect = patient.notes["collect_s_a_row"] * r.rows_per_iteration
    update = learn * r.minibatches * ppo.ppo_epochs
    steps = patient.notes["steps_a_row"] * r.rows_per_iteration
    patient.notes["iteration_s"] = whole = collect + update
    hours = ppo.horizon_game_steps / steps * whole / 3600
    busy = psutil.getloadavg()[0] / (os.cpu_count() or 1)
    shared = f"; other programs keep the cores {busy:.1f} times busy" if busy > 1.2 else ""
    return (
        f"{steps / whole:,.0f} game steps/s at first: {collect:.1f} s to collect and {update:.1f} s to learn from an "
        f"iteration, {hours:.1f} h for ppo.horizon_game_steps{shared}"
    )


def memory(patient: Patient) -> str:
    """This process as it stands with its battles and network, and what a run adds."""
    patient.rollout  # noqa: B018
    data = patient.data
    weights = sum(p.numel() * p.element_size() for p in patient.network.parameters())
    heap = (data.rollout.rows_per_iteration + 2 * data.rollout.battles) * prepare(data.battle).row_layout.row_bytes
    on_device = patient.device.type != "cpu"
    # Gradients and Adam's two moments; a checkpoint is gathered in memory before it is written.
    need = psutil.Process().memory_info().rss + 3 * weights + (0 if on_device else heap + 3 * weights)
    workers = ""
    if patient.processes:
        one = _worker_bytes(patient)
        need += one * patient.processes
        workers = f", {patient.processes} workers of {one / MB:,.0f} MB among it"
    free = _free_memory() + psutil.Process().memory_info().rss
    if need > _FILL * free:
        raise UserError(
            f"the run needs about {need / MB:,.0f} MB{workers} and {free / MB:,.0f} MB are free; lower "
            "rollout.battles, rollout.workers or rollout.rows_per_iteration, or close other programs"
        )
    return f"about {need / MB:,.0f} MB{workers}; {free / MB:,.0f} MB are free"


def shared_memory(patient: Patient) -> str:
    """What the workers' rounds take of ``/dev/shm``; UserError where it has less."""
    from ...battle.round import Round
    from ...battle.steps.shared_block import SHM, no_room

    if not patient.processes:
        return "not needed: battles step in threads of one process"
    need = Round.nbytes(patient.data.rollout.battles, prepare(patient.data.battle).row_layout.row_bytes)
    if not SHM.is_dir():
        return f"{need / MB:,.1f} MB"
    free = shutil.disk_usage(SHM).free
    if need > free:
        raise no_room(need, free)
    return f"{need / MB:,.1f} MB of {free / MB:,.0f} MB free in /dev/shm"


def disk(patient: Patient) -> str:
    """What the checkpoints will take beside what is free; UserError where nothing can be written."""
    folder = Path("runs") if Path("runs").is_dir() else Path()
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as exc:
        raise UserError(
            f"{folder.resolve()} cannot be written to ({exc.strerror}); go elsewhere or give --run_dir"
        ) from exc
    weights = sum(p.numel() * p.element_size() for p in patient.network.parameters())
    keep = int((patient.settings.get("checkpoint") or {}).get("keep", 5))
    # Weights and Adam's two moments; the rest of a checkpoint is small.
    need = 3 * weights * (max(keep, 1) + _SPARE_CHECKPOINTS)
    free = shutil.disk_usage(folder).free
    if need > _FILL * free:
        raise UserError(
            f"checkpoints take about {need / MB:,.0f} MB and {free / MB:,.0f} MB are free in {folder.resolve()}; lower "
            "checkpoint.keep or make room"
        )
    kept = "every checkpoint is kept, each" if keep == -1 else f"{keep} checkpoints together"
    return f"{kept} about {(3 * weights if keep == -1 else need) / MB:,.0f} MB; {free / MB:,.0f} MB are free"


def gpu(patient: Patient) -> str:
    """The accelerator that will be used; UserError where the wanted one is not there."""
    import torch

    wanted = str(patient.trainer.get("accelerator") or "auto")
    kind = patient.device.type
    if wanted in ("gpu", "cuda", "mps") and kind == "cpu":
        raise UserError(
            f"trainer.accelerator is {wanted} and this torch {torch.__version__} sees no such device; install torch "
            "for it (pytorch.org), or set trainer.accelerator to cpu"
        )
    if kind != "cuda":
        return "trains on the CPU" if kind == "cpu" else "trains on Apple's GPU, which shares the main memory"
    r = patient.data.rollout
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    patient.learn(patient.minibatch())
    weights = sum(p.numel() * p.element_size() for p in patient.network.parameters())
    heap = (r.rows_per_iteration + 2 * r.battles) * prepare(patient.data.battle).row_layout.row_bytes
    need = torch.cuda.max_memory_allocated() - held + 4 * weights + heap
    free, total = torch.cuda.mem_get_info()
    name = torch.cuda.get_device_name()
    if need > _FILL * (free + held):
        raise UserError(
            f"a minibatch and the rollout take about {need / MB:,.0f} MB and {name} has {free / MB:,.0f} MB free; "
            "lower rollout.minibatch_rows or rollout.rows_per_iteration"
        )
    return f"{name}: about {need / MB:,.0f} MB of {free / MB:,.0f} MB free ({total / MB:,.0f} MB in all)"


def _free_memory() -> int:
    """Bytes this process may still take: the system's, or a container's limit where that is lower."""
    free = int(psutil.virtual_memory().available)
    limit, used = (Path(f"/sys/fs/cgroup/memory.{x}") for x in ("max", "current"))
    try:
        return min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return free


def _worker_bytes(patient: Patient) -> int:
    """Resident memory of one worker with its battles, measured on one that is started for it."""
    from ...battle.players import LEARNER
    from ...battle.round import Assignment
    from ...battle.steps.arena import ArenaSettings
    from ...battle.steps.processes import ProcessSource

    data = patient.data
    n = -(-data.rollout.battles // patient.processes)
    source = ProcessSource(data.battle, 0, n, ArenaSettings(data.seed, 0.0), 1)
    try:
        source.advance([Assignment(b, 0, (LEARNER, LEARNER), b + 1) for b in range(n)])
        return sum(c.memory_info().rss for c in psutil.Process().children(recursive=True) if _is_worker(c))
    finally:
        source.close()


def _is_worker(process: psutil.Process) -> bool:
    return "royale_lightning.battle.steps.worker" in process.cmdline()
