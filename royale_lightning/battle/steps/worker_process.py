"""One worker process as the trainer sees it: started, asked, timed, and lost in one of three ways."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import UserError
from .worker import Command, Done, Failed, Reply, Start, receive, send

#: The ways to lose a worker: its process ended, it kept an answer back too long, its battles raised.
KILLED, HUNG, RAISED = "killed", "hung", "raised"
#: Seconds a worker may take to exit by itself once its standard input is closed.
_GRACE = 5.0
#: A start imports and compiles; on a cold machine that takes a minute, where a round takes milliseconds.
_START_FACTOR = 5.0
#: Seconds between two looks at who keeps the trainer waiting, and the most that one of them counts for: a longer one
#: means that this process was stopped itself, and its workers with it (Ctrl-Z, a closed laptop, a frozen container).
_LOOK, _LONGEST_LOOK = 0.1, 0.5


class WorkerLost(Exception):
    """A worker will not answer any more.

    Args:
        kind: ``killed``, ``hung`` or ``raised``.
        text: what happened, to continue "worker 3 (process 1234) ...".
        details: the worker's traceback, if it sent one.
    """

    def __init__(self, kind: str, text: str, details: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.details = details


class Watchdog:
    """Kills the process that keeps the trainer waiting beyond its deadline.

    A blocked read of a pipe cannot be timed portably; killing the writer ends it with an end of file. One thread
    serves a whole source, since the trainer waits for one worker at a time.
    """

    def __init__(self) -> None:
        self._waiting: tuple[subprocess.Popen[bytes], float] | None = None
        self._killed: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="worker-watchdog", daemon=True).start()

    def _watch(self) -> None:
        waiting, spent, last = None, 0.0, time.monotonic()
        while not self._closed.wait(_LOOK):
            now = time.monotonic()
            step, last = min(now - last, _LONGEST_LOOK), now
            if waiting is not self._waiting:
                waiting, spent = self._waiting, 0.0
            elif waiting is not None:
                spent += step
                if spent > waiting[1]:
                    self._killed = waiting[0]
                    waiting[0].kill()
                    self._waiting = waiting = None

    @contextmanager
    def over(self, process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
        """While the block runs, the process has this long to let it end; time in which this one was stopped does not
        count."""
        self._waiting = (process, seconds)
        try:
            yield
        finally:
            self._waiting = None

    def killed(self, process: subprocess.Popen[bytes]) -> bool:
        return self._killed is process

    def close(self) -> None:
        self._closed.set()


class Worker:
    """One process and its contiguous range of battles.

    Args:
        number: for messages.
        start: its first frame; a restart sends the same.
        timeout: seconds an answer may take.
        watchdog: shared by the source's workers.
    """

    def __init__(self, number: int, start: Start, timeout: float, watchdog: Watchdog) -> None:
        self.number = number
        self.battles = range(start.at, start.at + start.battles)
        self.refused = 0
        self.loss = Done().loss
        #: Whether it has answered its start, so that it may be asked.
        self.ready = False
        self._start = start
        self._timeout = timeout
        self._watchdog = watchdog
        self.launch()

    @property
    def name(self) -> str:
        return f"worker {self.number} (process {self.process.pid})"

    def launch(self) -> None:
        """Start a process; :meth:`reply` then waits until it is ready."""
        self.ready = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "royale_lightning.battle.steps.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        self.send(self._start)

    def send(self, message: Command) -> None:
        assert self.process.stdin is not None
        # The reply says why a pipe is broken.
        with contextlib.suppress(BrokenPipeError, OSError), self._watchdog.over(self.process, self._timeout):
            send(self.process.stdin, message)

    def reply(self) -> Done:
        """The answer to the last message.

        Raises:
            WorkerLost: there will be none.
            UserError: a setting is wrong, which no restart would mend.
        """
        assert self.process.stdout is not None
        seconds = self._timeout if self.ready else _START_FACTOR * self._timeout
        with self._watchdog.over(self.process, seconds):
            answer = receive(self.process.stdout, Reply)
        if isinstance(answer, Done):
            self.ready = True
            self.refused, self.loss = answer.refused, answer.loss
            return answer
        if isinstance(answer, Failed):
            if answer.user:
                raise UserError(answer.text)
            last = answer.text.strip().splitlines()[-1]
            raise WorkerLost(RAISED, f"raised {last}", answer.text)
        if self._watchdog.killed(self.process):
            raise WorkerLost(HUNG, f"did not answer for {seconds:g} s")
        raise WorkerLost(KILLED, _how_it_ended(self.process.wait()))

    def kill(self) -> None:
        """End the process at once, whatever it is doing; it writes nothing into the block afterwards."""
        self.ready = False
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def close_input(self) -> None:
        """Ask the process to exit; :meth:`finish` waits for it."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def finish(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE)
        self.kill()


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
