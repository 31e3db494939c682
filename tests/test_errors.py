"""What is said of a failure of the system names the limit that was met, not always the disk."""

from __future__ import annotations

import errno
import os

import pytest

from royale_lightning.cli.console import _sentence
from royale_lightning.errors import remedy


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "free some room"),
        (errno.EACCES, "choose a file or folder you may use"),
        (errno.EROFS, "choose a file or folder you may use"),
        (errno.ENOENT, "check the path"),
        (errno.EAGAIN, "close other programs, raise the limit of processes (`ulimit -u`), or lower "
         "data.rollout.workers"),
        (errno.EIO, "choose another file or folder"),
    ],
)
def test_a_remedy_is_of_its_failure(number: int, told: str) -> None:
    failure = OSError(number, os.strerror(number), "some/file")
    assert remedy(failure) == told
    assert _sentence(failure) == f"cannot use 'some/file': {os.strerror(number)}; {told}"


@pytest.mark.parametrize("name", ["metrics.jsonl", None])
def test_few_open_files_are_a_limit_with_a_number(name: str | None) -> None:
    resource = pytest.importorskip("resource")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    said = _sentence(OSError(errno.EMFILE, "Too many open files", *([name] if name else [])))
    assert said is not None
    assert said.startswith(f"cannot use {name!r}: Too many" if name else "Too many")
    assert f"the limit of this process is {limit} open files: raise it with `ulimit -n 4096`" in said
    assert "room" not in said


def test_an_error_without_a_file_keeps_its_traceback() -> None:
    assert _sentence(OSError(errno.EIO, "Input/output error")) is None
