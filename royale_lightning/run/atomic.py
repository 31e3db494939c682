"""Files that are whole or absent, whatever ends the process or the machine while they are written.

Two steps, for whoever lets a library write the file: write it all under :func:`partial_of` its name, then
:func:`publish` it. :func:`write_atomic` is both, for bytes that are at hand.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def partial_of(path: Path) -> Path:
    """Where a file is written before it has its name: beside it, for a rename never crosses file systems."""
    return path.with_name(f"{path.name}.partial")


def publish(partial: Path, path: Path) -> None:
    """Give a complete file its name: after a crash there is the old file, the new one, or none, but no half."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder would survive a power failure."""
    # Windows cannot open a folder, and needs no sync of one.
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those around it, to stay: a file is no safer than the name of the folder it lies in.

    Returns:
        Those that were not there, the outermost first.
    """
    missing = [f for f in (folder, *folder.parents) if not f.exists()][::-1]
    made = []
    for path in missing:
        with contextlib.suppress(FileExistsError):  # somebody else was as quick
            path.mkdir()
            made.append(path)
            sync_folder(path.parent)
    folder.mkdir(exist_ok=True)  # raises where it is a file
    return made


def aside_of(path: Path) -> Path:
    """The next free ``<name>.discarded-<n>``, for what a rewound run leaves behind: moved, never lost."""
    number = 1
    while (aside := path.with_name(f"{path.name}.discarded-{number}")).exists():
        number += 1
    return aside


def set_aside(path: Path) -> Path:
    """Give a file or folder the name of :func:`aside_of`, and return that."""
    aside = aside_of(path)
    os.replace(path, aside)
    sync_folder(path.parent)
    return aside


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that its name always holds all of the old or all of the new bytes.

    Args:
        path: its folder is made if it is missing.

    Raises:
        OSError: it could not be written; the old bytes, if any, are still there.
    """
    partial = partial_of(path)
    make_folder(path.parent)
    try:
        partial.write_bytes(data)
        publish(partial, path)
    except OSError:
        with contextlib.suppress(OSError):  # what did not fit must not keep its room
            partial.unlink(missing_ok=True)
        raise
