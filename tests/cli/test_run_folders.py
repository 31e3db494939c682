"""One folder, one process, one history: whoever made the Trainer, and whatever was trained there before."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from royale_lightning.callbacks import RunCheckpoint
from royale_lightning.cli.trainer_defaults import defaults
from royale_lightning.errors import UserError
from tests.support import tiny_run

Royale = Callable[[str], Any]
CHECKPOINTS = Path("a/checkpoints")


def iterations(run: str = "a", log: str = "metrics.jsonl") -> list[int]:
    return [json.loads(x)["iteration"] for x in Path(run, log).read_text().splitlines()]


def kept(run: str = "a") -> list[int]:
    return sorted(int(p.stem.split("-")[1]) for p in Path(run, "checkpoints").glob("iteration-*.ckpt"))


def files(folder: str = ".") -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def at(path: Path) -> int:
    return int(torch.load(path, weights_only=True)["royale_lightning"]["iteration"])


# ---- going back ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_run_goes_on_from_each_of_its_checkpoints_in_any_order(royale: Royale, keep: int) -> None:
    line = f"--checkpoint.every 1 --checkpoint.keep {keep} --stop.iterations"
    assert royale(f"fit --run_dir a {line} 4").code == 0
    for order in itertools.permutations(range(3)):
        for step in order:
            there = kept()
            start = there[step % len(there)]
            to = start + 1
            done = royale(f"fit --ckpt_path {CHECKPOINTS}/iteration-{start:06d}.ckpt {line} {to}")
            assert done.code == 0, done.err
            assert iterations() == list(range(1, to + 1)), "each iteration once, in order"
            assert at(CHECKPOINTS / "last.ckpt") == to
            assert kept()[-1] == to
            assert len(kept()) <= keep
            listed = json.loads((CHECKPOINTS / "manifest.json").read_text())["files"]
            assert {f"iteration-{n:06d}.ckpt" for n in kept()} <= set(listed)


def test_what_belongs_to_a_history_that_is_given_up_is_set_aside(royale: Royale) -> None:
    assert royale("fit --run_dir a --checkpoint.every 1 --stop.iterations 5").code == 0
    abandoned = (CHECKPOINTS / "iteration-000005.ckpt").read_bytes()
    again = f"fit --ckpt_path {CHECKPOINTS}/iteration-000002.ckpt --checkpoint.keep 1 --stop.iterations 4"
    done = royale(again)
    assert done.code == 0, done.err
    assert "checkpoints after iteration 2 moved to" in done.out
    assert kept() == [4]
    aside = CHECKPOINTS / "iteration-000005.ckpt.discarded-1"
    assert aside.read_bytes() == abandoned
    # A damaged last.ckpt falls back within its own history, never into the other.
    assert royale("fit --ckpt_path a --checkpoint.keep 2 --stop.iterations 5").code == 0
    for path in (CHECKPOINTS / "last.ckpt", CHECKPOINTS / "iteration-000005.ckpt"):
        path.write_bytes(path.read_bytes()[:900])
    done = royale("fit --ckpt_path a --stop.iterations 6")
    assert done.code == 0, done.err
    assert "using the checkpoint before it, a/checkpoints/iteration-000004.ckpt" in done.out
    assert iterations() == [1, 2, 3, 4, 5, 6]


def test_a_rewound_run_that_ends_before_its_next_checkpoint_goes_on_in_its_own_history(royale: Royale) -> None:
    assert royale("fit --run_dir a --checkpoint.every 1 --stop.iterations 5").code == 0

    class Killed(Exception):
        pass

    class Kill(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 3:
                raise Killed

    trainer = Trainer(**defaults(default_root_dir="a", callbacks=[Kill(), RunCheckpoint(every=10)]))
    with pytest.raises(Killed):
        trainer.fit(tiny_run.TinyModule(), tiny_run.TinyData(), ckpt_path="a/checkpoints/iteration-000002.ckpt")
    assert iterations() == [1, 2, 3]
    assert at(CHECKPOINTS / "last.ckpt") == 2
    assert royale("fit --ckpt_path a --stop.iterations 3").code == 0
    assert iterations() == [1, 2, 3]


def test_a_checkpoint_of_another_history_is_noticed_and_the_advice_works(royale: Royale) -> None:
    assert royale("fit --run_dir a --checkpoint.every 1 --stop.iterations 4").code == 0
    assert royale(f"fit --ckpt_path {CHECKPOINTS}/iteration-000002.ckpt --stop.iterations 6").code == 0
    before = files()
    stale = f"{CHECKPOINTS}/iteration-000004.ckpt.discarded-1"
    said = royale(f"fit --ckpt_path {stale} --stop.iterations 5").error
    assert "is not the log that the checkpoint was written with (it holds other lines)" in said
    assert files() == before, "a refused start changes nothing"
    assert royale(f"fit --ckpt_path {stale} --run_dir fork --stop.iterations 5").code == 0
    assert iterations("fork") == [5]
    assert royale("fit --ckpt_path a/checkpoints/last.ckpt --stop.iterations 7").code == 0
    assert iterations() == [1, 2, 3, 4, 5, 6, 7]


def test_a_refused_resume_moves_nothing(royale: Royale) -> None:
    assert royale("fit --run_dir a --checkpoint.every 1 --stop.iterations 4").code == 0
    before = files()
    early = f"fit --ckpt_path {CHECKPOINTS}/iteration-000002.ckpt"
    assert "already has 2 iterations" in royale(f"{early} --stop.iterations 2").error
    assert "another run" in royale(f"{early} --stop.iterations 3 --seed_everything 9").error
    assert files() == before


# ---- whose folder --------------------------------------------------------------------------------------------------
def fit(ckpt_path: Any = None, iterations: int = 2, **settings: Any) -> None:
    Trainer(**defaults(max_epochs=iterations, **settings)).fit(
        tiny_run.TinyModule(), tiny_run.TinyData(), ckpt_path=ckpt_path
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROYALE_LIGHTNING_RUN_DIR", "")
    return tmp_path


def test_a_second_fit_from_python_is_refused_or_resumes(here: Path) -> None:
    fit(default_root_dir="nb")
    before = files()
    with pytest.raises(UserError, match=r"'nb' already holds a run.*ckpt_path nb/checkpoints/last\.ckpt"):
        fit(default_root_dir="nb")
    assert files() == before
    fit("nb/checkpoints/last.ckpt", 3, default_root_dir="nb")
    assert iterations("nb") == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available")
def test_last_from_python_is_one_sentence(here: Path) -> None:
    fit(default_root_dir="nb")
    with pytest.raises(UserError, match=r"already holds a run.*ckpt_path nb/checkpoints/last\.ckpt"):
        fit("last", 3, default_root_dir="nb")
    assert iterations("nb") == [1, 2]


def test_a_change_of_folder_between_trainer_and_fit_moves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(**defaults(default_root_dir="nb", max_epochs=1))
    (here / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    trainer.fit(tiny_run.TinyModule(), tiny_run.TinyData())
    assert (here / "nb/checkpoints/last.ckpt").is_file()
    assert not list((here / "elsewhere").iterdir())


def test_two_names_for_the_folder_are_refused(royale: Royale) -> None:
    with pytest.raises(UserError, match="run_dir is 'a' and default_root_dir 'b'; give one of them"):
        defaults("a", default_root_dir="b")
    assert "default_root_dir is 'b'; give --run_dir instead" in royale("fit --trainer.default_root_dir b").error
    assert "give --out instead" in royale("test --out x --trainer.default_root_dir b").error
    assert not list(Path().iterdir())


def test_a_tilde_in_run_dir_and_ckpt_path(royale: Royale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert royale("fit --run_dir '~/x' --stop.iterations 1").code == 0
    assert royale("fit --ckpt_path '~/x' --stop.iterations 2").code == 0
    assert royale("test --ckpt_path '~/x' --out '~/out'").code == 0
    assert iterations("home/x") == [1, 2]
    assert Path("home/out/scores.json").is_file()
    assert not Path("~").exists()


_SLOW = """
import sys, time
from tests.support import tiny_run

