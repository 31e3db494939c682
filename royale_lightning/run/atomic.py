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
    # The new name itself must survive a power failure; Windows cannot open a folder, and needs no sync of one.
    if os.name == "posix":
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that its name always holds all of the old or all of the new bytes.

    Args:
        path: in a folder that exists.

    Raises:
        OSError: it could not be written; the old bytes, if any, are still there.
    """
    partial = partial_of(path)
    try:
        partial.write_bytes(data)
        publish(partial, path)
    except OSError:
        with contextlib.suppress(OSError):  # what did not fit must not keep its room
            partial.unlink(missing_ok=True)
        raise
