"""Append-only logs of one JSON object a line, which a resume can rewind without losing anything.

A checkpoint records the byte offset of each log. A resume first moves what lies beyond it to
``<log>.discarded-<n>``, so that the log always tells one history.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError

#: Seconds of rows that a power failure may cost; a checkpoint syncs in any case.
SYNC_SECONDS = 10.0


class JsonLines:
    """One append-only log, open for writing.

    A torn last line (the process died while writing it) is set aside when the log is opened.

    Args:
        path: the log; created, with its folder, if missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        discard_tail(path, _end_of_last_line(path))
        self._file = path.open("ab")
        self._synced_at = time.monotonic()

    @property
    def offset(self) -> int:
        """Bytes written so far: where the next line starts."""
        return self._file.tell()

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line; on disk at the latest :data:`SYNC_SECONDS` later, if rows keep coming."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as exc:  # a full disk: say which file, which the system does not
            raise OSError(exc.errno, exc.strerror, str(self.path)) from exc
        if time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Return when every line is on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced_at = time.monotonic()

    def close(self) -> None:
        if not self._file.closed:
            self.sync()
            self._file.close()


def complete_lines(path: Path) -> Iterator[bytes]:
    """The lines of a log in their order, each with its newline; none for a missing file.

    A last line without its newline is still being written, or was torn by a crash, and is left out.

    Args:
        path: a log, which another process may be writing.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line


def read_rows(path: Path, *, skip_damaged: bool = False) -> Iterator[dict[str, Any]]:
    """The objects of a log, one of each of its :func:`complete_lines`.

    Args:
        path: a log, which another process may be writing.
        skip_damaged: leave out lines that are no JSON object, for a view that shows what there is.

    Raises:
        UserError: a line is no JSON object.
    """
    for number, line in enumerate(complete_lines(path), 1):
        try:
            row = json.loads(line)
        except ValueError as problem:
            row, why = None, str(problem)
        else:
            why = f"it holds {type(row).__name__}"
        if isinstance(row, dict):
            yield row
        elif not skip_damaged:
            raise UserError(
                f"{path}, line {number} is no JSON object ({why}); remove the line, or bring the log back from a copy"
            )


def _end_of_last_line(path: Path) -> int:
    """The offset behind the last newline; 0 for a missing file."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 4096)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
    return 0


def discard_tail(path: Path, offset: int) -> Path | None:
    """Move what a log holds beyond ``offset`` to the next free ``<log>.discarded-<n>``.

    The tail is safe in its new file before the log is cut.

    Returns:
        The new file, or ``None`` when there was nothing beyond the offset.
    """
    if not path.exists() or path.stat().st_size <= offset:
        return None
    number = 1
    while (aside := path.with_name(f"{path.name}.discarded-{number}")).exists():
        number += 1
    with path.open("r+b") as log:
        log.seek(offset)
        with aside.open("xb") as out:
            out.write(log.read())
            out.flush()
            os.fsync(out.fileno())
        log.truncate(offset)
        log.flush()
        os.fsync(log.fileno())
    return aside
