"""Workers killed, hung and raising for real: they cost their battles, not the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from royalegym.reward import RewardFunction

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.processes import ProcessSource
from royale_lightning.battle.steps.shared_block import shared_block
from royale_lightning.battle.steps.sources import InlineSource
from royale_lightning.battle.steps.worker_process import Worker
from royale_lightning.errors import UserError
from royale_lightning.ladder.matchmaker import MixMatchmaker
from royale_lightning.nn import build_network
from royale_lightning.nn.protocol import ActorCritic
from royale_lightning.rollout.collector import Collector, Rollout
from royale_lightning.rollout.data import inputs_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
BATTLES, ROWS = 4, 120
SPEC = BattleSpec(max_ticks=600)


class RaisesWhen(RewardFunction):
    """Raises once per time its file is put there."""

    def __init__(self, flag: str = "") -> None:
        self.flag = flag

    def get_reward(self, team: int, prev: Any, state: Any, results: Any) -> float:
        if self.flag and os.path.exists(self.flag):
            os.unlink(self.flag)
            raise ArithmeticError("no reward today")
        return 0.0


@pytest.fixture(scope="module")
def network() -> ActorCritic:
    part = {"class_path": "entity", "init_args": {"width": 16, "layers": 1}}
    return build_network(part, inputs_of(SPEC), seed=1).eval()


class Trouble(ProcessSource):
    """Does something just before one of its rounds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rounds = 0
        self.at: dict[int, Callable[[], None]] = {}
        super().__init__(*args, **kwargs)

    def advance(self, assignments: Any) -> None:
        self.rounds += 1
        self.at.pop(self.rounds, lambda: None)()
        super().advance(assignments)

    def signal(self, worker: int, number: int) -> Callable[[], None]:
        return lambda: os.kill(self.pids[worker], number)


def collector(source: Any, spec: BattleSpec = SPEC) -> Collector:
    return Collector(
        source, spec, MixMatchmaker(1, BATTLES, 0.5, 0, 0.5, ["random"]), seed=1, first=0, rows=ROWS, max_rounds=2000,
        stagger=False, count_forced=False, device=torch.device("cpu"),
    )


@pytest.fixture
def sources() -> Iterator[Callable[..., Trouble]]:
    made: list[Trouble] = []

    def make(spec: BattleSpec = SPEC, workers: int = 2, **kwargs: Any) -> Trouble:
        made.append(Trouble(spec, 0, BATTLES, ArenaSettings(1, 0.05, 1), workers, **kwargs))
        return made[-1]

    yield make
    for source in made:
        pids = source.pids
        source.close()
        assert not any(Path(f"/proc/{p}").exists() for p in pids)


def check(r: Rollout) -> None:
    """What holds of any rollout, whatever was lost on the way."""
    assert len(r.action) == len(r.rows) == len(r.value) == len(r.choice) >= ROWS
    rows = r.cells.row[r.cells.row >= 0]
    assert sorted(rows.tolist()) == list(range(len(r.rows))), "every row lies in one cell"
    assert torch.isfinite(r.value).all()


def test_a_killed_worker_costs_its_battles(
    network: ActorCritic, sources: Callable[..., Trouble], capfd: pytest.CaptureFixture[str]
) -> None:
    source = sources()
    source.at = {20: source.signal(0, signal.SIGKILL)}
    c = collector(source)
    rollouts = [c.collect(network, gamma=0.998) for _ in range(4)]
    for r in rollouts:
        check(r)
    first, second = rollouts[0], rollouts[1]
    assert first.faults == {"killed": 1, "hung": 0, "raised": 0}
    assert first.battles_voided == 2
    assert second.faults == {"killed": 0, "hung": 0, "raised": 0}
    said = capfd.readouterr().err
    assert "was killed by SIGKILL; its 2 battles are void and it starts anew (restart 1 of 20)" in said
    # For the other worker everything is as it would have been.
    inline = collector(InlineSource(SPEC, 0, BATTLES, ArenaSettings(1, 0.05, 1)))
    reference = [inline.collect(network, gamma=0.998) for _ in range(4)]
    both = min(first.rounds, reference[0].rounds)
    assert torch.equal(first.cells.reward[:both, 4:], reference[0].cells.reward[:both, 4:])
    mine = [e for r in rollouts for e in r.episodes if e.battle >= 2]
    theirs = [e for r in reference for e in r.episodes if e.battle >= 2]
    assert mine[: min(len(mine), len(theirs))] == theirs[: min(len(mine), len(theirs))]
    # Fresh battles with the next ordinals: no result twice, one missing for each battle lost.
    played = [(e.battle, e.ordinal) for r in rollouts for e in r.episodes]
    assert len(set(played)) == len(played)
    for battle in (0, 1):
        ordinals = [o for b, o in played if b == battle]
        assert ordinals == [o for o in range(1 + max(ordinals)) if o in ordinals]
        assert len(set(range(1 + max(ordinals))) - set(ordinals)) == 1


