"""Whole and damaged checkpoints, their manifest, and what is used instead."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.run import checkpoints as checkpoint_files
from royale_lightning.run.checkpoints import (
    check_room,
    damage,
    newest,
    publish_checkpoint,
    rewind,
    whole_checkpoint,
    write_manifest,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints of iterations 1 to 3, and last.ckpt as a second name of the third."""
    for i in (1, 2, 3):
        path = tmp_path / f"iteration-{i:06d}.ckpt"
        torch.save({"weights": torch.arange(500.0) * i}, path)
        write_manifest(tmp_path, path, {"iteration": i})
    (tmp_path / "last.ckpt").hardlink_to(tmp_path / "iteration-000003.ckpt")
    return tmp_path


def test_whole_ones_are_used(folder: Path) -> None:
    for name in ("last.ckpt", "iteration-000001.ckpt"):
        assert whole_checkpoint(folder / name) == folder / name


@pytest.mark.parametrize("wound", ["truncate", "flip", "empty"])
def test_a_damaged_one_falls_back_to_the_one_before_it(
    folder: Path, wound: str, capsys: pytest.CaptureFixture[str]
) -> None:
    last = folder / "last.ckpt"
    data = bytearray(last.read_bytes())
    data[900] ^= 1
    last.write_bytes({"truncate": bytes(data[:700]), "flip": bytes(data), "empty": b""}[wound])
    assert whole_checkpoint(last) == folder / "iteration-000002.ckpt"
    assert "last.ckpt is damaged" in (said := capsys.readouterr().out)
    assert "iteration-000002.ckpt" in said
    assert whole_checkpoint(folder / "iteration-000003.ckpt") == folder / "iteration-000002.ckpt"
    assert whole_checkpoint(folder / "iteration-000001.ckpt") == folder / "iteration-000001.ckpt"


def test_nothing_before_it(folder: Path) -> None:
    first = folder / "iteration-000001.ckpt"
    first.write_bytes(first.read_bytes()[:100])
    with pytest.raises(UserError, match="no whole checkpoint lies before it"):
        whole_checkpoint(first)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_changed_byte_is_seen(folder: Path, data: st.DataObject) -> None:
    path = folder / "iteration-000003.ckpt"
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    try:
        assert damage(path)
    finally:
        content[at] ^= 0
        torch.save({"weights": torch.arange(500.0) * 3}, path)
        write_manifest(folder, path, {"iteration": 3})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"last.ckpt": 3}}', "\x00\x01"])
def test_a_damaged_manifest_is_no_manifest(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    last = folder / "last.ckpt"
    assert whole_checkpoint(last) == last
    last.write_bytes(last.read_bytes()[:-50])
    assert whole_checkpoint(last) == folder / "iteration-000002.ckpt"


def test_the_manifest_forgets_what_is_gone(folder: Path) -> None:
    (folder / "iteration-000001.ckpt").unlink()
    write_manifest(folder, folder / "iteration-000002.ckpt", {})
    assert sorted(json.loads((folder / "manifest.json").read_text())["files"]) == [
        "iteration-000002.ckpt", "iteration-000003.ckpt"
    ]


def test_room_is_checked_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files.shutil, "disk_usage", lambda _: SimpleNamespace(free=3_000_000))
    check_room(folder, 3_000_000)
    with pytest.raises(OSError, match="needs 4 MB and 3 MB are free"):
        check_room(folder, 4_000_000)


def test_a_process_that_ends_between_publishing_and_listing_leaves_no_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A continued run writes an iteration again, under a name that the manifest lists with the old file's hash."""

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    path = folder / "iteration-000003.ckpt"
    partial = folder / "iteration-000003.ckpt.partial"
    torch.save({"weights": torch.arange(500.0) * 7}, partial)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_files, "write_manifest", killed)
        with pytest.raises(Killed):
            publish_checkpoint(partial, path, {"iteration": 3})
    assert damage(path) is None
    assert whole_checkpoint(path) == path
    torch.save({"weights": torch.arange(500.0) * 7}, partial)
    publish_checkpoint(partial, path, {"iteration": 3})
    assert "iteration-000003.ckpt" in checkpoint_files.read_manifest(folder)
    assert damage(path) is None


def test_what_keeps_a_file_from_being_opened_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run out of files, or of another user, does not fall back to an older checkpoint."""
    (folder / "manifest.json").unlink()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "last.ckpt")

    with monkeypatch.context() as m:
        m.setattr(Path, "open", refused)
        with pytest.raises(OSError, match="Too many open files"):
            whole_checkpoint(folder / "last.ckpt")
    assert whole_checkpoint(folder / "last.ckpt") == folder / "last.ckpt"


def test_going_back_sets_aside_what_came_after(folder: Path) -> None:
    torch.save({"weights": torch.arange(500.0)}, folder / "interrupted-000002.ckpt")
    torch.save({"weights": torch.arange(500.0)}, folder / "interrupted-000001.ckpt")
    third = (folder / "iteration-000003.ckpt").read_bytes()
    assert rewind(folder, folder / "iteration-000002.ckpt", 2) == [
        folder / "iteration-000003.ckpt.discarded-1", folder / "interrupted-000002.ckpt.discarded-1"
    ]
    assert (folder / "last.ckpt").samefile(folder / "iteration-000002.ckpt")
    assert damage(folder / "last.ckpt") is None
    aside = folder / "iteration-000003.ckpt.discarded-1"
    assert aside.read_bytes() == third
    assert damage(aside) is None
    aside.write_bytes(third[:-9])
    with pytest.raises(UserError, match="no whole checkpoint lies before it"):
        whole_checkpoint(aside)  # what lies beside it is of another history
    assert rewind(folder, folder / "last.ckpt", 2) == []


def test_going_back_to_a_save_inside_an_iteration(folder: Path) -> None:
    torch.save({"weights": torch.arange(500.0)}, folder / "interrupted-000002.ckpt")
    rewind(folder, folder / "interrupted-000002.ckpt", 2)
    assert (folder / "last.ckpt").samefile(folder / "iteration-000002.ckpt")
    assert (folder / "interrupted-000002.ckpt").is_file()
    for n in (1, 2):
        (folder / f"iteration-{n:06d}.ckpt").unlink()
    rewind(folder, folder / "interrupted-000002.ckpt", 2)
    assert not (folder / "last.ckpt").exists()
    assert newest(folder) is None


def test_a_run_that_ended_between_its_checkpoint_and_last_goes_on_from_the_newest(folder: Path) -> None:
    (folder / "last.ckpt").unlink()
    assert newest(folder) == folder / "iteration-000003.ckpt"