def wait(self):
    print("training", flush=True)
    time.sleep(120)

tiny_run.TinyModule.on_train_epoch_start = wait
sys.exit(tiny_run.main(sys.argv[1:]))
"""


def test_a_folder_that_another_process_trains_in_is_refused_until_it_dies(royale: Royale, tmp_path: Path) -> None:
    assert royale("fit --run_dir a --stop.iterations 1").code == 0
    resume = "fit --ckpt_path a --stop.iterations 2"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    other = subprocess.Popen([sys.executable, "-c", _SLOW, *resume.split()], stdout=subprocess.PIPE, env=env, text=True)
    assert other.stdout is not None
    while other.stdout.readline() != "training\n":
        pass
    before = {k: v for k, v in files().items() if "config" not in k}
    assert "another process is training in 'a'" in royale(resume).error
    with pytest.raises(UserError, match="another process is training in 'a'"):
        fit("a/checkpoints/last.ckpt", default_root_dir="a")
    assert {k: v for k, v in files().items() if "config" not in k} == before
    other.kill()
    other.wait()
    other.stdout.close()
    assert royale(resume).code == 0
    assert not Path("a/.lock").exists()


# ---- refused starts ------------------------------------------------------------------------------------------------
def test_a_refused_start_leaves_the_users_folders(royale: Royale) -> None:
    Path("theirs/mine").mkdir(parents=True)
    refusals = {"--data.battles 0": "battles is 0", "--trainer.strategy wrong": "has not been tried here"}
    for setting, said in refusals.items():
        for folder in ("theirs/mine", "theirs/new/one"):
            assert said in royale(f"fit --stop.iterations 1 {setting} --run_dir {folder}").error
    assert sorted(str(p) for p in Path().rglob("*")) == ["theirs", "theirs/mine"]


def test_a_start_that_fails_early_leaves_nothing(here: Path) -> None:
    class Fails(Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            raise RuntimeError("no")

    (here / "theirs").mkdir()
    for folder in ("theirs", "runs/x"):
        with pytest.raises(RuntimeError, match="no"):
            fit(run_dir=folder, callbacks=[Fails()])
    assert [str(p.relative_to(here)) for p in here.rglob("*")] == ["theirs"]


# ---- configurations ------------------------------------------------------------------------------------------------
def test_long_paths_with_spaces_resume_and_test(royale: Royale) -> None:
    run = f"{'x' * 60} {'y' * 60} z"
    network = f"/data/{'n' * 70} {'m' * 70} b"
    assert royale(f"fit --run_dir '{run}' --model.network '{network}' --stop.iterations 1").code == 0
    assert royale(f"fit --ckpt_path '{run}' --stop.iterations 2").code == 0
    assert royale(f"fit --ckpt_path '{run}/checkpoints/last.ckpt' --stop.iterations 3").code == 0
    assert royale(f"test --ckpt_path '{run}'").code == 0
    assert iterations(run) == [1, 2, 3]
    assert torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["hyper_parameters"]["network"] == network


# ---- jobs ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``job(n)``: this process is the n-th restart of SLURM's job 77."""

    def start(restarts: int) -> None:
        for name, value in {
            "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1",
            "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_RESTART_COUNT": str(restarts),
        }.items():
            monkeypatch.setenv(name, value)

    return start


