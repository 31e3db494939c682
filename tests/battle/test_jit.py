"""Compiled code on machines that keep none of it: read-only, homeless, with a torn or a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import sys
{before}
from royale_lightning.battle.jit import njit

@njit
def twice(x):
    return x + x

{after}
print(twice(21), sum(twice.stats.cache_hits.values()))
"""
HOMELESS = "import os, pwd; os.environ.pop('HOME', None); pwd.getpwuid = lambda uid: {}[uid]"
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))"


def run(folder: Path, before: str = "", after: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Import and call a compiled function of a module in ``folder``, in a process of its own."""
    (folder / "mine.py").write_text(MODULE.format(before=before, after=after))
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "ROYALE_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-c", "import mine"], cwd=folder, capture_output=True, text=True, check=True,
        env={**keep, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), **env},
    )


@pytest.mark.skipif(sys.platform == "win32", reason="user ids")
def test_without_a_folder_it_compiles_anew_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").touch()  # no folder can be made there, not even by root
    found = run(tmp_path, HOMELESS)
    assert found.stdout.split() == ["42", "0"]
    assert found.stderr.count("compiles the battle code anew") == 1
    assert "set NUMBA_CACHE_DIR to a folder you may write to" in found.stderr
    assert not (tmp_path / "~").exists(), "a home that is not known is no folder of that name"
    again = run(tmp_path, HOMELESS, ROYALE_LIGHTNING_SAID_UNCACHED="1")
    assert again.stderr == "", "a worker does not say it again"


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_torn_file_is_compiled_anew_and_mended(tmp_path: Path, suffix: str, kept: float) -> None:
    run(tmp_path)
    (file,) = (tmp_path / "__pycache__").glob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    torn, mended = run(tmp_path), run(tmp_path)
    assert (torn.stdout.split(), torn.stderr) == (["42", "0"], "")
    assert (mended.stdout.split(), mended.stderr) == (["42", "1"], "")


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_full_disk_costs_a_compilation_not_the_run(tmp_path: Path) -> None:
    found = run(tmp_path, after=FULL)
    assert found.stdout.split() == ["42", "0"]
    assert "cannot be written to" in found.stderr
