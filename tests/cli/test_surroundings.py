"""``fit`` for five iterations of ``configs/debug.yaml`` where terminals, disks, homes and clusters are not as hoped."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIT = [
    sys.executable, "-m", "royale_lightning", "fit", "--config", str(ROOT / "configs" / "debug.yaml"),
    "--stop.iterations", "5",
]
#: In a mount namespace of its own, where this system allows one.
INSIDE = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS_PER_NODE": "1",
}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="Linux's own surroundings")]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def start(cwd: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FIT, *words], cwd=cwd, env=environment(**env), capture_output=True, text=True, check=False, errors="replace"
    )


def assert_trained(run: Path) -> None:
    rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [r["iteration"] for r in rows] == [1, 2, 3, 4, 5]
    assert (run / "checkpoints" / "last.ckpt").exists()


def inside(cwd: Path, mounts: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        subprocess.run([*INSIDE, mounts], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets us mount nothing")
    return subprocess.run(
        [*INSIDE, f'{mounts} && exec "$0" "$@"', *FIT, *words], cwd=cwd, env=environment(), capture_output=True,
        text=True, check=False,
    )


def test_a_dumb_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FIT, "--run_dir", "run"], cwd=tmp_path, env=environment(TERM="dumb"), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is gone
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0, shown.decode()
    assert b"\x1b[" not in shown
    assert_trained(tmp_path / "run")


def test_latin_letters_alone(tmp_path: Path) -> None:
    done = start(tmp_path, "--run_dir", "run", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert_trained(tmp_path / "run")


def test_a_closed_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    process = subprocess.Popen([*FIT, "--run_dir", "run"], cwd=tmp_path, env=environment(), stdout=write, stderr=write)
    os.close(read)
    os.close(write)
    assert process.wait() == 0
    assert_trained(tmp_path / "run")


def test_no_home(tmp_path: Path) -> None:
    env = environment()
    del env["HOME"]
    code = (
        "import pwd, sys; pwd.getpwuid = lambda uid: {}[uid]; from royale_lightning.cli.console import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *FIT[3:], "--run_dir", "run"], cwd=tmp_path, env=env, capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert_trained(tmp_path / "run")
    assert not (tmp_path / "~").exists()


def test_a_package_nobody_may_write_to(tmp_path: Path) -> None:
    package = ROOT / "royale_lightning"
    mounts = f"mount --bind '{package}' '{package}' && mount -o remount,bind,ro '{package}'"
    done = inside(tmp_path, mounts, "--run_dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert_trained(tmp_path / "run")


@pytest.mark.parametrize("battles", ["4", "64"])
def test_little_shared_memory_with_processes(tmp_path: Path, battles: str) -> None:
    """Where the workers' block fits, the run; where not, one sentence."""
    words = ["--data.rollout.source", "processes", "--data.rollout.workers", "2", "--data.rollout.battles", battles]
    done = inside(tmp_path, "mount -t tmpfs -o size=64k tmpfs /dev/shm", "--run_dir", str(tmp_path / "run"), *words)
    if done.returncode == 0:
        assert battles == "4"
        assert_trained(tmp_path / "run")
    else:
        assert "--shm-size" in done.stderr.splitlines()[-1], done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "run").exists()


def test_an_odd_folder_of_200_characters(tmp_path: Path) -> None:
    odd = tmp_path / ("it's a \"run\" of Jürgen 戦 " * 9)[:200].strip()
    assert len(odd.name) > 190
    done = start(tmp_path, "--run_dir", str(odd))
    assert done.returncode == 0, done.stderr
    assert_trained(odd)
    more = subprocess.run(
        [*FIT[:4], "--ckpt_path", str(odd / "checkpoints" / "last.ckpt"), "--stop.iterations", "6"], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, check=False,
    )
    assert more.returncode == 0, more.stderr


def test_slurms_variables(tmp_path: Path) -> None:
    done = start(tmp_path, "--run_dir", "run", **SLURM)
    assert done.returncode == 0, done.stderr
    assert_trained(tmp_path / "run")


def test_forty_open_files(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 40; exec "$0" "$@"', *FIT, "--run_dir", "run"], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_trained(tmp_path / "run")