@pytest.mark.parametrize("run_dir", ["", "--run_dir runs/run-1"])
def test_a_job_that_is_started_again_goes_on(royale: Royale, job: Callable[[int], None], run_dir: str) -> None:
    line = f"fit {run_dir} --checkpoint.every 2 --stop.iterations 5"
    stopped = f"{line} --data.signal_at 3 --data.signal_name SIGTERM"
    job(0)
    assert royale(stopped).code == 143
    assert iterations("runs/run-1") == [1, 2, 3]
    again = royale(stopped) if run_dir else None
    if again is not None:
        assert "already holds a run" in again.error, "the job was not started again: its script names a folder twice"
    job(1)
    done = royale(stopped)
    assert done.code == 0, done.err
    assert "job 77 was started again: it goes on from" in done.out
    assert iterations("runs/run-1") == [1, 2, 3, 4, 5]
    assert [p.name for p in Path("runs").iterdir()] == ["run-1"]
    # Another line of the job's script is another run.
    other = royale(f"fit {run_dir} --stop.iterations 1")
    assert ("already holds a run" in other.error) if run_dir else other.code == 0


def test_a_job_stopped_before_its_first_checkpoint_begins_anew(royale: Royale, job: Callable[[int], None]) -> None:
    line = "fit --run_dir a --stop.iterations 4"
    job(0)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    code = (
        "import os, sys\nfrom tests.support import tiny_run\n"
        "def killed(self):\n    if self.trainer.current_epoch == 2: os._exit(9)\n"
        "tiny_run.TinyModule.on_train_epoch_start = killed\ntiny_run.main(sys.argv[1:])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *line.split()], env=env, capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    assert iterations() == [1, 2]
    assert not CHECKPOINTS.exists()
    job(1)
    again = royale(line)
    assert again.code == 0, again.err
    assert iterations() == [1, 2, 3, 4]
    assert iterations(log="metrics.jsonl.discarded-1") == [1, 2]


def test_a_fork_of_a_job_goes_on_with_itself(royale: Royale, job: Callable[[int], None]) -> None:
    assert royale("fit --run_dir origin --stop.iterations 2").code == 0
    line = "fit --ckpt_path origin --run_dir a --stop.iterations 5 --data.signal_at 4 --data.signal_name SIGTERM"
    job(0)
    assert royale(line).code == 143
    job(1)
    done = royale(line)
    assert done.code == 0, done.err
    assert iterations() == [3, 4, 5]
    assert iterations("origin") == [1, 2]


def test_a_shell_in_an_allocation_gets_a_folder_by_itself(
    royale: Royale, monkeypatch: pytest.MonkeyPatch, job: Callable[[int], None]
) -> None:
    job(0)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_NAME", "bash")
    assert royale("fit --stop.iterations 1").code == 0
    assert iterations("runs/run-1") == [1]