@pytest.mark.slow
def test_a_hung_worker_is_killed_and_replaced(network: ActorCritic, sources: Callable[..., Trouble]) -> None:
    source = sources()
    for w in source._workers:
        w._timeout = 4.0
    source.at = {10: source.signal(1, signal.SIGSTOP)}
    c = collector(source)
    check(r := c.collect(network))
    assert r.faults["hung"] == 1
    for w in source._workers:
        w._timeout = 120.0
    check(c.collect(network))


@pytest.mark.slow
def test_a_raising_worker_is_replaced(
    network: ActorCritic, sources: Callable[..., Trouble], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flag = tmp_path / "raise"
    spec = BattleSpec(
        max_ticks=600, reward={"class_path": f"{__name__}.RaisesWhen", "init_args": {"flag": str(flag)}}
    )
    source = sources(spec)
    source.at = {8: flag.touch}
    check(r := collector(source, spec).collect(network))
    assert r.faults["raised"] == 1
    said = capfd.readouterr().err
    assert "raised ArithmeticError: no reward today" in said
    assert "test_faults.py" in said, "the worker's own traceback"


@pytest.mark.slow
def test_where_none_survives_the_rollout_waits(network: ActorCritic, sources: Callable[..., Trouble]) -> None:
    source = sources(workers=1)
    source.at = {12: source.signal(0, signal.SIGKILL)}
    c = collector(source)
    check(r := c.collect(network))
    assert r.battles_voided == BATTLES
    assert not c.source.down.any()


@pytest.mark.slow
def test_a_loss_between_rollouts(network: ActorCritic, sources: Callable[..., Trouble]) -> None:
    source = sources()
    c = collector(source)
    c.collect(network)
    before = c.ordinals.copy()
    source.signal(0, signal.SIGKILL)()
    state = c.state_dict()
    assert [s["assignment"]["battle"] for s in state["battles"]] == [2, 3]
    assert state["ended"][:2] == [True, True]
    check(c.collect(network))
    assert (c.ordinals[:2] > before[:2]).all()
    resumed = collector(InlineSource(SPEC, 0, BATTLES, ArenaSettings(1, 0.05, 1)))
    resumed.load_state_dict(state)
    check(resumed.collect(network))


@pytest.mark.slow
def test_a_loss_at_the_start_and_while_restoring(
    network: ActorCritic, sources: Callable[..., Trouble], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, killed = Worker.launch, []

    def killed_once(worker: Worker) -> None:
        launch(worker)
        if not killed:
            killed.append(worker.process.pid)
            worker.process.kill()

    monkeypatch.setattr(Worker, "launch", killed_once)
    source = sources()
    assert source.faults["killed"] == 1
    c = collector(source)
    check(r := c.collect(network))
    assert r.battles_voided == 0
    state = c.state_dict()
    assert len(state["battles"]) == BATTLES
    source.signal(0, signal.SIGKILL)()
    resumed = collector(source)
    resumed.load_state_dict(state)
    assert source.faults["killed"] == 2
    assert resumed.state_dict() == state
    check(r := resumed.collect(network))
    assert r.battles_voided == 0


def test_the_run_ends_when_the_restarts_are_used_up(network: ActorCritic, sources: Callable[..., Trouble]) -> None:
    source = sources(restarts=1)
    source.at = {5: source.signal(0, signal.SIGKILL), 9: source.signal(1, signal.SIGKILL)}
    with pytest.raises(UserError, match=r"was killed by SIGKILL, and rollout.worker_restarts \(1\) are used up"):
        collector(source).collect(network)


SCRIPT = """
import time
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.processes import ProcessSource
source = ProcessSource(BattleSpec(), 0, 2, ArenaSettings(), 2)
print(source._block.name, *source.pids, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks into /dev/shm")
def test_a_killed_trainer_leaves_nothing_behind() -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert trainer.stdout is not None
    name, *pids = trainer.stdout.readline().split()
    assert Path("/dev/shm", name.lstrip("/")).exists()
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    until = time.monotonic() + 20
    left: list[str] = []
    while time.monotonic() < until:
        left = [p for p in pids if Path(f"/proc/{p}").exists()]
        if not left and not Path("/dev/shm", name.lstrip("/")).exists():
            break
        time.sleep(0.1)
    assert not left
    assert not Path("/dev/shm", name.lstrip("/")).exists()


@pytest.fixture
def few_files() -> Iterator[Callable[[int], None]]:
    """``few_files(n)`` leaves this process n files to open."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(n: int) -> None:
        taken = {int(x) for x in os.listdir("/dev/fd")}
        free = [x for x in range(len(taken) + n) if x not in taken]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[n - 1] + 1, hard))

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks into /dev/shm")
def test_too_few_open_files_leave_no_worker_and_no_memory(few_files: Callable[[int], None]) -> None:
    def blocks() -> set[str]:
        return {x for x in os.listdir("/dev/shm") if x.startswith("psm_")}

    shared_block(4096).unlink()  # starts the tracker of shared memory, which holds a file of its own
    before, children = blocks(), psutil.Process().children()
    few_files(12)
    with pytest.raises(OSError, match="Too many open files"):
        ProcessSource(SPEC, 0, 8, ArenaSettings(1, 0.05, 1), 8)
    assert psutil.Process().children() == children
    assert blocks() == before


