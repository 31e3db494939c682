"""Interrupting a run in a real notebook kernel: the cell ends, the kernel and its next interrupt go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ipykernel")
manager = pytest.importorskip("jupyter_client.manager")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")]

SETUP = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from lightning.pytorch import Trainer
from royale_lightning.cli.trainer_defaults import defaults
from tests.support.tiny_run import TinyData, TinyModule

class Slow(TinyModule):
    def training_step(self, batch, batch_idx):
        print("training", flush=True)
        time.sleep(0.3)
        return super().training_step(batch, batch_idx)

def fit(run):
    Trainer(**defaults(run_dir=run, accelerator="cpu", enable_progress_bar=False)).fit(Slow(), TinyData())
"""


class Cell:
    """One cell's execution in the kernel."""

    def __init__(self, client: Any, code: str) -> None:
        self.client = client
        self.id = client.execute(code)

    def wait_for(self, text: str) -> None:
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") == self.id and text in message["content"].get("text", ""):
                return

    def reply(self) -> dict[str, Any]:
        while True:
            message = self.client.get_shell_msg(timeout=60)
            if message["parent_header"].get("msg_id") == self.id:
                return dict(message["content"])


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    km, client = manager.start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    yield km, client
    client.stop_channels()
    km.shutdown_kernel(now=True)


def test_the_kernel_survives_and_the_next_interrupt_works(kernel: tuple[Any, Any], tmp_path: Path) -> None:
    km, client = kernel
    assert Cell(client, SETUP).reply()["status"] == "ok"

    cell = Cell(client, "fit('once')")
    cell.wait_for("training")
    km.interrupt_kernel()
    assert cell.reply()["status"] == "ok", "the first ends the run like any other"
    assert (tmp_path / "once/checkpoints/last.ckpt").exists()

    cell = Cell(client, "fit('twice')")
    cell.wait_for("training")
    km.interrupt_kernel()
    time.sleep(0.2)
    km.interrupt_kernel()
    reply = cell.reply()
    assert (reply["status"], reply["ename"]) == ("error", "StopNow")
    assert list((tmp_path / "twice/checkpoints").glob("interrupted-*.ckpt"))

    cell = Cell(client, "print('waiting', flush=True); time.sleep(60)")
    cell.wait_for("waiting")
    km.interrupt_kernel()
    assert cell.reply()["ename"] == "KeyboardInterrupt", "Python's own handler is back"
    assert Cell(client, "1 + 1").reply()["status"] == "ok"
