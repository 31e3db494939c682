"""Files that are whole or absent: a process killed while it writes, a full disk, a folder that must be synced too."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import royale_lightning
from royale_lightning.run import atomic
from royale_lightning.run.atomic import partial_of, publish, write_atomic

_SIZE = 1 << 20
_WRITER = """
import sys
from pathlib import Path
from royale_lightning.run.atomic import write_atomic
print("ready", flush=True)
byte = 0
while True:
    byte = (byte + 1) % 256
    write_atomic(Path(sys.argv[1]), bytes([byte]) * int(sys.argv[2]))
"""


def test_a_process_killed_while_it_writes_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for after in (0.02, 0.05, 0.08, 0.11):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(_SIZE)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        while not path.exists():
            time.sleep(0.001)
        time.sleep(after)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        data = path.read_bytes()
        assert data == data[:1] * _SIZE
        path.unlink()


def test_what_cannot_be_written_leaves_the_old_bytes_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(os.name != "posix", reason="folders are synced where they can be opened")
def test_file_and_folder_are_synced_in_the_order_that_a_power_failure_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = tmp_path / "file", []
    sync, replace = os.fsync, os.replace

    def note_sync(handle: int) -> None:
        told.append(f"sync {Path(f'/proc/self/fd/{handle}').resolve().name}")
        sync(handle)

    def note_replace(a: Path, b: Path) -> None:
        told.append("replace")
        replace(a, b)

    monkeypatch.setattr(atomic.os, "fsync", note_sync)
    monkeypatch.setattr(atomic.os, "replace", note_replace)
    partial_of(path).write_bytes(b"x")
    publish(partial_of(path), path)
    assert told == ["sync file.partial", "replace", f"sync {tmp_path.name}"]


def test_nobody_else_renames_a_file_into_place() -> None:
    """What is replaced elsewhere was there before: a damaged snapshot, a control file moved aside."""
    moved_aside = {"snapshots.py", "live_control.py"}
    root = Path(royale_lightning.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.func if isinstance(node, ast.Call) else None
            if isinstance(call, ast.Attribute) and call.attr in ("replace", "rename"):
                by_os = isinstance(call.value, ast.Name) and call.value.id in ("os", "shutil")
                # Path.replace takes one argument, str.replace two, dataclasses.replace keywords.
                by_path = len(node.args) == 1 and not node.keywords
                if by_os or by_path:
                    found.add(path.name)
    assert found == {"atomic.py", *moved_aside}


@pytest.mark.skipif(os.name != "posix", reason="folders are synced where they can be opened")
def test_new_folders_are_synced_into_those_around_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(atomic, "sync_folder", lambda folder: told.append(folder.name))
    write_atomic(tmp_path / "snapshots/abc/actor", b"x")
    assert told == [tmp_path.name, "snapshots", "abc"]
    assert atomic.make_folder(tmp_path / "snapshots/abc") == []
    with pytest.raises(FileExistsError):
        atomic.make_folder(tmp_path / "snapshots/abc/actor")
    aside = atomic.set_aside(tmp_path / "snapshots/abc")
    assert aside.name == "abc.discarded-1"
    assert told[-1] == "snapshots"


def test_nobody_else_writes_a_file_of_a_run() -> None:
    """Bytes and text go through write_atomic; an export is written under a partial name, readme.py is no run's."""
    root = Path(royale_lightning.__file__).parent
    found = {
        path.name
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("write_text", "write_bytes", "save_file")
    }
    assert found == {"atomic.py", "export.py", "readme.py"}
