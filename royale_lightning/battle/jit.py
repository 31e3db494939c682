"""numba's ``njit`` with its results kept on disk wherever the machine allows it.

``numba.njit(cache=True)`` raises at import where it finds no folder it may write to, and at the first call where a file
it kept was torn by a crash or a full disk. Neither is a reason not to play: then the code is compiled anew.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserWideCacheLocator

from ..run.screen import say

#: Set once it was said that nothing is kept, so that no worker or rank says it again.
_SAID = "ROYALE_LIGHTNING_SAID_UNCACHED"


def _has_home() -> bool:
    try:
        Path.home()
    except RuntimeError:  # a user id without an account, as containers run under
        return False
    return True


class _Files(CompileResultCacheImpl):
    # Without a home numba would make a folder named "~" wherever the command is given.
    _locator_classes = [  # noqa: RUF012 - numba's own attribute
        c for c in CompileResultCacheImpl._locator_classes if c is not UserWideCacheLocator or _has_home()
    ]


class _Kept(FunctionCache):
    """numba's cache of one function, which costs a compilation where it fails, and never the run."""

    _impl_class = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a torn pickle raises anything
            # Saving reads the index too, and would fail on it again.
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as exc:  # a full disk, or an index that could not be emptied
            self.disable()
            _say(f"{self.cache_path} cannot be written to ({exc})")


def _say(why: str) -> None:
    if os.environ.get(_SAID) is None:
        os.environ[_SAID] = "1"
        say(
            f"every process compiles the battle code anew, which takes about half a minute: {why}; set NUMBA_CACHE_DIR "
            "to a folder you may write to",
            file=sys.stderr, flush=True,
        )


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """As ``numba.njit(cache=True)``, but for machines that keep nothing.

    Args:
        options: numba's, ``cache`` left out.
    """
    if function is None:
        return functools.partial(njit, **options)
    compiled = numba.njit(**options)(function)
    try:
        compiled._cache = _Kept(function)
    except RuntimeError:  # numba's "no locator available"
        _say("no folder to keep it in can be written to")
    return compiled
