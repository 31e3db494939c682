"""What the processes of a run hold: memory and open files, the two things that a leak makes grow."""

from __future__ import annotations

import contextlib

import psutil

#: Bytes of a megabyte in every ``_mb`` figure.
MB = 1e6


def process_figures(*, children: bool) -> dict[str, float]:
    """Resident memory and open files (on Windows: handles) of this process.

    Args:
        children: also sum the resident memory of the processes it started, which takes some milliseconds to find out.
    """
    own = psutil.Process()
    with own.oneshot():
        m = {"health/memory_mb": own.memory_info().rss / MB}
        handles = own.num_handles() if psutil.WINDOWS else own.num_fds()
    m["health/file_handles"] = float(handles)
    if children:
        held = 0
        for child in own.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it may end while we look
                held += child.memory_info().rss
        m["health/workers_memory_mb"] = held / MB
    return m
