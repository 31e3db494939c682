"""SIGINT and SIGTERM while training: the first asks, the second insists.

Lightning's own answer to Ctrl-C is ``sys.exit(1)`` with SIGINT left ignored, and to SIGTERM an exception in the
middle of an iteration; neither leaves a state that resumes exactly.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

from .screen import say

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopNow(BaseException):
    """The second signal. Not a ``KeyboardInterrupt``: Lightning answers that one with ``SystemExit``."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} in the middle of an iteration")
        self.signum = signum

    @property
    def exit_code(self) -> int:
        return 128 + self.signum

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback: the user knows what they pressed."""
        return [str(self)]


def in_main_thread() -> bool:
    """Whether this is the thread in which Python allows signal handlers."""
    return threading.current_thread() is threading.main_thread()


class StopSignals:
    """Handlers that count signals; they do nothing outside the main thread, where Python allows none."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def remember(self) -> None:
        """Note the handlers to restore: those from before Lightning registers its own."""
        self.received = None
        if in_main_thread():
            self._before = {signum: signal.getsignal(signum) for signum in SIGNALS}

    def install(self) -> None:
        if in_main_thread():
            for signum in SIGNALS:
                signal.signal(signum, self._handle)

    def restore(self) -> None:
        """Put the remembered handlers back; harmless when repeated."""
        if in_main_thread():
            for signum, handler in self._before.items():
                # ``None`` is a handler that C code installed, which Python cannot put back.
                if handler is not None:
                    signal.signal(signum, handler)
        self._before = {}

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signum
            # The signal may have hit in the middle of another write to the same stream, of which this would fail.
            say("\nstopping at the end of this iteration; once more stops now, in its middle", file=sys.stderr)
            return
        for each in SIGNALS:
            # A third must not interrupt the saving of what the second one stops. Lightning's teardown restores.
            signal.signal(each, signal.SIG_IGN)
        self.received = signum
        raise StopNow(signum)
