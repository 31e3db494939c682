"""A run's folder: whose it is, what of it may be removed, and the configuration it keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.run import folder as run_folder
from royale_lightning.run import jobs
from royale_lightning.run.folder import LOCK, RunLock, choose, drop_if_empty, save_config, saved_config
from royale_lightning.run.jobs import Job


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_folder, "_made", set())
    for name in [n for n in os.environ if n.startswith(("SLURM_", "TORCHELASTIC_", run_folder.RUN_DIR_ENV))]:
        monkeypatch.delenv(name)
    # Whatever choose leaves there goes with the test.
    monkeypatch.setenv(run_folder.RUN_DIR_ENV, "")


# ---- which folder --------------------------------------------------------------------------------------------------
def test_a_tilde_is_the_users_home_and_a_change_of_folder_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert choose("~/runs/mine", None, "x") == tmp_path / "home/runs/mine"
    assert not Path("~").exists()
    relative = choose("mine", None, "x")
    monkeypatch.chdir("/")
    assert relative == tmp_path / "mine"
    checkpoint = tmp_path / "home/runs/mine/checkpoints/last.ckpt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    assert run_folder.find_checkpoint("~/runs/mine") == checkpoint


def test_only_what_the_run_made_is_removed(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    drop_if_empty(choose("users", None, "x"))
    assert (tmp_path / "users").is_dir()
    drop_if_empty(choose("users/runs/mine", None, "x"))
    assert [p.name for p in tmp_path.iterdir()] == ["users"]
    assert not list((tmp_path / "users").iterdir())
    (tmp_path / "runs").mkdir()
    drop_if_empty(choose(None, None, "x"))
    assert not list((tmp_path / "runs").iterdir())
    kept = choose(None, None, "x")
    (kept / "notes").touch()
    drop_if_empty(kept)
    assert kept.is_dir()


def test_the_refusal_says_what_helps(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match="what is left of a run without a checkpoint"):
        choose("mine", None, "x")
    (folder / "checkpoints/iteration-000003.ckpt").touch()
    with pytest.raises(UserError, match=r"already holds a run.*checkpoints/iteration-000003\.ckpt"):
        choose("mine", None, "x")
    (folder / "checkpoints/last.ckpt").touch()
    with pytest.raises(UserError, match=r"ckpt_path mine/checkpoints/last\.ckpt"):
        choose("mine", None, "x")
    (tmp_path / "users").mkdir()
    (tmp_path / "users/notes").touch()
    with pytest.raises(UserError, match="is not empty"):
        choose("users", None, "x")


# ---- one process ---------------------------------------------------------------------------------------------------
_HOLDER = """
import sys, time
from pathlib import Path
from royale_lightning.run.folder import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_one_process_writes_a_folder_and_its_death_frees_it(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="another process is training in"):
        RunLock(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    lock = RunLock(tmp_path)
    with pytest.raises(UserError, match="another process is training in"):
        RunLock(tmp_path)
    lock.release()
    lock.release()
    assert not (tmp_path / LOCK).exists(), "nothing is left of a run that ended"
    RunLock(tmp_path).release()


def test_a_killed_start_leaves_a_folder_free(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / LOCK).touch()
    assert choose("mine", None, "x") == tmp_path / "mine"


# ---- jobs ----------------------------------------------------------------------------------------------------------
_BATCH = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "train"}


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_a_shell_that_slurm_gave_starts_no_ranks(name: str) -> None:
    assert jobs.launched_from_outside(_BATCH)
    assert not jobs.is_rank_zero({**_BATCH, "SLURM_PROCID": "1"})
    shell = {**_BATCH, "SLURM_JOB_NAME": name}
    assert not jobs.launched_from_outside(shell)
    assert jobs.is_rank_zero({**shell, "SLURM_PROCID": "1"})
    assert Job.of(["fit"], shell) is None


@pytest.mark.parametrize("name", ["bash", "interactive", "train", ""])
def test_the_rule_is_lightnings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.fabric.plugins.environments import SLURMEnvironment

    for key, value in {**_BATCH, "SLURM_JOB_NAME": name, "SLURM_NTASKS_PER_NODE": "4"}.items():
        monkeypatch.setenv(key, value)
    assert jobs.in_slurm_job() == SLURMEnvironment.detect()
    monkeypatch.delenv("SLURM_NTASKS")
    assert jobs.in_slurm_job() == SLURMEnvironment.detect() is False


def test_a_job_knows_the_run_of_its_line_by_number_and_words(tmp_path: Path) -> None:
    job = Job.of(["fit", "--run_dir", "a"], _BATCH)
    assert job is not None
    assert not job.restarted
    assert not job.began(tmp_path)
    job.record(tmp_path)
    again = Job.of(["fit", "--run_dir", "a"], {**_BATCH, "SLURM_RESTART_COUNT": "1"})
    assert again is not None
    assert again.restarted
    assert again.began(tmp_path)
    for other in (Job.of(["fit"], _BATCH), Job.of(["fit", "--run_dir", "a"], {**_BATCH, "SLURM_JOB_ID": "78"})):
        assert other is not None
        assert not other.began(tmp_path)
    (tmp_path / jobs.JOB_FILE).write_text("[")
    assert not again.began(tmp_path)
    assert not run_folder.is_occupied(tmp_path)


# ---- configurations ------------------------------------------------------------------------------------------------
def test_a_long_path_with_a_space_survives(tmp_path: Path) -> None:
    path = f"/data/{'x' * 70} y/{'z' * 90} and more/bot"
    config = {"model": {"init_from": path}, "ckpt_path": f"/a/{'b' * 90} c/last.ckpt", "run_dir": "x"}
    save_config(tmp_path, config, "continued from somewhere: \nelse")
    assert saved_config(tmp_path) == {"model": {"init_from": path}}
    save_config(tmp_path, config)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["config.1.yaml", "config.yaml"]


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@settings(deadline=None, max_examples=60)
@given(
    config=st.dictionaries(
        st.sampled_from(["model", "trainer", "stop"]), st.dictionaries(st.text(), _PLAIN | st.lists(_PLAIN))
    ),
    note=st.text(),
)
def test_a_configuration_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], note: str
) -> None:
    folder = tmp_path_factory.mktemp("run")
    save_config(folder, {**config, "ckpt_path": note}, f"continued from {note}")
    assert saved_config(folder) == config


def test_a_damaged_configuration_is_one_sentence(tmp_path: Path) -> None:
    for text in ("model: [", "- 1", "x: \ta: b"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UserError, match="is no configuration"):
            saved_config(tmp_path)


def test_the_saved_file_is_yaml_of_plain_values(tmp_path: Path) -> None:
    path = save_config(tmp_path, {"stop": {"minutes": 1e-5}, "seed_everything": 3})
    assert yaml.safe_load(path.read_text()) == {"stop": {"minutes": 1e-5}, "seed_everything": 3}
    assert path.read_text().startswith("# royale_lightning==")
