"""Standard output and error, used so that a screen that is gone, full or poor in letters ends nothing.

A pipe whose reader left (``| head``), a full disk behind a log, a terminal that closed and an encoding without an en
dash each raise from ``print``, and a run of hours would end for a line nobody needed. What is said by :func:`say`, and
everything printed inside :func:`guarded`, raises nothing: results belong into files, before they are shown.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

#: What an encoding without these letters shows instead, where a question mark would be misread.
_PLAIN = {"–": "-", "—": "-", "±": "+-", "…": "...", "·": "-"}
_ERRORS = "royale_lightning.plain"


def _plain(exc: UnicodeError) -> tuple[str, int]:
    assert isinstance(exc, UnicodeEncodeError)
    return "".join(_PLAIN.get(c, "?") for c in exc.object[exc.start : exc.end]), exc.end


codecs.register_error(_ERRORS, _plain)


class _Nowhere(io.TextIOBase):
    """Stands for a standard stream that the process was started without (``>&-``, ``pythonw``)."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)


class Screen:
    """A text stream over another one, whose failures are noted instead of raised.

    Args:
        stream: written to; None is a stream that does not exist.

    Attributes:
        failure: the first error of a write, by which a command knows that not everything was seen.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream: TextIO = cast("TextIO", _Nowhere()) if stream is None else stream
        self.failure: Exception | None = None

    @classmethod
    def of(cls, stream: TextIO | None) -> TextIO:
        """``stream``, never failing; itself where it is one already."""
        return cast("TextIO", stream if isinstance(stream, cls) else cls(stream))

    def write(self, text: str) -> int:
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = getattr(self._stream, "encoding", None) or "ascii"
                self._stream.write(text.encode(encoding, _ERRORS).decode(encoding))
        except (OSError, ValueError, RuntimeError) as exc:  # gone or full, closed, a signal in the middle of a write
            self.failure = self.failure or exc
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError, RuntimeError) as exc:
            self.failure = self.failure or exc

    def isatty(self) -> bool:
        try:
            return self._stream.isatty()
        except (OSError, ValueError):
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def shown(path: Path) -> Path:
    """A path as one would type it here: below the working folder without that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def say(*values: Any, file: TextIO | None = None, **settings: Any) -> None:
    """``print`` that never raises and does not wait in a buffer."""
    print(*values, file=Screen.of(sys.stdout if file is None else file), **{"flush": True, **settings})


@contextlib.contextmanager
def guarded() -> Iterator[Screen]:
    """Inside, ``sys.stdout`` and ``sys.stderr`` never fail; at the end what neither could show is let go.

    Yields:
        The stream that stands for standard output.
    """
    before = sys.stdout, sys.stderr
    inside = Screen.of(before[0]), Screen.of(before[1])
    sys.stdout, sys.stderr = inside
    try:
        yield cast("Screen", inside[0])
    finally:
        sys.stdout, sys.stderr = before
        for stream in cast("tuple[Screen, Screen]", inside):
            stream.flush()
            if isinstance(stream.failure, OSError):
                _let_go(stream)


def was_lost(screen: Screen) -> str | None:
    """Why something printed was not seen; None where it was, or where the reader of a pipe left on purpose."""
    failure = screen.failure
    if failure is None or (isinstance(failure, OSError) and failure.errno in (errno.EPIPE, errno.EINVAL)):
        return None
    return getattr(failure, "strerror", None) or str(failure)


def _let_go(stream: Screen) -> None:
    """Send what is left in the buffer nowhere: Python flushes once more at its end, and would fail with code 120."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