STOPPED = """
import subprocess, sys
from royale_lightning.battle.steps.worker_process import Watchdog
busy = "import time\\nprint(flush=True)\\nfor _ in range(20): time.sleep(0.05)"
child = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
child.stdout.readline()
watchdog = Watchdog()
with watchdog.over(child, 3.0):
    print("waiting", flush=True)
    child.wait()
print(child.returncode, watchdog.killed(child))
"""


def test_time_in_which_all_processes_were_stopped_does_not_count() -> None:
    """Ctrl-Z stops trainer and workers alike, here for longer than a worker may take."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    os.killpg(trainer.pid, signal.SIGSTOP)
    time.sleep(4.0)
    os.killpg(trainer.pid, signal.SIGCONT)
    with trainer:
        assert trainer.stdout.read() == "0 False\n"


SMALL_SHM = """
from royale_lightning.errors import UserError
from royale_lightning.battle.steps.shared_block import shared_block
block = shared_block(16_000)
block.close()
block.unlink()
try:
    shared_block(100_000)
except UserError as exc:
    print(exc)
"""


def test_too_little_shared_memory_is_one_sentence_at_the_start() -> None:
    """In a mount namespace whose /dev/shm has 64 KB, where worker after worker died of SIGBUS."""
    mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*inside, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets us mount nothing")
    found = subprocess.run(
        [*inside, f'{mount} && "$0" -c "$1"; ls /dev/shm', sys.executable, SMALL_SHM],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert found.stderr == ""
    (line,) = found.stdout.splitlines()
    assert line == (
        "the workers' block takes 0.1 MB and /dev/shm has 0.1 MB free; in a container give it more (docker run "
        "--shm-size), or set rollout.source to inline"
    )


@pytest.mark.slow
def test_values_stay_whole_numbers_of_steps(network: ActorCritic, sources: Callable[..., Trouble]) -> None:
    """The game-step count is what whole rounds played, with and without a loss."""
    source = sources()
    counted: list[int] = []
    whole = source.advance

    def advance(assignments: Any) -> None:
        whole(assignments)
        counted.append(int(np.sum(source.round.duration)))

    source.advance = advance  # type: ignore[method-assign]
    source.at = {15: source.signal(1, signal.SIGKILL)}
    c = collector(source)
    steps = sum(c.collect(network).game_steps for _ in range(2))
    assert steps == sum(counted)
