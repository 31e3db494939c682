"""Append-only logs of one JSON object a line, which a resume can rewind without losing anything.

A checkpoint records where each log stood: how many bytes it held, and their digest. A resume moves what lies beyond
them to ``<log>.discarded-<n>``, so that the log always tells one history, and a log that does not hold what the
checkpoint saw is not continued: the checkpoint is of another history.

Nothing is made, cut or moved before a log's first line: a start that is refused leaves the files as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import UserError
from .atomic import aside_of, make_folder, sync_folder
from .screen import say, shown

#: Seconds of rows that a power failure may cost; a checkpoint syncs in any case.
SYNC_SECONDS = 10.0
_CHUNK = 1 << 20


class Mark(NamedTuple):
    """Where a log stood: plain values, for a ``state_dict``.

    Attributes:
        offset: bytes it held.
        digest: their SHA-256 as 64 hex digits; empty in checkpoints from before there was one.
    """

    offset: int
    digest: str = ""


class OtherHistory(UserError):
    """A log does not hold what a checkpoint saw in it."""


class JsonLines:
    """One append-only log, written by one process.

    A torn last line (the process died while writing it) is set aside before the first line of this process.

    Args:
        path: the log; made, with its folder, at its first line.
        mark: of the checkpoint that is continued from: what the log holds beyond it is moved to
            ``<log>.discarded-<n>`` before the first line, or before the next :meth:`mark`. A log that is not there, as
            in a fork's folder, begins anew.

    Attributes:
        set_aside: where that went, once it was moved.

    Raises:
        OtherHistory: the log does not begin with the bytes of the mark.
    """

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        self.path = path
        self.set_aside: Path | None = None
        self._file: BinaryIO | None = None
        self._rewinds = mark is not None
        self._at = _end_of_last_line(path)
        if mark is not None and path.exists():
            if path.stat().st_size < mark.offset:
                raise OtherHistory(_not_this_log(path, f"it has {path.stat().st_size} bytes of {mark.offset}"))
            self._at = mark.offset
        self._digest = _digest_of(path, self._at)
        if mark is not None and path.exists() and mark.digest and self._digest.hexdigest() != mark.digest:
            raise OtherHistory(_not_this_log(path, "it holds other lines"))
        self._synced_at = time.monotonic()

    @property
    def offset(self) -> int:
        """Bytes of this history: where the next line starts."""
        return self._at

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line; on disk at the latest :data:`SYNC_SECONDS` later, if rows keep coming."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        file = self._opened()
        try:
            file.write(line)
            file.flush()
        except OSError as exc:  # a full disk: say which file, which the system does not
            raise OSError(exc.errno, exc.strerror, str(self.path)) from exc
        self._at += len(line)
        self._digest.update(line)
        if time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Return when every line is on disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._synced_at = time.monotonic()

    def mark(self) -> Mark:
        """Where the log stands, for a checkpoint: what it promises is on disk, and nothing else is in the log."""
        if self.path.exists() and self.path.stat().st_size > self._at:
            self._opened()
        self.sync()
        return Mark(self._at, self._digest.hexdigest())

    def close(self) -> None:
        """Sync and close; idempotent. A line after it opens the log again."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            make_folder(self.path.parent)
            aside = discard_tail(self.path, self._at)
            if aside is not None and self._rewinds:
                self.set_aside = aside
                say(f"what {shown(self.path)} held beyond the checkpoint moved to {aside.name}")
            self._rewinds = False
            new = not self.path.exists()
            self._file = self.path.open("ab")
            if new:
                sync_folder(self.path.parent)
        return self._file


def _digest_of(path: Path, end: int) -> hashlib._Hash:
    """SHA-256 of a log's first bytes, to be continued; of nothing for a missing one."""
    digest = hashlib.sha256()
    if path.exists():
        with path.open("rb") as file:
            for at, after in pairwise([*range(0, end, _CHUNK), end]):
                digest.update(file.read(after - at))
    return digest


def _not_this_log(path: Path, why: str) -> str:
    return (
        f"{shown(path)} is not the log that the checkpoint was written with ({why}): the run has gone on from an "
        "earlier checkpoint since, or the log was changed; continue from checkpoints/last.ckpt of this run, "
        "bring the log back from a copy, or give another run_dir, where the checkpoint goes on with a log of its own"
    )


def complete_lines(path: Path, end: int | None = None) -> Iterator[bytes]:
    """The lines of a log in their order, each with its newline; none for a missing file.

    A last line without its newline is still being written, or was torn by a crash, and is left out.

    Args:
        path: a log, which another process may be writing.
        end: bytes to read; all by default.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        at = 0
        for line in file:
            at += len(line)
            if line.endswith(b"\n") and (end is None or at <= end):
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
    aside = aside_of(path)
    with path.open("r+b") as log:
        log.seek(offset)
        with aside.open("xb") as out:
            out.write(log.read())
            out.flush()
            os.fsync(out.fileno())
        sync_folder(path.parent)
        log.truncate(offset)
        log.flush()
        os.fsync(log.fileno())
    return aside
