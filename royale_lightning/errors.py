"""The one error type whose text is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
import errno
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path


class UserError(ValueError):
    """A mistake in a setting, a file or a command line.

    Its message is one clear sentence that names the field, the value and the remedy. The command line prints
    it without a traceback and exits with 2; from Python it is an ordinary ``ValueError``.
    """


def near_matches(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'Knight' or 'DarkKnight'?"``, or an empty string when nothing is near."""
    names = sorted(known)
    lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(word.lower(), list(lower), n=3, cutoff=0.6)
    if not found:
        return ""
    return "; did you mean " + " or ".join(repr(lower[f]) for f in found) + "?"


#: Errors of the machine's limits, which say nothing about the file that was asked for.
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
_FULL = (errno.ENOSPC, errno.EDQUOT) if hasattr(errno, "EDQUOT") else (errno.ENOSPC,)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def remedy(failure: OSError) -> str:
    """What to do about what the system refused, to follow a semicolon."""
    if failure.errno in OUT_OF_FILES:
        return f"{_open_files()}raise it with `ulimit -n 4096`, or lower data.rollout.workers"
    if failure.errno in _FULL:
        return "free some room"
    if failure.errno in _FORBIDDEN:
        return "choose a file or folder you may use"
    if failure.errno in (errno.EAGAIN, errno.ENOMEM):
        return "close other programs, raise the limit of processes (`ulimit -u`), or lower data.rollout.workers"
    if failure.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return "check the path"
    return "choose another file or folder"


def _open_files() -> str:
    try:
        import resource
    except ModuleNotFoundError:  # Windows, where the C library has a limit that nobody sets
        return ""
    return f"the limit of this process is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} open files: "


def own_frame(exc: BaseException) -> str | None:
    """``"line 12 of my_parts.py, in act"``: the innermost frame of an exception that lies in a user's own code.

    None where there is none: then Python, an installed package or this one raised by itself.
    """
    paths = sysconfig.get_paths()
    others = [Path(paths[k]).resolve() for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    others += [Path(__file__).resolve().parent, Path(sys.executable).parent]
    found = None
    tb = exc.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        file = Path(code.co_filename)
        if file.is_file() and not any(file.resolve().is_relative_to(p) for p in others):
            found = f"line {tb.tb_lineno} of {file.name}, in {code.co_name}"
        tb = tb.tb_next
    return found
