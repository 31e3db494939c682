"""The files in a run's ``checkpoints/``: which are whole, and which to use instead of one that is not.

``manifest.json`` names every numbered checkpoint with its SHA-256, size, iteration and identity. It is written after
the file it names, so a file may be there and not be listed; such a one is judged by the checksums of its zip entries.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from .atomic import partial_of, publish, set_aside, write_atomic
from .screen import say

MANIFEST = "manifest.json"
SCHEMA = 1
LAST = "last.ckpt"
_NUMBERED = re.compile(r"iteration-(\d+)\.ckpt")
_INTERRUPTED = re.compile(r"interrupted-(\d+)\.ckpt")


def numbered(folder: Path) -> dict[int, Path]:
    """The checkpoints of iterations' ends, by iteration, ascending."""
    found = {int(m[1]): p for p in folder.glob("iteration-*.ckpt") if (m := _NUMBERED.fullmatch(p.name))}
    return dict(sorted(found.items()))


def sha256(path: Path) -> str:
    """A file's SHA-256 as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Listed files by name; empty where the manifest is missing or damaged, for it only speeds up and sharpens."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return {str(k): dict(v) for k, v in content["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def publish_checkpoint(partial: Path, path: Path, facts: Mapping[str, Any]) -> None:
    """Give a complete checkpoint its name, and list it.

    What the manifest says of an earlier file of this name goes first: held against it, the new one would be damaged
    if the process ended between the two steps.
    """
    if path.name in read_manifest(path.parent):
        _write(path.parent, {k: v for k, v in read_manifest(path.parent).items() if k != path.name})
    publish(partial, path)
    write_manifest(path.parent, path, facts)


def write_manifest(folder: Path, path: Path, facts: Mapping[str, Any]) -> None:
    """List ``path`` with its hash and some facts, and drop the entries of files that are gone."""
    files = {k: v for k, v in read_manifest(folder).items() if (folder / k).is_file()}
    _write(folder, {**files, path.name: {"sha256": sha256(path), "bytes": path.stat().st_size, **facts}})


def _write(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    write_atomic(folder / MANIFEST, json.dumps({"schema": SCHEMA, "files": files}, indent=1).encode() + b"\n")


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's bytes, or None for a whole one."""
    listed = read_manifest(path.parent)
    entry = listed.get(path.name)
    if entry is not None and entry.get("bytes") != path.stat().st_size:
        return f"it has {path.stat().st_size} bytes and the manifest says {entry.get('bytes')}"
    hashes = {e.get("sha256") for e in ([entry] if entry else listed.values())}
    if hashes and sha256(path) in hashes:
        return None
    if entry is not None:
        return "its SHA-256 is not the manifest's"
    with path.open("rb") as file:  # what keeps it from being opened says nothing about its bytes
        try:
            with zipfile.ZipFile(file) as archive:
                broken = archive.testzip()
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as exc:
            return str(exc) or type(exc).__name__
    return f"its part {broken} does not fit its checksum" if broken else None


def whole_checkpoint(path: Path) -> Path:
    """``path``, or the newest whole checkpoint before it where it is damaged; says so in one printed line.

    Raises:
        UserError: it is damaged and there is no other.
    """
    wrong = damage(path)
    if wrong is None:
        return path
    # Of the history it is of: a file that was set aside, or one kept under another name, says nothing of its own.
    before = [p for n, p in numbered(path.parent).items() if n < _bound(path.name)]
    for other in reversed(before):
        if damage(other) is None:
            say(f"{path} is damaged ({wrong}); using the checkpoint before it, {other}")
            return other
    raise UserError(f"{path} is damaged ({wrong}), and no whole checkpoint lies before it")


def _bound(name: str) -> float:
    """Checkpoints of fewer iterations lie before a file of this name, in its history."""
    if match := _NUMBERED.fullmatch(name):
        return int(match[1])
    if match := _INTERRUPTED.fullmatch(name):
        return int(match[1]) + 1
    return float("inf") if name == LAST else 0


def newest(folder: Path) -> Path | None:
    """What a run goes on from: ``last.ckpt``, or the newest numbered one where the process ended between the two."""
    last = folder / LAST
    return last if last.is_file() else next(reversed(numbered(folder).values()), None)


def point_last_at(path: Path) -> None:
    """Make ``last.ckpt`` a second name of a checkpoint: a hard link, or a copy where the file system has none."""
    last = path.with_name(LAST)
    partial = partial_of(last)
    partial.unlink(missing_ok=True)
    try:
        os.link(path, partial)
    except OSError:
        shutil.copyfile(path, partial)
    publish(partial, last)


def rewind(folder: Path, path: Path, iteration: int) -> list[Path]:
    """Leave in ``checkpoints/`` those of the history that goes on from one of them, and ``last.ckpt`` on it.

    Those of later iterations belong to a history that is given up: they get the name ``<name>.discarded-<n>``, as the
    logs' tails do. ``last.ckpt`` goes first, so that whatever ends the process in between, a resume from it is one of
    the history that goes on.

    Args:
        path: the checkpoint that is continued from.
        iteration: how many it has done.

    Returns:
        What was set aside, under its new name.
    """
    if not folder.is_dir():
        return []
    of_history = {n: p for n, p in numbered(folder).items() if n <= iteration}
    later = [p for n, p in numbered(folder).items() if n > iteration]
    for p in sorted(folder.glob("interrupted-*.ckpt")):
        if (m := _INTERRUPTED.fullmatch(p.name)) and int(m[1]) >= iteration and p.name != path.name:
            later.append(p)
    aside = []
    if path.name != LAST and (folder / LAST).exists():
        # A save in the middle of an iteration is no file to go on from without being asked to.
        numbers = list(of_history.values())
        target = next((p for p in numbers if p.samefile(path)), numbers[-1] if numbers else None)
        if target is None:
            aside.append(set_aside(folder / LAST))
        elif not target.samefile(folder / LAST):
            point_last_at(target)
    listed = read_manifest(folder)
    for p in later:
        new = set_aside(p)
        aside.append(new)
        if p.name in listed:
            listed[new.name] = listed.pop(p.name)
    if aside:
        _write(folder, listed)
    return aside


def check_room(folder: Path, size: int) -> None:
    """Refuse to begin a file that the disk has no room for.

    Args:
        size: bytes about to be written.

    Raises:
        OSError: less than that is free.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(errno.ENOSPC, f"it needs {size / 1e6:.0f} MB and {free / 1e6:.0f} MB are free")
