"""The memory a rank shares with its workers, taken whole at the start."""

from __future__ import annotations

import errno
import os
import shutil
from multiprocessing import shared_memory
from pathlib import Path

from ...errors import UserError
from ...metrics.process import MB

#: Where Linux keeps shared memory; other systems show none.
SHM = Path("/dev/shm")


def no_room(need: float, free: float) -> UserError:
    """What to say where shared memory holds less than is asked of it, both in bytes."""
    return UserError(
        f"the workers' block takes {need / MB:,.1f} MB and /dev/shm has {free / MB:,.1f} MB free; in a container "
        "give it more (docker run --shm-size), or set rollout.source to inline"
    )


def shared_block(nbytes: int) -> shared_memory.SharedMemory:
    """A block of this size, every page of it reserved.

    Linux hands out pages of shared memory when they are first written to, and kills with SIGBUS who writes where none
    is left: workers would die in their first rounds, one after the other.

    Raises:
        UserError: there is no room.
    """
    block = shared_memory.SharedMemory(create=True, size=nbytes)
    file = SHM / block.name.lstrip("/")
    if not file.exists() or not hasattr(os, "posix_fallocate"):
        return block
    fd = os.open(file, os.O_RDWR)
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as exc:
        # A kernel that cannot reserve says so by another number, and the block may do all the same.
        if exc.errno == errno.ENOSPC:
            block.close()
            block.unlink()
            raise no_room(nbytes, shutil.disk_usage(SHM).free) from None
    finally:
        os.close(fd)
    return block
