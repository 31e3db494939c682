"""The files in a run's ``checkpoints/``: which are whole, and which to use instead of one that is not.

``manifest.json`` names every numbered checkpoint with its SHA-256, size, iteration and identity. It is written after
the file it names, so a file may be there and not be listed; such a one is judged by the checksums of its zip entries.
"""

from __future__ import annotations

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
from ..screen import say

MANIFEST = "manifest.json"
SCHEMA = 1
_NUMBERED = re.compile(r"iteration-(\d+)\.ckpt")


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


def write_manifest(folder: Path, path: Path, facts: Mapping[str, Any]) -> None:
    """List ``path`` with its hash and some facts, and drop the entries of files that are gone."""
    files = {k: v for k, v in read_manifest(folder).items() if (folder / k).is_file()}
    files[path.name] = {"sha256": sha256(path), "bytes": path.stat().st_size, **facts}
    partial = folder / f"{MANIFEST}.partial"
    partial.write_text(json.dumps({"schema": SCHEMA, "files": files}, indent=1) + "\n", encoding="utf-8")
    publish(partial, folder / MANIFEST)


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
    try:
        with zipfile.ZipFile(path) as archive:
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
    match = _NUMBERED.fullmatch(path.name)
    others = [p for n, p in numbered(path.parent).items() if p != path and (match is None or n < int(match[1]))]
    for other in reversed(others):
        if damage(other) is None:
            say(f"{path} is damaged ({wrong}); using the checkpoint before it, {other}")
            return other
    raise UserError(f"{path} is damaged ({wrong}), and no whole checkpoint lies before it")


def check_room(folder: Path, size: int) -> None:
    """Refuse to begin a file that the disk has no room for.

    Args:
        size: bytes about to be written.

    Raises:
        OSError: less than that is free.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise OSError(f"it needs {size / 1e6:.0f} MB and {free / 1e6:.0f} MB are free")


def publish(partial: Path, path: Path) -> None:
    """Give a complete file its name: after a crash there is the old file, the new one, or none, but no half."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)
    # The new name itself must survive a power failure; Windows cannot open a folder, and needs no sync of one.
    if os.name == "posix":
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
