"""Checkpoints: complete or absent, safe to load, counted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from royale_lightning.callbacks import RunCheckpoint
from royale_lightning.errors import UserError
from royale_lightning.rollout.data import SelfPlayData

Fit = Callable[..., Any]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "checkpoints").iterdir())


def test_every_n_keep_k_and_the_end(fit: Fit, tmp_path: Path) -> None:
    told: list[str] = []
    callback = RunCheckpoint(every=2, keep=2)
    callback.on_saved.append(lambda trainer, path: told.append(path.name))
    fit(callbacks=[callback], max_epochs=7)
    assert names(tmp_path) == ["iteration-000006.ckpt", "iteration-000007.ckpt", "last.ckpt", "manifest.json"]
    assert told == [f"iteration-00000{i}.ckpt" for i in (2, 4, 6, 7)]
    last = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    assert last["royale_lightning"]["iteration"] == 7


def test_all_are_kept_on_request(fit: Fit, tmp_path: Path) -> None:
    fit(callbacks=[RunCheckpoint(every=1, keep=-1)], max_epochs=7)
    assert len(names(tmp_path)) == 9


def test_a_fresh_process_loads_it_without_running_code(fit: Fit, tmp_path: Path) -> None:
    fit(max_epochs=1)
    code = (
        "import sys, torch; c = torch.load(sys.argv[1], weights_only=True); "
        "assert c['royale_lightning']['format_version'] == 3; assert 'lightning' not in sys.modules; "
        "print(sorted(c['callbacks']), c['hyper_parameters'])"
    )
    path = str(tmp_path / "checkpoints/last.ckpt")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MetricLog" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_a_full_disk_leaves_the_checkpoints_before_it_whole(fit: Fit, tmp_path: Path) -> None:
    fit(max_epochs=1)
    before = (tmp_path / "checkpoints/last.ckpt").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(UserError, match="cannot write the checkpoint"):
            fit(ckpt_path=tmp_path / "checkpoints/last.ckpt", max_epochs=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert names(tmp_path) == ["iteration-000001.ckpt", "last.ckpt", "manifest.json"]
    assert (tmp_path / "checkpoints/last.ckpt").read_bytes() == before


def test_a_process_that_dies_while_writing_leaves_no_half_checkpoint(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(max_epochs=1)

    class Died(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Died

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Died):
        fit(ckpt_path=tmp_path / "checkpoints/last.ckpt", max_epochs=2)
    monkeypatch.undo()
    assert names(tmp_path) == ["iteration-000001.ckpt", "iteration-000002.ckpt.partial", "last.ckpt", "manifest.json"]
    fit(ckpt_path=tmp_path / "checkpoints/last.ckpt", max_epochs=2)
    assert names(tmp_path) == ["iteration-000001.ckpt", "iteration-000002.ckpt", "last.ckpt", "manifest.json"]


def test_last_is_a_copy_where_there_are_no_links(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    fit(max_epochs=1)
    folder = tmp_path / "checkpoints"
    assert (folder / "last.ckpt").read_bytes() == (folder / "iteration-000001.ckpt").read_bytes()


def test_a_newer_format_is_refused(fit: Fit, tmp_path: Path) -> None:
    fit(max_epochs=1)
    path = tmp_path / "checkpoints/last.ckpt"
    content = torch.load(path, weights_only=True)
    content["royale_lightning"]["format_version"] = 99
    torch.save(content, tmp_path / "newer.ckpt")
    with pytest.raises(UserError, match="format version 99"):
        fit(ckpt_path=tmp_path / "newer.ckpt", max_epochs=2)


def test_an_error_saves_nothing(fit: Fit, tmp_path: Path) -> None:
    from tests.support import tiny_run

    class Broken(tiny_run.TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fit(module=Broken(), max_epochs=1)
    assert not (tmp_path / "checkpoints").exists()


def test_state_that_needs_code_to_load_is_refused_at_once(fit: Fit, tmp_path: Path) -> None:
    from lightning.pytorch import Callback

    class Mine(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"where": tmp_path}

    with pytest.raises(UserError, match=r"would hold pathlib\.\S*Path"):
        fit(callbacks=[Mine()], max_epochs=2)
    assert names(tmp_path) == []


def test_battles_of_another_version_are_one_sentence() -> None:
    with pytest.raises(UserError, match="another version of royale_lightning: its state of the battles lacks 'scaler'"):
        SelfPlayData().load_state_dict({"game_steps": 5, "iteration": 1})
